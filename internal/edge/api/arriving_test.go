package api

import (
	"testing"
	"time"
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
