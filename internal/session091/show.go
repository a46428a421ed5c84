package session091

import (
	"fmt"
	"time"

	"bartleby.mq/internal/amqp091"
	"bartleby.mq/internal/broker"
	"bartleby.mq/internal/topology"
)

// Show implements broker.Client: the connection as the management API has it (BR-15.15).
func (c *conn) Show() map[string]any {
	c.chMu.Lock()
	channels := len(c.channels)
	c.chMu.Unlock()
	state := "running"
	if c.blocked.Load() {
		state = "blocked"
	}
	shown := map[string]any{
		"name": c.peer.Name, "user": c.login.User, "user_who_performed_action": c.login.User, "vhost": string(c.vhost),
		"host": c.peer.Host, "port": c.peer.Port, "peer_host": c.peer.PeerHost, "peer_port": c.peer.PeerPort,
		"protocol": c.peer.Protocol, "state": state, "channels": channels, "channel_max": c.channelMax, "frame_max": c.frameMax,
		"timeout": int(c.heartbeat / time.Second), "auth_mechanism": c.login.Mechanism,
		"client_properties": topology.ArgumentsJSON(c.clientProps), "connected_at": c.since.UnixMilli(),
		"recv_oct": c.stats.recvBytes.Load(), "recv_cnt": c.stats.recvFrames.Load(), "send_oct": c.stats.sentBytes.Load(),
		"send_cnt": c.stats.writes.Load(), "send_pend": 0, "ssl": c.TLS != nil, "type": "network", "node": c.broker.NodeName,
	}
	for _, key := range []string{
		"ssl_protocol", "ssl_key_exchange", "ssl_cipher", "ssl_hash",
		"peer_cert_subject", "peer_cert_issuer", "peer_cert_validity", "peer_cert_serial_number",
	} {
		shown[key] = nil
	}
	if v, ok := c.clientProps.Get("connection_name"); ok {
		shown["user_provided_name"] = v
	}
	if t := c.TLS; t != nil {
		shown["ssl_protocol"], shown["ssl_cipher"] = t.Protocol, t.Cipher
		if t.Subject != "" {
			shown["peer_cert_subject"], shown["peer_cert_issuer"], shown["peer_cert_validity"] = t.Subject, t.Issuer, t.Validity
		}
	}
	return shown
}

// ShowChannels implements broker.Client.
func (c *conn) ShowChannels() []broker.ShownChannel {
	c.chMu.Lock()
	list := c.sortedChannels()
	c.chMu.Unlock()
	shown := make([]broker.ShownChannel, 0, len(list))
	for _, ch := range list {
		shown = append(shown, ch.show())
	}
	return shown
}

// show is the channel as the management API has it (BR-15.15). Its mode is the reader's:
// what it has set is read only once it has said so.
func (ch *channel) show() broker.ShownChannel {
	c := ch.c
	unconfirmed, messages, acks := 0, int64(0), int64(0)
	if ch.shown.confirm.Load() {
		unconfirmed = ch.confirms.waiting()
	}
	if ch.shown.tx.Load() {
		messages, acks = ch.tx.messages.Load(), ch.tx.acks.Load()
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return broker.ShownChannel{Stats: ch.showStats(), Object: map[string]any{
		"name": fmt.Sprintf("%s (%d)", c.peer.Name, ch.number), "number": ch.number, "user": c.login.User, "vhost": string(c.vhost),
		"state": "running", "consumer_count": len(ch.consumers), "messages_unacknowledged": ch.unacked.n - ch.unacked.pending,
		"prefetch_count": ch.shown.prefetch.Load(), "confirm": ch.shown.confirm.Load(), "transactional": ch.shown.tx.Load(),
		"messages_unconfirmed": unconfirmed, "messages_uncommitted": messages, "acks_uncommitted": acks, "pending_raft_commands": 0, "cached_segments": 0,
		"user_who_performed_action": c.login.User, "node": c.broker.NodeName,
		"connection_details": map[string]any{"name": c.peer.Name, "peer_host": c.peer.PeerHost, "peer_port": c.peer.PeerPort},
	}}
}

// Info implements broker.Informant.
func (k *consumer) Info() broker.ConsumerInfo {
	c := k.ch.c
	var args amqp091.Table
	if len(k.args) > 0 {
		args, _ = amqp091.DecodeTable(k.args[4:]) // behind its length; it was encoded here
	}
	return broker.ConsumerInfo{
		Connection: c.peer.Name, Channel: fmt.Sprintf("%s (%d)", c.peer.Name, k.ch.number), Number: k.ch.number,
		User: c.login.User, PeerHost: c.peer.PeerHost, PeerPort: c.peer.PeerPort, Arguments: topology.ArgumentsJSON(args),
	}
}
