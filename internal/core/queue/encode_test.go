package queue

import (
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

// A page of another version is refused.
func TestAPageOfAnotherVersionIsRefused(t *testing.T) {
	_, page := encoded(t, 1, func(int) message.Ref { return 300 })
	for _, version := range []byte{0, 2} {
		page[0] = version
		if err := index.CheckPage(page); err == nil {
			t.Errorf("a page of version %d is read", version)
		}
	}
}
