package queue

import (
	"bytes"
	"testing"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue/index"
)

// encoded is the copy of a page with n entries that each have a history.
func encoded(t *testing.T, n int, history func(i int) message.Ref) (s *shelf, page []byte) {
	t.Helper()
	s = newShelf()
	m := New(Config{Type: Classic, Durable: true}, Unlimited(), &Pages{}, &restored{}, 1)
	m.SetCold(s)
	m.pages.Begin(1)
	for i := range n {
		m.Enqueue(1, &Entry{Content: Content{Body: message.Ref(i + 1), History: history(i), Size: 10, Logged: true}, TTL: -1, Priority: -1})
	}
	m.pages.Cut()
	if _, done := m.SaveSome(index.SaveCursor{}, 10); !done || len(s.pages) != 1 {
		t.Fatalf("%d pages were saved", len(s.pages))
	}
	for _, p := range s.pages {
		page = p.page
	}
	return s, page
}

// The shared part of histories is in a page once, and so is a history that neighbours share.
func TestWhatHistoriesHaveInCommonStandsOnce(t *testing.T) {
	_, none := encoded(t, index.PageSize-1, func(int) message.Ref { return 0 })
	_, one := encoded(t, index.PageSize-1, func(int) message.Ref { return 1 << 50 })
	// As the shelf divides histories, two of these three have eight bytes in common with all.
	_, each := encoded(t, index.PageSize-1, func(i int) message.Ref { return 1<<50 + message.Ref(i%8) })
	for _, c := range []struct {
		what      string
		got, most int
	}{
		{"one history", len(one) - len(none), index.PageSize*3 + 20},
		{"eight histories", len(each) - len(none), index.PageSize*3 + 8*12 + 12},
	} {
		if c.got > c.most {
			t.Errorf("%s of %d entries: %d bytes, want %d at most", c.what, index.PageSize, c.got, c.most)
		}
	}
}

// A page of the previous version, with whole histories, is read.
func TestAPageOfVersion1IsRead(t *testing.T) {
	const history message.Ref = 300 // a history with no shared part
	s, page := encoded(t, 1, func(int) message.Ref { return history })
	own := s.Bytes(history)
	tail := append([]byte{1, 0, byte(len(own))}, own...) // the first history, nothing in common, its bytes
	if page[0] != 2 || !bytes.HasSuffix(page, tail) {
		t.Fatalf("the page is %x", page)
	}
	old := append(bytes.Clone(page[:len(page)-len(tail)]), tail[0])
	old = append(old, tail[2:]...)
	old[0] = 1
	for id, p := range s.pages {
		s.pages[id] = shelved{old, p.summary}
	}
	back := New(Config{Type: Classic, Durable: true}, Unlimited(), &Pages{}, &restored{}, 1)
	if err := s.restore(back, 1); err != nil {
		t.Fatal(err)
	}
	if all := browse(back, 1); len(all) != 1 || all[0].History != history {
		t.Errorf("it has %+v", all)
	}
	page[0] = 3
	if err := index.CheckPage(page); err == nil {
		t.Error("a page of a version to come is read")
	}
}
