package deathstore

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/run/bodies"
)

// stored is the stored form of a history whose last death was at a time of its own.
func stored(queue string, at int64, times int) []byte {
	var h deadletter.History
	for range times {
		h.Record(&deadletter.Event{
			Queue: queue, Reason: deadletter.Rejected, Time: at, Expiration: -1,
			Exchange: "orders", Keys: []string{"orders.created"}, NextExchange: "dead", NextKeys: []string{"orders.created"},
			Cause: deadletter.Cause{ConsumerTag: "amq.ctag-0123456789abcdefghijkl", Connection: "10.0.0.1:50000 -> 10.0.0.2:5672", User: "guest"},
		})
		at += 1000
	}
	return h.Append(nil)
}

// What was kept reads the same, whoever shares it, and nothing is left at the end.
func TestBytesAreThoseKept(t *testing.T) {
	s := bodies.New()
	var refs []message.Ref
	var want [][]byte
	for i := range 1000 {
		b := stored(fmt.Sprint("q", i%7), 1_700_000_000_000+int64(i), 1+i%5)
		if i%50 == 0 {
			b = []byte("no history at all")
		}
		want, refs = append(want, b), append(refs, Keep(s, b))
	}
	for i, ref := range refs {
		if got := Bytes(s, ref); !bytes.Equal(got, want[i]) {
			t.Fatalf("history %d reads %x, want %x", i, got, want[i])
		}
		s.Release(ref)
	}
	if n := s.Held(); n != 0 {
		t.Errorf("%d allocations are left after the last reference", n)
	}
	if Bytes(s, 0) != nil {
		t.Error("no history has bytes")
	}
}

// A death of a kind that was seen before takes 32 bytes, with all that belongs to it.
func TestAnOwnPartIsSmall(t *testing.T) {
	s := bodies.New()
	Keep(s, stored("orders", 1, 1))
	Keep(s, stored("orders", 2, 1))
	before := s.Memory()
	const n = 100_000
	for i := range n {
		Keep(s, stored("orders", 1_700_000_000_000+int64(i)*977, 1+i%9))
	}
	if each := float64(s.Memory()-before) / n; each > 33 {
		t.Errorf("a history takes %.1f bytes, want 32", each)
	}
}

// Bases come and go while others look for them.
func TestKeepAtOnce(t *testing.T) {
	s := bodies.New()
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 5000 {
				b := stored(fmt.Sprint("q", i%3), int64(i), 1)
				ref := Keep(s, b)
				if got := Bytes(s, ref); !bytes.Equal(got, b) {
					t.Errorf("goroutine %d: history %d reads %x, want %x", g, i, got, b)
				}
				s.Release(ref)
			}
		})
	}
	wg.Wait()
	if n := s.Held(); n != 0 {
		t.Errorf("%d allocations are left after the last reference", n)
	}
}
