package partition

import (
	"context"
	"fmt"
	"maps"
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

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/run/cluster"
	"bartleby.mq/internal/sim"
)

// livesQueues are queues of all kinds, whose dead go from log to log and in circles. "y" and "z", which are nobody's
// targets, are purged, deleted and made again.
func livesQueues() []definition {
	q := func(name string, config queue.Config, exchange string, change func(*queue.Settings)) definition {
		return definition{name, config, settings(func(s *queue.Settings) {
			s.DeadLetter = exchange != ""
			change(s)
		}), DeadLetter{Exchange: exchange}}
	}
	none := func(*queue.Settings) {}
	single := queue.Config{Type: queue.Quorum, Durable: true, MaxPriority: -1, SingleActive: true}
	strict := queue.Config{Type: queue.Quorum, Durable: true, MaxPriority: -1, Strict: true}
	return []definition{
		q("a", classic, "to b", func(s *queue.Settings) {
			s.Retry, s.DeliveryLimit = queue.Retry{Type: queue.RetryAll, Min: 50}, -1
			s.Breaker = queue.Breaker{Deaths: 2, Percent: 20, Window: 400}
		}),
		q("b", quorum, "to c", func(s *queue.Settings) {
			s.AtLeastOnce, s.DeliveryLimit = true, 3
			s.Breaker = queue.Breaker{Deaths: 2, Percent: 20, Window: 400}
		}),
		q("c", classic, "to d", func(s *queue.Settings) { s.MaxLength, s.Overflow = 30, queue.RejectPublish }),
		q("d", single, "to e", func(s *queue.Settings) {
			s.TTL, s.MaxLength, s.Overflow = 300, 40, queue.RejectPublish
			s.Retry = queue.Retry{Type: queue.RetryFailed, Min: 30}
		}),
		q("e", queue.Config{Durable: true, MaxPriority: 3}, "to f", func(s *queue.Settings) { s.AtLeastOnce = true }),
		q("f", quorum, "", none),
		q("g", quorum, "to h", func(s *queue.Settings) { s.AtLeastOnce, s.MaxLength, s.Overflow = true, 50, queue.DropHead }),
		q("h", classic, "to i", func(s *queue.Settings) { s.MaxLength, s.Overflow = 20, queue.DropHead }),
		q("i", quorum, "to j", func(s *queue.Settings) { s.TTL = 500 }),
		q("j", classic, "", none),
		q("k", strict, "to f", func(s *queue.Settings) { s.AtLeastOnce, s.TTL, s.DeliveryLimit = true, 200, 2 }),
		q("l", queue.Config{Strict: true, Durable: true, MaxPriority: 5}, "to j", func(s *queue.Settings) { s.TTL = 250 }),
		q("m", classic, "to j", func(s *queue.Settings) { s.MaxLength, s.Overflow = 10, queue.RejectPublishDLX }),
		q("y", quorum, "to a", func(s *queue.Settings) { s.TTL = 400 }),
		q("z", classic, "to b", func(s *queue.Settings) { s.AtLeastOnce = true }),
	}
}

var livesRoutes = table{
	"to a": {"a"}, "to b": {"b"}, "to c": {"c"}, "to d": {"d"}, "to e": {"e"}, "to f": {"f"}, "to h": {"h"}, "to i": {"i"}, "to j": {"j"},
}

// passing says whether the queue is purged and deleted, with its messages.
func passing(name string) bool { return name == "y" || name == "z" }

// ends says whether deaths in the queue go nowhere.
func ends(q *Queue) bool { return q.Name == "f" || q.Name == "j" }

const (
	livesOfOne = 7        // the last of them only looks
	livesSteps = 150      // in one life
	livesBegin = 1.7e12   // by the clock
	livesHour  = 3600_000 // the jumps of the clock
)

// lives is a node that is started again and again on one disk. At each crash, and in each backup, the disk forgets a
// part of what was not synced.
type lives struct {
	t     *testing.T
	seed  uint64
	rng   *rand.Rand // what clients do, and when the node crashes
	disk  *rand.Rand // what is left of what was not synced
	fs    *vfs.MemFS
	clock atomic.Int64
	defs  []definition // with the present settings
	many  bool         // moves have several targets, so a message may be in several queues
	count map[string]int

	life   int
	book   book
	serial message.Serial
	ended  string // how the last life ended

	// Of the present life.
	w       *mailWorld
	queues  map[string]*Queue
	clients []*livesClient
	moves   sync.WaitGroup
	failing atomic.Bool // some reads fail
	reads   atomic.Uint64
}

// A node lives through crashes at every point, stops, and restores from a backup, while clients do whatever they may
// with queues of all kinds. Afterwards each message that was confirmed and not settled is in exactly one place, no
// durably settled message is there, no body belongs to another message, and counters agree with the content. Every
// third node has a disk on which some reads fail. The goroutines do not follow the seed: a failure may need -count to
// appear again.
func TestLives(t *testing.T) {
	seeds.Run(t, "./internal/run/partition", 1, playLives)
}

func playLives(t *testing.T, seed uint64) (sim.Result, error) {
	x := &lives{
		t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 99)), disk: rand.New(rand.NewPCG(seed, 100)), fs: vfs.NewCrashableMem(),
		defs: livesQueues(), many: seed%4 == 3, count: map[string]int{}, ended: "nothing",
	}
	x.clock.Store(livesBegin)
	x.book = book{known: map[message.Serial]bounds{}, made: map[string]uint64{}, loose: map[message.Serial]bool{}, trace: map[message.Serial][]string{}}
	for i := range x.defs {
		x.book.make(x.defs[i].name)
	}
	for x.life = 1; x.life <= livesOfOne && !t.Failed(); x.life++ {
		x.live()
	}
	x.count["messages"] = int(x.serial)
	return sim.Result{Counts: x.count}, nil
}

// live plays one life. It begins with the disk that the last one left.
func (x *lives) live() {
	points := slices.Concat(Failpoints, cluster.Failpoints, journal.Failpoints)
	c := &livesCrash{x: x, point: points[x.rng.IntN(len(points))], left: 1 + x.rng.IntN(120)}
	x.start(c.at)
	x.verify()
	if x.life == livesOfOne || x.t.Failed() {
		x.w.stop()
		return
	}
	how := x.rng.IntN(8)
	c.armed.Store(how > 2)
	x.failing.Store(x.seed%3 == 0)
	for i := 0; i < livesSteps && !c.over() && !x.t.Failed(); i++ {
		x.step()
	}
	switch how {
	case 0, 1:
		x.stop()
	case 2:
		x.restore()
	default:
		c.end()
	}
	x.count[x.ended]++
}

// start runs a node on the disk. fail gets the names of failpoints.
func (x *lives) start(fail func(string)) {
	x.w = openMail(x.t, x.fs, uint64(x.life), fail, livesRoutes, func(w *mailWorld) {
		w.now = x.clock.Load
		w.files = errorfs.Wrap(x.fs, errorfs.InjectorFunc(x.fault))
	})
	x.w.n.Budget.Bodies, x.w.n.Checkpointing.Operations = 1<<14, 1<<40
	x.w.n.quitSlice = []int{1, 3, sliceSteps}[x.life%3]
	x.queues, x.clients = map[string]*Queue{}, nil
	for i := range x.defs {
		d := &x.defs[i]
		if inc := x.book.made[d.name]; inc != 0 {
			x.w.create(d, inc)
			x.queues[d.name] = x.w.queues[d.name]
		}
	}
	x.w.start()
}

// fault is a failed read of a file with records, for a reason that passes.
func (x *lives) fault(op errorfs.Op) error {
	if !x.failing.Load() || op.Kind != errorfs.OpFileReadAt {
		return nil
	}
	dir, _, _ := strings.Cut(op.Path, "/")
	if slices.Contains([]string{"keep", "scratch", "journal"}, dir) && x.reads.Add(1)%150 == 0 {
		return syscall.EMFILE
	}
	return nil
}

// stop stops the node in order.
func (x *lives) stop() {
	x.moves.Wait()
	x.failing.Store(false)
	x.sync()
	x.w.stop()
	x.fs = x.fs.CrashClone(vfs.CrashCloneCfg{})
	x.ended = "a stop"
}

// restore ends the life with a backup that is made while moves are in progress.
func (x *lives) restore() {
	x.failing.Store(false)
	must := func(err error) {
		x.t.Helper()
		if err != nil {
			x.t.Errorf("seed %d, life %d: backup: %v", x.seed, x.life, err)
		}
	}
	x.book.mu.Lock()
	known := x.book.copy()
	x.book.mu.Unlock()
	must(journal.MakeDirectory(x.w.files, "copy"))
	must(journal.MakeDirectory(x.w.files, "copy/journal"))
	must(x.w.n.CopyTo(context.Background(), Copy{Journal: "copy/journal", Keep: "copy/keep", Index: "copy/index"}))
	from, to := x.fs.CrashClone(vfs.CrashCloneCfg{}), vfs.NewCrashableMem()
	for _, dir := range []string{"journal", "keep", "index"} {
		must(journal.MakeDirectory(to, dir))
		_, err := vfs.Clone(from, to, "copy/"+dir, dir, vfs.CloneSync)
		must(err)
	}
	x.moves.Wait()
	x.w.stop()
	x.fs = to
	x.book.restore(known)
	x.ended = "a backup"
}

// livesCrash is the crash of one life.
type livesCrash struct {
	x     *lives
	point string
	left  int // how often its point is passed before
	armed atomic.Bool

	// Guarded by the book's mutex.
	fs   *vfs.MemFS // as the crash has left it
	book pages
}

// at crashes the node if it is time. The node goes on, but nothing of that is ever seen.
func (c *livesCrash) at(point string) {
	if point != c.point || !c.armed.Load() {
		return
	}
	c.x.book.mu.Lock()
	defer c.x.book.mu.Unlock()
	if c.left--; c.left == 0 {
		c.crash()
	}
}

// crash notes what a crash now would leave, and what is known now. REQUIRES: the book's mutex is held.
func (c *livesCrash) crash() {
	c.fs, c.book = crash(c.x.fs, c.x.disk), c.x.book.copy()
}

// over says whether the node has crashed.
func (c *livesCrash) over() bool {
	c.x.book.mu.Lock()
	defer c.x.book.mu.Unlock()
	return c.fs != nil
}

// end ends the life with the crash, which happens now at the latest.
func (c *livesCrash) end() {
	x := c.x
	x.ended = "a crash at " + c.point
	c.armed.Store(false)
	x.book.mu.Lock()
	if c.fs == nil {
		x.ended = "a crash at the end"
		c.crash()
	}
	x.book.mu.Unlock()
	x.moves.Wait()
	x.failing.Store(false)
	x.w.stop()
	x.fs = c.fs
	x.book.restore(c.book)
}

// verify waits until messages are where the book says.
func (x *lives) verify() {
	x.t.Helper()
	known := x.book.copy().known
	for deadline := time.Now().Add(time.Minute); ; runtime.Gosched() {
		wrong, messages := x.look(known)
		if len(wrong) == 0 {
			return
		}
		if time.Now().Before(deadline) {
			continue
		}
		for _, s := range messages {
			wrong = append(wrong, fmt.Sprintf("message %d: %s", s, strings.Join(x.book.trace[s], "; ")))
		}
		x.t.Errorf("seed %d, life %d, after %s:\n%s", x.seed, x.life, x.ended, strings.Join(wrong[:min(len(wrong), 60)], "\n"))
		return
	}
}

// look finds messages in wrong places.
func (x *lives) look(known map[message.Serial]bounds) (wrong []string, messages []message.Serial) {
	for _, o := range x.w.n.Outboxes() {
		if o.Waiting > 0 || o.Stranded > 0 {
			return []string{fmt.Sprintf("an outbox: %+v", o)}, nil
		}
	}
	found := map[message.Serial][]string{}
	for _, name := range slices.Sorted(maps.Keys(x.queues)) {
		c := x.w.n.Counts(x.queues[name])
		if c.Dying > 0 || c.Transit > 0 || c.Stranded > 0 {
			return []string{fmt.Sprintf("queue %s has %+v, %d in transit and %d stranded", name, c.Totals, c.Transit, c.Stranded)}, nil
		}
		if n := x.browse(name, found); n != c.Messages() {
			wrong = append(wrong, fmt.Sprintf("queue %s has %d messages, and says %+v", name, n, c.Totals))
		}
	}
	for _, s := range slices.Sorted(maps.Keys(known)) {
		b, n := known[s], len(found[s])
		if n < b.least || n > b.most && !x.many {
			messages = append(messages, s)
			wrong = append(wrong, fmt.Sprintf("message %d is in %v, want it %d to %d times", s, found[s], b.least, b.most))
		}
	}
	return wrong, messages
}

// browse adds the messages of a queue to found, and returns how many there are.
func (x *lives) browse(name string, found map[message.Serial][]string) (n int) {
	var cursor queue.Cursor
	for done := false; !done; {
		var err error
		cursor, done, err = x.w.n.Browse(x.queues[name], cursor, 256, func(v queue.View, r message.Record, _ []byte) bool {
			s := r.Serial()
			for _, b := range r.Body() {
				if b != byte(s) {
					x.t.Fatalf("seed %d, life %d: message %d in %s has another's body", x.seed, x.life, s, name)
				}
			}
			n++
			found[s] = append(found[s], name)
			x.book.saw(s, fmt.Sprintf("life %d begins with it in %s as %d", x.life, name, v.ID))
			return true
		})
		if err != nil {
			x.t.Fatal(err)
		}
	}
	return n
}

// book is what is known of messages, and of promises. A crash takes its first fields back to what they were then.
type book struct {
	mu sync.Mutex

	known   map[message.Serial]bounds
	made    map[string]uint64 // the existing queues and their incarnations
	last    uint64            // the last incarnation
	loose   map[message.Serial]bool
	settled []message.Serial // not synced yet
	trace   map[message.Serial][]string
}

// bounds say in how many places a message is.
type bounds struct{ least, most int }

// pages are the part of a book that a crash takes back.
type pages struct {
	known map[message.Serial]bounds
	made  map[string]uint64
}

// copy copies them. REQUIRES: mu is held, or nobody writes.
func (b *book) copy() pages { return pages{maps.Clone(b.known), maps.Clone(b.made)} }

// restore takes them back. What was settled since is no longer known. What a move gave up since is, if a backup saw
// the move.
func (b *book) restore(p pages) {
	b.known, b.made, b.settled = p.known, p.made, nil
	for s := range b.loose {
		if k, ok := b.known[s]; ok {
			b.known[s] = bounds{0, k.most}
		}
	}
}

// make notes a new queue, and returns its incarnation.
func (b *book) make(name string) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last++
	b.made[name] = b.last
	return b.last
}

// remove notes that a queue was deleted.
func (b *book) remove(name string) {
	b.mu.Lock()
	delete(b.made, name)
	b.mu.Unlock()
}

// publishes notes a message that is being published.
func (b *book) publishes(s message.Serial) {
	b.mu.Lock()
	b.known[s] = bounds{0, 1}
	b.mu.Unlock()
}

// confirmed notes that a message stays, unless it is deleted with its queue or settled.
func (b *book) confirmed(s message.Serial) {
	b.mu.Lock()
	if !b.loose[s] {
		b.known[s] = bounds{1, 1}
	}
	b.mu.Unlock()
}

// goes notes that a message may be deleted with a queue that it may come to.
func (b *book) goes(s message.Serial) {
	b.mu.Lock()
	b.known[s], b.loose[s] = bounds{0, b.known[s].most}, true
	b.mu.Unlock()
}

// settles notes that a client is about to settle a message.
func (b *book) settles(s message.Serial) {
	b.mu.Lock()
	b.known[s] = bounds{0, b.known[s].most}
	b.mu.Unlock()
}

// hasSettled notes that messages are settled; the next sync makes that durable.
func (b *book) hasSettled(list []message.Serial) {
	b.mu.Lock()
	b.settled = append(b.settled, list...)
	b.mu.Unlock()
}

// sync calls f, which syncs, and notes what is durable afterwards.
func (b *book) sync(f func()) {
	b.mu.Lock()
	settled := b.settled
	b.settled = nil
	b.mu.Unlock()
	f()
	b.mu.Lock()
	for _, s := range settled {
		b.known[s] = bounds{0, 0}
	}
	b.mu.Unlock()
}

// note notes what was done with a message.
func (b *book) note(s message.Serial, format string, args ...any) {
	b.mu.Lock()
	b.trace[s] = append(b.trace[s], fmt.Sprintf(format, args...))
	b.mu.Unlock()
}

// saw notes where a message is, once.
func (b *book) saw(s message.Serial, where string) {
	b.mu.Lock()
	if trace := b.trace[s]; len(trace) == 0 || trace[len(trace)-1] != where {
		b.trace[s] = append(trace, where)
	}
	b.mu.Unlock()
}
