package broker

import (
	"time"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/wire/amqp091"
)

// ConnectionStatus is a connection as its session reports it. Each edge renders it in its own form.
type ConnectionStatus struct {
	Peer
	User, Mechanism string
	VHost           message.VHost
	Since           time.Time // when the socket was accepted
	Blocked         bool      // it publishes, and is not read until an alarm clears
	Container       string    // the client's container-id, in AMQP 1.0
	Channels        int       // or sessions, in AMQP 1.0
	ChannelMax      int
	FrameMax        int           // bytes
	Heartbeat       time.Duration // 0: none
	Properties      amqp091.Table // from the client; not to be changed
	TLS             *TLS          // nil without TLS
	ReceivedBytes   uint64
	ReceivedFrames  uint64
	SentBytes       uint64
	Writes          uint64 // writes to the socket
}

// TLS is what the TLS handshake says about a client.
type TLS struct {
	Protocol, Cipher string
	// Subject, Issuer and Validity describe the client's certificate; "" if it showed none.
	Subject, Issuer, Validity string
	// User is the name from the client's verified certificate, for EXTERNAL (BR-2.3); "" if there is none.
	User string
}

// ChannelStatus is a channel as its session reports it.
type ChannelStatus struct {
	Peer                   // of its connection
	Name                   string
	Number                 uint16
	User                   string
	VHost                  message.VHost
	Consumers              int
	Unacked                int   // deliveries that wait for the client's acknowledgement
	Prefetch               int64 // for consumers started from now on; 0: no limit
	Confirm, Transactional bool
	Unconfirmed            int   // publishes that wait for a confirm
	Uncommitted            int64 // publishes of the transaction
	UncommittedAcks        int64 // acknowledgements of the transaction
	Stats                  ChannelStats
	// ByExchange and ByQueue are its counters of publishes and of deliveries. Few of a channel with a great many of either
	// are missing; nil: they are not counted.
	ByExchange map[message.ExchangeName]ChannelStats
	ByQueue    map[message.QueueName]ChannelStats
}

// ChannelStats count what a channel has done since it was opened (BR-15.13).
type ChannelStats struct {
	Published, Confirmed, Returned, Dropped uint64
	Delivered, DeliveredNoAck               uint64
	Got, GotNoAck, GotNothing               uint64
	Redelivered, Acked                      uint64
	Active                                  int64 // when its client last used it, in milliseconds since 1970
}

// Add adds the counters of o.
func (s *ChannelStats) Add(o *ChannelStats) {
	s.Published += o.Published
	s.Confirmed += o.Confirmed
	s.Returned += o.Returned
	s.Dropped += o.Dropped
	s.Delivered += o.Delivered
	s.DeliveredNoAck += o.DeliveredNoAck
	s.Got += o.Got
	s.GotNoAck += o.GotNoAck
	s.GotNothing += o.GotNothing
	s.Redelivered += o.Redelivered
	s.Acked += o.Acked
}

// SessionClient is a Client that speaks AMQP 1.0.
type SessionClient interface {
	Client
	// SessionStatuses are those of its sessions, by number. Any goroutine may call it.
	SessionStatuses() []SessionStatus
	// Links counts its links. Any goroutine may call it.
	Links() LinkCounts
}

// LinkCounts are how many links there are, without those of the management node.
type LinkCounts struct {
	Publishers, Consumers int
	Replies               int // of Consumers, those that get direct replies and are attached to no queue
}

// SessionStatus is a session of AMQP 1.0 as its connection reports it.
type SessionStatus struct {
	Number                         uint16
	HandleMax                      uint32
	NextIncomingID, NextOutgoingID uint32
	IncomingWindow                 int    // transfers that the client may send
	RemoteWindow                   uint32 // transfers that the client takes
	RemoteOutgoing                 uint32 // transfers that the client says it will send
	Unsettled                      int    // deliveries that the client has not settled
	Incoming                       []IncomingLink
	Outgoing                       []OutgoingLink
}

// IncomingLink is a link on which the client sends.
type IncomingLink struct {
	Handle                uint32
	Name, Target          string
	Management            bool   // it carries requests to the management node
	SettleMode            string // unsettled, settled, mixed
	MaxMessageSize        int    // bytes
	DeliveryCount, Credit uint32
	Unconfirmed           int // messages that wait for their queues
}

// OutgoingLink is a link on which the client receives.
type OutgoingLink struct {
	Handle                uint32
	Name, Source, Queue   string
	Management            bool   // it carries answers of the management node
	Settled               bool   // what is sent on it is settled
	MaxMessageSize        uint64 // bytes; 0: any
	TimedOut              bool   // it has not settled deliveries in time (DL-12.7)
	DeliveryCount, Credit uint32
}

// ConsumerInfo says to whom a consumer belongs.
type ConsumerInfo struct {
	Connection, Channel string // their names; Channel is "" in a protocol without channels
	Number              uint16 // of the channel, or of the session
	User                string
	PeerHost            string
	PeerPort            int
	Arguments           amqp091.Table // of basic.consume; not to be changed
}

// Informant is a session's side of a consumer that can report its ConsumerInfo.
type Informant interface{ Info() ConsumerInfo }

// AttachedConsumer is a consumer of a queue.
type AttachedConsumer struct {
	ConsumerInfo
	Tag                      string
	NoAck, Exclusive, Active bool
	Prefetch                 int
	Priority                 int64
	Timeout                  int64 // milliseconds; 0 = the queue's
}
