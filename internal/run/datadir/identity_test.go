package datadir

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/disk/journal"
)

// A name is read back from every part as it was written, and a bit that has rotted in it does not make it another:
// the part is named, or nothing that counts has changed.
func TestAnIdentityIsReadBackOrNamed(t *testing.T) {
	files := vfs.NewMem()
	if err := files.MkdirAll("/data", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Name(files, "/data"); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, part := range Parts {
		id, err := readIdentity(files, files.PathJoin("/data", part, IdentityFile))
		if err != nil || len(id) != 32 {
			t.Fatalf("%s: %q, %v", part, id, err)
		}
		names[id] = true
		// A part with nothing in it is one that is missing.
		if err := journal.WriteSynced(files, files.PathJoin("/data", part, "something"), nil); err != nil {
			t.Fatal(err)
		}
	}
	if len(names) != 1 {
		t.Fatalf("the parts have the names %v", names)
	}
	path := files.PathJoin("/data", KeepDir, IdentityFile)
	good := read(t, files, path)
	look := func(what, text string, mayBeRead bool) {
		t.Helper()
		if err := journal.WriteSynced(files, path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		_, err := CheckWhole(files, "/data")
		if err == nil && mayBeRead {
			return
		}
		var lacks *IncompleteError
		if !errors.As(err, &lacks) || fmt.Sprint(lacks.Unnamed) != "["+KeepDir+"]" || len(lacks.Missing)+len(lacks.Foreign) > 0 || lacks.Stale != "" ||
			!strings.Contains(err.Error(), KeepDir+"/ does not say which data directory it belongs to: its identity is damaged or missing") {
			t.Errorf("%s: %q: %v", what, text, err)
		}
	}
	for i := range good {
		for bit := range 8 {
			rotten := []byte(good)
			rotten[i] ^= 1 << bit
			look("bit", string(rotten), true)
		}
	}
	for n := range len(good) - 2 { // without its end of line it is whole
		look("cut off", good[:n], false)
	}
	for _, text := range []string{"null", "[]", "1", `"x"`, `{"data_directory":1}`, strings.Repeat(" ", maxIdentity) + good, good + good, strings.Repeat("[", 4000)} {
		look("nonsense", text, false)
	}
	look("what it was", good, true)
	if named, err := CheckWhole(files, "/data"); !named || err != nil {
		t.Errorf("as it was it is named %t, %v", named, err)
	}
}

func read(t *testing.T, files vfs.FS, path string) string {
	t.Helper()
	f, err := files.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
