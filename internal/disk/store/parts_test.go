package store

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// What is applied at once may be more than a frame of the log has room for: it is several, and all of it or
// nothing is there after a crash.
func TestALargeChangeHasPartsInTheLog(t *testing.T) {
	const keys = 5
	large := func(yield func(k, v []byte) bool) {
		for i := range keys {
			if !yield(fmt.Appendf(nil, "k%d", i), []byte(strings.Repeat("v", partBytes/2))) {
				return
			}
		}
	}
	fs := vfs.NewCrashableMem()
	s := open(t, fs)
	apply(t, s, true, "before", "1")
	parts, err := s.split(large)
	if err != nil || len(parts) != 3 {
		t.Errorf("%d parts, %v; want 3", len(parts), err)
	}
	for _, b := range parts {
		if b.Len() > 2*partBytes {
			t.Errorf("a part has %d bytes, want some %d", b.Len(), partBytes)
		}
		_ = b.Close()
	}
	if err := s.Apply(large, true); err != nil {
		t.Fatal(err)
	}
	apply(t, s, true, "behind", "1")
	crashed := fs.CrashClone(vfs.CrashCloneCfg{})
	closed(t, s)
	for range 2 {
		s = open(t, crashed)
		for i := range keys {
			if v, ok, err := s.Get(nil, fmt.Appendf(nil, "k%d", i)); len(v) != partBytes/2 || !ok || err != nil {
				t.Errorf("k%d has %d bytes, %v, %v", i, len(v), ok, err)
			}
		}
		if _, ok, _ := s.Get(nil, []byte("behind")); !ok {
			t.Error("what came behind is missing")
		}
		closed(t, s)
	}
}

// Parts without the others are nothing, wherever in the log: what a crash has cut short, and what a repair has passed over.
func TestPartsOfAChangeAreNothingWithoutTheOthers(t *testing.T) {
	for name, lost := range map[string]int{"the first": 0, "one between": 1, "the last": 2, "none": -1} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			s := open(t, fs)
			apply(t, s, true, "before", "1")
			for i := range 3 {
				if i == lost {
					continue
				}
				b := s.db.NewBatch()
				if err := b.Set(fmt.Appendf(nil, "part%d", i), []byte("1"), nil); err != nil {
					t.Fatal(err)
				}
				s.log.journal.AppendParts(partHead(i, 3), b.Repr()[8:])
				if err := b.Close(); err != nil {
					t.Fatal(err)
				}
			}
			apply(t, s, true, "behind", "1")
			closed(t, s)
			s = open(t, fs)
			defer closed(t, s)
			if got := list(t, s, "b"); len(got) != 2 {
				t.Errorf("found %q, want what was before and behind", got)
			}
			if got := list(t, s, "p"); len(got) != 0 && lost >= 0 || len(got) != 3 && lost < 0 {
				t.Errorf("found %q of a change of which is missing: %s", got, name)
			}
		})
	}
}

// A backup sees a change as a whole or not at all.
func TestASnapshotHasNoPartOfAChange(t *testing.T) {
	s := open(t, vfs.NewMem())
	defer closed(t, s)
	s.log.mu.Lock() // as while a change is being applied
	taken := make(chan *Snapshot)
	go func() { taken <- s.Snapshot() }()
	if err := s.db.Set([]byte("a"), []byte("1"), pebble.NoSync); err != nil {
		t.Fatal(err)
	}
	select {
	case <-taken:
		t.Error("a snapshot was taken within a change")
	default:
	}
	s.log.mu.Unlock()
	at := <-taken
	defer func() { _ = at.Close() }()
	n := 0
	if err := rangeOver(at.at, "data", []byte("a"), func(_, _ []byte) error { n++; return nil }); err != nil || n != 1 {
		t.Errorf("the snapshot has %d of 1 keys, %v", n, err)
	}
}

func TestPartsAreReadBackEqual(t *testing.T) {
	for _, of := range []int{2, 3, 255, 256, 65_536, 1 << 23} {
		for _, index := range []int{0, 1, of / 2, of - 1} {
			i, n, repr := partOf(append(partHead(index, of), 1, 2, 3))
			if i != index || n != of || binary.LittleEndian.Uint64(repr) != 0 || len(repr) != 11 {
				t.Errorf("part %d of %d reads as %d of %d, %x", index, of, i, n, repr)
			}
		}
	}
}
