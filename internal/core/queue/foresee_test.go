package queue

import (
	"slices"

	"pgregory.net/rapid"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue/index"
)

// foresee finds exactly the bodies that will have to be read soon.
func (p *pair) foresee(t *rapid.T) {
	m := p.m
	until := p.now + rapid.SampledFrom([]int64{1, 50, 500, 1 << 40}).Draw(t, "for")
	var pages []ID
	for c, more := (index.ComingCursor{}), true; more; {
		c, more, pages = m.ComingPages(c, until, pages)
	}
	slices.Sort(pages)
	seen, found := map[ID]int64{}, map[message.Location]bool{}
	mark := rapid.Bool().Draw(t, "mark")
	for _, id := range slices.Compact(pages) {
		for _, page := range m.Survey(id.Lane()) {
			if page.Number == id.Seq()/index.PageSize && !page.Cold {
				seen[id] = page.Seen
			}
		}
		for _, c := range m.ComingBodies(id, until, mark, nil) {
			found[c.At] = true
		}
		if mark && len(m.ComingBodies(id, until, mark, nil)) > 0 {
			t.Fatalf("page %d is seen, and its entries are found again", id)
		}
	}
	m.RangeInMemory(func(id ID, at index.Place, _ bool) {
		state, due := at.State(), m.Column(at)
		read := state == index.Delayed || m.settings.DeadLetter && !m.config.Strict && at.Ready()
		after := seen[id-id%index.PageSize]
		if after > until {
			after = 0
		}
		if !at.Body().OnDisk() || !read || due <= after || due > until {
			return
		}
		if !found[at.Body().Location()] {
			t.Fatalf("entry %d, due at %d, is not foreseen between %d and %d", id, due, after, until)
		}
		delete(found, at.Body().Location())
	})
	if len(found) > 0 {
		t.Fatalf("%d bodies are foreseen that nobody needs until %d", len(found), until)
	}
}
