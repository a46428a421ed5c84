package serving

import (
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
