package api

import (
	"strings"
	"time"

	"bartleby.mq/internal/broker"
	"bartleby.mq/internal/message"
)

func (r *request) channelList(connections []*broker.Connection) list {
	items := []map[string]any{}
	for _, c := range connections {
		for _, ch := range c.Client().ShowChannels() {
			items = append(items, r.showChannel(ch))
		}
	}
	return objects(items)
}

func (r *request) showChannel(ch broker.ShownChannel) map[string]any {
	object, st := ch.Object, &ch.Stats
	name, _ := object["name"].(string)
	r.s.putStats(object, "channel\x00"+name, r.spans(), false,
		publishes(st.Published, st.Confirmed, st.Returned, st.Dropped), channelDeliveries(st))
	object["reductions"], object["reductions_details"] = 0, map[string]any{"rate": 0.0}
	object["garbage_collection"] = noGarbageCollection()
	putIdle(object, st.Active)
	return object
}

// idleAfter is how long nothing must have happened for an object to be idle.
const idleAfter = time.Second

// putIdle says since when an object is idle; what is busy has no such key. active
// is when it last was not, in milliseconds since 1970.
func putIdle(object map[string]any, active int64) {
	if at := time.UnixMilli(active); time.Since(at) >= idleAfter {
		object["idle_since"] = at.UTC().Format("2006-01-02T15:04:05.000-07:00")
	}
}

func (s *server) listConnectionChannels(r *request) (any, error) {
	c, err := r.findConnection()
	if err != nil {
		return nil, err
	}
	return r.channelList([]*broker.Connection{c}), nil
}

func (s *server) listChannels(r *request) (any, error) { return r.channelList(r.connections()), nil }

func (s *server) listVHostChannels(r *request) (any, error) {
	return r.channelList(inVHost(r.connections(), r.vhost())), nil
}

func (s *server) getChannel(r *request) (any, error) {
	name := r.params["channel"]
	for _, c := range r.connections() {
		if !strings.HasPrefix(name, c.Name+" (") {
			continue
		}
		for _, ch := range c.Client().ShowChannels() {
			if ch.Object["name"] == name {
				object := r.showChannel(ch)
				object["consumer_details"] = s.consumersOfChannel(c.VHost, name)
				object["publishes"], object["deliveries"] = []any{}, []any{}
				return object, nil
			}
		}
	}
	return nil, notFound
}

func (s *server) consumersOfChannel(v message.VHost, channel string) []map[string]any {
	found := []map[string]any{}
	s.eachConsumer(func(name message.VHost) bool { return name == v }, func(q broker.QueueInfo, c broker.AttachedConsumer) {
		if c.Channel == channel {
			found = append(found, s.showConsumer(q, c))
		}
	})
	return found
}
