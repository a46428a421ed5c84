package partition

import (
	"testing"

	"bartleby.mq/internal/core/queue"
)

// DL-11.5: whether a nack counts is one of the settings. Earlier releases had it in the config that a queue was made with:
// it stays as it was made until a command of this release says otherwise.
func TestDL_11_5_CommandsOfEarlierReleasesLeaveWhetherANackCounts(t *testing.T) {
	f := newFleet(t, []definition{{"other", quorum, queue.Unlimited(), DeadLetter{}}}, nil)
	g := f.queues["other"].group()
	settings, dead := queue.Unlimited(), DeadLetter{}
	command := func(version byte, write func(w *commandWriter)) {
		t.Helper()
		_ = g.tell(func(w *commandWriter) {
			w.b[0] = version
			write(w)
		})
		f.quiesce()
		f.agree()
	}
	const made, plain = 1 << 20, 1 << 21
	counts := func(when string, inc uint64, want bool) {
		t.Helper()
		if got := g.p.queues[inc].m.Settings().CountNack; got != want {
			t.Errorf("%s: a nack counts is %v, want %v", when, got, want)
		}
	}
	for inc, flags := range map[uint64]byte{made: configCountNack, plain: 0} {
		command(nackVersion-1, func(w *commandWriter) {
			w.op(cmdCreate, inc)
			w.text("/")
			w.text("old")
			w.b = append(w.b, flags)
			w.settings(&settings, &dead)
		})
		counts("made by an earlier release", inc, flags != 0)
		command(nackVersion-1, func(w *commandWriter) { configure{settings, dead}.write(w, inc) })
		counts("configured by it", inc, flags != 0)
	}
	command(nackVersion, func(w *commandWriter) { configure{settings, dead}.write(w, made) })
	counts("configured by this release", made, false)
	settings.CountNack = true
	command(nackVersion, func(w *commandWriter) { configure{settings, dead}.write(w, plain) })
	counts("configured by this release", plain, true)
}

// DL-12.3: the delayed retry `returned` delays a nack that counts, and did not in earlier releases.
func TestDL_12_3_ANackThatCountedWasNotDelayedByReturned(t *testing.T) {
	for _, c := range []struct {
		version byte
		delayed int
	}{{nackVersion - 1, 0}, {nackVersion, 1}} {
		s := queue.Unlimited()
		s.CountNack, s.Retry = true, queue.Retry{Type: queue.RetryReturned, Min: 1000}
		f := newFleet(t, []definition{{"q", quorum, s, DeadLetter{}}}, nil)
		q := f.queues["q"]
		consumer := &queue.Consumer{Tag: "c", Target: &client{}, Prefetch: 1}
		if ok, err := f.leader.Attach(q, consumer, func() {}); !ok {
			t.Fatal(err)
		}
		f.publish("q", nil, -1)
		f.quiesce()
		held := q.m.HeldBy(consumer)
		if len(held) != 1 {
			t.Fatalf("the consumer has %d messages", len(held))
		}
		_ = q.group().tell(func(w *commandWriter) {
			w.b[0] = c.version
			w.giveBack(q.Incarnation, consumer.Number, held[0].ID, queue.ReturnNack, nil, 0)
		})
		f.quiesce()
		if n := q.m.Totals(); n.Delayed != c.delayed {
			t.Errorf("a command of version %d delays %d, want %d", c.version, n.Delayed, c.delayed)
		}
		f.agree()
	}
}
