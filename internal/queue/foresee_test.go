package queue

import (
	"testing"

	"pgregory.net/rapid"

	"bartleby.mq/internal/message"
)

// foresee looks at what is due soon, and finds all that has to be read then and nothing else.
func (p *pair) foresee(t *rapid.T) {
	m := p.m
	after := p.now + rapid.SampledFrom([]int64{0, 30}).Draw(t, "after")
	until := after + rapid.SampledFrom([]int64{1, 50, 500, 1 << 40}).Draw(t, "for")
	found := map[message.Location]bool{}
	for _, page := range m.ComingPages(until, nil) {
		for _, c := range m.ComingBodies(page, after, until, nil) {
			found[c.At] = true
		}
	}
	for level, l := range m.lanes {
		if l == nil {
			continue
		}
		for _, s := range l.slots {
			if s.page == nil {
				continue
			}
			for i := s.page.live.next(0); i < pageSize; i = s.page.live.next(i + 1) {
				state, due, ref := s.page.state(i), s.page.dueAt(i), s.page.refs[s.page.at(i)]
				read := state == stateDelayed || m.settings.DeadLetter && m.watches(state)
				if !ref.OnDisk() || !read || due <= after || due > until {
					continue
				}
				if !found[ref.Location()] {
					t.Fatalf("entry %d, due at %d, is not foreseen between %d and %d", makeID(level, s.number*pageSize+uint64(i)), due, after, until)
				}
				delete(found, ref.Location())
			}
		}
	}
	if len(found) > 0 {
		t.Fatalf("%d bodies are foreseen that nobody needs between %d and %d", len(found), after, until)
	}
}

func TestAlarmsBy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var a alarms
		for _, at := range rapid.SliceOf(rapid.Int64Range(0, 100)).Draw(t, "moments") {
			a.push(alarm{at, uint64(len(a))})
		}
		until := rapid.Int64Range(0, 100).Draw(t, "until")
		want := map[alarm]bool{}
		for _, x := range a {
			if x.at <= until {
				want[x] = true
			}
		}
		a.by(until, 0, func(x alarm) {
			if !want[x] {
				t.Fatalf("%v is found twice or is later than %d", x, until)
			}
			delete(want, x)
		})
		if len(want) > 0 {
			t.Fatalf("%v are not found", want)
		}
	})
}
