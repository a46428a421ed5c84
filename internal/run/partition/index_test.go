package partition

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

var indexQueues = []definition{
	{"c", classic, settings(func(s *queue.Settings) { s.DeadLetter = true }), DeadLetter{Exchange: "x"}},
	{"q", quorum, settings(func(s *queue.Settings) { s.DeadLetter, s.TTL = true, 40 }), DeadLetter{Exchange: "x"}},
	{"d", classic, queue.Unlimited(), DeadLetter{}},
}

// indexed is a file system with an index that has everything: whole pages, a split one, dead letters, mail.
func indexed(t testing.TB) *vfs.MemFS {
	t.Helper()
	fs := vfs.NewCrashableMem()
	w := open(t, fs, indexQueues, table{"x": {"d"}}, 1_700_000_000_000, nil)
	w.lenient.Store(true)
	publish := func(q string, n int, ttl func(i int) int64) {
		for i := range n {
			w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{w.queues[q]}, Body: w.record(message.Serial(i), true, 10), TTL: ttl(i), Priority: -1}})
			w.now++
		}
	}
	publish("c", 600, func(int) int64 { return -1 })
	publish("q", 300, func(int) int64 { return 1 << 30 })
	publish("d", 600, func(i int) int64 { return 1_000 + int64(i%100)*1_000 })
	w.putAway(true)
	if err := w.n.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	w.now += 3_000
	w.settle()
	if err := w.n.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	w.close()
	return fs
}

func copyOf(fs *vfs.MemFS) *vfs.MemFS {
	return fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
}

// pairs are the pairs of the index on fs.
func pairs(t testing.TB, fs *vfs.MemFS) (keys, values [][]byte) {
	t.Helper()
	w := newWorld(t, copyOf(fs), nil, nil, 0, nil)
	defer w.close()
	err := w.index.Range(nil, func(key, value []byte) error {
		keys, values = append(keys, bytes.Clone(key)), append(values, bytes.Clone(value))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return keys, values
}

// recoverWith recovers from the index with another value for a key. A useless value is refused, or the node ends as
// when the disk fails; nothing else may panic.
func recoverWith(t testing.TB, fs *vfs.MemFS, key, value []byte) (err error) {
	t.Helper()
	w := newWorld(t, copyOf(fs), indexQueues, table{"x": {"d"}}, 1_700_000_001_000, nil)
	w.faulty = true
	defer w.close()
	if err := w.index.Put(key, value); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if w.fatals.Load() > 0 {
			_ = recover()
			err = errors.New("the node ended")
		}
	}()
	return w.n.Recover()
}

// Recovery returns an error or a sound node, whatever the index contains.
func FuzzIndex(f *testing.F) {
	fs := indexed(f)
	keys, values := pairs(f, fs)
	kinds := map[byte]bool{}
	for i := range keys {
		kinds[keys[i][0]] = true
		f.Add(uint16(i), values[i])
	}
	for _, kind := range []byte{keyCheckpoint, keyMeta, keyPage, keySummary, keyDelta, keyLocal} {
		if !kinds[kind] {
			f.Fatalf("nothing of kind %c is in the index", kind)
		}
	}
	f.Fuzz(func(t *testing.T, which uint16, value []byte) {
		_ = recoverWith(t, fs, keys[int(which)%len(keys)], value)
	})
}

// An impossible place on disk, in a page, a summary or a checkpoint, is an error like any other nonsense.
func TestAPlaceThatCannotBeIsRefused(t *testing.T) {
	fs := indexed(t)
	keys, values := pairs(t, fs)
	summary := func(segment, bodies uint64) []byte {
		b := []byte{2, 0, 1, 1, 0, 1, 10, 1} // nothing is due; one entry is logged; one is ready, of 10 bytes; one segment
		return binary.AppendUvarint(binary.AppendUvarint(b, segment), bodies)
	}
	for i, key := range keys {
		switch inc, _, _ := splitPageKey(key); key[0] {
		case keySummary:
			if inc != 1 {
				continue // it may not be read, because there is a delta
			}
			for what, value := range map[string][]byte{
				"a space that is none":           summary(3<<29|7, 1),
				"no segment":                     summary(0, 1),
				"a segment that is too large":    summary(1<<32|7, 1),
				"more bodies than a page has":    summary(7, 257),
				"bodies beyond 36 bits":          summary(7, 1<<35),
				"bodies beyond 63 bits":          summary(7, 1<<63),
				"as many bodies as are negative": summary(7, math.MaxUint64),
			} {
				if err := recoverWith(t, fs, key, value); err == nil {
					t.Errorf("a summary with %s: no error", what)
				}
			}
		case keyCheckpoint:
			for _, file := range []string{`{"space":3,"segment":7,"placed":1}`, `{"space":1,"segment":4294967295,"placed":1}`, `{"space":1,"segment":7,"placed":-1}`} {
				var c map[string]any
				if err := json.Unmarshal(values[i], &c); err != nil {
					t.Fatal(err)
				}
				c["files"] = []json.RawMessage{json.RawMessage(file)}
				value, err := json.Marshal(c)
				if err != nil {
					t.Fatal(err)
				}
				if err := recoverWith(t, fs, key, value); err == nil {
					t.Errorf("a checkpoint with the file %s: no error", file)
				}
			}
		}
	}
}
