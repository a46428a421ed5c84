package session091

import (
	"net"
	"testing"
	"time"
)

// ending is a socket whose connection ends while its writer sets a deadline.
type ending struct {
	net.Conn
	c  *conn
	by time.Time
}

func (e *ending) SetWriteDeadline(at time.Time) error {
	select {
	case <-e.c.ended:
	default:
		close(e.c.ended)
		e.by = time.Now().Add(lastWords) // as end does
	}
	e.by = at
	return nil
}

// The writer takes no time that the end of its connection has not left it.
func TestTheLastDeadlineStands(t *testing.T) {
	e := &ending{}
	e.c = &conn{nc: e, ended: make(chan struct{})}
	e.c.extendWriteDeadline()
	if left := time.Until(e.by); left > lastWords {
		t.Errorf("a client that reads nothing has %v, want %v", left, lastWords)
	}
}
