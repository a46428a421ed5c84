package api

import (
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"bartleby.mq/internal/run/share"
)

// Who sends a byte a minute is cut when the grace is over; who sends fast, and then stops, has the grace once more and no longer.
func TestABodyHasALeastRate(t *testing.T) {
	now := time.UnixMilli(0)
	b := arriving{due: now.Add(bodyGrace), now: func() time.Time { return now }}
	b.came(1)
	if late := b.due.Sub(now) - bodyGrace; late > time.Millisecond {
		t.Errorf("a byte buys %v", late)
	}
	for range 1000 { // a bit more than the least rate
		now = now.Add(time.Second)
		b.came(leastRate + 1)
		if b.due.Before(now) {
			t.Fatalf("who sends fast enough is cut after %v", now.Sub(time.UnixMilli(0)))
		}
	}
	b.came(1 << 30)
	if left := b.due.Sub(now); left != bodyGrace {
		t.Errorf("who was fast may stop for %v", left)
	}
	for range 2 * bodyGrace / time.Second {
		now = now.Add(time.Second)
		b.came(leastRate / 4)
	}
	if !b.due.Before(now) {
		t.Errorf("who sends a quarter of the least rate has %v left", b.due.Sub(now))
	}
	b.end = now.Add(time.Second)
	if b.came(1 << 20); !b.due.Equal(b.end) {
		t.Errorf("a body that must be there in a second may take %v", b.due.Sub(now))
	}
}

// stalled is a client that has sent a part of a body and sends no more: a read waits for its deadline.
type stalled struct {
	http.ResponseWriter
	ended chan struct{}
}

func (s *stalled) SetReadDeadline(at time.Time) error {
	if at.Before(time.Unix(2, 0)) {
		close(s.ended)
	}
	return nil
}

func (s *stalled) Read([]byte) (int, error) {
	<-s.ended
	return 0, os.ErrDeadlineExceeded
}

// A body whose place is given to another ends at once, also while a read waits for more of it: what has come of it stays in memory for so long.
func TestAStalledBodyGivesWay(t *testing.T) {
	for _, before := range []bool{false, true} {
		room := share.NewRoom[string](2)
		room.Enter("a")
		place := room.Enter("a")
		if before {
			room.Enter("b")
		}
		client := &stalled{httptest.NewRecorder(), make(chan struct{})}
		body := (&request{}).arriving(&responder{ResponseWriter: client}, client, place)
		result := make(chan error)
		go func() {
			_, err := body.Read(make([]byte, 10))
			result <- err
		}()
		if !before {
			room.Enter("b")
		}
		if err := <-result; err != gaveWay {
			t.Errorf("before it began %t: %v", before, err)
		}
	}
}
