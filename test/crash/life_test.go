package crash

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/disk/bodyfile"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/cluster"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/test/node"
)

// life is one data directory and all that happens to it.
type life struct {
	t       *testing.T
	s       *scenario
	rng     *rand.Rand
	seed    uint64
	options node.Options
	kinds   map[string]string // queue types, as the seed said
	ledger  *ledger
	workers []worker
	clock   *clock

	kills    int
	stepped  int            // how often the clock was
	deaths   map[string]int // how the server died
	messages int
}

// configuration makes what is slow by default fast enough to be met by a round. Clients keep what they hold, however far
// the clock steps: only probes time out.
const configuration = "dead_letter_worker_publisher_confirm_timeout = 200\nconsumer_timeout = undefined\n"

// environment makes a server built with failpoints put everything away that it
// can, and write checkpoints all the time.
var environment = []string{"BARTLEBY_CHECKPOINT_BYTES=300000", "BARTLEBY_SEGMENT_BYTES=65536", "BARTLEBY_BUDGET_BYTES=1", "BARTLEBY_HOT_PAGES=1", "BARTLEBY_COMPACT_BELOW=100"}

func newLife(t *testing.T, s *scenario, seed uint64) *life {
	dir, err := os.MkdirTemp("", "bartleby-crash-")
	if err != nil {
		t.Fatal(err)
	}
	c, err := newClock(dir)
	if err != nil {
		t.Fatal(err)
	}
	l := &life{
		clock: c, t: t, s: s, rng: rand.New(rand.NewPCG(seed, 1)), seed: seed, kinds: map[string]string{}, ledger: newLedger(), deaths: map[string]int{},
		options: node.Options{Bin: *binary, Dir: dir, Config: configuration, Env: append(slices.Clone(environment), "BARTLEBY_CLOCK="+c.file)},
	}
	for _, q := range s.queues {
		l.kinds[q.name] = q.kind
		if q.kind == "" {
			l.kinds[q.name] = []string{"classic", "quorum"}[l.rng.IntN(2)]
		}
		if s.alike {
			l.kinds[q.name] = l.kinds[s.queues[0].name]
		}
	}
	l.workers = s.work(l)
	return l
}

// live goes through kills of the server, with audits in between and at the end.
func (l *life) live(kills int) {
	defer func() {
		if l.t.Failed() {
			l.t.Logf("queue types: %v; the data is in %s; to live this life again:\n\tgo test ./test/crash -count=1 -run 'TestKills/1/^%s$' -seed %d -kills %d",
				l.kinds, l.options.Dir, l.s.name, l.seed, kills*len(scenarios()))
			return
		}
		_ = os.RemoveAll(l.options.Dir)
	}()
	for l.kills < kills && !l.t.Failed() {
		for range min(1+l.rng.IntN(3), kills-l.kills) {
			if l.round(); l.t.Failed() {
				return
			}
		}
		l.audit()
	}
	l.countSteps(&passed)
	l.t.Logf("%s: %d kills %v, %d steps of the clock, %d messages, seed %d", l.s.name, l.kills, l.deaths, l.stepped, l.messages, l.seed)
}

// ends are the ways for a round to end.
const (
	endOutside = iota
	endFailpoint
	endStop
	endStarting // while it recovers
	endFault    // an operation on a file fails
)

// round runs the server under load until it is dead.
func (l *life) round() {
	end := []int{endOutside, endOutside, endOutside, endFailpoint, endFailpoint, endFailpoint, endFailpoint, endStarting, endStop, endFault, endFault}[l.rng.IntN(11)]
	o := l.options
	o.Env = append(slices.Clone(o.Env), "BARTLEBY_STEPS="+l.steps())
	point, fault := "", ""
	if end == endFault {
		fault = l.fault()
		l.ledger.noteFault(fault)
		o.Env = append(o.Env, "BARTLEBY_FAULT="+fault)
	}
	if end == endFailpoint {
		point = l.failpoint()
		o.Env = append(o.Env, "BARTLEBY_FAILPOINT="+point)
	}
	// Long rounds see compactions, which are a second apart.
	duration := time.Duration(50+l.rng.IntN(600)) * time.Millisecond
	if l.rng.IntN(4) == 0 {
		duration += 1200 * time.Millisecond
	}
	if end == endFailpoint {
		duration += time.Second
	}
	stepping := l.rng.IntN(3) == 0 // of the clock
	if stepping && l.rng.IntN(2) == 0 {
		l.step() // over the restart
	}
	if end == endStarting {
		l.killStarting(o)
		return
	}
	n, err := node.Start(o)
	if errors.Is(err, node.ErrEnded) && end == endFailpoint && n.Killed() {
		l.killed("while starting")
		return
	}
	if errors.Is(err, node.ErrEnded) && end == endFault && l.endedClean(n, fault) {
		l.killed("fault while starting")
		return
	}
	if err != nil {
		l.t.Errorf("%s: start: %v, fault %s", l.s.name, err, fault)
		return
	}
	c := &clients{faulty: end == endFault, addr: n.AMQP, http: n.HTTP, ledger: l.ledger, covers: l.s.covers, seed: l.rng.Uint64()}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	finish := func() {}
	if conn, err := dial(n.AMQP); err == nil {
		if err = l.s.declare(conn, l.kinds); err == nil {
			finish = c.run(ctx, l.workers)
		}
		c.failed(err, "topology")
		_ = conn.Close()
	}
	if stepping && end != endFault {
		l.stepUnder(n, duration)
	} else {
		select {
		case <-n.Ended():
		case <-time.After(duration):
		}
	}
	how := "outside"
	switch {
	case ended(n) && end == endFault:
		if how, _, _ = strings.Cut(fault, ":"); !l.endedClean(n, fault) {
			l.t.Errorf("%s: fault %s did not end the server as it should, see its log", l.s.name, fault)
		}
	case ended(n):
		how, _, _ = strings.Cut(point, ":")
	case end == endStop:
		how = "SIGTERM"
		if err := n.Stop(); err != nil {
			l.t.Errorf("%s: %v", l.s.name, err)
		}
	default:
		n.Kill()
	}
	cancel()
	finish()
	if how != "SIGTERM" && !n.Killed() && end != endFault {
		l.t.Errorf("%s: the server ended by itself, see its log", l.s.name)
	}
	l.killed(how)
}

func ended(n *node.Node) bool {
	select {
	case <-n.Ended():
		return true
	default:
		return false
	}
}

func (l *life) killed(how string) {
	l.kills++
	l.ledger.mu.Lock()
	l.ledger.kills++
	l.ledger.mu.Unlock()
	l.deaths[how]++
}

// killStarting kills the server at some moment of its start.
func (l *life) killStarting(o node.Options) {
	n, serving, err := node.Launch(o)
	if err != nil {
		l.t.Errorf("%s: start: %v", l.s.name, err)
		return
	}
	select {
	case err := <-serving:
		if err != nil {
			l.t.Logf("%s: start: %v", l.s.name, err) // Killed tells below whether that is a failure
		}
	case <-time.After(time.Duration(5+l.rng.IntN(60)) * time.Millisecond):
	}
	n.Kill()
	if !n.Killed() {
		l.t.Errorf("%s: the server ended by itself while it started, see its log", l.s.name)
	}
	l.killed("starting")
}

// fault chooses which operation on a file is to fail.
func (l *life) fault() string {
	kinds := []string{"create", "write", "write", "sync", "sync", "rename", "remove", "read", "full", "full"}
	kind := kinds[l.rng.IntN(len(kinds))]
	most := 2000.0
	switch kind {
	case "rename", "remove":
		most = 30
	case "create", "sync":
		most = 300
	}
	return fmt.Sprintf("%s:%d", kind, int(math.Pow(most, l.rng.Float64())))
}

// endedClean says whether a server that a fault has ended, ended with an error and
// the line that says so, and without a panic.
func (l *life) endedClean(n *node.Node, fault string) bool {
	log, err := os.ReadFile(filepath.Join(l.options.Dir, "log"))
	if err != nil {
		l.t.Error(err)
		return false
	}
	said := strings.Contains(string(log), "injected")
	if !said || n.ExitCode() != 1 || strings.Contains(string(log), "\ngoroutine ") {
		l.t.Errorf("%s: fault %s: exit code %d, the log names the fault: %v", l.s.name, fault, n.ExitCode(), said)
		return false
	}
	return true
}

// steps is the file in which servers say which steps they have passed.
func (l *life) steps() string { return filepath.Join(l.options.Dir, "steps") }

// countSteps adds to total in how many rounds each step was passed.
func (l *life) countSteps(total *steps) {
	text, err := os.ReadFile(l.steps())
	if err != nil {
		return // no round got that far
	}
	total.mu.Lock()
	defer total.mu.Unlock()
	for name := range strings.FieldsSeq(string(text)) {
		total.rounds[name]++
	}
}

// steps are in how many rounds each step was passed.
type steps struct {
	mu     sync.Mutex
	rounds map[string]int
}

// failpoints are the steps of everything that a server runs. One node sends no
// snapshots.
func failpoints() []string {
	raft := []string{cluster.FailRaftAppend, cluster.FailRaftCommit, cluster.FailRaftApplied}
	return slices.Concat(broker.Failpoints, partition.Failpoints, journal.Failpoints, bodyfile.Failpoints, raft)
}

// failpoint chooses where the server is to kill itself, and how often it passes
// there before.
func (l *life) failpoint() string {
	points := failpoints()
	name := points[l.rng.IntN(len(points))]
	most := 300.0
	switch name {
	case broker.FailDeclareChanged, broker.FailDeclareLogged, broker.FailDeclareStored, broker.FailDeclareOpened:
		most = 30
	case partition.FailCheckpointCut, partition.FailCheckpointPages, partition.FailCheckpointWhole, partition.FailSpill, partition.FailKeepCopied, partition.FailKeepSwapped,
		journal.FailRollBeforeHeader, journal.FailRollAfterHeader, journal.FailRecycleBeforeRename,
		journal.FailRetireBefore, journal.FailRetireMoved, journal.FailRetireKept, journal.FailRecoverMid,
		bodyfile.FailFinishWritten, bodyfile.FailFinishSynced:
		most = 6
	case partition.FailPublishAppended, partition.FailSettleAppended:
		most = 1000
	}
	// As often 1 to 10 as 10 to 100.
	return fmt.Sprintf("%s:%d", name, int(math.Pow(most, l.rng.Float64())))
}

// quiet is for how long nothing may arrive before an audit gives up waiting for
// what it misses, and settled for how long before it believes that nothing comes twice.
const (
	quiet   = 6 * time.Second
	settled = 150 * time.Millisecond
)

// audit drains every queue and judges every message.
func (l *life) audit() {
	n, err := node.Start(l.options)
	if err != nil {
		l.t.Errorf("%s: start for the audit: %v", l.s.name, err)
		return
	}
	defer n.Kill()
	conn, err := dial(n.AMQP)
	if err == nil {
		err = l.s.declare(conn, l.kinds)
	}
	if err != nil {
		l.t.Errorf("%s: audit: %v", l.s.name, err)
		return
	}
	if err := l.drain(conn, n.AMQP); err != nil {
		l.t.Errorf("%s: audit: %v", l.s.name, err)
	}
	faults, count := l.ledger.settle(l.s, !slices.Contains(slices.Collect(maps.Values(l.kinds)), "quorum"))
	l.messages += count
	for i, f := range faults {
		if i == 10 {
			l.t.Errorf("%s: and %d faults more", l.s.name, len(faults)-i)
			break
		}
		l.t.Errorf("%s: %s", l.s.name, f)
	}
	if err := barrier(conn); err != nil {
		l.t.Errorf("%s: audit: barrier: %v", l.s.name, err)
	}
	if l.clock.next > 0 {
		if err := l.clock.probe(n, true); err != nil {
			l.t.Errorf("%s: audit: %v", l.s.name, err)
		}
	}
	_ = conn.Close()
}

// drained is a message that an audit has found, and where.
type drained struct {
	id string
	place
}

// drain takes everything out of all queues, over one of the two protocols.
func (l *life) drain(conn *amqp.Connection, addr string) error {
	all := make(chan drained)
	done := make(chan struct{})
	defer close(done)
	if l.rng.IntN(2) == 0 {
		end, err := l.drainTen(addr, all, done)
		if end != nil {
			defer end()
		}
		if err != nil {
			return err
		}
		return l.drainAll(all)
	}
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	for _, q := range l.s.queues {
		deliveries, err := ch.Consume(q.name, "", true, false, false, false, nil)
		if err != nil {
			return fmt.Errorf("consume %s: %w", q.name, err)
		}
		go func() { // ends with the connection
			for d := range deliveries {
				select {
				case all <- drained{d.MessageId, placeOf(q.name, &d)}:
				case <-done:
				}
			}
		}()
	}
	return l.drainAll(all)
}

// drainAll notes what comes, until nothing is missing and nothing more comes.
func (l *life) drainAll(all <-chan drained) error {
	last := map[string]int{} // seq by queue and publisher
	began := time.Now()
	for patience := settled; ; {
		select {
		case d := <-all:
			began = time.Now()
			l.found(&d, last)
			continue
		case <-time.After(patience):
		}
		if l.ledger.missing(l.s) == 0 && time.Since(began) >= settled || time.Since(began) > quiet {
			return nil
		}
	}
}

// found notes what the drain found.
func (l *life) found(d *drained, last map[string]int) {
	mine := false
	l.ledger.note(d.id, func(m *known) {
		mine = true
		m.found = append(m.found, d.place)
		if !slices.Contains(l.s.ordered, d.queue) || l.ledger.unread {
			return
		}
		key := d.queue + " " + m.publisher
		if before, ok := last[key]; ok && m.seq <= before {
			l.ledger.faults = append(l.ledger.faults, fmt.Sprintf("%s came out of %s behind %s-%d", m.id, d.queue, m.publisher, before))
		}
		last[key] = m.seq
	})
	if mine {
		return
	}
	l.ledger.mu.Lock()
	gone := l.ledger.audited[d.id]
	l.ledger.mu.Unlock()
	if gone {
		l.ledger.fault("%s is in %s again after an audit took it", d.id, d.queue)
	} else {
		l.ledger.fault("%q in %s was never published", d.id, d.queue)
	}
}

// barrier makes sure that the journal has all that came before.
func barrier(conn *amqp.Connection) error {
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.Confirm(false); err != nil {
		return err
	}
	if _, err := ch.QueueDeclare("barrier", true, false, false, false, amqp.Table{"x-max-length": 1}); err != nil {
		return err
	}
	// The drain's acks went over another channel of this connection, before.
	answer, err := ch.PublishWithDeferredConfirm("", "barrier", false, false, amqp.Publishing{DeliveryMode: amqp.Persistent})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if ok, err := answer.WaitContext(ctx); err != nil || !ok {
		return fmt.Errorf("not confirmed: %w", err)
	}
	return nil
}
