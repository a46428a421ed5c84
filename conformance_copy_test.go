package bartleby_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// The transcripts are what RabbitMQ said. The copy in this repository must be the
// one that was recorded: whoever changes one to make a test pass is found out where
// the recording is at hand.
func TestTranscriptsAreAsRecorded(t *testing.T) {
	const recorded, copied = "../shared/conformance/scenarios", "test/conformance/scenarios"
	if _, err := os.Stat(recorded); err != nil {
		t.Skip("the recorded transcripts are not beside this repository: ", err)
	}
	want, got := files(t, recorded), files(t, copied)
	for name, text := range want {
		switch other, ok := got[name]; {
		case !ok:
			t.Errorf("%s/%s is missing", copied, name)
		case !bytes.Equal(text, other):
			t.Errorf("%s/%s differs from what was recorded", copied, name)
		}
	}
	// Scenarios of our own may stand beside them.
	if len(want) == 0 {
		t.Errorf("no transcripts in %s", recorded)
	}
}

func files(t *testing.T, root string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		all[filepath.ToSlash(name)] = text
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
