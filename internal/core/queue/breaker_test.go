package queue

import (
	"bytes"
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"

	"bartleby.mq/internal/core/message"
)

// The machine and its model with a breaker and little else, so that it opens and closes often.
func TestBreakerAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPair(t)
		s := Unlimited()
		s.DeliveryLimit = rapid.SampledFrom([]int64{-1, 2}).Draw(t, "delivery limit")
		s.ConsumerTimeout = rapid.SampledFrom([]int64{-1, 400}).Draw(t, "consumer timeout")
		s.Rules = p.drawRules(t)
		s.Breaker = rapid.SampledFrom([]Breaker{{2, 40, 50}, {2, 60, 300}, {3, 50, 2000}, {1, 34, 90}}).Draw(t, "breaker")
		p.m.Configure(p.now, s)
		p.q.breakBy(s.Breaker)
		p.q.settings = s
		later := func(t *rapid.T) {
			p.now += rapid.Int64Range(0, 60).Draw(t, "later")
			p.tickAll(t, sliceLimit)
		}
		settle := func(t *rapid.T) {
			p.now += rapid.Int64Range(0, 20).Draw(t, "later")
			for range rapid.IntRange(1, 3).Draw(t, "deliveries") {
				p.settle(t)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"":        p.check,
			"enqueue": p.enqueue,
			"many":    p.enqueueMany,
			"get":     p.get,
			"settle":  settle, "settle2": settle, "settle3": settle, "settle4": settle, "settle5": settle, "settle6": settle,
			"attach": p.attach,
			"detach": p.detach,
			"resume": p.resume,
			"later":  later,
			"tick":   p.tick,
			"reset":  p.reset,
			"bury": func(t *rapid.T) {
				p.deaths(t)
				p.bury(t)
			},
		})
		p.close(t)
	})
}

// keepNames stores what refBytes wrote.
func keepNames(b []byte, _ bool, _ int) (message.Ref, error) {
	v, _ := binary.Uvarint(b)
	return message.Ref(v), nil
}

// deaths lets deliveries of a queue that has a breaker of three deaths end: d dies, a is acknowledged, r comes back.
func deaths(t *testing.T, m *Machine, now int64, how string) {
	t.Helper()
	for _, h := range how {
		e := Entry{Content: Content{Body: 1, Size: 1, Logged: true}, Priority: -1, TTL: -1}
		if id, result := m.Enqueue(now, &e); result != Stored {
			t.Fatalf("a message is %v, entry %d", result, id)
		}
		d, ok := m.Get(now, false)
		if !ok {
			t.Fatalf("nothing is handed out before %q of %q", h, how)
		}
		switch h {
		case 'a':
			m.Ack(now, d.ID, nil)
		case 'd':
			m.Reject(now, d.ID, nil, true)
		case 'r':
			m.Return(now, d.ID, nil, ReturnNack)
		}
	}
}

func breaking(rule Breaker, sink Sink) *Machine {
	s := Unlimited()
	s.Breaker = rule
	return New(Config{Type: Quorum}, s, &Pages{}, sink, 0)
}

// Deaths count within the window. What is older is forgotten, step by step.
func TestBreakerForgetsWhatIsOlderThanItsWindow(t *testing.T) {
	m := breaking(Breaker{Deaths: 3, Percent: 50, Window: 6000}, &nobody{})
	deaths(t, m, 100_000, "dd")
	deaths(t, m, 106_000, "d")
	if b := m.Breaker(106_000); b.State != BreakerClosed {
		t.Fatalf("three deaths within more than the window: %+v", b)
	}
	deaths(t, m, 111_800, "d")
	if b := m.Breaker(111_800); b.State != BreakerClosed {
		t.Fatalf("two deaths within the window: %+v", b)
	}
	deaths(t, m, 111_900, "d")
	if b := m.Breaker(111_900); b.State != BreakerOpen || b.Until != 117_900 || b.Died != 3 || b.Ended != 3 {
		t.Fatalf("three deaths within the window: %+v", b)
	}
}

// A clock that is set back neither keeps an open breaker open for longer than its window, nor counts anything twice.
func TestBreakerWhenTheClockIsSetBack(t *testing.T) {
	m := breaking(Breaker{Deaths: 3, Percent: 100, Window: 6000}, &nobody{})
	deaths(t, m, 100_000, "dd")
	deaths(t, m, 99_000, "d")
	if b := m.Breaker(99_000); b.State != BreakerOpen || b.Until != 105_000 {
		t.Fatalf("three deaths about one second apart: %+v", b)
	}
	m.Tick(50_000, sliceLimit)
	if due := m.NextDue(); due != 56_000 {
		t.Errorf("half a minute earlier it tries at %d, want 56000", due)
	}
	m.ResetBreaker()
	deaths(t, m, 50_000, "dd")
	deaths(t, m, 20_000, "d")
	if b := m.Breaker(20_000); b.State != BreakerClosed {
		t.Errorf("what died half a minute later, by the clock as it is now, counts: %+v", b)
	}
}

// A snapshot has the breaker in every state, and a queue that is restored from it goes on as the original does. A snapshot
// of a release that knew no breaker can be read.
func TestBreakerInSnapshots(t *testing.T) {
	for name, how := range map[string]string{"closed": "adr", "open": "addd", "trying": "addd+", "a try is out": "addd+o"} {
		m := breaking(Breaker{Deaths: 3, Percent: 50, Window: 6000}, &nobody{})
		now := int64(100_000)
		for _, h := range how {
			switch h {
			case '+':
				now += 6000
				m.Tick(now, sliceLimit)
			case 'o':
				m.Enqueue(now, &Entry{Content: Content{Body: 1, Size: 1, Logged: true}, Priority: -1, TTL: -1})
				if _, ok := m.Get(now, false); !ok {
					t.Fatal("nothing may try")
				}
			default:
				deaths(t, m, now, string(h))
			}
		}
		m2 := breaking(Breaker{Deaths: 3, Percent: 50, Window: 6000}, &nobody{})
		entries := m.AppendEntries(nil, refBytes, refBytes)
		if _, err := m2.RestoreEntries(entries, keepNames); err != nil {
			t.Fatal(err)
		}
		rest := m.AppendRest(nil)
		if left, err := m2.RestoreRest(rest, func(*Consumer) {}); err != nil || len(left) != 0 {
			t.Fatalf("%s: %v, %d bytes are left", name, err, len(left))
		}
		if again := m2.AppendRest(nil); !bytes.Equal(again, rest) {
			t.Errorf("%s: the rest is\n%x, was\n%x", name, again, rest)
		}
		if a, b := m.Breaker(now), m2.Breaker(now); a != b {
			t.Errorf("%s: restored as %+v, was %+v", name, b, a)
		}
		if err := m2.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for cut := range rest { // it ends with the breaker
			m3 := breaking(Breaker{Deaths: 3, Percent: 50, Window: 6000}, &nobody{})
			if _, err := m3.RestoreEntries(entries, keepNames); err != nil {
				t.Fatal(err)
			}
			if _, err := m3.RestoreRest(rest[:cut], func(*Consumer) {}); err == nil {
				t.Fatalf("%s: %d of %d bytes are accepted", name, cut, len(rest))
			}
		}
	}
}

// A record that cannot be read ends a try: the next delivery tries at the next tick, which is due at once.
func TestBreakerTriesAgainAfterARecordWasSetAside(t *testing.T) {
	sink := &nobody{}
	m := breaking(Breaker{Deaths: 1, Percent: 1, Window: 1000}, sink)
	deaths(t, m, 100_000, "d")
	c := &Consumer{Tag: "c"}
	m.Attach(101_000, c)
	for range 2 {
		id, _ := m.Enqueue(101_000, &Entry{Content: Content{Body: 1, Size: 1, Logged: true}, Priority: -1, TTL: -1})
		m.Flow(101_000, id)
	}
	tried := sink.last
	if c.Out() != 1 || !m.Discard(tried, c, true) {
		t.Fatalf("%d deliveries are out, the last one is %d", c.Out(), tried)
	}
	if due := m.NextDue(); due > 101_000 {
		t.Fatalf("the next tick is at %d", due)
	}
	if m.Tick(101_000, sliceLimit); c.Out() != 1 || sink.last == tried {
		t.Errorf("after the tick %d deliveries are out, the last one is %d", c.Out(), sink.last)
	}
}

// The deaths must be a share of the deliveries that have ended. What comes back has not ended.
func TestBreakerOpensByAShareOfWhatEnds(t *testing.T) {
	for how, opens := range map[string]bool{"ddd": true, "aaddd": true, "aaaddd": false, "aaadddd": false, "aaaddddd": true, "aarrrrrrddd": true, "dda": false, "ddrrrr": false} {
		m := breaking(Breaker{Deaths: 3, Percent: 60, Window: 60_000}, &nobody{})
		deaths(t, m, 100_000, how)
		if b := m.Breaker(100_000); (b.State == BreakerOpen) != opens {
			t.Errorf("after %q it is %v", how, b.State)
		}
	}
}
