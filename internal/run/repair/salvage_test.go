package repair

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/declare"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/disk/journal"
	stored "bartleby.mq/internal/run/bodies"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
)

// busy is a data directory of a node that has worked much: its journal does not begin with its first segment, and
// keep/ has retired segments and dense files.
type busy struct {
	files *vfs.MemFS
	// unsettled are the messages that were confirmed and not settled: for each body, its queue.
	unsettled map[string]string
	settled   int // messages
}

// busyQueues are its queues. Messages rejected in one of them go to the named one.
var busyQueues = []struct{ name, kind, dead string }{
	{"classic", "classic", ""}, {"quorum", "quorum", ""}, {"work", "classic", "classic"}, {"far", "classic", "quorum"}, {"near", "quorum", "quorum"},
}

// makeBusy fills it. killed says that the node does not stop in order.
func makeBusy(t *testing.T, seed uint64, killed bool) *busy {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	files := vfs.NewCrashableMem()
	d := &busy{files: files, unsettled: map[string]string{}}
	b, err := broker.Open(broker.Options{FS: files, Dir: dataDir, Partitions: 2, Storage: broker.Storage{SegmentBytes: 64 << 10, CompactBelow: 80}})
	if err != nil {
		t.Fatal(err)
	}
	c := b.As("guest", "/")
	if err := b.CreateDefault(broker.Default{VHost: "/", User: "guest", Password: "guest", Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
		t.Fatal(err)
	}
	for _, q := range busyQueues {
		args := amqp091.Table{{Key: "x-queue-type", Value: q.kind}}
		if q.dead != "" {
			args = append(args, amqp091.Field{Key: "x-dead-letter-exchange", Value: ""}, amqp091.Field{Key: "x-dead-letter-routing-key", Value: q.dead})
		}
		if _, err := c.DeclareQueue(topology.QueueDecl{Name: message.QueueName(q.name), Durable: true, Arguments: args}); err != nil {
			t.Fatal(err)
		}
	}
	number := 0
	var window stored.Window
	defer window.Free()
	round := func(publishes, gets int) {
		for range publishes {
			q := busyQueues[rng.IntN(len(busyQueues))]
			text := body(q.name, number)
			number++
			publish(t, c, q.name, text)
			d.unsettled[text] = q.name
		}
		for range gets {
			q := busyQueues[rng.IntN(len(busyQueues))]
			g, ok, err := c.Get(message.QueueName(q.name), false)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				continue
			}
			record, err := b.Bodies().Read(g.Body, &window)
			if err != nil {
				t.Fatal(err)
			}
			text := string(message.Record(record).Body())
			op := partition.Op{Kind: partition.Ack, Queue: g.Queue, ID: g.ID, Consumer: g.By}
			switch dies := rng.IntN(3) == 0; {
			case dies && q.dead != "":
				op.Kind = partition.Reject
				d.unsettled[text] = q.dead
			case rng.IntN(8) == 0: // it stays with who has it
				op.Queue = nil
			default:
				delete(d.unsettled, text)
				d.settled++
			}
			if op.Queue != nil {
				c.Run([]partition.Op{op})
			}
			b.Bodies().Release(g.Body)
			b.Bodies().Release(g.History)
		}
	}
	for range 4 {
		round(150, 120)
		if _, err := b.Node().Compact(); err != nil {
			t.Fatal(err)
		}
		if err := b.Node().Checkpoint(); err != nil {
			t.Fatal(err)
		}
	}
	round(60, 50)
	round(1, 0) // its confirm has what was settled before on disk
	if killed {
		d.files = files.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rng})
		stop(t, b)
		return d
	}
	stop(t, b)
	return d
}

// has says whether a part of the directory has files of a kind.
func has(t *testing.T, files vfs.FS, part, suffix string) bool {
	t.Helper()
	names, err := files.List(files.PathJoin(dataDir, part))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(names, func(n string) bool { return strings.HasSuffix(n, suffix) })
}

// everywhere returns the bodies in all queues of all virtual hosts after a start: for each, its queues.
func everywhere(t *testing.T, files vfs.FS) map[string][]string {
	t.Helper()
	b, _ := start(t, files)
	defer stop(t, b)
	found := map[string][]string{}
	b.Read(func(s *topology.State, _ *auth.Users) {
		for _, v := range s.VHosts() {
			for _, q := range v.Queues() {
				found[string(v.Name)+" "+string(q.Name)] = nil
			}
		}
	})
	where := map[string][]string{}
	for at := range found {
		vhost, name, _ := strings.Cut(at, " ")
		if err := b.CreateDefault(broker.Default{VHost: message.VHost(vhost), User: "guest", Password: "guest", Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
			t.Fatal(err)
		}
		err := b.As("guest", message.VHost(vhost)).Peek(message.QueueName(name), 0, func(s *broker.Shown) bool {
			where[string(s.Body)] = append(where[string(s.Body)], name)
			return true
		})
		if err != nil {
			t.Fatalf("%s: %v", at, err)
		}
	}
	return where
}

// missingFrom returns the messages that were confirmed and not settled and are in no queue, or not in their queue if
// the disk shows which one that is.
func (d *busy) missingFrom(where map[string][]string) (missing []string) {
	for text := range d.unsettled {
		if len(where[text]) == 0 {
			missing = append(missing, fmt.Sprintf("%.12s of %s", text, d.unsettled[text]))
		}
	}
	slices.Sort(missing)
	return missing
}

// checkTold compares what was said about messages that may have been settled with what there is.
func (d *busy) checkTold(t *testing.T, told *Salvaged, where map[string][]string) {
	t.Helper()
	sure := map[string]bool{}
	for _, q := range told.Queues {
		if q.Settled == 0 {
			sure[q.Queue] = true
		}
	}
	again := 0
	for text, queues := range where {
		if d.unsettled[text] != "" {
			again += len(queues) - 1
			continue
		}
		again += len(queues)
		for _, q := range queues {
			if sure[q] {
				t.Errorf("%.12s is in %s again, of which it was told that nothing was settled", text, q)
			}
		}
	}
	if again > told.Settled {
		t.Errorf("%d messages come again, %d were told", again, told.Settled)
	}
}

// loseIndex are the ways to lose an index.
var loseIndex = map[string]func(t *testing.T, files vfs.FS){
	"missing": func(t *testing.T, files vfs.FS) { removeAll(t, files, indexDir) },
	"empty": func(t *testing.T, files vfs.FS) {
		removeAll(t, files, indexDir)
		if err := files.MkdirAll(files.PathJoin(dataDir, indexDir), 0o700); err != nil {
			t.Fatal(err)
		}
	},
	"a damaged table": func(t *testing.T, files vfs.FS) {
		names, err := files.List(files.PathJoin(dataDir, indexDir))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names { // some may be needless
			path := files.PathJoin(dataDir, indexDir, name)
			if strings.HasSuffix(name, ".sst") && len(read(t, files, path)) > 0 { // a crash leaves one that was just begun
				rot(t, files, path, 10)
			}
		}
	},
	"with state/": func(t *testing.T, files vfs.FS) { removeAll(t, files, indexDir); removeAll(t, files, stateDir) },
}

func removeAll(t *testing.T, files vfs.FS, part string) {
	t.Helper()
	if err := errors.Join(files.RemoveAll(files.PathJoin(dataDir, part)), journal.SyncDirectory(files, dataDir)); err != nil {
		t.Fatal(err)
	}
}

// The index is lost on a node whose journal does not begin with its first segment. No start succeeds, and a repair
// brings back every message that was confirmed and not settled; twice is fine.
func TestLostIndexOfABusyNode(t *testing.T) {
	for name, lose := range loseIndex {
		for _, killed := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " killed ", killed), func(t *testing.T) {
				d := makeBusy(t, 1, killed)
				if !has(t, d.files, keepDir, ".keep") || !has(t, d.files, keepDir, ".seg") {
					t.Fatal("keep/ has no retired segments, or no dense files: the test shows nothing")
				}
				for again := range 2 {
					lose(t, d.files)
					if _, err := broker.Open(broker.Options{FS: d.files, Dir: dataDir}); err == nil || !strings.Contains(err.Error(), "bartleby journal check --data-dir data") {
						t.Fatalf("a start says %v", err)
					}
					r := examined(t, d.files, SkipFrame)
					if r.Clean() || r.Failed != "" || r.Salvaged == nil {
						t.Fatalf("the check: %+v", r)
					}
					out := repairedAs(t, d.files, fmt.Sprint("then", again))
					where := everywhere(t, d.files)
					if missing := d.missingFrom(where); len(missing) > 0 {
						t.Fatalf("%d of %d messages are gone: %q\n%s", len(missing), len(d.unsettled), missing, out)
					}
					d.checkTold(t, r.Salvaged, where)
				}
			})
		}
	}
}

// repairedAs repairs with that name for the quarantine, and returns the output.
func repairedAs(t *testing.T, files vfs.FS, name string) string {
	t.Helper()
	var out strings.Builder
	if _, err := Repair(files, dataDir, Options{How: SkipFrame, Apply: true, Name: name}, &out); err != nil {
		t.Fatalf("the repair: %v\n%s", err, &out)
	}
	if r := examined(t, files, SkipFrame); !r.Clean() {
		t.Fatalf("after the repair: %+v", r)
	}
	return out.String()
}

// The repair crashes at any step: a start refuses the directory unless it is whole, and another repair brings
// everything back.
func TestRepairWithoutIndexInterrupted(t *testing.T) {
	for _, table := range []string{"missing", "a damaged table"} {
		d := makeBusy(t, 2, true)
		loseIndex[table](t, d.files)
		steps := func(at func(n int64, files *vfs.MemFS)) (total int64) {
			files := d.files.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
			var n atomic.Int64
			var mu sync.Mutex
			watched := errorfs.Wrap(files, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && !strings.Contains(op.Path, examinationDir) {
					mu.Lock()
					defer mu.Unlock()
					at(n.Add(1), files)
				}
				return nil
			}))
			if _, err := Repair(watched, dataDir, Options{How: SkipFrame, Apply: true, Name: "first"}, io.Discard); err != nil {
				t.Fatal(err)
			}
			return n.Load()
		}
		total := steps(func(int64, *vfs.MemFS) {})
		if total < 30 {
			t.Fatalf("the repair has %d steps", total)
		}
		tries := int64(24)
		if testing.Short() {
			tries = 6
		}
		var crashed []*vfs.MemFS
		steps(func(n int64, files *vfs.MemFS) {
			if n*tries/total != (n-1)*tries/total {
				crashed = append(crashed, files.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rand.New(rand.NewPCG(1, uint64(n)))}))
			}
		})
		started := 0
		for i, files := range crashed {
			b, err := broker.Open(broker.Options{FS: files, Dir: dataDir})
			if err == nil {
				stop(t, b)
				started++
			} else {
				if !strings.Contains(err.Error(), "bartleby journal check --data-dir data") {
					t.Errorf("%s, crash %d: a start says %v", table, i, err)
				}
				repairedAs(t, files, "second")
			}
			if missing := d.missingFrom(everywhere(t, files)); len(missing) > 0 {
				t.Errorf("%s, crash %d: %d of %d messages are gone: %q", table, i, len(missing), len(d.unsettled), missing)
			}
		}
		if started == len(crashed) {
			t.Errorf("%s: no crash came in time", table)
		}
	}
}

// Without room for the quarantine nothing is changed.
func TestRepairWithoutIndexOnAFullDisk(t *testing.T) {
	d := makeBusy(t, 3, true)
	loseIndex["missing"](t, d.files)
	before := snapshot(t, d.files)
	var left atomic.Int64
	full := errorfs.Wrap(d.files, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && strings.Contains(op.Path, quarantineDir) && left.Add(-1) < 0 {
			return fmt.Errorf("injected: %w", syscall.ENOSPC)
		}
		return nil
	}))
	for room := range int64(12) {
		left.Store(room)
		if _, err := Repair(full, dataDir, Options{How: SkipFrame, Apply: true, Name: fmt.Sprint("full", room)}, io.Discard); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("with room for %d steps: %v", room, err)
		}
		after := snapshot(t, d.files)
		for path, text := range before {
			if after[path] != text {
				t.Fatalf("with room for %d steps %s was changed", room, path)
			}
		}
	}
	repairedAs(t, d.files, "then")
	if missing := d.missingFrom(everywhere(t, d.files)); len(missing) > 0 {
		t.Errorf("%d of %d messages are gone: %q", len(missing), len(d.unsettled), missing)
	}
}

// Another part is lost with the index: the messages in the remaining parts come back, and stay when the journal
// grows.
func TestLostIndexAndAnotherPart(t *testing.T) {
	for _, part := range []string{journalDir, keepDir} {
		for _, how := range []How{SkipFrame, Cut} {
			t.Run(part+" "+string(how), func(t *testing.T) {
				d := makeBusy(t, 7, false)
				loseIndex["missing"](t, d.files)
				removeAll(t, d.files, part)
				left := ""
				for path, text := range snapshot(t, d.files) {
					if strings.HasSuffix(path, ".seg") || strings.HasSuffix(path, ".keep") {
						left += text
					}
				}
				for text := range d.unsettled {
					if !strings.Contains(left, text) {
						delete(d.unsettled, text)
					}
				}
				var out strings.Builder
				if _, err := Repair(d.files, dataDir, Options{How: how, Apply: true, Name: "then"}, &out); err != nil {
					t.Fatalf("the repair: %v\n%s", err, &out)
				}
				b, c := start(t, d.files)
				for i := range 1500 {
					publish(t, c, "classic", body("later", i))
					if i%100 == 0 {
						if err := b.Node().Checkpoint(); err != nil {
							t.Fatal(err)
						}
					}
				}
				stop(t, b)
				if missing := d.missingFrom(everywhere(t, d.files)); len(missing) > 0 || len(d.unsettled) < 30 {
					t.Errorf("%d of %d messages are gone: %q\n%s", len(missing), len(d.unsettled), missing, &out)
				}
			})
		}
	}
}

// The files that were put away stay as they are, whatever the node does with its own files later.
func TestQuarantineOfALostIndexKeepsItsBytes(t *testing.T) {
	d := makeBusy(t, 4, false)
	loseIndex["missing"](t, d.files)
	before := snapshot(t, d.files)
	repairedAs(t, d.files, "then")
	b, c := start(t, d.files)
	for range 4 {
		for i := range 150 {
			publish(t, c, "classic", body("later", i))
		}
		if _, err := b.Node().Compact(); err != nil {
			t.Fatal(err)
		}
		if err := b.Node().Checkpoint(); err != nil {
			t.Fatal(err)
		}
	}
	stop(t, b)
	for path, text := range before {
		part := strings.TrimPrefix(path, dataDir+"/")
		if strings.HasSuffix(path, ".free") || !strings.HasPrefix(part, journalDir+"/") && !strings.HasPrefix(part, keepDir+"/") {
			continue
		}
		if got := read(t, d.files, d.files.PathJoin(dataDir, quarantineDir, "then", part)); string(got) != text {
			t.Errorf("%s is not in quarantine as it was", part)
		}
	}
}

// More messages come back than a queue's limit allows: those that it would drop are put into the other queue. The
// oldest are those that were not settled.
func TestLostIndexOfAQueueWithALimit(t *testing.T) {
	files := vfs.NewCrashableMem()
	b, c := start(t, files)
	if err := b.CreateDefault(broker.Default{VHost: "/", User: "guest", Password: "guest", Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
		t.Fatal(err)
	}
	const limit = 5
	args := amqp091.Table{{Key: "x-queue-type", Value: "quorum"}, {Key: "x-max-length", Value: int64(limit)}}
	if _, err := c.DeclareQueue(topology.QueueDecl{Name: "few", Durable: true, Arguments: args}); err != nil {
		t.Fatal(err)
	}
	d := &busy{files: files, unsettled: map[string]string{}}
	for i := range 200 {
		text := body("few", i)
		publish(t, c, "few", text)
		g, ok, err := c.Get("few", false)
		if err != nil || !ok {
			t.Fatal("get: ", ok, err)
		}
		if i%50 == 10 {
			d.unsettled[text] = "few"
		} else {
			c.Run([]partition.Op{{Kind: partition.Ack, Queue: g.Queue, ID: g.ID, Consumer: g.By}})
		}
		b.Bodies().Release(g.Body)
		if i%50 == 20 {
			if err := b.Node().Checkpoint(); err != nil {
				t.Fatal(err)
			}
		}
	}
	stop(t, b)
	loseIndex["missing"](t, files)
	out := repairedAs(t, files, "then")
	where := everywhere(t, files)
	if missing := d.missingFrom(where); len(missing) > 0 || len(d.unsettled) != 4 {
		t.Errorf("%d of %d messages are gone: %q\n%s", len(missing), len(d.unsettled), missing, out)
	}
	count := map[string]int{}
	for _, queues := range where {
		for _, q := range queues {
			count[q]++
		}
	}
	if count["few"] != limit || count[repairedQueue] == 0 || !strings.Contains(out, "is over its limit") {
		t.Errorf("found %v\n%s", count, out)
	}
}

// A deleted queue stays deleted: its remaining messages are counted and put away.
func TestLostIndexAfterADeletion(t *testing.T) {
	d := makeBusy(t, 5, false)
	b, c := start(t, d.files)
	for _, q := range []string{"far", "near"} {
		if _, err := c.DeleteQueue(message.QueueName(q), false, false); err != nil {
			t.Fatal(err)
		}
	}
	stop(t, b)
	for text, q := range d.unsettled {
		if q == "far" || q == "near" {
			delete(d.unsettled, text)
		}
	}
	loseIndex["missing"](t, d.files)
	out := repairedAs(t, d.files, "then")
	if missing := d.missingFrom(everywhere(t, d.files)); len(missing) > 0 {
		t.Errorf("%d of %d messages are gone: %q\n%s", len(missing), len(d.unsettled), missing, out)
	}
	if strings.Contains(out, "recovered-") || strings.Contains(out, `queue "near"`) {
		t.Errorf("the repair says\n%s", out)
	}
}

// A rotten record in a dense file takes no other along, whichever part of it has rotted.
func TestLostIndexAndARottenRecord(t *testing.T) {
	for _, at := range []int64{-30, 0, 500} {
		d := makeBusy(t, 6, false)
		names, err := d.files.List(dataDir + "/" + keepDir)
		if err != nil {
			t.Fatal(err)
		}
		name := names[slices.IndexFunc(names, func(n string) bool { return strings.HasSuffix(n, ".keep") })]
		path := d.files.PathJoin(dataDir, keepDir, name)
		text := ""
		for unsettled := range d.unsettled {
			if strings.Contains(string(read(t, d.files, path)), unsettled) {
				text = unsettled
			}
		}
		if text == "" {
			t.Fatal("the dense file has none of the messages")
		}
		offset := int64(strings.Index(string(read(t, d.files, path)), text))
		rot(t, d.files, path, offset+at)
		loseIndex["missing"](t, d.files)
		r := examined(t, d.files, SkipFrame)
		if !slices.ContainsFunc(r.Damages, func(damage Damage) bool { return damage.File == path && !damage.Harmless }) {
			t.Errorf("the check does not name %s: %+v", path, r.Damages)
		}
		delete(d.unsettled, text)
		var out strings.Builder
		if _, err := Repair(d.files, dataDir, Options{How: SkipFrame, Apply: true, Name: "then"}, &out); err != nil {
			t.Fatalf("the repair: %v\n%s", err, &out)
		}
		if missing := d.missingFrom(everywhere(t, d.files)); len(missing) > 0 {
			t.Errorf("at %d: %d of %d messages are gone: %q\n%s", at, len(missing), len(d.unsettled), missing, &out)
		}
	}
}

// awaitIn returns once a queue has so many messages.
func awaitIn(t *testing.T, c *broker.Connection, name message.QueueName, want int) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; runtime.Gosched() {
		n := 0
		if err := c.Peek(name, 0, func(*broker.Shown) bool { n++; return true }); err != nil {
			t.Fatal(err)
		}
		if n == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("queue %q has %d messages, want %d", name, n, want)
		}
	}
}

// A message leaves its queue by a move, and the segment with that frame is freed, because it has no records. Then the
// queue is purged or deleted, or its messages expire: the message is at its target, and is not lost by that.
func TestLostIndexAndAMessageThatWasMoved(t *testing.T) {
	for _, kind := range []string{"classic", "quorum"} {
		for name, end := range map[string]func(t *testing.T, b *broker.Broker, c *broker.Connection){
			"nothing": func(*testing.T, *broker.Broker, *broker.Connection) {},
			"purge": func(t *testing.T, _ *broker.Broker, c *broker.Connection) {
				publish(t, c, "source", body("purged", 0))
				if _, err := c.Purge("source"); err != nil {
					t.Fatal(err)
				}
			},
			"deletion": func(t *testing.T, _ *broker.Broker, c *broker.Connection) {
				if _, err := c.DeleteQueue("source", false, false); err != nil {
					t.Fatal(err)
				}
			},
			"time": func(*testing.T, *broker.Broker, *broker.Connection) {}, // that is over already
		} {
			t.Run(kind+" "+name, func(t *testing.T) {
				files := vfs.NewCrashableMem()
				b, c := start(t, files)
				if err := b.CreateDefault(broker.Default{VHost: "/", User: "guest", Password: "guest", Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
					t.Fatal(err)
				}
				queue := func(name, kind string, args ...amqp091.Field) {
					args = append(args, amqp091.Field{Key: "x-queue-type", Value: kind})
					if _, err := c.DeclareQueue(topology.QueueDecl{Name: message.QueueName(name), Durable: true, Arguments: args}); err != nil {
						t.Fatal(err)
					}
				}
				queue("stay", "classic")
				queue("fill", "classic")
				target := "target"
				for b.Node().DefaultGroup("/", target) != b.Node().DefaultGroup("/", "source") {
					target += "-" // in another group it would have its record in a command of its own
				}
				queue(target, kind)
				policy := func(definition map[string]any) {
					if name == "time" {
						definition["message-ttl"] = int64(1)
					}
					if _, err := b.By("").Do(declare.PutPolicy{VHost: "/", Policy: topology.PolicyDecl{Name: "dead", Pattern: "^source$", ApplyTo: topology.ApplyToQueues, Definition: definition}}); err != nil {
						t.Fatal(err)
					}
				}
				policy(map[string]any{"dead-letter-exchange": "", "dead-letter-routing-key": target, "max-length": int64(1000)})
				queue("source", kind)
				publish(t, c, "source", body("moved", 0))
				for i := range 45 {
					publish(t, c, "stay", body("stay", i))
				}
				fill := func() {
					for i := range 130 {
						publish(t, c, "fill", body("fill", i))
						g, ok, err := c.Get("fill", true)
						if err != nil || !ok {
							t.Fatal("get: ", ok, err)
						}
						b.Bodies().Release(g.Body)
					}
				}
				fill()
				if name != "time" {
					g, ok, err := c.Get("source", false)
					if err != nil || !ok {
						t.Fatal("get: ", ok, err)
					}
					c.Run([]partition.Op{{Kind: partition.Reject, Queue: g.Queue, ID: g.ID, Consumer: g.By}})
					b.Bodies().Release(g.Body)
				}
				awaitIn(t, c, message.QueueName(target), 1)
				fill()
				if err := b.Node().Checkpoint(); err != nil {
					t.Fatal(err)
				}
				policy(map[string]any{"max-length": int64(1000)})
				end(t, b, c)
				stop(t, b)
				loseIndex["missing"](t, files)
				out := repairedAs(t, files, "then")
				where := everywhere(t, files)
				d := &busy{files: files, unsettled: map[string]string{body("moved", 0): target}}
				for i := range 45 {
					d.unsettled[body("stay", i)] = "stay"
				}
				if missing := d.missingFrom(where); len(missing) > 0 {
					t.Errorf("%d messages are gone: %q\n%s", len(missing), missing, out)
				}
			})
		}
	}
}
