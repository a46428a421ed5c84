package partition

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/deadletter"
	"bartleby.mq/internal/message"
	"bartleby.mq/internal/queue"
)

// guarded is a Router that must not be asked while its caller has the topology locked.
type guarded struct {
	*world
	locked bool
}

func (g *guarded) RouteDead(q *Queue, exchange string, keys []string, r message.Record, h *deadletter.History, out []*Queue) ([]*Queue, bool, bool) {
	if g.locked {
		g.t.Error("Delete routes dead letters: its caller, who has the topology locked, would wait for itself")
	}
	return g.world.RouteDead(q, exchange, keys, r, h, out)
}

// BR-7.9: what has expired when a deletion is refused dies all the same, but is not
// routed by whoever wanted to delete.
func TestRefusedDeleteLeavesTheDead(t *testing.T) {
	w := newWorld(t, vfs.NewMem(), []definition{
		{"q", queue.Config{MaxPriority: -1}, settings(func(s *queue.Settings) { s.DeadLetter = true }), DeadLetter{Exchange: "dlx"}},
		{"dlq", queue.Config{MaxPriority: -1}, settings(func(*queue.Settings) {}), DeadLetter{}},
	}, table{"dlx": {"dlq"}}, 1000, nil)
	defer func() { _ = w.j.Close() }()
	g := &guarded{world: w}
	w.n.Router = g
	if err := w.n.Recover(); err != nil {
		t.Fatal(err)
	}
	q := w.queues["q"]
	w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{q}, Body: w.record(1, false, 10), TTL: 5, Priority: -1}})
	w.now += 10

	refusal := errors.New("in use")
	g.locked = true
	if _, err := w.n.Delete(q, func(Counts) error { return refusal }); !errors.Is(err, refusal) {
		t.Fatalf("Delete: %v", err)
	}
	g.locked = false
	w.settle()
	if n := w.n.Counts(w.queues["dlq"]).Ready; n != 1 {
		t.Errorf("%d dead letters arrived, want 1", n)
	}
	if _, err := w.n.Delete(q, nil); err != nil {
		t.Errorf("Delete: %v", err)
	}
	if _, err := w.n.Delete(q, nil); !Gone(err) {
		t.Errorf("Delete of a queue that is gone: %v", err)
	}
	w.settle()
}
