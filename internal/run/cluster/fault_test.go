package cluster

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"bartleby.mq/internal/disk/journal"
)

// A failed sync ends the driver: what was proposed is never applied, the node is
// told once, and nothing more is taken.
func TestFailedSync(t *testing.T) {
	broken := false
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken && op.Kind == errorfs.OpFileSyncData {
			return errors.New("the disk is gone")
		}
		return nil
	}))
	j, err := journal.Open(journal.Options{FS: fs, Dir: "journal"})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if err := j.Recover(0, nil); err != nil {
		t.Fatal(err)
	}
	told := make(chan error, 2)
	d, err := New(Options{ID: 1, Journal: j, OnFatal: func(err error) { told <- err }})
	if err != nil {
		t.Fatal(err)
	}
	m := &recorder{}
	g, err := d.Open(7, m, FirstState(1))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	broken = true
	if err := g.Propose([]byte("lost")); err != nil {
		t.Fatal(err)
	}
	if err := <-told; err == nil {
		t.Error("OnFatal(nil)")
	}
	if err := g.Propose([]byte("more")); !errors.Is(err, ErrStopped) {
		t.Errorf("Propose after a failed sync: %v", err)
	}
	if err := d.Commit(1 << 50); err == nil {
		t.Error("Commit after a failed sync succeeds")
	}
	d.Stop()
	if got := m.got(); len(got) > 0 {
		t.Errorf("applied %q, which is not durable", got)
	}
	if len(told) > 0 {
		t.Error("OnFatal was called twice")
	}
}

// A log with a hole is refused, by the frame that shows it and at the start.
func TestHoleInTheLog(t *testing.T) {
	d, err := New(Options{ID: 1, Journal: emptyJournal(t)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Open(7, &recorder{}, FirstState(1, 2, 3)); err != nil {
		t.Fatal(err)
	}
	pos, payload, _ := written(t, nil, nil, Entry{Index: 9, Term: 2, Data: []byte("x")})
	var lost *LostError
	if err := d.Recovered(pos, payload); !errors.As(err, &lost) || lost.Have != 1 || lost.Wanted != 9 {
		t.Fatalf("entry 9 after entry 1: %v, want a LostError", err)
	}
	if err := d.StartStepped(); !errors.As(err, &lost) {
		t.Fatalf("start: %v, want a LostError", err)
	}
}

// So is a log shorter than what is known to be decided.
func TestLogShorterThanDecided(t *testing.T) {
	d, err := New(Options{ID: 1, Journal: emptyJournal(t)})
	if err != nil {
		t.Fatal(err)
	}
	st := FirstState(1, 2, 3)
	st.Commit = 5
	if _, err := d.Open(7, &recorder{}, st); err != nil {
		t.Fatal(err)
	}
	var lost *LostError
	if err := d.StartStepped(); !errors.As(err, &lost) {
		t.Fatalf("start: %v, want a LostError", err)
	}
}

// A frame that is not ours or not whole is an error, not a panic; one of a group
// that is gone is passed over.
func TestRecoveredFrames(t *testing.T) {
	d, err := New(Options{ID: 1, Journal: emptyJournal(t)})
	if err != nil {
		t.Fatal(err)
	}
	pos, payload, _ := written(t, someHard, nil)
	if err := d.Recovered(pos, payload); err != nil {
		t.Errorf("a frame of a group that is not open: %v", err)
	}
	for n := range payload {
		if err := d.Recovered(pos, payload[:n]); !errors.Is(err, ErrFrame) {
			t.Errorf("%d bytes of a frame of %d: %v", n, len(payload), err)
		}
	}
}

func emptyJournal(t *testing.T) *journal.Journal {
	t.Helper()
	j, err := journal.Open(journal.Options{FS: vfs.NewMem(), Dir: "journal"})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Recover(0, nil); err != nil {
		t.Fatal(err)
	}
	return j
}
