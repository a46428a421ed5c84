package queue

import (
	"slices"

	"pgregory.net/rapid"

	"bartleby.mq/internal/core/message"
)

// foresee looks at what is due soon, and finds all that has to be read then and nothing else.
func (p *pair) foresee(t *rapid.T) {
	m := p.m
	until := p.now + rapid.SampledFrom([]int64{1, 50, 500, 1 << 40}).Draw(t, "for")
	var pages []ID
	for c, more := (ComingCursor{}), true; more; {
		c, more, pages = m.ComingPages(c, until, pages)
	}
	slices.Sort(pages)
	seen, found := map[ID]int64{}, map[message.Location]bool{}
	mark := rapid.Bool().Draw(t, "mark")
	for _, id := range slices.Compact(pages) {
		if page := m.lanes[id.Lane()].loaded(id.Seq() / pageSize); page != nil {
			seen[id] = page.seen
		}
		for _, c := range m.ComingBodies(id, until, mark, nil) {
			found[c.At] = true
		}
		if mark && len(m.ComingBodies(id, until, mark, nil)) > 0 {
			t.Fatalf("page %d is seen, and its entries are found again", id)
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
				after := seen[makeID(level, s.number*pageSize)]
				if after > until {
					after = 0
				}
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
		t.Fatalf("%d bodies are foreseen that nobody needs until %d", len(found), until)
	}
}
