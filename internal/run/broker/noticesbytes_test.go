package broker

import "testing"

// What is on its way counts until it is where it goes: it is still in memory.
func TestABatchUnderWayCountsForTheLimit(t *testing.T) {
	c := open(t, Options{})
	n := newNotices(c.b, "a test", 1<<20, false) // whose goroutine was not started
	for range batchLetters + 1 {
		n.send(&notice{vhost: "/", exchange: "amq.topic", key: "k"})
	}
	all, one := n.bytes, n.bytes/(batchLetters+1)
	batch, _ := n.take()
	if len(batch) != batchLetters || n.bytes != all {
		t.Errorf("%d letters under way and %d of %d bytes counted", len(batch), n.bytes, all)
	}
	n.deliver(batch)
	if rest, _ := n.take(); len(rest) != 1 || n.bytes != one {
		t.Errorf("%d letters under way and %d bytes counted, want 1 and %d", len(rest), n.bytes, one)
	} else {
		n.deliver(rest)
	}
	if none, _ := n.take(); len(none) != 0 || n.bytes != 0 {
		t.Errorf("%d bytes counted for nothing", n.bytes)
	}
	n.send(&notice{vhost: "/", exchange: "amq.topic", key: "k"})
	n.stop()
	if n.bytes != 0 {
		t.Errorf("%d bytes counted after the end", n.bytes)
	}
}
