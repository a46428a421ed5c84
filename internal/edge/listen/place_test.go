package listen

import (
	"io"
	"net"
	"testing"

	"bartleby.mq/internal/wire/amqp091"
)

// stand comes to a server whose clients say how they stand, and are answered.
func stand(t *testing.T, addr string, how byte) net.Conn {
	t.Helper()
	nc := dial(t, addr)
	_, _ = nc.Write(append([]byte(amqp091.ProtocolHeader), how))
	_, _ = nc.Read(make([]byte, 1)) // whoever is refused sees it again
	return nc
}

// open says whether a connection is; it is answered if so.
func open(nc net.Conn) bool {
	_, _ = nc.Write([]byte("?"))
	_, err := nc.Read(make([]byte, 1))
	return err == nil
}

// Where there is no place for another, one is ended whose password was wrong, the one that has been for longest; else one
// whose password is not looked at yet, the last that came. Who is needed, or let in, is not.
func TestPlacesForOthers(t *testing.T) {
	for name, limits := range map[string]Limits{"of the address": {Handshakes: 4}, "of the node": {Connections: 4}} {
		t.Run(name, func(t *testing.T) {
			_, addr, _ := start(t, Options{Limits: limits, Protocols: speaking(func(nc net.Conn, _ []byte, p *Place) {
				b := make([]byte, 1)
				_, _ = io.ReadFull(nc, b)
				switch b[0] {
				case 'r':
					p.PutOff()
					p.Refused()
				case 'p':
					p.PutOff()
				case 'n':
					p.PutOff()
					p.Needed()
				}
				_, _ = nc.Write(b)
				_, _ = io.Copy(nc, nc)
			})})
			conns := map[string]net.Conn{}
			come := func(name string) {
				t.Helper()
				conns[name] = stand(t, addr, name[0])
				if !open(conns[name]) {
					t.Errorf("%s has no place", name)
				}
			}
			gone := func(name string) {
				t.Helper()
				if open(conns[name]) {
					t.Errorf("%s is there still", name)
				}
				delete(conns, name)
			}
			for _, name := range []string{"p1", "p2", "r1", "r2"} {
				come(name)
			}
			come("n1")
			gone("r1")
			come("n2")
			gone("r2")
			come("n3")
			gone("p2")
			come("n4")
			gone("p1")
			if open(stand(t, addr, 'n')) {
				t.Error("there is a place for one too many")
			}
			for name, nc := range conns {
				if !open(nc) {
					t.Errorf("%s was ended", name)
				}
			}
		})
	}
}

// Who is let in is not ended for another, whatever is said of it later, nor counted twice.
func TestWhoIsLetInKeepsItsPlace(t *testing.T) {
	s, addr, _ := start(t, Options{Limits: Limits{Handshakes: 1}, Protocols: speaking(func(nc net.Conn, _ []byte, p *Place) {
		p.PutOff()
		p.Opened()
		p.Refused()
		p.Opened()
		_, _ = io.Copy(nc, nc)
	})})
	var conns []net.Conn
	for range 3 {
		conns = append(conns, stand(t, addr, '?'))
	}
	for i, nc := range conns {
		if !open(nc) {
			t.Errorf("%d was ended", i)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.strangers) > 0 || s.waiting.putOff.Len() > 0 || s.waiting.refused.Len() > 0 {
		t.Errorf("%d addresses, %d put off, %d refused", len(s.strangers), s.waiting.putOff.Len(), s.waiting.refused.Len())
	}
}
