package broker

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/wire/amqp091"
)

// failingDisk is a file system on which everything below one directory is on a failing disk.
type failingDisk struct {
	vfs.FS        // the same, with the operations failed that errorfs knows
	below  string // the directory
	apart  bool   // it is another file system: there are no links to it

	mu      sync.Mutex
	at      int    // the operation that fails, from 1; 0: none
	forever bool   // and all after it
	seen    int    // operations there were
	first   string // what failed first
}

func newFailingDisk(files vfs.FS, below string) *failingDisk {
	d := &failingDisk{below: below}
	d.FS = errorfs.Wrap(files, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpLink {
			return nil // its path is the old one, see Link
		}
		return d.fails(fmt.Sprintf("operation %d", op.Kind), op.Path)
	}))
	return d
}

func (d *failingDisk) fails(what, path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if path != d.below && !strings.HasPrefix(path, d.below+"/") {
		return nil
	}
	d.seen++
	if d.at == 0 || d.seen < d.at || d.seen > d.at && !d.forever {
		return nil
	}
	if d.first == "" {
		d.first = what + " of " + path
	}
	return syscall.EIO
}

// Link implements vfs.FS.
func (d *failingDisk) Link(from, to string) error {
	if err := d.fails("link", to); err != nil {
		return err
	}
	if d.apart && strings.HasPrefix(to, d.below+"/") {
		return syscall.EXDEV
	}
	return d.FS.Link(from, to)
}

// arm makes the operation with this number fail.
func (d *failingDisk) arm(at int, forever bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at, d.forever, d.seen, d.first = at, forever, 0, ""
}

// met is what failed, "" if nothing did.
func (d *failingDisk) met() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.first
}

// Any operation of the disk that a backup goes to fails, once or from then on. The backup ends with an error that
// names it, nothing half done is there under its name, and the node goes on.
func TestABackupToADiskThatFails(t *testing.T) {
	for _, apart := range []bool{false, true} {
		for _, forever := range []bool{false, true} {
			t.Run(fmt.Sprintf("apart %t forever %t", apart, forever), func(t *testing.T) {
				t.Parallel()
				backUpToAFailingDisk(t, apart, forever)
			})
		}
	}
}

func exists(files vfs.FS, path string) bool {
	_, err := files.Stat(path)
	return err == nil
}

func backUpToAFailingDisk(t *testing.T, apart, forever bool) {
	const target = "/target/copy"
	mem := vfs.NewMem()
	if err := mem.MkdirAll("/target", 0o700); err != nil {
		t.Fatal(err)
	}
	disk := newFailingDisk(mem, "/target")
	disk.apart = apart
	fatal := ""
	o := Options{FS: disk, Dir: "/data", Storage: Storage{SegmentBytes: 64 << 10}, OnFatal: func(err error) { fatal = err.Error() }}
	b, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.CreateDefault(Default{VHost: "/", User: "guest", Password: "guest", Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
		t.Fatal(err)
	}
	c := b.As("guest", "/")
	mustDeclare(t, c, "work")
	mustDeclare(t, c, "dead") // checkBackup looks there too
	mustDeclare(t, c, "some")
	persistent := uint8(2)
	sent := 0
	send := func() {
		sent++
		publish(t, c, "", "work", fmt.Sprint(sent), amqp091.PropertyList{DeliveryMode: &persistent})
	}
	pad := strings.Repeat("x", 1000)
	for range 200 { // for a file in the keep
		send()
		publish(t, c, "", "some", pad, amqp091.PropertyList{DeliveryMode: &persistent})
	}
	if err := b.node.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	whole := 0
	step := 1
	if testing.Short() {
		step = 7
	}
	for at := 1; ; at += step {
		send()
		disk.arm(at, forever)
		_, err := b.BackUp(t.Context(), target)
		failed := disk.met()
		disk.arm(0, false)
		if fatal != "" {
			t.Fatalf("%s failed: the node ends: %s", failed, fatal)
		}
		there := exists(mem, target)
		switch {
		case err == nil && !there:
			t.Fatalf("%s failed: no error, and no backup", failed)
		case err != nil && failed == "":
			t.Fatal(err)
		case err != nil && (!errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), target)):
			t.Errorf("%s failed: %v", failed, err)
		case err != nil && there && !forever:
			t.Errorf("%s failed: the backup ended with %v and is there", failed, err)
		case err != nil && there && !strings.Contains(err.Error(), "what is there is whole"):
			t.Errorf("%s failed: the backup is there, and ended with %v", failed, err)
		}
		if there {
			whole++
			checkBackup(t, Options{FS: mem, Dir: target, Storage: o.Storage}, int64(sent))
		}
		for _, left := range []string{target, target + ".unfinished"} {
			if exists(mem, left) && !forever && left != target {
				t.Errorf("%s failed: %s is left", failed, left)
			}
			if err := mem.RemoveAll(left); err != nil {
				t.Fatal(err)
			}
		}
		// The node goes on, to its declarations and to its index.
		mustDeclare(t, c, fmt.Sprintf("after %d", at))
		if _, err := c.DeleteQueue(message.QueueName(fmt.Sprintf("after %d", at)), false, false); err != nil {
			t.Fatal(err)
		}
		if failed == "" {
			if at < 50 {
				t.Errorf("a backup is %d operations: does the test still see them?", at)
			}
			break
		}
	}
	if whole == 0 {
		t.Error("no backup was whole")
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	checkBackup(t, o, int64(sent))
}
