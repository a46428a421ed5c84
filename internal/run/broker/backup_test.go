package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/run/datadir"
	"bartleby.mq/internal/wire/amqp091"
)

// Messages that were confirmed before a backup began are in it exactly once, wherever they moved meanwhile.
// Publishers and dead letters go on.
func TestBackupUnderLoad(t *testing.T) {
	files := vfs.NewMem()
	o := Options{FS: files, Dir: "/data", Partitions: 2, Storage: Storage{SegmentBytes: 64 << 10}}
	b, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.CreateDefault(Default{VHost: "/", User: "guest", Password: "guest", Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
		t.Fatal(err)
	}
	c := b.As("guest", "/")
	mustDeclare(t, c, "dead")
	mustDeclare(t, c, "work", amqp091.Field{Key: "x-dead-letter-exchange", Value: ""}, amqp091.Field{Key: "x-dead-letter-routing-key", Value: "dead"})

	const before, most = 400, 20000
	persistent := uint8(2)
	pad := strings.Repeat("x", 300)
	var next atomic.Int64
	send := func() {
		publish(t, c, "", "work", fmt.Sprintf("%d %s", next.Add(1), pad), amqp091.PropertyList{DeliveryMode: &persistent})
	}
	for range before {
		send()
	}
	killer := b.As("guest", "/")
	var rejected int64 // by the goroutine below, once it runs
	kill := func() {
		if next.Load()-rejected < 10 {
			runtime.Gosched() // there may be nothing
			return
		}
		reject(t, killer, "work")
		rejected++
	}
	for range before / 4 {
		kill()
	}
	stopc := make(chan struct{})
	var load sync.WaitGroup
	for _, work := range []func(){send, kill} {
		load.Go(func() { // ends with stopc; owns nothing
			for next.Load() < most {
				select {
				case <-stopc:
					return
				default:
					work()
				}
			}
		})
	}
	confirmed := make([]int64, 3)
	for i := range confirmed {
		for confirmed[i] = next.Load() - 1; i > 0 && confirmed[i] < confirmed[i-1]+50 && confirmed[i] < most-10; {
			confirmed[i] = next.Load() - 1 // the one under way aside
		}
		if _, err := b.BackUp(t.Context(), fmt.Sprintf("/backup%d", i)); err != nil {
			t.Error(err)
		}
	}
	close(stopc)
	load.Wait()
	if _, err := b.BackUp(t.Context(), "/backup0"); !errors.Is(err, datadir.ErrBackupThere) {
		t.Errorf("a second backup to one directory: %v", err)
	}
	if _, err := b.BackUp(t.Context(), "backup"); err == nil {
		t.Error("a backup to a relative path")
	}
	// The node goes on and recycles its files: that does not reach the copies.
	for range 300 {
		send()
		kill()
	}
	if err := b.node.Checkpoint(); err != nil {
		t.Error(err)
	}
	for range 300 {
		send()
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	for i, upTo := range confirmed {
		o.Dir = fmt.Sprintf("/backup%d", i)
		checkBackup(t, o, upTo)
	}
}

// checkBackup starts a node on a backup and looks for the messages up to a number.
func checkBackup(t *testing.T, o Options, upTo int64) {
	b, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	c := b.As("guest", "/")
	places := map[int64]int{}
	for _, name := range []string{"work", "dead"} {
		err := c.Peek(message.QueueName(name), 0, func(s *Shown) bool {
			var n int64
			if _, err := fmt.Sscan(string(s.Body), &n); err != nil {
				t.Errorf("a body begins %.20q", s.Body)
			}
			places[n]++
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for n := range upTo {
		if places[n+1] != 1 {
			t.Fatalf("%s: message %d of %d confirmed is in %d places", o.Dir, n+1, upTo, places[n+1])
		}
	}
	publish(t, c, "", "work", "after", amqp091.PropertyList{})
}

// A backup's record of itself is read back as written, whatever the node's name is.
func TestABackupsNoteIsReadBack(t *testing.T) {
	for _, name := range []string{"rabbit@host", "rabbit@<&>\u2028\"\\", "null", strings.Repeat("é", 1000)} {
		files := vfs.NewMem()
		b, err := Open(Options{FS: files, Dir: "/data", NodeName: name})
		if err != nil {
			t.Fatal(err)
		}
		told, err := b.BackUp(t.Context(), "/copy")
		if err != nil {
			t.Fatal(err)
		}
		var back datadir.Backup
		if err := json.Unmarshal([]byte(read(t, files, "/copy/backup.json")), &back); err != nil {
			t.Fatal(err)
		}
		if back != told || back.Node != name || back.Ended.Before(back.Began) {
			t.Errorf("%+v was told and %+v is read", told, back)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// creating calls f when a file of that directory is created.
type creating struct {
	vfs.FS
	in string
	f  func()
}

func (c *creating) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.Contains(name, c.in) {
		c.f()
	}
	return c.FS.Create(name, category)
}

// A backup ends when its caller is gone, and leaves nothing. While one runs, another is refused at once.
func TestABackupEndsWithWhoAsksForIt(t *testing.T) {
	fs := &creating{FS: vfs.NewMem(), in: "/copy.unfinished/journal/0", f: func() {}}
	b, err := Open(Options{FS: fs, Dir: "/data"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	met := 0
	fs.f = func() {
		met++
		if _, err := b.BackUp(t.Context(), "/other"); !errors.Is(err, datadir.ErrBackupUnderWay) {
			t.Errorf("a second backup: %v", err)
		}
		cancel()
	}
	if _, err := b.BackUp(ctx, "/copy"); !errors.Is(err, context.Canceled) {
		t.Errorf("the backup: %v", err)
	}
	if met != 1 {
		t.Errorf("%d segments were begun, want 1", met)
	}
	for _, name := range []string{"/copy", "/copy.unfinished"} {
		if _, err := fs.Stat(name); err == nil {
			t.Errorf("%s is there", name)
		}
	}
}
