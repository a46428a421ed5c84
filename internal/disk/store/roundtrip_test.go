package store

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// What is written is read back equal, out of memory, out of the log after a crash, and out of the tables: for keys and
// values of every length.
func TestPairsAreReadBackEqual(t *testing.T) {
	var keys, values []string
	for _, n := range []int{1, 2, 255, 256, 1000, 65_535, 65_536} {
		for _, c := range []string{"\x01", "k", "\xff"} {
			keys = append(keys, strings.Repeat(c, n))
			values = append(values, strings.Repeat("\x00", len(values)%5*n))
		}
	}
	keys, values = append(keys, "empty", "large"), append(values, "", strings.Repeat("v", 5<<20))
	check := func(what string, s *Store) {
		t.Helper()
		for i, key := range keys {
			if got, ok, err := s.Get(nil, []byte(key)); err != nil || !ok || string(got) != values[i] {
				t.Errorf("%s: %.20q of %d bytes reads %d bytes, %t, %v", what, key, len(key), len(got), ok, err)
			}
		}
		var found []string
		err := s.Range(nil, func(key, _ []byte) error {
			found = append(found, string(key))
			return nil
		})
		if sorted := slices.Sorted(slices.Values(keys)); err != nil || !slices.Equal(found, sorted) {
			t.Errorf("%s: %d keys of %d, %v", what, len(found), len(keys), err)
		}
	}
	fs := vfs.NewCrashableMem()
	s := open(t, fs)
	for i, key := range keys {
		err := s.Apply(func(yield func(k, v []byte) bool) {
			_ = yield([]byte(key), []byte("another")) && yield([]byte(key), nil) && yield([]byte(key), append([]byte{}, values[i]...))
		}, i == len(keys)-1)
		if err != nil {
			t.Fatal(err)
		}
	}
	check("out of memory", s)
	crashed := fs.CrashClone(vfs.CrashCloneCfg{})
	closed(t, s)
	s = open(t, crashed)
	check("after a crash", s)
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	closed(t, s)
	s = open(t, crashed)
	check("out of the tables", s)
	closed(t, s)

	u, err := OpenUnlogged(vfs.NewMem(), "index", slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, key := range keys {
		if err := u.Put([]byte(key), []byte(values[i])); err != nil {
			t.Fatal(err)
		}
	}
	check("without a log", u)
	closed(t, u)
}

// A frame of the log that is no batch is an error, which is returned.
func TestNonsenseInTheLogIsRefused(t *testing.T) {
	ff := func(n int) []byte { return bytes.Repeat([]byte{0xff}, n) }
	for _, payload := range [][]byte{{}, {0}, ff(11), ff(13), ff(100), make([]byte, 100), append(make([]byte, 8), 2, 0, 0, 0, 1, 1, 'k', 1, 'v')} {
		fs := vfs.NewMem()
		s := open(t, fs)
		apply(t, s, true, "a", "1")
		s.log.journal.Append(payload)
		if err := s.log.journal.Flush(); err != nil {
			t.Fatal(err)
		}
		closed(t, s)
		if s, err := Open(fs, "data", slog.New(slog.DiscardHandler), nil); err == nil {
			t.Errorf("payload %x: no error", payload)
			closed(t, s)
		}
	}
}
