package broker

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/mutation"
	"bartleby.mq/internal/run/datadir"
)

// Records are there after a restart, in the order of their keys, and are no declarations.
func TestRecordsOutliveANode(t *testing.T) {
	fs := vfs.NewMem()
	open := func() *Broker {
		t.Helper()
		b, err := Open(Options{Dir: "/data", FS: fs})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	read := func(b *Broker, prefix string) (text string) {
		t.Helper()
		err := b.RangeRecords(prefix, func(key, value []byte) error {
			text += string(key) + "=" + string(value) + " "
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	put := func(b *Broker, changes ...mutation.Change) {
		t.Helper()
		for i := range changes {
			changes[i].Key = []byte(datadir.RecordPrefix + string(changes[i].Key))
		}
		if err := b.PutRecords(mutation.All(changes), true); err != nil {
			t.Fatal(err)
		}
	}
	b := open()
	put(b, mutation.Change{Key: []byte("job/2"), Value: []byte("b")}, mutation.Change{Key: []byte("job/1"), Value: []byte("a")},
		mutation.Change{Key: []byte("note/1"), Value: []byte("n")})
	put(b, mutation.Change{Key: []byte("job/2")})
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b = open()
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	if got, want := read(b, "job/"), "job/1=a "; got != want {
		t.Errorf("jobs are %q, want %q", got, want)
	}
	if got, want := read(b, ""), "job/1=a note/1=n "; got != want {
		t.Errorf("all records are %q, want %q", got, want)
	}
}
