package session10

import (
	"cmp"
	"slices"

	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp10"
)

// Status implements broker.Client (BR-15.15).
func (c *conn) Status() broker.ConnectionStatus {
	c.chMu.Lock()
	sessions := len(c.sessions)
	c.chMu.Unlock()
	return broker.ConnectionStatus{
		Peer: c.peer, User: c.login.User, Mechanism: c.login.Mechanism, VHost: c.vhost, Since: c.since,
		Container: c.container, Channels: sessions, ChannelMax: int(c.channelMax), FrameMax: int(c.clientMax), Heartbeat: max(0, c.IdleTimeout),
		Properties: c.clientProps, TLS: c.TLS,
		ReceivedBytes: c.sock.Traffic.ReceivedBytes.Load(), ReceivedFrames: c.sock.Traffic.ReceivedFrames.Load(), SentBytes: c.sock.Traffic.SentBytes.Load(), Writes: c.sock.Traffic.Writes.Load(),
	}
}

// ChannelStatuses implements broker.Client. A connection of AMQP 1.0 has sessions and no channels.
func (c *conn) ChannelStatuses() []broker.ChannelStatus { return nil }

// Info implements broker.Informant. A session has no name.
func (k *consumer) Info() broker.ConsumerInfo {
	c := k.s.c
	return broker.ConsumerInfo{
		Connection: c.peer.Name, Number: k.s.number,
		User: c.login.User, PeerHost: c.peer.PeerHost, PeerPort: c.peer.PeerPort, Arguments: k.arguments,
	}
}

var _ broker.SessionClient = (*conn)(nil)

// SessionStatuses implements broker.SessionClient.
func (c *conn) SessionStatuses() []broker.SessionStatus {
	c.chMu.Lock()
	defer c.chMu.Unlock()
	list := make([]broker.SessionStatus, 0, len(c.sessions))
	for _, s := range c.sortedSessions() {
		list = append(list, s.status())
	}
	return list
}

// Links implements broker.SessionClient.
func (c *conn) Links() (n broker.LinkCounts) {
	c.chMu.Lock()
	defer c.chMu.Unlock()
	for _, s := range c.sessions {
		n.Publishers += len(s.publishers)
		s.mu.Lock()
		n.Consumers += len(s.consumers)
		for _, k := range s.consumers {
			if k.q == nil {
				n.Replies++
			}
		}
		s.mu.Unlock()
	}
	return n
}

// status describes the session. REQUIRES: conn.chMu is held.
func (s *session) status() broker.SessionStatus {
	st := broker.SessionStatus{Number: s.number, HandleMax: s.handleMax}
	for _, p := range s.publishers {
		w := &p.confirms
		w.mu.Lock()
		st.Incoming = append(st.Incoming, broker.IncomingLink{
			Handle: p.handle, Name: p.name, SettleMode: p.mode.String(), Target: p.address, MaxMessageSize: s.c.link.MaxMessageSize(),
			DeliveryCount: w.count, Credit: w.credit, Unconfirmed: len(w.list) - w.start,
		})
		w.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st.NextIncomingID, st.IncomingWindow, st.NextOutgoingID = s.nextIncoming, max(0, s.window), s.nextOutgoing
	st.RemoteOutgoing = s.theirWindow
	st.RemoteWindow, st.Unsettled = uint32(max(0, int32(s.limit-s.nextOutgoing))), s.unsettled.n
	for _, m := range s.managers {
		if m.hasIn {
			st.Incoming = append(st.Incoming, broker.IncomingLink{
				Handle: m.in, Name: m.shown, Management: true, SettleMode: amqp10.SenderSettleModeSettled.String(), Target: managementNode,
				MaxMessageSize: s.c.link.MaxMessageSize(), DeliveryCount: m.inCount, Credit: m.inCredit,
			})
		}
		if m.hasOut {
			st.Outgoing = append(st.Outgoing, broker.OutgoingLink{
				Handle: m.out, Name: m.shown, Management: true, Source: managementNode, Settled: true, MaxMessageSize: m.outMax,
				DeliveryCount: m.outCount, Credit: m.outCredit,
			})
		}
	}
	for _, k := range s.consumers {
		count := k.count.Load()
		st.Outgoing = append(st.Outgoing, broker.OutgoingLink{
			Handle: k.handle, Name: k.name, Source: k.address, Queue: k.queueName(), Settled: k.NoAck, MaxMessageSize: k.maxMessage, TimedOut: k.timedOut.Load(),
			DeliveryCount: count, Credit: uint32(max(0, int32(k.told.Load()-count))),
		})
	}
	slices.SortFunc(st.Incoming, func(a, b broker.IncomingLink) int { return byHandle(a.Management, b.Management, a.Handle, b.Handle) })
	slices.SortFunc(st.Outgoing, func(a, b broker.OutgoingLink) int { return byHandle(a.Management, b.Management, a.Handle, b.Handle) })
	return st
}

// byHandle compares two links by their handles; those of the management node come first, as in RabbitMQ.
func byHandle(aManages, bManages bool, a, b uint32) int {
	switch {
	case aManages && !bManages:
		return -1
	case bManages && !aManages:
		return 1
	}
	return cmp.Compare(a, b)
}
