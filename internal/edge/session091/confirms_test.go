package session091

import (
	"testing"

	"bartleby.mq/internal/run/partition"
)

// BR-15.15: messages_unconfirmed are publishes without an answer, whatever that waits
// for.
func TestUnconfirmed(t *testing.T) {
	w := &confirms{first: 1}
	look := func(when string, want int) {
		t.Helper()
		if got := w.waiting(); got != want {
			t.Errorf("%s: %d wait, want %d", when, got, want)
		}
	}
	first, second := w.add(&publishing{}), w.add(&publishing{})
	look("published", 2)
	w.ran(first, &partition.Op{})
	w.ran(second, &partition.Op{Waits: 1})
	w.durable()
	look("durable", 2)
	if _, n, _ := w.append(nil, 1); n != 1 {
		t.Errorf("%d are answered, want that which waits for no replicated queue", n)
	}
	look("the first answered", 1)
	w.at(second).Answer(false)
	if _, n, _ := w.append(nil, 1); n != 1 {
		t.Errorf("%d are answered, want 1", n)
	}
	look("both answered", 0)
}
