package session10

import (
	"fmt"

	"bartleby.mq/internal/run/broker"
)

// Status implements broker.Client (BR-15.15).
func (c *conn) Status() broker.ConnectionStatus {
	c.chMu.Lock()
	sessions := len(c.sessions)
	c.chMu.Unlock()
	return broker.ConnectionStatus{
		Peer: c.peer, User: c.login.User, Mechanism: c.login.Mechanism, VHost: c.vhost, Since: c.since,
		Channels: sessions, ChannelMax: int(c.channelMax), FrameMax: int(c.clientMax), Heartbeat: max(0, c.IdleTimeout),
		Properties: c.clientProps, TLS: c.TLS,
		ReceivedBytes: c.stats.recvBytes.Load(), ReceivedFrames: c.stats.recvFrames.Load(), SentBytes: c.stats.sentBytes.Load(), Writes: c.stats.writes.Load(),
	}
}

// ChannelStatuses implements broker.Client. A connection of AMQP 1.0 has sessions and no channels.
func (c *conn) ChannelStatuses() []broker.ChannelStatus { return nil }

// Info implements broker.Informant.
func (k *consumer) Info() broker.ConsumerInfo {
	c := k.s.c
	return broker.ConsumerInfo{
		Connection: c.peer.Name, Channel: fmt.Sprintf("%s (%d)", c.peer.Name, k.s.number), Number: k.s.number,
		User: c.login.User, PeerHost: c.peer.PeerHost, PeerPort: c.peer.PeerPort,
	}
}
