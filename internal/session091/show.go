package session091

import (
	"fmt"
	"time"

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
	return map[string]any{
		"name": c.peer.Name, "user": c.login.User, "user_who_performed_action": c.login.User, "vhost": string(c.link.VHost),
		"host": c.peer.Host, "port": c.peer.Port, "peer_host": c.peer.PeerHost, "peer_port": c.peer.PeerPort,
		"protocol": c.peer.Protocol, "state": state, "channels": channels, "channel_max": c.channelMax, "frame_max": c.frameMax,
		"timeout": int(c.heartbeat / time.Second), "auth_mechanism": c.login.Mechanism,
		"client_properties": topology.ArgumentsJSON(c.clientProps), "connected_at": c.since.UnixMilli(),
		"recv_oct": c.stats.recvBytes.Load(), "recv_cnt": c.stats.recvFrames.Load(), "send_oct": c.stats.sentBytes.Load(),
		"send_cnt": c.stats.sentBytes.Load() / 1024, "send_pend": 0, "ssl": false, "type": "network", "node": c.broker.NodeName,
	}
}

// ShowChannels implements broker.Client.
func (c *conn) ShowChannels() []map[string]any {
	c.chMu.Lock()
	list := c.sortedChannels()
	c.chMu.Unlock()
	var shown []map[string]any
	for _, ch := range list {
		ch.mu.Lock()
		shown = append(shown, map[string]any{
			"name": fmt.Sprintf("%s (%d)", c.peer.Name, ch.number), "number": ch.number, "user": c.login.User, "vhost": string(c.link.VHost),
			"state": "running", "consumer_count": len(ch.consumers), "messages_unacknowledged": ch.unacked.n,
			"prefetch_count": ch.shown.prefetch.Load(), "confirm": ch.shown.confirm.Load(), "transactional": ch.shown.tx.Load(),
			"global_prefetch_count": 0, "messages_unconfirmed": 0, "messages_uncommitted": 0, "acks_uncommitted": 0,
			"node":               c.broker.NodeName,
			"connection_details": map[string]any{"name": c.peer.Name, "peer_host": c.peer.PeerHost, "peer_port": c.peer.PeerPort},
		})
		ch.mu.Unlock()
	}
	return shown
}

// Info implements broker.Informant.
func (k *consumer) Info() broker.ConsumerInfo {
	c := k.ch.c
	return broker.ConsumerInfo{
		Connection: c.peer.Name, Channel: fmt.Sprintf("%s (%d)", c.peer.Name, k.ch.number), Number: k.ch.number,
		User: c.login.User, PeerHost: c.peer.PeerHost, PeerPort: c.peer.PeerPort, Arguments: topology.ArgumentsJSON(k.args),
	}
}
