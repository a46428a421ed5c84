package queue

import (
	"math"
	"testing"

	"bartleby.mq/internal/core/queue/index"
)

// DL-10.8: a strict quorum queue that was full takes messages again at 80 % of its limits, however large a limit is.
func TestDL_10_8_LargeLimitDoesNotRefuseForEver(t *testing.T) {
	for _, limit := range []int64{-1, 1 << 59, 1 << 60, 1_300_000_000_000_000_000, math.MaxInt64} {
		for name, limited := range map[string]func(s *Settings){
			"length": func(s *Settings) { s.MaxLength, s.MaxBytes = limit, 100 },
			"bytes":  func(s *Settings) { s.MaxLength, s.MaxBytes = 10, limit },
		} {
			s := Unlimited()
			s.Overflow = RejectPublish
			limited(&s)
			m := New(Config{Type: Quorum, Strict: true, MaxPriority: -1, Durable: true}, s, &Pages{Log: index.Commands}, &nobody{}, 1)
			enqueue := func() Result {
				_, r := m.Enqueue(1, &Entry{Content: Content{Body: 1, Size: 10, Logged: true}, Priority: -1, TTL: -1})
				return r
			}
			for range 20 {
				enqueue()
			}
			if r := enqueue(); r != Refused {
				t.Errorf("%s: a full queue does not refuse: %v", name, r)
			}
			m.Purge(nil)
			if r := enqueue(); r != Stored {
				t.Errorf("%s: beside a limit of %d an empty queue refuses: %v", name, limit, r)
			}
		}
	}
}

// DL-10.1: a letter that is to be forwarded at-least-once counts from its death on, also before its first try.
func TestDL_10_1_ADeathThatWasNotTriedYetCounts(t *testing.T) {
	for _, strict := range []bool{true, false} {
		for _, atLeastOnce := range []bool{true, false} {
			s := Unlimited()
			s.Overflow, s.MaxLength, s.DeadLetter, s.AtLeastOnce = RejectPublish, 2, true, atLeastOnce
			m := New(Config{Type: Quorum, Strict: strict, MaxPriority: -1, Durable: true}, s, &Pages{Log: index.Commands}, &nobody{}, 1)
			n := 2
			if strict {
				n = 3 // it refuses once it is over its limit (DL-10.8)
			}
			for range n {
				m.Enqueue(1, &Entry{Content: Content{Body: 1, Size: 10, Logged: true}, Priority: -1, TTL: 5})
			}
			m.Expire(10)
			if m.Count.Dying != n {
				t.Fatalf("%d are dying, not %d", m.Count.Dying, n)
			}
			if m.Accepts(10) == atLeastOnce {
				t.Errorf("strict %v, at-least-once %v: with %d letters on their way and a limit of 2, Accepts is %v", strict, atLeastOnce, n, !atLeastOnce)
			}
		}
	}
}

func TestMost80(t *testing.T) {
	for limit := range int64(1000) {
		if got := most80(limit); got != limit*8/10 {
			t.Errorf("of %d: %d", limit, got)
		}
	}
}
