package scale

import (
	"encoding/binary"
	"flag"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/test/bystander"
	"bartleby.mq/test/node"
)

var (
	bartleby = flag.String("bartleby", "", "the server (default: build one)")
	full     = flag.Bool("scale", false, "the full sizes, and the bounds that go with them")
	awake    = flag.Bool("awake", true, "keep the processors awake in the full form of TestDeadlines, see keepAwake")
	messages = flag.String("messages", "", "sizes for TestBacklog, in millions, separated by commas")
)

func TestMain(m *testing.M) {
	flag.Parse()
	dir, err := os.MkdirTemp("", "bartleby-scale-")
	if err == nil && *bartleby == "" {
		*bartleby, err = node.Build(dir)
	}
	code := 1
	if err == nil {
		code = m.Run()
	} else {
		fmt.Fprintln(os.Stderr, err)
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// start runs a node in a directory of its own.
func start(t *testing.T, dir, config string) *node.Node {
	t.Helper()
	n, err := node.Start(node.Options{Bin: *bartleby, Dir: dir, Config: config})
	if err != nil {
		if log, e := os.ReadFile(filepath.Join(dir, "log")); e == nil {
			t.Log(string(log[max(0, len(log)-4000):]))
		}
		t.Fatal(err)
	}
	return n
}

// dir makes a directory beside the others of tests, on a disk and not in memory.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(".", ".scale-")
	if err != nil {
		t.Fatal(err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if log, err := os.ReadFile(filepath.Join(dir, "log")); t.Failed() && err == nil {
			t.Logf("the log ends with:\n%s", log[max(0, len(log)-3000):])
		}
		_ = os.RemoveAll(dir)
	})
	return dir
}

func resident(t *testing.T, n *node.Node) int64 {
	t.Helper()
	u, err := n.Usage()
	if err != nil {
		t.Fatal(err)
	}
	return u.RSS
}

// disk is what the files below a directory take.
func disk(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // it went meanwhile
		}
		if info, err := d.Info(); err == nil {
			bytes += info.Sys().(*syscall.Stat_t).Blocks * 512
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

const mib = 1 << 20

func stop(t *testing.T, n *node.Node) {
	t.Helper()
	if err := n.Stop(); err != nil {
		t.Error(err)
	}
}

// A queue of very many small messages takes no more memory than its budget and
// little disk, and gives them back in order.
func TestBacklog(t *testing.T) {
	sizes := []int{5}
	if *full {
		sizes = []int{1, 10, 100}
	}
	if *messages != "" {
		sizes = nil
		for _, s := range strings.Split(*messages, ",") {
			var n int
			if _, err := fmt.Sscan(s, &n); err != nil {
				t.Fatal(err)
			}
			sizes = append(sizes, n)
		}
	}
	t.Logf("%12s %10s %14s %14s %12s %12s %12s", "messages", "budget", "RSS filled", "RSS drained", "index", "publish/s", "drain/s")
	for _, millions := range sizes {
		n := millions * 1_000_000
		budget := 256 * mib
		if !*full {
			budget = 32 * mib
		}
		dir := tempDir(t)
		s := start(t, dir, fmt.Sprintf("storage.index_budget = %d\nstorage.cache_budget = %d\n", budget, budget/4))
		declare(t, channel(t, s.AMQP), "long", nil)
		began := time.Now()
		var body [16]byte
		publish(t, s.AMQP, "long", n, func(i int, m *publication) {
			binary.BigEndian.PutUint64(body[:], uint64(i))
			m.body, m.persistent = append(m.body, body[:]...), true
		})
		published := time.Since(began)
		time.Sleep(time.Second) // what is put away in the background
		filled, index := resident(t, s), disk(t, filepath.Join(dir, "data", "index"))
		began = time.Now()
		consume(t, s.AMQP, "long", n, func(i int, b []byte) {
			if got := binary.BigEndian.Uint64(b); got != uint64(i) {
				t.Fatalf("message %d comes as number %d", got, i)
			}
		})
		drained := time.Since(began)
		t.Logf("%12d %7d MiB %10d MiB %10d MiB %8d MiB %12.0f %12.0f", n, budget/mib, filled/mib, resident(t, s)/mib, index/mib,
			float64(n)/published.Seconds(), float64(n)/drained.Seconds())
		if bound := int64(budget) + budget64(budget)*7/4; filled > bound {
			t.Errorf("%d messages take %d MiB of memory, more than %d MiB", n, filled/mib, bound/mib)
		}
		if index > 10*int64(n)+64*mib {
			t.Errorf("the index of %d messages takes %d MiB on disk", n, index/mib)
		}
		stop(t, s)
	}
}

func budget64(b int) int64 { return int64(max(b, 128*mib)) }

// A node that was killed with millions of messages serves again at once, and with
// no more memory than before.
func TestRestart(t *testing.T) {
	n := 500_000
	if *full {
		n = 5_000_000
	}
	dir := tempDir(t)
	config := "storage.index_budget = 67108864\nstorage.cache_budget = 33554432\n"
	s := start(t, dir, config)
	declare(t, channel(t, s.AMQP), "long", nil)
	publish(t, s.AMQP, "long", n, func(i int, m *publication) {
		m.body, m.persistent = binary.BigEndian.AppendUint64(append(m.body, 0, 0, 0, 0, 0, 0, 0, 0), uint64(i)), true
	})
	time.Sleep(time.Second)
	before := resident(t, s)
	s.Kill()
	began := time.Now()
	s = start(t, dir, config)
	took := time.Since(began)
	after := resident(t, s)
	t.Logf("%d messages: serves after %v; resident %d MiB before, %d MiB after", n, took.Round(time.Millisecond), before/mib, after/mib)
	if *full && took > 2*time.Second {
		t.Errorf("the start took %v", took)
	}
	if after > before*3/2 {
		t.Errorf("%d MiB are resident after the start, %d MiB before", after/mib, before/mib)
	}
	consume(t, s.AMQP, "long", n, func(i int, b []byte) {
		if got := binary.BigEndian.Uint64(b[8:]); got != uint64(i) {
			t.Fatalf("message %d comes as number %d", got, i)
		}
	})
	stop(t, s)
}

// Deadlines fire on time by the million, wherever their messages stand and
// whether or not these are in memory; none early. Nobody consumes meanwhile. Where
// the name says "dead" the messages die into another queue, each with a history of its own,
// which takes several times as much work; and where it says "consumed" somebody consumes there.
func TestDeadlines(t *testing.T) {
	const inMemory = "storage.index_budget = 1073741824\nstorage.cache_budget = 4194304\n"
	const spilled = "storage.index_budget = 16777216\nstorage.cache_budget = 16777216\n"
	for _, test := range []deadlineTest{
		{"memory", inMemory, false, false},
		{"spilled", spilled, false, false},
		{"memory-dead", inMemory, true, false},
		{"spilled-dead", spilled, true, false},
		{"consumed-dead", inMemory, true, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			if *full && *awake {
				keepAwake(t)
			}
			dir := tempDir(t)
			s := start(t, dir, test.config)
			test.run(t, s)
			stop(t, s)
		})
	}
}

type deadlineTest struct {
	name, config string
	dead         bool // they go into another queue
	consumed     bool // and out of it as they come
}

func (test *deadlineTest) run(t *testing.T, s *node.Node) {
	n, window := 200_000, 4*time.Second
	if *full {
		n, window = 10_000_000, 2*time.Minute
	}
	ch := channel(t, s.AMQP)
	var args amqp.Table
	if test.dead {
		declare(t, ch, "due", nil)
		args = amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "due"}
	}
	declare(t, ch, "waiting", args)
	empty := resident(t, s)
	// All are published before the first is due.
	first := time.Now().Add(time.Duration(n/60_000+1) * time.Second)
	random := rand.New(rand.NewPCG(1, 2))
	// A TTL begins when the broker has the message: few are on their way at a time.
	published, deadlines := newTrips(n), make([]int64, n)
	publishWindow(t, s.AMQP, n, 100, func(i int, m *publication) string {
		published.sent(i)
		at := first.Add(time.Duration(random.Int64N(int64(window))))
		m.persistent = true
		m.expiration = max(1, time.Until(at).Milliseconds())
		deadlines[i] = time.Now().UnixMilli() + m.expiration
		m.body = deadline(m.body, deadlines[i], i)
		return "waiting"
	}, published.sure)
	if late := time.Since(first); late > 0 {
		t.Logf("the first were due %v before the last was published", late)
	}
	time.Sleep(time.Until(first) - time.Second) // what is put away, and given back, in the background
	filled := resident(t, s)
	before, err := s.Usage()
	if err != nil {
		t.Fatal(err)
	}
	fired := firings{trips: published, lateness: make([]int64, 0, n), least: math.MaxInt64, stolen: thefts{}}
	w, err := bystander.Watch(s.AMQP)
	if err != nil {
		t.Fatal(err)
	}
	var seen lengths
	switch {
	case !test.dead:
		seen = watchLength(t, ch, "waiting", 0, fired.stolen)
	case !test.consumed:
		seen = watchLength(t, ch, "due", n, fired.stolen)
	default:
		consume(t, s.AMQP, "due", n, func(_ int, b []byte) { fired.note(t, time.Now().UnixMilli(), b) })
	}
	saw, err := w.Stop()
	if err != nil || len(saw) == 0 {
		t.Fatalf("the bystander saw %d messages: %v", len(saw), err)
	}
	latency := saw.At(0.999).Round(100 * time.Microsecond)
	after, err := s.Usage()
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case !test.dead:
		fired.noteGone(t, seen, deadlines)
	case !test.consumed:
		consume(t, s.AMQP, "due", n, func(i int, b []byte) { fired.note(t, seen.came(i), b) })
	}
	fired.report(t)
	lateness := fired.lateness
	switch {
	case fired.least < 0:
		t.Errorf("a message was %d ms early", -fired.least)
	case *full && fired.unknown > n/10:
		t.Errorf("of %d messages it is not known when their TTL began", fired.unknown)
	case len(lateness) == 0:
		t.Logf("of no message it is known when its TTL began")
		return
	}
	slices.Sort(lateness)
	p999 := lateness[len(lateness)*999/1000]
	each := float64(filled-empty) / float64(n)
	t.Logf("%d messages over %v: %.1f B resident each; lateness p50 %d ms, p99.9 %d ms, worst %d ms, least %d ms (of %d it is not known well: more than %d ms from publication to confirm); a bystander's p99.9 %v; %.2f µs of CPU each",
		n, window, each, lateness[len(lateness)/2], p999, lateness[len(lateness)-1], fired.least, fired.unknown, longTrip, latency,
		float64((after.CPU-before.CPU).Microseconds())/float64(n))
	if *full && strings.HasPrefix(test.name, "memory") && each > 24 {
		t.Errorf("a message takes %.1f B, 24 are allowed", each)
	}
	if *full && (p999 > lateBound || latency > 50*time.Millisecond) {
		t.Errorf("lateness p99.9 is %d ms, %d are allowed; the bystander's latency p99.9 is %v", p999, lateBound, latency)
	}
}

// Where a part of the messages stays for ever, the disk that the others took is
// given back.
func TestKept(t *testing.T) {
	n := 500_000
	if *full {
		n = 20_000_000
	}
	for _, kept := range []struct {
		percent int
		most    float64 // of the bytes that live, on disk
	}{{4, 1.5}, {30, 2}, {60, 2}} {
		t.Run(fmt.Sprint(kept.percent, "%"), func(t *testing.T) {
			dir := tempDir(t)
			s := start(t, dir, "storage.index_budget = 67108864\nstorage.cache_budget = 33554432\nstorage.checkpoint_interval = 2000\n")
			ch := channel(t, s.AMQP)
			declare(t, ch, "kept", nil)
			declare(t, ch, "passing", nil)
			const size, slice = 1000, 100_000
			live := 0
			body := make([]byte, size)
			for i := 0; i < n; i += slice {
				keep := slice * kept.percent / 100
				mixed(t, s.AMQP, slice, keep, body)
				live += keep
				consume(t, s.AMQP, "passing", slice-keep, func(int, []byte) {})
			}
			journal := func() int64 {
				return disk(t, filepath.Join(dir, "data", "journal")) + disk(t, filepath.Join(dir, "data", "keep")) + disk(t, filepath.Join(dir, "data", "index"))
			}
			bytes := int64(live) * (size + 30)
			var used int64
			settle := 5
			if *full {
				settle = 120
			}
			for range settle { // until compaction has settled
				if used = journal(); float64(used) <= kept.most*float64(bytes) {
					break
				}
				time.Sleep(time.Second)
			}
			u, err := s.Usage()
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d messages of %d B passed, %d %% stay: %d MiB on disk, %.2f times what lives; %.2f B written for each published, %.1f µs of CPU each",
				n, size, kept.percent, used/mib, float64(used)/float64(bytes), float64(u.Written)/float64(int64(n)*size), float64(u.CPU.Microseconds())/float64(n))
			if *full && float64(used) > kept.most*float64(bytes) {
				t.Errorf("the disk holds %.2f times what lives, %.1f are allowed", float64(used)/float64(bytes), kept.most)
			}
			stop(t, s)
		})
	}
}

// mixed publishes n messages, keep of them to a queue nobody reads.
func mixed(t testing.TB, addr string, n, keep int, body []byte) {
	t.Helper()
	sent := 0
	publishTo(t, addr, n, func(i int, m *publication) string {
		m.body, m.persistent = append(m.body, body...), true
		if (i+1)*keep/n > sent {
			sent++
			return "kept"
		}
		return "passing"
	})
}
