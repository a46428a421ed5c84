package partition

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

// A purge costs what it removes: the journal does not name each message that stays if more stay than go. A restart
// finds the same messages either way.
func TestAPurgeWritesNoMoreThanWhatGoes(t *testing.T) {
	for _, c := range []struct{ out, ready, most int }{{1000, 3, 100}, {3, 1000, 100}, {2, 2, 100}, {1000, 0, 100}} {
		fs, defs := vfs.NewCrashableMem(), []definition{{"q", classic, queue.Unlimited(), DeadLetter{}}}
		w := open(t, fs, defs, nil, 1_700_000_000_000, nil)
		q, serial := w.queues["q"], message.Serial(0)
		publish := func(n int) {
			for range n {
				serial++
				w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{q}, Body: w.record(serial, true, 10), TTL: -1, Priority: -1}})
			}
		}
		publish(c.out)
		for range c.out {
			if d, _, ok, err := w.n.Get(q, false); !ok || err != nil {
				t.Fatal(ok, err)
			} else {
				w.n.bodies.Release(d.Body)
			}
		}
		publish(c.ready)
		ruler := []byte{frameVersion, opCut}
		begin := w.j.Append(ruler)
		if n, err := w.n.Purge(q); n != c.ready || err != nil {
			t.Fatal(n, err)
		}
		if wrote := int(w.j.Append(ruler) - begin); wrote > c.most {
			t.Errorf("with %d that stay, a purge of %d writes %d bytes, want %d at most", c.out, c.ready, wrote, c.most)
		}
		if err := w.j.Flush(); err != nil {
			t.Fatal(err)
		}
		w.close()
		w = open(t, fs, defs, nil, 1_700_000_000_000, nil)
		if n := w.queues["q"].counts(w.now); n.Ready != c.out || n.Messages() != c.out {
			t.Errorf("after a restart there are %+v, want %d ready", n.Totals, c.out)
		}
		w.close()
	}
}
