package api

import (
	"slices"
	"strings"
	"time"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
)

// connections returns the open connections that the user may see, by name: all with
// the tag monitoring, otherwise the user's own (BR-15.3).
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

// showConnection is the object of BR-15.15.
func (r *request) showConnection(c *broker.Connection) map[string]any {
	st := c.Client().Status()
	state := "running"
	if st.Blocked {
		state = "blocked"
	}
	object := map[string]any{
		"name": st.Name, "user": st.User, "user_who_performed_action": st.User, "vhost": string(st.VHost),
		"host": st.Host, "port": st.Port, "peer_host": st.PeerHost, "peer_port": st.PeerPort,
		"protocol": st.Protocol, "state": state, "channels": st.Channels, "channel_max": st.ChannelMax, "frame_max": st.FrameMax,
		"timeout": int(st.Heartbeat / time.Second), "auth_mechanism": st.Mechanism,
		"client_properties": topology.ArgumentsJSON(st.Properties), "connected_at": st.Since.UnixMilli(),
		"recv_cnt": st.ReceivedFrames, "send_cnt": st.Writes, "send_pend": 0, "type": "network", "node": r.s.b.NodeName,
	}
	if v, ok := st.Properties.Get("connection_name"); ok {
		object["user_provided_name"] = v
	}
	if st.Container != "" {
		object["container_id"] = st.Container
	}
	putTLS(object, st.TLS)
	if r.without() {
		for _, key := range []string{"channels", "recv_cnt", "send_cnt", "send_pend", "state"} {
			delete(object, key)
		}
		return object
	}
	r.s.history.put(object, "connection\x00"+c.Name, r.span(dataSpan), map[string]float64{
		"recv_oct": float64(st.ReceivedBytes), "send_oct": float64(st.SentBytes), "reductions": 0,
	})
	object["garbage_collection"] = noGarbageCollection()
	return object
}

// putTLS adds the client's TLS; unknown values are null.
func putTLS(object map[string]any, t *broker.TLS) {
	object["ssl"] = t != nil
	for _, key := range []string{
		"ssl_protocol", "ssl_key_exchange", "ssl_cipher", "ssl_hash",
		"peer_cert_subject", "peer_cert_issuer", "peer_cert_validity", "peer_cert_serial_number",
	} {
		object[key] = nil
	}
	if t == nil {
		return
	}
	object["ssl_protocol"], object["ssl_cipher"] = t.Protocol, t.Cipher
	if t.Subject != "" {
		object["peer_cert_subject"], object["peer_cert_issuer"], object["peer_cert_validity"] = t.Subject, t.Issuer, t.Validity
	}
}

// noGarbageCollection replaces RabbitMQ's figures of an Erlang process.
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
	if s.b.Strict && r.params["user"] != r.user && !r.may(monitoring) {
		return nil, notAuthorised(accessTexts[policies])
	}
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
	for _, c := range r.s.b.Connections() {
		if r.s.b.Strict && c.Client() != nil && c.Name == r.params["connection"] {
			return nil, notAuthorised(accessTexts[policies]) // another user's
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
	c, err := r.findConnection()
	if err != nil {
		return nil, err
	}
	client, ok := c.Client().(broker.SessionClient)
	if !ok {
		return nil, badRequest("connection does not use AMQP 1.0")
	}
	list := []map[string]any{}
	for _, st := range client.SessionStatuses() {
		list = append(list, showSession(&st))
	}
	return objects(list), nil
}

// showSession is a session of AMQP 1.0 with its links.
func showSession(st *broker.SessionStatus) map[string]any {
	incoming, outgoing := []map[string]any{}, []map[string]any{}
	for _, l := range st.Incoming {
		incoming = append(incoming, map[string]any{
			"handle": l.Handle, "link_name": l.Name, "snd_settle_mode": l.SettleMode, "target_address": orNull(l.Target), "max_message_size": l.MaxMessageSize,
			"delivery_count": l.DeliveryCount, "credit": l.Credit, "unconfirmed_messages": l.Unconfirmed,
		})
	}
	for _, l := range st.Outgoing {
		largest := any("unlimited")
		if l.MaxMessageSize > 0 {
			largest = l.MaxMessageSize
		}
		outgoing = append(outgoing, map[string]any{
			"handle": l.Handle, "link_name": l.Name, "source_address": l.Source, "queue_name": l.Queue, "send_settled": l.Settled, "max_message_size": largest,
			"filter": []any{}, "delivery_count": l.DeliveryCount, "credit": l.Credit, "consumer_timeout": l.TimedOut,
		})
	}
	return map[string]any{
		"channel_number": st.Number, "handle_max": st.HandleMax, "next_incoming_id": st.NextIncomingID, "incoming_window": st.IncomingWindow,
		"next_outgoing_id": st.NextOutgoingID, "remote_incoming_window": st.RemoteWindow, "remote_outgoing_window": st.RemoteOutgoing,
		"outgoing_unsettled_deliveries": st.Unsettled, "incoming_links": incoming, "outgoing_links": outgoing,
	}
}

// orNull is a text, nil for none.
func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
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
	if s.b.Strict && r.params["user"] != r.user && !r.may(administers) {
		return nil, notAuthorised(accessTexts[policies])
	}
	for _, c := range r.connectionsOfUser() {
		c.Terminate(connectionForced, r.closeReason())
	}
	return nil, nil
}

// inVHost keeps the connections of a virtual host.
func inVHost(connections []*broker.Connection, v message.VHost) []*broker.Connection {
	return slices.DeleteFunc(connections, func(c *broker.Connection) bool { return c.VHost != v })
}
