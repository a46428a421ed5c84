package listen

import (
	"io"
	"net"
	"time"

	"bartleby.mq/internal/wire/amqp091"
)

const (
	// defaultHeader is how long a client may take to say which protocol it
	// speaks. RabbitMQ gives the whole handshake so long (BR-1.10).
	defaultHeader = 10 * time.Second
	// defaultTLSHandshake is RabbitMQ's ssl_handshake_timeout.
	defaultTLSHandshake = 5 * time.Second
	// refusalTimeout is how long a refused client's last bytes are waited for.
	refusalTimeout = time.Second
	// refusalDrain is how many of them are read, in bytes.
	refusalDrain = 64 << 10
)

// sniff reads the protocol header. Where it is none that is spoken here the
// client is told which is, and ok is false.
func (s *Server) sniff(nc net.Conn, timeout time.Duration) (first []byte, ok bool) {
	_ = nc.SetReadDeadline(time.Now().Add(timeout))
	header := make([]byte, len(amqp091.ProtocolHeader))
	if n, err := io.ReadFull(nc, header); err != nil {
		// A health check opens and closes: that is not worth a line above debug.
		s.Logger.Debug("connection ended before its protocol header", "peer", nc.RemoteAddr().String(), "bytes", n, "error", err)
		return nil, false
	}
	if isAMQP091(header) {
		return header, true
	}
	s.Logger.Warn("protocol not supported", "peer", nc.RemoteAddr().String(), "header", header)
	refuse(nc, s.answer(header))
	return nil, false
}

// isAMQP091 says whether a protocol header opens AMQP 0-9-1: its own, and the one
// that clients wrote before there was a final version (BR-1.1).
func isAMQP091(header []byte) bool {
	switch string(header) {
	case amqp091.ProtocolHeader, "AMQP\x01\x01\x00\x09":
		return true
	}
	return false
}

// sasl10 is the protocol header of AMQP 1.0 with SASL.
const sasl10 = "AMQP\x03\x01\x00\x00"

// answer is what a client is told that sent this header (BR-1.2).
func (s *Server) answer(header []byte) string {
	switch string(header) {
	case "AMQP\x00\x00\x09\x00", "AMQP\x00\x00\x0a\x00": // 0-9 and 0-10
		return amqp091.ProtocolHeader
	}
	if s.LikeRabbitMQ {
		return sasl10
	}
	return amqp091.ProtocolHeader
}

// refuse answers with the protocol spoken here and closes (BR-1.2). What the
// client has sent beyond its header is read first, within limits: closing a
// socket with bytes unread resets it, and the client might not see the answer.
func refuse(nc net.Conn, answer string) {
	_ = nc.SetDeadline(time.Now().Add(refusalTimeout))
	if _, err := io.WriteString(nc, answer); err != nil {
		return
	}
	if c, ok := nc.(interface{ CloseWrite() error }); ok && c.CloseWrite() == nil {
		_, _ = io.CopyN(io.Discard, nc, refusalDrain)
	}
}
