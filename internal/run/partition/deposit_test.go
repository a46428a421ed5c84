package partition

import (
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

// What is deposited is in its queue after a crash, with its history, as far as the queue had room; what moves to no target is
// nowhere, on both types of queues.
func TestDepositsAndMovesToNowhereAfterACrash(t *testing.T) {
	defs := []definition{full("c", classic, 3), full("q", quorum, 10)}
	fs := vfs.NewCrashableMem()
	w := startQueues(t, fs, 1, nil, defs, table{})
	list := make([]Deposit, 4)
	for i := range list {
		h := deadletter.History{Keys: []string{"k"}, Marks: deadletter.Marks{Job: uint64(1 + i/2), Draft: true}}
		h.Record(&deadletter.Event{Queue: "work", Reason: deadletter.Rejected, Time: int64(i), Expiration: -1, Keys: []string{"k"}, NextKeys: []string{"c"}})
		list[i] = Deposit{Body: w.record(message.Serial(i + 1)), History: h.Append(nil)}
	}
	if err := w.n.Deposit(w.queues["c"], list); err != nil {
		t.Fatal(err)
	}
	for i, d := range list {
		if d.Taken != (i < 3) || d.Taken && d.ID == 0 {
			t.Errorf("deposit %d of a queue with room for 3: taken %v as %d", i, d.Taken, d.ID)
		}
	}
	if err := w.n.Enter([]Op{{Kind: Publish, Targets: []*Queue{w.queues["q"]}, Body: w.record(9), TTL: -1, Priority: -1}}); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{"c", "q"} {
		var id queue.ID
		if _, _, err := w.n.Glance(w.queues[from], queue.Cursor{}, 1, func(v queue.View) bool { id = v.ID; return true }); err != nil {
			t.Fatal(err)
		}
		moved, err := w.n.Move(t.Context(), w.queues[from], []Move{{ID: id, History: []byte{1}}})
		if err != nil || moved[0].What != MoveDone {
			t.Errorf("%s: %+v, %v", from, moved, err)
		}
	}
	fs = fs.CrashClone(vfs.CrashCloneCfg{})
	w.stop()
	w = startQueues(t, fs, 2, nil, defs, table{})
	defer w.stop()
	if c := w.n.Counts(w.queues["q"]); c.Messages() != 0 {
		t.Errorf("%d are left of the one that moved to nowhere", c.Messages())
	}
	var serials []message.Serial
	if _, _, err := w.n.Browse(w.queues["c"], queue.Cursor{}, 10, func(_ queue.View, r message.Record, history []byte) bool {
		serials = append(serials, r.Serial())
		if !slices.Equal(history, list[r.Serial()-1].History) {
			t.Errorf("message %d has another history", r.Serial())
		}
		return true
	}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(serials, []message.Serial{2, 3}) {
		t.Errorf("the queue has %v, want 2 and 3", serials)
	}
}
