package queue

import (
	"testing"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue/index"
)

// A browse does not meet messages that enter meanwhile, at any level.
func TestWhatIsThereEndsWithIt(t *testing.T) {
	m := New(Config{Type: Classic, MaxPriority: 3}, Unlimited(), &Pages{}, &restored{}, 1)
	there := 0
	enqueue := func(body int) {
		there++
		m.Enqueue(1, &Entry{Content: Content{Body: message.Ref(body)}, TTL: -1, Priority: body % 3})
	}
	const entries = 3 * index.PageSize / 2
	for i := range entries {
		enqueue(i)
	}
	for _, step := range []int{1, 2, index.PageSize, 3 * entries} {
		cursor, want, seen := m.WhatIsThere(), there, 0
		for done := false; !done; {
			cursor, done = m.Browse(cursor, step, func(View) bool {
				seen++
				return true
			})
			enqueue(seen)
			if seen > 2*want {
				break
			}
		}
		if seen != want {
			t.Errorf("%d at a time: %d entries were shown, want %d", step, seen, want)
		}
	}
	empty := New(Config{Type: Classic}, Unlimited(), &Pages{}, &restored{}, 1)
	cursor := empty.WhatIsThere()
	empty.Enqueue(1, &Entry{Content: Content{Body: 1}, TTL: -1, Priority: -1})
	if _, done := empty.Browse(cursor, 1, func(v View) bool { t.Errorf("%d was shown", v.ID); return true }); !done {
		t.Error("there is more")
	}
}
