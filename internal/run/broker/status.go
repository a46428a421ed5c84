package broker

import (
	"time"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/wire/amqp091"
)

// ConnectionStatus is a connection as its session tells of it. Edges show it each in its own form.
type ConnectionStatus struct {
	Peer
	User, Mechanism string
	VHost           message.VHost
	Since           time.Time // when the socket was accepted
	Blocked         bool      // it publishes, and is not read until an alarm clears
	Channels        int
	ChannelMax      int
	FrameMax        int           // bytes
	Heartbeat       time.Duration // 0: none
	Properties      amqp091.Table // what the client says of itself; not to be changed
	TLS             *TLS          // nil where it came without
	ReceivedBytes   uint64
	ReceivedFrames  uint64
	SentBytes       uint64
	Writes          uint64 // of the socket
}

// TLS is what the handshake of TLS told of a client.
type TLS struct {
	Protocol, Cipher string
	// Subject, Issuer and Validity are of the client's certificate; "" where it showed
	// none.
	Subject, Issuer, Validity string
	// User is the name that a certificate which was verified gives the client, for
	// EXTERNAL (BR-2.3); "" where it gives none.
	User string
}

// ChannelStatus likewise is a channel.
type ChannelStatus struct {
	Peer                   // of its connection
	Name                   string
	Number                 uint16
	User                   string
	VHost                  message.VHost
	Consumers              int
	Unacked                int   // deliveries that wait for the client
	Prefetch               int64 // for consumers started from now on; 0: no limit
	Confirm, Transactional bool
	Unconfirmed            int   // publishes that wait for a confirm
	Uncommitted            int64 // publishes of the transaction
	UncommittedAcks        int64 // acknowledgements of the transaction
	Stats                  ChannelStats
}

// ChannelStats count what a channel has done since it was opened (BR-15.13).
type ChannelStats struct {
	Published, Confirmed, Returned, Dropped uint64
	Delivered, DeliveredNoAck               uint64
	Got, GotNoAck, GotNothing               uint64
	Redelivered, Acked                      uint64
	Active                                  int64 // when its client was last heard, in milliseconds since 1970
}

// ConsumerInfo says whose a consumer is.
type ConsumerInfo struct {
	Connection, Channel string // their names; Channel is "" where the protocol has none
	Number              uint16 // of the channel
	User                string
	PeerHost            string
	PeerPort            int
	Arguments           amqp091.Table // of basic.consume; not to be changed
}

// Informant is a session's side of a consumer that can say whose it is.
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
