package serving

import (
	"io"
	"net"
	"time"

	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/safety/held"
)

// PeerOf describes the client at the other end of a socket.
func PeerOf(nc net.Conn, protocol string) broker.Peer {
	p := broker.Peer{Protocol: protocol}
	if a, ok := nc.RemoteAddr().(*net.TCPAddr); ok {
		p.PeerHost, p.PeerPort = a.IP.String(), a.Port
	}
	if a, ok := nc.LocalAddr().(*net.TCPAddr); ok {
		p.Host, p.Port = a.IP.String(), a.Port
	}
	p.Name = nc.RemoteAddr().String() + " -> " + nc.LocalAddr().String()
	return p
}

// Free says whether no lock is held for long: a panicking reader may have left one held, and partitions that deliver to its
// connection would wait for it.
func Free(locks []*held.Mutex) bool {
	const moment = 100 * time.Millisecond
	deadline := time.Now().Add(moment)
	for _, mu := range locks {
		for !mu.TryLock() {
			if time.Now().After(deadline) {
				return false
			}
			time.Sleep(time.Millisecond)
		}
		mu.Unlock()
	}
	return true
}

// EndOutput closes the output side of a socket and says whether it could.
func EndOutput(nc net.Conn) bool {
	half, ok := nc.(interface{ CloseWrite() error })
	return ok && half.CloseWrite() == nil
}

const (
	// LingerTime is how long a client that has closed the connection may take to close its socket, and lingerBytes what it may
	// send meanwhile.
	LingerTime  = time.Second
	lingerBytes = 1 << 20
)

// Linger waits for the client to close its socket. Some clients send pending frames, such as acknowledgements, after their close.
// If the socket were already closed, the system would answer them with a reset, and the client (amqplib, for example) might
// never see our answer.
func Linger(nc net.Conn) {
	_ = nc.SetReadDeadline(time.Now().Add(LingerTime))
	_, _ = io.CopyN(io.Discard, nc, lingerBytes)
}
