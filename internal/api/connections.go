package api

import (
	"slices"
	"strings"

	"bartleby.mq/internal/broker"
	"bartleby.mq/internal/message"
)

// connections are those open now that the user may see, by name: all of them with
// the tag monitoring, else the user's own (BR-15.3).
func (r *request) connections() []*broker.Connection {
	list := slices.DeleteFunc(r.s.b.Connections(), func(c *broker.Connection) bool {
		return c.Client() == nil || !r.may(monitoring) && c.User != r.user
	})
	slices.SortFunc(list, func(a, b *broker.Connection) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func connectionList(connections []*broker.Connection) list {
	return listOf(connections, func(c *broker.Connection) string { return c.Name }, showConnection)
}

func showConnection(c *broker.Connection) map[string]any { return c.Client().Show() }

func (s *server) listConnections(r *request) (any, error) {
	return connectionList(r.connections()), nil
}

func (s *server) listVHostConnections(r *request) (any, error) {
	return connectionList(slices.DeleteFunc(r.connections(), func(c *broker.Connection) bool { return c.VHost != r.vhost() })), nil
}

func (s *server) listUserConnections(r *request) (any, error) {
	return connectionList(r.connectionsOfUser()), nil
}

func (r *request) connectionsOfUser() []*broker.Connection {
	return slices.DeleteFunc(r.connections(), func(c *broker.Connection) bool { return c.User != r.params["user"] })
}

func (r *request) findConnection() (*broker.Connection, error) {
	for _, c := range r.connections() {
		if c.Name == r.params["connection"] {
			return c, nil
		}
	}
	return nil, notFound
}

func (s *server) getConnection(r *request) (any, error) {
	c, err := r.findConnection()
	if err != nil {
		return nil, err
	}
	return showConnection(c), nil
}

// connectionForced is the code with which an operator closes a connection (BR-4.10).
const connectionForced = 320

func (r *request) closeReason() string {
	if reason := r.Header.Get("X-Reason"); reason != "" {
		return reason
	}
	return "Closed via management plugin"
}

func (s *server) deleteConnection(r *request) (any, error) {
	c, err := r.findConnection()
	if err != nil {
		return nil, err
	}
	c.Terminate(connectionForced, r.closeReason())
	return nil, nil
}

func (s *server) deleteUserConnections(r *request) (any, error) {
	for _, c := range r.connectionsOfUser() {
		c.Terminate(connectionForced, r.closeReason())
	}
	return nil, nil
}

func channelList(connections []*broker.Connection) list {
	items := []map[string]any{}
	for _, c := range connections {
		items = append(items, c.Client().ShowChannels()...)
	}
	return objects(items)
}

func (s *server) listConnectionChannels(r *request) (any, error) {
	c, err := r.findConnection()
	if err != nil {
		return nil, err
	}
	return channelList([]*broker.Connection{c}), nil
}

func (s *server) listChannels(r *request) (any, error) { return channelList(r.connections()), nil }

func (s *server) listVHostChannels(r *request) (any, error) {
	return channelList(slices.DeleteFunc(r.connections(), func(c *broker.Connection) bool { return c.VHost != r.vhost() })), nil
}

func (s *server) getChannel(r *request) (any, error) {
	name := r.params["channel"]
	for _, c := range r.connections() {
		if !strings.HasPrefix(name, c.Name+" (") {
			continue
		}
		for _, ch := range c.Client().ShowChannels() {
			if ch["name"] == name {
				ch["consumer_details"] = s.consumersOfChannel(c.VHost, name)
				return ch, nil
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
