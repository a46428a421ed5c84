package partition

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

// aboutToDie is a world in which so many messages die from "in" into "out" 10 ms after its moment.
func aboutToDie(t *testing.T, messages int) *world {
	t.Helper()
	defs := []definition{
		{"in", classic, settings(func(s *queue.Settings) { s.DeadLetter, s.TTL = true, 10 }), DeadLetter{Exchange: "out"}},
		{"out", classic, queue.Unlimited(), DeadLetter{}},
	}
	w := open(t, vfs.NewCrashableMem(), defs, table{"out": {"out"}}, 1_700_000_000_000, nil)
	ops := make([]Op, messages)
	for i := range ops {
		ops[i] = Op{Kind: Publish, Targets: []*Queue{w.queues["in"]}, Body: w.record(message.Serial(i+1), true, 10), TTL: -1, Priority: -1}
	}
	w.n.Run(ops)
	return w
}

// Expiry does not run ahead of routing for ever: a number of deaths wait, and the others die when these were routed.
func TestDeathsWaitForRouting(t *testing.T) {
	const messages = 3 * mostWaiting
	w := aboutToDie(t, messages)
	w.now += 1000
	in := w.queues["in"]
	p := in.part
	for range 2 * messages / sliceLimit {
		p.tick()
	}
	if n := in.m.Waiting(); n < mostWaiting || n >= mostWaiting+sliceLimit {
		t.Errorf("%d deaths wait, want about %d", n, mostWaiting)
	}
	if len(p.timers) != 0 {
		t.Error("the worker has something to do before they are routed")
	}
	p.routeLater()
	if n := in.m.Waiting(); n >= mostWaiting || len(p.timers) != 1 {
		t.Errorf("when %d deaths wait the worker has %d queues to look at, want 1", n, len(p.timers))
	}
	w.settle()
	if c := w.n.Counts(w.queues["out"]); c.Ready != messages {
		t.Errorf("%d messages died, want %d", c.Ready, messages)
	}
	w.check(0)
	w.close()
}

// If a proposal is refused for a moment, due messages and deaths are looked at again, however many there are.
func TestRefusedProposalsAreMadeAgain(t *testing.T) {
	const messages = 2*mostWaiting + sliceLimit
	defs := []definition{
		{"in", quorum, settings(func(s *queue.Settings) { s.DeadLetter, s.TTL = true, 10 }), DeadLetter{Exchange: "out"}},
		{"out", classic, queue.Unlimited(), DeadLetter{}},
	}
	for name, refused := range map[string]func(p *Partition){
		"of a tick":   (*Partition).tickReplicated,
		"of its dead": func(p *Partition) { p.routeLater() },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, defs, table{"out": {"out"}})
			for range messages {
				f.publish("in", nil, -1)
			}
			f.quiesce()
			f.now.Add(1000)
			in := f.queues["in"]
			if name != "of a tick" {
				for range 3 {
					in.part.tickReplicated()
					f.quiesce()
				}
				if n := in.m.Waiting(); n < mostWaiting {
					t.Fatalf("%d deaths wait", n)
				}
			}
			f.refuse(true)
			refused(in.part)
			f.refuse(false)
			for range 20 {
				f.now.Add(60_000)
				f.work()
			}
			if n := in.m.Totals(); n.Ready+n.Dying > 0 {
				t.Errorf("%d messages are ready and %d dying twenty minutes later", n.Ready, n.Dying)
			}
		})
	}
}

// refuse makes the logs take no proposals.
func (f *fleet) refuse(down bool) {
	for _, l := range f.logs {
		l.mu.Lock()
		l.down = down
		l.mu.Unlock()
	}
}

// Work that nobody waits for knows how late other work is: by what is due, and by the deaths that wait for routing.
func TestLateness(t *testing.T) {
	const messages = 3 * mostWaiting
	w := aboutToDie(t, messages)
	p := w.queues["in"].part
	late := func(want int64) {
		t.Helper()
		p.mu.Lock()
		defer p.mu.Unlock()
		if got := p.late(); got != want {
			t.Errorf("it is %d ms late, want %d", got, want)
		}
	}
	w.now += 5
	late(0)
	w.now += 12
	late(6)
	for range messages / sliceLimit {
		p.tick()
	}
	w.now += 20
	w.n.moveSlice(w.queues["in"]) // its moment was 26 ms ago
	late(26)
	w.settle()
	late(0)
	w.close()
}
