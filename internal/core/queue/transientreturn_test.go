package queue

import (
	"testing"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue/index"
)

// Entries that are not logged are out at the cut of a checkpoint, come back, and their bodies go to disk before their page is
// saved. A start drops them with their process, and what comes back after that is delivered again: it was taken for one of
// them. Only quorum queues have a returns list, and they log everything: no node has met this.
func TestWhatComesBackAfterAStartIsNotTakenForADroppedMessage(t *testing.T) {
	s := newShelf()
	m := New(Config{Type: Quorum, Durable: true, MaxPriority: -1}, Unlimited(), &Pages{Hash: s.Bytes}, &restored{}, 1)
	m.SetCold(s)
	m.pages.Begin(1)
	deliver := func(m *Machine, logged bool, bodies ...message.Ref) (c *Consumer, ids []ID) {
		c = &Consumer{Tag: "c"}
		m.Attach(1, c)
		for _, body := range bodies {
			id, _ := m.Enqueue(1, &Entry{Content: Content{Body: body, Size: 10, Logged: logged}, Priority: -1, TTL: -1})
			m.Flow(1, id)
			ids = append(ids, id)
		}
		for m.Pump(1, sliceLimit) {
		}
		return c, ids
	}
	comeBack := func(m *Machine, c *Consumer, ids []ID) {
		m.Detach(1, c)
		for _, id := range ids {
			if !m.Return(1, id, c, ReturnNack) {
				t.Fatalf("entry %d was not out", id.Seq())
			}
		}
	}
	c, ids := deliver(m, false, 1, 2)
	version := m.pages.Cut()
	comeBack(m, c, ids)
	for m.pages.PutBodiesAway(10, 1000) {
	}
	for cursor, done := (index.SaveCursor{}), false; !done; {
		cursor, done = m.SaveSome(cursor, 3)
	}
	m.pages.CutDone()

	back := New(m.config, m.settings, &Pages{Hash: s.Bytes}, &restored{}, 1)
	if err := s.asOf(version).restore(back, version); err != nil {
		t.Fatal(err)
	}
	if err := back.Check(); err != nil {
		t.Error(err)
	}
	c, ids = deliver(back, true, 3)
	comeBack(back, c, ids)
	if d, ok, _ := back.GetFor(1, nil, true); !ok || d.ID != ids[0] {
		t.Errorf("what came back is not delivered: %v", back.Totals())
	}
}
