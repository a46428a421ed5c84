package queue

import (
	"testing"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue/index"
)

// A queue is deleted with the declarations locked: Close reads nothing from disk, and BuryRest saves what the
// checkpoint being written has of the queue.
func TestCloseLeavesTheDiskToBuryRest(t *testing.T) {
	ps := new(Pages)
	ps.Begin(1)
	cold := newShelf()
	m := New(Config{MaxPriority: -1, Durable: true}, Unlimited(), ps, &restored{}, 1)
	m.SetCold(cold)
	for body := range 3 * index.PageSize {
		m.Enqueue(1, &Entry{Content: Content{Body: message.Ref(body + 1), Logged: true}, TTL: -1})
	}
	version := ps.Cut()
	m.Close()
	if len(cold.metas)+len(cold.pages) > 0 {
		t.Errorf("Close has written %d states and %d pages", len(cold.metas), len(cold.pages))
	}
	for m.BuryRest(1) {
		continue
	}
	if cold.metas[version] == nil || len(cold.pages) == 0 {
		t.Errorf("the checkpoint has the state %x and %d pages", cold.metas[version], len(cold.pages))
	}
}
