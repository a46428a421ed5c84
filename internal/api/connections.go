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

func (r *request) connectionList(connections []*broker.Connection) list {
	return listOf(connections, func(c *broker.Connection) string { return c.Name }, r.showConnection)
}

// octets are the values of a connection that have rates.
var octets = []string{"recv_oct", "send_oct"}

func (r *request) showConnection(c *broker.Connection) map[string]any {
	object := c.Client().Show()
	values := map[string]float64{"reductions": 0}
	for _, name := range octets {
		values[name], _ = numberOf(object[name])
	}
	r.s.history.put(object, "connection\x00"+c.Name, r.span(dataSpan), values)
	object["garbage_collection"] = noGarbageCollection()
	return object
}

// noGarbageCollection stands where RabbitMQ shows that of an Erlang process.
func noGarbageCollection() map[string]any {
	return map[string]any{"fullsweep_after": 0, "max_heap_size": 0, "min_bin_vheap_size": 0, "min_heap_size": 0, "minor_gcs": 0}
}

func (s *server) listConnections(r *request) (any, error) {
	return r.connectionList(r.connections()), nil
}

func (s *server) listVHostConnections(r *request) (any, error) {
	return r.connectionList(inVHost(r.connections(), r.vhost())), nil
}

// listUserConnections is the short form, from RabbitMQ's tracking of connections.
func (s *server) listUserConnections(r *request) (any, error) {
	return listOf(r.connectionsOfUser(), func(c *broker.Connection) string { return c.Name }, func(c *broker.Connection) map[string]any {
		return map[string]any{"name": c.Name, "node": s.NodeName, "user": c.User, "vhost": string(c.VHost)}
	}), nil
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
	object := r.showConnection(c)
	for key, v := range object {
		if v == nil {
			object[key] = "" // as RabbitMQ, which has null in lists
		}
	}
	return object, nil
}

// listConnectionSessions: AMQP 1.0 connections have sessions, others have channels.
func (s *server) listConnectionSessions(r *request) (any, error) {
	if _, err := r.findConnection(); err != nil {
		return nil, err
	}
	return nil, badRequest("connection does not use AMQP 1.0")
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

// inVHost keeps the connections of a virtual host.
func inVHost(connections []*broker.Connection, v message.VHost) []*broker.Connection {
	return slices.DeleteFunc(connections, func(c *broker.Connection) bool { return c.VHost != v })
}
