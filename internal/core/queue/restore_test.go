package queue

import (
	"slices"

	"pgregory.net/rapid"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
)

// restore repeats what a journal would contain and compares the new queue with the one that went on: the logged
// entries, each in the state last recorded.
func (p *pair) restore(t *rapid.T) {
	sink := &restored{}
	m := New(p.m.config, p.m.settings, &Pages{}, sink, p.now)
	for _, f := range p.log {
		f(m)
		if err := m.Check(); err != nil {
			t.Fatal("during recovery: ", err)
		}
	}
	p.compare(t, m, sink)
}

// compare compares m, which was restored, with p.m.
func (p *pair) compare(t *rapid.T, m *Machine, sink *restored) {
	want := slices.DeleteFunc(p.settleDues(browse(p.m, 100)), func(v View) bool { return !v.Logged })
	got := p.settleDues(browse(m, 100))
	if len(got) != len(want) {
		t.Fatalf("%d entries were restored, want %d", len(got), len(want))
	}
	quorum := p.m.config.Type == Quorum
	for i, w := range want {
		g := got[i]
		if reason := p.told[w.ID]; reason != 0 {
			w.Held, w.DiedAt = reason, g.DiedAt // whether it waits to be routed or is held
		}
		if g.ID != w.ID || g.Body != w.Body || g.History != w.History || g.Size != w.Size || g.Held != w.Held || g.Offered != w.Offered || g.Due != w.Due {
			t.Fatalf("an entry was restored as %+v, it was %+v", g, w)
		}
		if w.Dead {
			continue // its consumer's last action is recorded only with the death
		}
		if quorum && (g.Out != w.Out || g.Counts != w.Counts || g.Redelivered != w.Redelivered) {
			t.Fatalf("an entry was restored as %+v, it was %+v", g, w)
		}
		if g.NotBefore != w.NotBefore && (w.NotBefore != 0 || g.NotBefore > p.now) {
			t.Fatalf("an entry waits until %d, restored until %d", w.NotBefore, g.NotBefore)
		}
	}
	p.restoreEnd(t, m, sink)
}

// restoreEnd ends the recovery: no delivery is out any longer, and entries are lost only by deaths and TTLs.
func (p *pair) restoreEnd(t *rapid.T, m *Machine, sink *restored) {
	before := len(browse(m, 100))
	sink.removed = 0
	m.Restored(p.now)
	for m.Tick(p.now, 3) {
	}
	if err := m.Check(); err != nil {
		t.Fatal("after recovery: ", err)
	}
	if n := m.Count; n.Out != 0 || n.Ready+n.Delayed+n.Dying+n.Held+n.Offered+sink.removed != before {
		t.Fatalf("%d entries became %+v after recovery, %d were removed", before, n, sink.removed)
	}
}

type restored struct{ removed int }

func (s *restored) Deliver(*Consumer, *Delivery) bool          { return true }
func (s *restored) Removed(ID, message.Ref, message.Ref, bool) { s.removed++ }
func (s *restored) Died(deadletter.Reason, bool)               {}
func (s *restored) Returned(ID, Counts, int64)                 {}
func (s *restored) TookBack(*Consumer, ID)                     {}
func (s *restored) Active(*Consumer, bool, int)                {}
func (s *restored) TimedOut(*Consumer, int)                    {}
func (s *restored) Broke(BreakerChange, Broken)                {}
func (s *restored) Ended(ID, deadletter.Reason, bool)          {}
