package listen

import (
	"io"
	"net"
	"slices"
	"strings"
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

// headerSize is the length of every protocol header, in bytes.
const headerSize = len(amqp091.ProtocolHeader)

// sniff reads the protocol header. Where it is none that is spoken here, or over
// WebSocket, the client is told which is, and spoken is nil.
func (s *Server) sniff(nc net.Conn, web bool, timeout time.Duration) (first []byte, spoken *Protocol) {
	_ = nc.SetReadDeadline(time.Now().Add(timeout))
	header := make([]byte, headerSize)
	if n, err := io.ReadFull(nc, header); err != nil {
		// A health check opens and closes: that is not worth a line above debug.
		s.Logger.Debug("connection ended before its protocol header", "peer", nc.RemoteAddr().String(), "bytes", n, "error", err)
		return nil, nil
	}
	for i := range s.Protocols {
		if slices.Contains(s.Protocols[i].Headers, string(header)) && (s.Protocols[i].Web || !web) {
			return header, &s.Protocols[i]
		}
	}
	s.Logger.Warn("protocol not supported", "peer", nc.RemoteAddr().String(), "header", header, "spoken", s.spoken(web))
	if web {
		refuse(nc, sasl10)
		return nil, nil
	}
	refuse(nc, s.answer(header))
	return nil, nil
}

// spoken names the protocols that clients may speak, for the log: AMQP 1.0 may be turned off.
func (s *Server) spoken(web bool) string {
	var names []string
	for i := range s.Protocols {
		if s.Protocols[i].Web || !web {
			names = append(names, s.Protocols[i].Name)
		}
	}
	return strings.Join(names, ", ")
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
