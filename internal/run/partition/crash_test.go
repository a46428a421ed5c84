package partition

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/run/bodies"
)

// The topology of the crash test. A family is the set of queues that one message may go through; it is in exactly one
// of them. There are a chain a, b, c; a fan-out from d to e and f; an at-least-once death from q to g and h, of which
// g is often full; a retry loop between m and w; and a transient source t before c.
func crashTopology() ([]definition, table) {
	dlx := func(x string, more func(*queue.Settings)) queue.Settings {
		return settings(func(s *queue.Settings) {
			s.DeadLetter = true
			if more != nil {
				more(s)
			}
		})
	}
	to := func(x string) DeadLetter { return DeadLetter{Exchange: x} }
	leaf := queue.Unlimited()
	return []definition{
		{"a", classic, dlx("b", nil), to("b")},
		{"b", quorum, dlx("c", func(s *queue.Settings) { s.TTL = 50 }), to("c")},
		{"c", classic, leaf, DeadLetter{}},
		{"d", classic, dlx("ef", func(s *queue.Settings) { s.MaxLength = 4 }), to("ef")},
		{"e", classic, leaf, DeadLetter{}},
		{"f", quorum, leaf, DeadLetter{}},
		{"q", quorum, dlx("gh", func(s *queue.Settings) {
			s.AtLeastOnce, s.Overflow, s.TTL = true, queue.RejectPublish, 80
		}), to("gh")},
		{"g", classic, settings(func(s *queue.Settings) { s.MaxLength, s.Overflow = 3, queue.RejectPublish }), DeadLetter{}},
		{"h", quorum, leaf, DeadLetter{}},
		{"m", quorum, dlx("w", func(s *queue.Settings) { s.Retry = queue.Retry{Type: queue.RetryAll, Min: 20, Max: 60} }), to("w")},
		{"w", classic, dlx("m", func(s *queue.Settings) { s.TTL = 30 }), to("m")},
		{"t", transient, dlx("c", nil), to("c")},
	}, table{"b": {"b"}, "c": {"c"}, "ef": {"e", "f"}, "gh": {"g", "h"}, "w": {"w"}, "m": {"m"}}
}

// branches are the ways of the copies of a message, by the queue it is published to. On each way the message is in
// exactly one queue, or was settled.
var branches = map[string][][]string{
	"a": {{"a", "b", "c"}},
	"d": {{"d", "e"}, {"d", "f"}},
	"q": {{"q", "g"}, {"q", "h"}},
	"m": {{"m", "w"}},
	"t": {{"t", "c"}},
}

// fate is what the ledger knows of a message.
type fate struct {
	base       string
	persistent bool
	pos        journal.Pos
	committed  bool
	acked      map[string]bool // true: and that is durable
	rejects    int             // by a client, in m
}

// ledger is what a client knows to be true.
type ledger map[message.Serial]fate

func (l ledger) clone() ledger {
	c := maps.Clone(l)
	for s, f := range c {
		f.acked = maps.Clone(f.acked)
		c[s] = f
	}
	return c
}

// verify is Invariant I: every committed message is in exactly one place (one for each target of a fan-out) unless it
// was settled. live says that nothing crashed.
func (l ledger) verify(t testing.TB, found map[message.Serial][]place, live bool) {
	t.Helper()
	for serial, places := range found {
		if _, ok := l[serial]; !ok {
			t.Fatalf("message %d was never published: %v", serial, places)
		}
	}
	for serial, f := range l {
		in := map[string]int{}
		for _, p := range found[serial] {
			in[p.queue]++
			checkHistory(t, serial, &f, &p, live)
		}
		for _, branch := range branches[f.base] {
			n, settled, safe := 0, false, false
			for _, q := range branch {
				n += in[q]
				if firm, ok := f.acked[q]; ok {
					settled, safe = true, safe || firm
				}
			}
			// An at-least-once source keeps its copy until every target has one.
			waiting := f.base == "q" && in["q"] == 1
			switch {
			case n > 1 && !(waiting && n == 2):
				t.Fatalf("message %d is in %d places of %v: %v", serial, n, branch, found[serial])
			case (safe || live && settled) && n > 0 && !(waiting && in[branch[1]] == 0):
				t.Fatalf("message %d was settled and is there: %v", serial, found[serial])
			case n == 0 && !settled && (live || f.committed) && (live || f.persistent && f.base != "t"):
				t.Fatalf("message %d, published to %s, is lost on the way %v: %v", serial, f.base, branch, found[serial])
			}
		}
	}
}

// checkHistory compares the deaths in a copy's history with where it was.
func checkHistory(t testing.TB, serial message.Serial, f *fate, p *place, live bool) {
	t.Helper()
	var got []string
	for _, d := range p.history.Deaths {
		got = append(got, d.Queue)
	}
	want := []string{}
	switch {
	case f.base == p.queue && f.base != "m":
	case p.queue == "c" && f.base == "a":
		want = []string{"b", "a"}
	case f.base != "m":
		want = []string{f.base}
	default:
		count := map[string]uint64{}
		for _, d := range p.history.Deaths {
			count[d.Queue] = d.Count
		}
		rounds := count["m"]
		if p.queue == "m" && count["w"] != rounds || p.queue == "w" && count["w"]+1 != rounds ||
			int(rounds) > f.rejects || live && int(rounds) != f.rejects {
			t.Fatalf("message %d in %s died %v times, a client rejected it %d times", serial, p.queue, count, f.rejects)
		}
		return
	}
	if !slices.Equal(got, want) && len(got)+len(want) > 0 {
		t.Fatalf("message %d in %s died in %v, want %v", serial, p.queue, got, want)
	}
	for _, d := range p.history.Deaths {
		if d.Count != 1 {
			t.Fatalf("message %d in %s died %d times in %s", serial, p.queue, d.Count, d.Queue)
		}
	}
}

// player does what clients do, one thing at a time.
type player struct {
	*world
	rng    *rand.Rand
	ledger ledger
	out    []outstanding
	serial message.Serial
	crash  []crashed // taken at failpoints
	busy   bool      // a failpoint inside a failpoint does not count
}

type outstanding struct {
	q      *Queue
	d      queue.Delivery
	serial message.Serial
	by     string // the consumer's tag, if a test needs it
}

// crashed is the disk as a crash would have left it, and what was known then.
type crashed struct {
	at     string
	fs     *vfs.MemFS
	ledger ledger
	now    int64
}

func (p *player) failpoint(name string) {
	if p.n == nil || p.busy {
		return
	}
	p.busy = true
	defer func() { p.busy = false }()
	if name == FailCheckpointCut || name == FailCheckpointPages || name == FailKeepCopied {
		for range 3 {
			p.step()
		}
	}
	if len(p.crash) < 4 && p.rng.IntN(20) == 0 {
		p.crash = append(p.crash, crashed{name, crash(p.fs, p.rng), p.ledger.clone(), p.now})
	}
}

func (p *player) step() {
	switch p.rng.IntN(12) {
	case 0, 1, 2, 3:
		p.publish()
	case 4, 5:
		p.get()
	case 6, 7, 8:
		p.settleOne()
	case 9:
		p.now += int64(p.rng.IntN(40))
	case 10:
		p.commit()
	case 11:
		p.n.RetryAllHeld()
		if p.rng.IntN(8) == 0 {
			p.purge()
		}
	}
	p.settle()
}

var bases = []string{"a", "d", "q", "m", "t"}

func (p *player) publish() {
	ops := make([]Op, 1+p.rng.IntN(5))
	for i := range ops {
		p.serial++
		f := fate{base: bases[p.rng.IntN(len(bases))], persistent: p.rng.IntN(5) > 0, acked: map[string]bool{}}
		f.persistent = f.persistent || f.base == "q" || f.base == "m"
		p.ledger[p.serial] = f
		ops[i] = Op{
			Kind: Publish, Targets: []*Queue{p.queues[f.base]}, TTL: -1, Priority: -1,
			Body: p.record(p.serial, f.persistent, p.rng.IntN(400)),
		}
	}
	r := p.n.Run(ops)
	for i := range ops {
		serial := p.serial - message.Serial(len(ops)-1-i)
		f := p.ledger[serial]
		if f.persistent {
			f.pos = r.journal
		}
		p.ledger[serial] = f
		if ops[i].Refused {
			p.t.Fatal("a publish was refused")
		}
	}
	if p.rng.IntN(2) == 0 {
		p.commit()
	}
}

// commit waits until everything so far is durable, as a confirm does.
func (p *player) commit() {
	if err := p.j.Commit(p.j.Append([]byte{frameVersion})); err != nil {
		p.failed(err)
	}
	for serial, f := range p.ledger {
		f.committed = true
		for q := range f.acked {
			f.acked[q] = true
		}
		p.ledger[serial] = f
	}
}

func (p *player) get() {
	name := []string{"a", "b", "c", "d", "e", "f", "q", "g", "h", "m", "m", "t"}[p.rng.IntN(12)]
	q := p.queues[name]
	noAck := !p.faulty && p.rng.IntN(8) == 0
	d, _, ok, err := p.n.Get(q, noAck)
	if err != nil {
		p.t.Fatal(err)
	}
	if !ok {
		return
	}
	r, err := p.n.bodies.Read(d.Body, new(bodies.Window))
	if err != nil { // as a session does: the message goes back
		p.n.Run([]Op{{Kind: Return, Queue: q, ID: d.ID, How: queue.ReturnNack}})
		p.n.bodies.Release(d.Body)
		p.n.bodies.Release(d.History)
		p.unreadable(err)
		return
	}
	serial := message.Record(r).Serial()
	if noAck {
		p.ledger[serial].acked[name] = false
		p.n.bodies.Release(d.Body)
		p.n.bodies.Release(d.History)
		return
	}
	p.out = append(p.out, outstanding{q, d, serial, ""})
}

func (p *player) settleOne() {
	if len(p.out) == 0 {
		return
	}
	i := p.rng.IntN(len(p.out))
	h := p.out[i]
	p.out = slices.Delete(p.out, i, i+1)
	op := Op{Queue: h.q, ID: h.d.ID}
	// c, e, f, g and h have no dead-letter exchange: a message rejected there is gone.
	switch name := h.q.Name; p.rng.IntN(4) {
	case 0:
		op.Kind = Ack
		p.ledger[h.serial].acked[name] = false
	case 1, 2:
		op.Kind, op.Failed = Reject, p.rng.IntN(2) == 0
		switch name {
		case "c", "e", "f", "g", "h":
			p.ledger[h.serial].acked[name] = false
		case "m":
			f := p.ledger[h.serial]
			f.rejects++
			p.ledger[h.serial] = f
		}
	default:
		op.Kind, op.How = Return, queue.ReturnKind(p.rng.IntN(4))
	}
	p.n.Run([]Op{op})
	p.n.bodies.Release(h.d.Body)
	p.n.bodies.Release(h.d.History)
}

// purge removes the messages that are not out. They are settled, as if acknowledged.
func (p *player) purge() {
	name := []string{"a", "b", "c", "e", "f", "g", "h", "m", "q"}[p.rng.IntN(9)]
	for serial, places := range p.find() {
		for _, at := range places {
			if at.queue != name || at.view.Out || at.view.Dead && at.view.Held == 0 {
				continue
			}
			if name != "q" {
				p.ledger[serial].acked[name] = false
				continue
			}
			for _, target := range []string{"g", "h"} { // targets that it had not reached lose it
				if !slices.ContainsFunc(places, func(x place) bool { return x.queue == target }) {
					p.ledger[serial].acked[target] = false
				}
			}
		}
	}
	if _, err := p.n.Purge(p.queues[name]); err != nil {
		p.t.Fatal(err)
	}
}

func (p *player) checkpoint() {
	if p.rng.IntN(2) == 0 {
		if _, err := p.n.Compact(); err != nil {
			p.unreadable(err)
		}
	}
	if err := p.n.Checkpoint(); err != nil {
		p.failed(err)
	}
}

// failed ends the play: the disk has failed.
func (p *player) failed(err error) {
	if !p.faulty {
		p.t.Fatal(err)
	}
	panic(err)
}

// unreadable is called with an error after which the node goes on.
func (p *player) unreadable(err error) {
	if !p.faulty || !errors.Is(err, errInjected) {
		p.t.Fatal(err)
	}
}

// After a kill at any moment, in any step of the journal or in the middle of a checkpoint, and another one during
// recovery, every message is in exactly one place.
func TestInvariantI(t *testing.T) {
	rounds := 60
	if testing.Short() {
		rounds = 10
	}
	for seed := range uint64(rounds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 7))
			defs, routes := crashTopology()
			p := &player{rng: rng, ledger: ledger{}}
			p.world = open(t, vfs.NewCrashableMem(), defs, routes, 1_700_000_000_000, func(name string) {
				if p.world != nil {
					p.failpoint(name)
				}
			})
			for range 250 {
				p.step()
				if rng.IntN(30) == 0 {
					p.checkpoint()
				}
				if rng.IntN(20) == 0 {
					p.putAway(rng.IntN(3) > 0)
				}
				if rng.IntN(40) == 0 {
					p.ledger.verify(t, p.find(), true)
					p.check(2 * len(p.out))
				}
			}
			p.crash = append(p.crash, crashed{"the end", crash(p.fs, rng), p.ledger.clone(), p.now})
			for _, c := range p.crash {
				recoverAndVerify(t, c, defs, routes, rng)
			}
			p.drain()
			p.close()
		})
	}
}

func recoverAndVerify(t *testing.T, c crashed, defs []definition, routes table, rng *rand.Rand) {
	t.Helper()
	// Another crash ends the first recovery, at any step of it.
	var again *vfs.MemFS
	w := open(t, c.fs, defs, routes, c.now, func(string) {
		if again == nil || rng.IntN(3) == 0 {
			again = crash(c.fs, rng)
		}
	})
	c.ledger.verify(t, w.find(), false)
	w.check(0)
	if again == nil {
		again = crash(c.fs, rng)
	}
	w.close()
	w = open(t, again, defs, routes, c.now+int64(rng.IntN(100)), nil)
	c.ledger.verify(t, w.find(), false)
	w.check(0)
	w.close()
}

// drain settles everything and checks that memory is empty.
func (p *player) drain() {
	for _, h := range p.out {
		p.n.bodies.Release(h.d.Body)
		p.n.bodies.Release(h.d.History)
	}
	p.lenient.Store(true) // messages that die meanwhile may find their target deleted
	for name, q := range p.queues {
		var err error
		if name < "e" {
			_, err = p.n.Purge(q)
		}
		if err == nil {
			_, err = p.n.Delete(q, nil)
		}
		if err != nil {
			p.t.Fatal(err)
		}
	}
	p.settle()
	if live := p.n.bodies.Held(); live != 0 {
		p.t.Errorf("%d allocations are held for nothing", live)
	}
	for name, q := range p.queues {
		if len(q.waiting.taken) > 0 {
			p.t.Logf("queue %s remembers answers for nothing", name)
		}
	}
}
