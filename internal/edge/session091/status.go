package session091

import (
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// Status implements broker.Client (BR-15.15).
func (c *conn) Status() broker.ConnectionStatus {
	c.chMu.Lock()
	channels := len(c.channels)
	c.chMu.Unlock()
	return broker.ConnectionStatus{
		Peer: c.peer, User: c.login.User, Mechanism: c.login.Mechanism, VHost: c.vhost, Since: c.since,
		Blocked: c.blocked.Load(), Channels: channels, ChannelMax: c.channelMax, FrameMax: c.frameMax, Heartbeat: c.heartbeat,
		Properties: c.clientProps, TLS: c.TLS,
		ReceivedBytes: c.sock.Traffic.ReceivedBytes.Load(), ReceivedFrames: c.sock.Traffic.ReceivedFrames.Load(), SentBytes: c.sock.Traffic.SentBytes.Load(), Writes: c.sock.Traffic.Writes.Load(),
	}
}

// ChannelStatuses implements broker.Client.
func (c *conn) ChannelStatuses() []broker.ChannelStatus {
	c.chMu.Lock()
	list := c.sortedChannels()
	c.chMu.Unlock()
	statuses := make([]broker.ChannelStatus, len(list))
	for i, ch := range list {
		statuses[i] = ch.status()
	}
	return statuses
}

// status describes the channel (BR-15.15). The reader owns the channel's mode; it is read only
// after the reader has published it.
func (ch *channel) status() broker.ChannelStatus {
	c := ch.c
	st := broker.ChannelStatus{
		Peer: c.peer, Name: ch.name(), Number: ch.number, User: c.login.User, VHost: c.vhost,
		Prefetch: ch.shown.prefetch.Load(), Confirm: ch.shown.confirm.Load(), Transactional: ch.shown.tx.Load(),
	}
	if st.Confirm {
		st.Unconfirmed = ch.confirms.waiting()
	}
	if st.Transactional {
		st.Uncommitted, st.UncommittedAcks = ch.tx.messages.Load(), ch.tx.acks.Load()
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	st.Consumers, st.Unacked = len(ch.consumers), ch.unacked.n-ch.unacked.pending
	st.Stats, st.ByExchange, st.ByQueue = ch.counted()
	return st
}

// name is the channel's name in the management API.
func (ch *channel) name() string { return broker.ChannelName(ch.c.peer.Name, ch.number) }

// Info implements broker.Informant.
func (k *consumer) Info() broker.ConsumerInfo {
	c := k.ch.c
	var args amqp091.Table
	if len(k.args) > 0 {
		args, _ = amqp091.DecodeTable(k.args[4:]) // after the length; it was encoded here
	}
	return broker.ConsumerInfo{
		Connection: c.peer.Name, Channel: k.ch.name(), Number: k.ch.number,
		User: c.login.User, PeerHost: c.peer.PeerHost, PeerPort: c.peer.PeerPort, Arguments: args,
	}
}
