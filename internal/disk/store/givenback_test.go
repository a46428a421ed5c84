package store

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A start says nothing of a change whose first parts were given back since the tables have them.
func TestPartsThatWereGivenBackAreNotMissed(t *testing.T) {
	fs := vfs.NewMem()
	s := open(t, fs)
	const keys = 10
	if err := s.Apply(func(yield func(k, v []byte) bool) {
		for i := range keys {
			if !yield(fmt.Appendf(nil, "k%d", i), []byte(strings.Repeat("v", partBytes/2))) {
				return
			}
		}
	}, true); err != nil {
		t.Fatal(err)
	}
	t.Log(len(s.log.journal.Segments()), "segments")
	closed(t, s)
	var told bytes.Buffer
	s, err := Open(fs, "data", slog.New(slog.NewTextHandler(&told, nil)), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, s)
	if told.Len() > 0 {
		t.Errorf("a start says %s", told.String())
	}
}
