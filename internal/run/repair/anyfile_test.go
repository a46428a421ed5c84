package repair

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/datadir"
	"bartleby.mq/internal/wire/amqp091"
)

var allAges = flag.Bool("all-ages", false, "lose each file of more data directories")

// lived is the data directory of a node that was started n times. In each life it declares a queue of each kind, and
// fills it and those before. With checkpoints, each life writes some.
func lived(t *testing.T, n int, checkpoints, killed bool) *vfs.MemFS {
	t.Helper()
	files := vfs.NewCrashableMem()
	for life := range n {
		b, c := start(t, files)
		if life == 0 {
			if err := b.CreateDefault(broker.Default{VHost: "/", User: "guest", Password: "guest", Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
				t.Fatal(err)
			}
		}
		for _, kind := range []string{"classic", "quorum"} {
			name := message.QueueName(fmt.Sprint(kind, life))
			if _, err := c.DeclareQueue(topology.QueueDecl{Name: name, Durable: true, Arguments: amqp091.Table{{Key: "x-queue-type", Value: kind}}}); err != nil {
				t.Fatal(err)
			}
			for of := range life + 1 {
				for i := range 3 {
					name := fmt.Sprint(kind, of)
					publish(t, c, name, body(fmt.Sprint(name, "in", life), i))
				}
			}
		}
		if checkpoints {
			for range 2 {
				if err := b.Node().Checkpoint(); err != nil {
					t.Fatal(err)
				}
			}
			publish(t, c, "classic0", body(fmt.Sprint("late", life), 0))
		}
		if !killed {
			stop(t, b)
			continue
		}
		crashed := files.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
		stop(t, b)
		files = crashed
	}
	return files
}

// shortened makes the log of declarations give its beginning back.
func shortened(t *testing.T, files *vfs.MemFS) *vfs.MemFS {
	t.Helper()
	b, c := start(t, files)
	for range 50 {
		long := amqp091.Table{{Key: "long", Value: strings.Repeat("x", 60<<10)}}
		if _, err := c.DeclareQueue(topology.QueueDecl{Name: "long", Durable: true, Arguments: long}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.DeleteQueue("long", false, false); err != nil {
			t.Fatal(err)
		}
	}
	stop(t, b)
	return files
}

// declared are the users and the queues of a data directory, after a start that changes nothing else.
func declared(t *testing.T, files vfs.FS) (names []string) {
	t.Helper()
	b, _ := start(t, files)
	defer stop(t, b)
	b.Read(func(s *topology.State, u *auth.Users) {
		for _, user := range u.List() {
			names = append(names, "user "+user.Name)
		}
		for _, v := range s.VHosts() {
			for _, q := range v.Queues() {
				names = append(names, fmt.Sprintf("queue %s in %s", q.Name, v.Name))
			}
		}
	})
	slices.Sort(names)
	return names
}

// Any one file of a data directory is lost, of directories of many ages. A start either has everything that was confirmed
// or refuses, and names what is missing and the command to run. The check says the same as the start. The repair brings
// back every message that is in one of the files that are left.
func TestAnyFileIsLost(t *testing.T) {
	rejected := map[string]bool{} // messages that may be under way to another queue
	worked := func(killed bool) *vfs.MemFS {
		d := makeBusy(t, 4, killed)
		for text, queue := range d.unsettled {
			rejected[text] = !strings.HasPrefix(text, queue+" ")
		}
		return d.files
	}
	ages := map[string]func() *vfs.MemFS{
		"new":                     func() *vfs.MemFS { return lived(t, 1, false, false) },
		"three kills":             func() *vfs.MemFS { return lived(t, 3, false, true) },
		"lives with checkpoints":  func() *vfs.MemFS { return lived(t, 4, true, false) },
		"many declarations":       func() *vfs.MemFS { return shortened(t, lived(t, 2, false, false)) },
		"many segments, and kill": func() *vfs.MemFS { return worked(true) },
	}
	more := map[string]func() *vfs.MemFS{
		"new, killed":            func() *vfs.MemFS { return lived(t, 1, false, true) },
		"three lives":            func() *vfs.MemFS { return lived(t, 3, false, false) },
		"kills with checkpoints": func() *vfs.MemFS { return lived(t, 4, true, true) },
		"many segments":          func() *vfs.MemFS { return worked(false) },
	}
	if *allAges {
		maps.Copy(ages, more)
	}
	for age, build := range ages {
		t.Run(age, func(t *testing.T) {
			whole := build()
			copied := func() *vfs.MemFS {
				return whole.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
			}
			wantDeclared, want := declared(t, copied()), everywhere(t, copied())
			if r := examined(t, copied(), SkipFrame); !r.Clean() {
				t.Fatalf("nothing is lost, and the check says %+v", r)
			}
			for _, part := range datadir.Parts {
				names, err := whole.List(whole.PathJoin(dataDir, part))
				if err != nil {
					t.Fatal(err)
				}
				for i, name := range names {
					if testing.Short() && i%3 != 0 {
						continue
					}
					t.Run(part+"/"+name, func(t *testing.T) {
						files := copied()
						err := errors.Join(files.Remove(files.PathJoin(dataDir, part, name)), journal.SyncDirectory(files, files.PathJoin(dataDir, part)))
						if err != nil {
							t.Fatal(err)
						}
						checked := files.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
						r := examined(t, checked, SkipFrame)
						b, err := broker.Open(broker.Options{FS: files, Dir: dataDir, Partitions: 2})
						if err == nil {
							stop(t, b)
							if !r.Clean() {
								t.Errorf("a start accepts it, and the check says %+v", r.Damages)
							}
							if got := declared(t, files); !slices.Equal(got, wantDeclared) {
								t.Errorf("a start without a word finds %q, want %q", got, wantDeclared)
							}
							if gone := missing(want, everywhere(t, files)); len(gone) > 0 {
								t.Errorf("a start without a word has lost %d messages", len(gone))
							}
							return
						}
						if !strings.Contains(err.Error(), "run: bartleby journal check --data-dir data") || !strings.Contains(err.Error(), part) {
							t.Errorf("the start says %v", err)
						}
						if r.Clean() || r.Failed != "" || r.TryCut {
							t.Fatalf("a start says %v, and the check %+v", err, r)
						}
						var out strings.Builder
						if _, err := Repair(checked, dataDir, Options{How: SkipFrame, Apply: true, Name: "then"}, &out); err != nil {
							t.Fatalf("the repair: %v\n%s", err, &out)
						}
						onDisk := maps.Clone(want)
						left, lost := contentOf(t, files), read(t, whole, whole.PathJoin(dataDir, part, name))
						undeclared := part == stateLogDir || part == stateDir // then nobody knows where dead letters were going
						maps.DeleteFunc(onDisk, func(text string, _ []string) bool {
							return undeclared && rejected[text] || !bytes.Contains(left, []byte(text)) || bytes.Contains(lost, []byte(text)) // what compaction has copied counts where it is now
						})
						found := everywhere(t, checked)
						gone := missing(onDisk, found)
						for try := 0; try < 50 && len(gone) > 0; try++ { // dead letters may be on their way to their queue
							gone = missing(onDisk, everywhere(t, checked))
						}
						if len(gone) > 0 {
							t.Errorf("%d of %d messages that are on disk are not back\n%.60q\n%s", len(gone), len(onDisk), gone, &out)
						}
					})
				}
			}
		})
	}
}

// missing are the messages of one that are not in the other.
func missing(of, in map[string][]string) (gone []string) {
	for text := range of {
		if len(in[text]) == 0 {
			gone = append(gone, text)
		}
	}
	return gone
}

// contentOf is all that is in the files of a data directory.
func contentOf(t *testing.T, files vfs.FS) (all []byte) {
	t.Helper()
	for _, text := range snapshot(t, files) {
		all = append(all, text...)
	}
	return all
}
