package cluster

import (
	"encoding/binary"
	"fmt"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/disk/journal"
)

// recorder is a machine that remembers what it was given.
type recorder struct {
	mu       sync.Mutex
	applied  uint64
	commands []string
	at       []journal.Pos
	calls    []string
	onApply  func([]Entry)
	snapErr  error
}

func (r *recorder) Apply(entries []Entry) {
	r.mu.Lock()
	for i := range entries {
		e := &entries[i]
		if e.Index != r.applied+1 && r.applied != 0 {
			panic(fmt.Sprintf("entry %d applied after %d", e.Index, r.applied))
		}
		r.applied = e.Index
		if len(e.Data) > 0 {
			r.commands = append(r.commands, string(e.Data))
			r.at = append(r.at, e.At)
		}
	}
	r.mu.Unlock()
	if r.onApply != nil {
		r.onApply(entries)
	}
}

func (r *recorder) Snapshot() ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.snapErr != nil {
		return nil, r.snapErr
	}
	b := binary.AppendUvarint(nil, r.applied)
	for _, c := range r.commands {
		b = binary.AppendUvarint(b, uint64(len(c)))
		b = append(b, c...)
	}
	return b, nil
}

func (r *recorder) Restore(snapshot []byte, _ journal.Pos) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	rd := reader{b: snapshot}
	r.applied, r.commands, r.at = rd.uint(), nil, nil
	for rd.at < len(rd.b) && !rd.bad {
		r.commands = append(r.commands, string(rd.bytes(rd.uint())))
		r.at = append(r.at, 0)
	}
	r.calls = append(r.calls, "restore")
	if rd.bad {
		return ErrFrame
	}
	return nil
}

func (r *recorder) Leading(term uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, fmt.Sprintf("leading %d", term))
}

func (r *recorder) Following(leader uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, fmt.Sprintf("following %d", leader))
}

func (r *recorder) Room() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, "room")
}

func (r *recorder) got() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.commands...)
}

// node is a driver on a disk of its own, with one group.
type node struct {
	fs *vfs.MemFS
	j  *journal.Journal
	d  *Driver
	g  *Group
	m  *recorder
}

// openNode recovers a node with one group from st and its disk. It is not started.
func openNode(t testing.TB, fs *vfs.MemFS, st State, m *recorder, change ...func(*Options)) *node {
	t.Helper()
	j, err := journal.Open(journal.Options{FS: fs, Dir: "journal", SegmentBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	o := Options{ID: 1, Journal: j, OnFatal: func(err error) { t.Errorf("OnFatal: %v", err) }}
	for _, c := range change {
		c(&o)
	}
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	g, err := d.Open(7, m, st)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Recover(0, d.Recovered); err != nil {
		t.Fatal(err)
	}
	return &node{fs, j, d, g, m}
}

// pump commits what a stepped driver wrote until there is nothing left.
func (n *node) pump(t testing.TB) {
	t.Helper()
	for pos, more := n.d.Unsynced(); more; pos, more = n.d.Unsynced() {
		if err := n.d.Commit(pos); err != nil {
			t.Fatal(err)
		}
	}
}

func (n *node) propose(t testing.TB, commands ...string) {
	t.Helper()
	for _, c := range commands {
		if err := n.g.Propose([]byte(c)); err != nil {
			t.Fatalf("Propose(%s): %v", c, err)
		}
	}
}
