package api

import (
	"strings"
	"time"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/run/broker"
)

func (r *request) channelList(connections []*broker.Connection) list {
	items := []map[string]any{}
	for _, c := range connections {
		statuses := c.Client().ChannelStatuses()
		for i := range statuses {
			items = append(items, r.showChannel(&statuses[i]))
		}
	}
	return objects(items)
}

// showChannel is the object of BR-15.15.
func (r *request) showChannel(st *broker.ChannelStatus) map[string]any {
	object := map[string]any{
		"name": st.Name, "number": st.Number, "user": st.User, "user_who_performed_action": st.User, "vhost": string(st.VHost),
		"state": "running", "consumer_count": st.Consumers, "messages_unacknowledged": st.Unacked,
		"prefetch_count": st.Prefetch, "confirm": st.Confirm, "transactional": st.Transactional,
		"messages_unconfirmed": st.Unconfirmed, "messages_uncommitted": st.Uncommitted, "acks_uncommitted": st.UncommittedAcks,
		"pending_raft_commands": 0, "cached_segments": 0, "node": r.s.b.NodeName,
		"connection_details": map[string]any{"name": st.Peer.Name, "peer_host": st.PeerHost, "peer_port": st.PeerPort},
		"reductions":         0, "reductions_details": map[string]any{"rate": decimal(0)},
		"garbage_collection": noGarbageCollection(),
	}
	if r.without() {
		return r.brief("channel", object)
	}
	if sp := r.span(dataSpan); r.s.b.Strict && sp.step > 0 {
		r.s.history.put(object, "channel\x00"+st.Name+"\x00reductions", sp, map[string]float64{"reductions": 0})
	}
	r.s.putStats(object, "channel\x00"+st.Name, r.spans(), false,
		publishes(st.Stats.Published, st.Stats.Confirmed, st.Stats.Returned, st.Stats.Dropped), channelDeliveries(&st.Stats))
	putIdle(object, st.Stats.Active)
	return object
}

// idleAfter is the time without activity after which an object is idle.
const idleAfter = time.Second

// putIdle says since when an object is idle; a busy object does not get the key. active is the
// time of its last activity, in milliseconds since 1970.
func putIdle(object map[string]any, active int64) {
	if at := time.UnixMilli(active); time.Since(at) >= idleAfter {
		object["idle_since"] = at.UTC().Format("2006-01-02T15:04:05.000-07:00")
	}
}

func (s *server) listConnectionChannels(r *request) (any, error) {
	c, err := r.findConnection()
	if err == error(notFound) && r.s.b.Strict {
		return nil, crashed
	}
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
		for _, st := range c.Client().ChannelStatuses() {
			if st.Name == name {
				object := r.showChannel(&st)
				if r.without() {
					return object, nil
				}
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
