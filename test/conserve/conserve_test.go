package conserve

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"bartleby.mq/internal/disk/bodyfile"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/run/cluster"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/test/node"
)

var (
	binary    = flag.String("bartleby", "", "the server; without the tag failpoints it is only killed from outside (default: build one)")
	episodes  = flag.Int("episodes", 30, "how many to play, a third of them with kills")
	duration  = flag.Duration("for", 0, "go on until so much time has passed")
	firstSeed = flag.Uint64("seed", 920000, "of the first episode; 0: by chance; below 100000 it has a theme (see themeOf); with 1000000000000000 added some clients speak AMQP 1.0, with 2000000000000000 there are scenes about annotations")
	themes    = flag.Uint64("themes", 20000, "the seed of the second episode: every other one is counted from there; 0: none, as with a RabbitMQ")
	only      = flag.String("ops", "", "play only these operations of the episode, as 0-4,7")
	tries     = flag.Int("tries", 1, "play each episode so often")
	again     = flag.Int("again", 10, "an episode that fails is played so often again, and counts if it fails once more; else it is only told")
	shrinking = flag.Duration("shrink", time.Minute, "for how long to look for fewer operations that fail too")
	goOn      = flag.Bool("all", false, "go on after an episode that failed")
	without   = flag.String("without", "", "leave out these features (see features), as where a fault of theirs is known and hides others")
	peer      = flag.String("peer", "", "play with a RabbitMQ instead: its AMQP,HTTP,PROMETHEUS addresses")
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if folder, err = os.MkdirTemp("", "bartleby-conserve-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(folder) }()
	if *binary == "" && *peer == "" {
		if *binary, err = node.Build(folder, "failpoints"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() { // until the process ends
		<-interrupted
		starting.Lock() // for good
		started.Range(func(n, _ any) bool {
			n.(*node.Node).Kill()
			return true
		})
		for range 3 { // who plays may still write to it
			_ = os.RemoveAll(folder)
		}
		os.Exit(1)
	}()
	return m.Run()
}

// folder has all that the tests write. It goes with them, and so do the nodes that were
// started, also when the tests are interrupted.
var (
	folder   string
	started  sync.Map     // of *node.Node
	starting sync.RWMutex // held for reading while a node is started
)

func start(o node.Options) (*node.Node, error) {
	starting.RLock()
	defer starting.RUnlock()
	n, err := node.Start(o)
	if err == nil {
		started.Store(n, nil)
		go func() {
			<-n.Ended()
			started.Delete(n)
		}()
	}
	return n, err
}

// configuration makes what is slow by default fast enough to be met by an episode.
const configuration = "dead_letter_worker_publisher_confirm_timeout = 50\nclassic.at_least_once = true\n"

// small makes a server built with failpoints put everything away that it can, and write
// checkpoints all the time.
var small = []string{"BARTLEBY_CHECKPOINT_BYTES=30000", "BARTLEBY_SEGMENT_BYTES=65536", "BARTLEBY_BUDGET_BYTES=1", "BARTLEBY_HOT_PAGES=1", "BARTLEBY_COMPACT_BELOW=100"}

// stage is where episodes are played: on a node that all share as long as it is well, or on
// one of their own.
type stage struct {
	t     *testing.T
	kills bool
	node  *node.Node // shared
	dir   string
}

// play plays an episode once.
func (s *stage) play(w *world, ops []op) []string {
	if *peer != "" {
		at := strings.Split(*peer, ",")
		return play(w, ops, &target{amqp: at[0], http: at[1], metrics: at[2], peer: true}, nil)
	}
	if s.kills {
		return s.alone(w, ops)
	}
	if s.node == nil {
		s.node, s.dir = s.begin(nil)
	}
	faults := play(w, ops, &target{amqp: s.node.AMQP, http: s.node.HTTP, metrics: s.node.Prometheus}, nil)
	if slices.ContainsFunc(faults, func(f string) bool { return strings.Contains(f, "hangs") }) {
		if log, err := os.ReadFile(filepath.Join(s.dir, "log")); err == nil {
			faults = append(faults, "the log ends with:\n"+string(log[max(0, len(log)-3000):]))
		}
		s.close()
	}
	return faults
}

// close ends the shared node.
func (s *stage) close() {
	if s.node != nil {
		s.node.Kill()
		_ = os.RemoveAll(s.dir)
		s.node = nil
	}
}

func (s *stage) begin(env []string) (*node.Node, string) {
	s.t.Helper()
	dir, err := os.MkdirTemp(folder, "node-")
	if err != nil {
		s.t.Fatal(err)
	}
	n, err := start(node.Options{Bin: *binary, Dir: dir, Config: configuration, Env: env})
	if err != nil {
		s.t.Fatal(err)
	}
	return n, dir
}

// failpoints are the steps of everything that a server runs.
func failpoints() []string {
	return slices.Concat(partition.Failpoints, journal.Failpoints, bodyfile.Failpoints, []string{cluster.FailRaftAppend, cluster.FailRaftCommit, cluster.FailRaftApplied})
}

// alone plays an episode on a node of its own, which it kills and starts again.
func (s *stage) alone(w *world, ops []op) []string {
	rng := rand.New(rand.NewPCG(w.seed, 0xfa))
	var env []string
	if rng.IntN(2) == 0 {
		env = append(env, small...)
	}
	armed := slices.Clone(env)
	r := &running{}
	if rng.IntN(3) == 0 {
		points := failpoints()
		armed = append(armed, fmt.Sprintf("BARTLEBY_FAILPOINT=%s:%d", points[rng.IntN(len(points))], 1+rng.IntN(30)))
		r.armed = true
	}
	n, dir := s.begin(env)
	// Once it serves it is armed by being started again: so the first start is never cut short.
	if r.armed {
		n.Kill()
		var err error
		n, err = start(node.Options{Bin: *binary, Dir: dir, Config: configuration, Env: armed})
		if err != nil {
			// It met its step at the start.
			r.armed = false
			if n, err = start(node.Options{Bin: *binary, Dir: dir, Config: configuration, Env: env}); err != nil {
				return []string{"hangs: the node does not start: " + err.Error()}
			}
		}
	}
	r.node = n
	r.disarm = func() { r.armed = false }
	r.start = func() (*node.Node, error) {
		return start(node.Options{Bin: *binary, Dir: dir, Config: configuration, Env: env})
	}
	faults := play(w, ops, &target{amqp: n.AMQP, http: n.HTTP, metrics: n.Prometheus}, r)
	r.node.Kill()
	if len(faults) > 0 && strings.Contains(faults[len(faults)-1], "see its log") {
		if log, err := os.ReadFile(filepath.Join(dir, "log")); err == nil {
			faults = append(faults, "the log ends with:\n"+string(log[max(0, len(log)-3000):]))
		}
	}
	_ = os.RemoveAll(dir)
	return faults
}

// Whatever clients do, each message is in one place for each queue that it was routed to, or
// its way out is known.
func TestConservation(t *testing.T) {
	t.Parallel()
	conserve(t, false, max(1, *episodes-*episodes/3))
}

// It is so when the node is killed, stopped, or ended at one of its steps.
func TestConservationOverKills(t *testing.T) {
	if testing.Short() || *peer != "" {
		t.Skip("kills servers")
	}
	t.Parallel()
	conserve(t, true, (*episodes+2)/3)
}

func conserve(t *testing.T, kills bool, most int) {
	s := &stage{t: t, kills: kills}
	defer s.close()
	second := *themes
	if *peer != "" {
		second = 0
	}
	seed := seeds(*firstSeed, second)
	began := time.Now()
	count := 0
	for ; count < most || time.Since(began) < *duration; count++ {
		w := generate(seed(count), options{atLeastOnce: *peer == "", kills: kills, peer: *peer != "", without: strings.Split(*without, ",")})
		ops := w.ops
		if *only != "" {
			var err error
			if ops, err = parse(*only, ops); err != nil {
				t.Fatal(err)
			}
		}
		for range *tries {
			if faults := s.play(w, ops); len(faults) > 0 {
				if s.failsAgain(w, ops, faults) {
					s.report(w, ops, faults)
				}
				break
			}
		}
		if t.Failed() && !*goOn {
			break
		}
	}
	t.Logf("%d episodes from seeds %d and %d in %v", count, seed(0), seed(1), time.Since(began))
}

// seeds numbers the episodes: those of the general mix and those with a theme take turns, unless all are to have a theme, or
// none; and two with AMQP 0-9-1 alone, and two with both protocols, of which every other two have scenes about annotations.
func seeds(first, second uint64) func(int) uint64 {
	if first == 0 {
		first = themed + rand.Uint64()>>20
		if second != 0 {
			second = 1 + rand.Uint64N(themed-1)
		}
	}
	return func(i int) uint64 {
		n := uint64(i)
		if first < themed || second == 0 {
			return first + n
		}
		seed := first + n/2
		if i%2 == 1 {
			seed = (second + n/2) % themed // which may be 0, a theme's as well
		}
		if !bilingual(seed) && (i%4 > 1 || bilingual(first)) {
			seed += protocols
		}
		if bilingual(seed) && seed < annotating && i%8 > 5 {
			seed += protocols
		}
		return seed
	}
}

// failsAgain says whether an episode that has failed counts: see again.
func (s *stage) failsAgain(w *world, ops []op, faults []string) bool {
	for range *again {
		if len(s.play(w, ops)) > 0 {
			return true
		}
	}
	if *again > 0 {
		s.t.Logf("seed %d: once, and not in %d more: %s", w.seed, *again, faults[0])
	}
	return *again == 0
}

// report tells of an episode that failed, and of the least of it that fails too.
func (s *stage) report(w *world, ops []op, faults []string) {
	t := s.t
	name := t.Name()
	again := fmt.Sprintf("go test ./test/conserve -count=1 -v -run '^%s$' -seed %d -episodes 1 -tries 10", name, w.seed)
	if *without != "" {
		again += " -without '" + *without + "'"
	}
	t.Errorf("seed %d: %s\n\t(and %d more) repeat: %s -ops %s", w.seed, faults[0], len(faults)-1, again, list(ops))
	for _, f := range faults[1:min(len(faults), 6)] {
		t.Logf("seed %d: also: %s", w.seed, f)
	}
	if *shrinking <= 0 {
		return
	}
	kinds := map[string]bool{}
	for _, f := range faults {
		kinds[kind(f)] = true
	}
	last := faults
	fewer := shrink(ops, time.Now().Add(*shrinking), func(part []op) bool {
		for range 3 {
			for _, f := range s.play(w, part) {
				if kinds[kind(f)] {
					last = []string{f}
					return true
				}
			}
		}
		return false
	})
	t.Logf("seed %d: shrunk to %d operations: %s\n%s\trepeat: %s -ops %s", w.seed, len(fewer), last[0], w.describe(fewer), again, list(fewer))
}
