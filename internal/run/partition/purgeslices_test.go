package partition

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/queue/index"
)

// A purge of many messages works in slices, also if the messages that it removes lie between others that stay, and it
// does not read the others. Messages that come meanwhile stay, and so do deliveries.
func TestAPurgeGoesInSlices(t *testing.T) {
	const messages = 20 * sliceLimit
	defs := []definition{{"q", classic, queue.Unlimited(), DeadLetter{}}}
	fs := vfs.NewMem()
	w := open(t, fs, defs, nil, 1_700_000_000_000, nil)
	q, serial := w.queues["q"], message.Serial(0)
	publish := func(delay int64) {
		serial++
		w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{q}, Body: w.record(serial, true, 10), TTL: -1, Priority: -1, Delay: delay}})
	}
	for i := range messages {
		publish(int64(i%2) * 1000)
	}
	q.part.longest = 0
	n, err := w.n.Purge(q)
	if err != nil || n != messages/2 {
		t.Fatal(n, err)
	}
	if q.part.longest > 2*sliceLimit || q.part.longest == 0 {
		t.Errorf("%d entries went at once", q.part.longest)
	}
	var to index.Purging
	slice := func() (more bool) {
		h := w.n.lock(q.part)
		defer w.n.unlock(h)
		_, more = q.m.PurgeSome(&to, 1, nil)
		return more
	}
	publish(0)
	if !slice() {
		t.Fatal("one slice is all")
	}
	publish(0)
	for slice() {
	}
	if n := q.m.Totals(); n.Ready != 1 || n.Delayed != messages/2 {
		t.Errorf("%+v stay", n)
	}
}
