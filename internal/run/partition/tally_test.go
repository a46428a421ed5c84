package partition

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/run/cluster"
)

// sentTo moves all messages of a queue to others for a job, and returns how many have gone.
func (w *mailWorld) sentTo(job uint64, from string, limit int, to ...string) (done int) {
	w.t.Helper()
	var targets []*Queue
	for _, name := range to {
		targets = append(targets, w.queues[name])
	}
	var moves []Move
	_, _, err := w.n.Browse(w.queues[from], queue.Cursor{}, limit, func(v queue.View, _ message.Record, history []byte) bool {
		if v.Out || v.Dead || v.Offered {
			return true
		}
		h, _ := deadletter.Parse(history)
		next := deadletter.History{Exchange: "x", Keys: []string{"k"}, ReplayedFrom: from, Marks: h.Replayed(job)}
		moves = append(moves, Move{ID: v.ID, Targets: targets, History: next.Append(nil)})
		return true
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if len(moves) == 0 {
		return 0
	}
	moved, err := w.n.Move(w.t.Context(), w.queues[from], moves)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, m := range moved {
		if m.What == MoveDone {
			done++
		}
	}
	return done
}

// checkTallies compares what queues and tallies say of entries that jobs have sent with the entries. Each of them is in a
// queue, and nothing else waits.
func checkTallies(t *testing.T, n *Node) {
	t.Helper()
	waiting := map[*tallies]map[uint64]uint64{n.tallies: {}}
	for _, p := range n.all {
		p.mu.Lock()
		if waiting[p.tallies] == nil {
			waiting[p.tallies] = map[uint64]uint64{}
		}
		h := p.hold
		if h != nil {
			t.Fatal("a partition is held")
		}
		for _, q := range p.queues {
			found := map[uint64]sentCounts{}
			var cursor queue.Cursor
			for done := false; !done; {
				cursor, done = q.m.Browse(cursor, 1000, func(v queue.View) bool {
					if h, err := deadletter.Parse(n.historyBytes(v.History)); err == nil && h.Sent {
						c := found[h.Job]
						*c.of(v.Logged || p.group != nil)++
						found[h.Job] = c
						waiting[p.tallies][h.Job]++
					}
					return true
				})
			}
			if fmt.Sprint(found) != fmt.Sprint(q.sent) && len(found)+len(q.sent) > 0 {
				t.Errorf("%s has %v, and counts %v", q.Name, found, q.sent)
			}
		}
		p.mu.Unlock()
	}
	for ts, found := range waiting {
		sum := map[uint64]uint64{}
		for _, of := range []map[uint64]*JobTally{ts.logged, ts.passing} {
			for job, j := range of {
				if w := j.Waiting(); w > 0 {
					sum[job] += w
				}
			}
		}
		if fmt.Sprint(sum) != fmt.Sprint(found) {
			t.Errorf("by the tallies there wait %v, in the queues %v", sum, found)
		}
	}
}

// takeOne takes a message by basic.get, and settles it so; done is false if there is none.
func (w *mailWorld) takeOne(name string, kind OpKind) bool {
	w.t.Helper()
	q := w.queues[name]
	d, _, ok, err := w.n.Get(q, kind == Publish) // which stands for no acknowledgement
	if err != nil || !ok {
		return false
	}
	w.n.bodies.Release(d.Body)
	w.n.bodies.Release(d.History)
	if kind != Publish {
		if err := w.n.Await(w.n.Run([]Op{{Kind: kind, Queue: q, ID: d.ID, Consumer: d.By}})); err != nil {
			w.t.Error(err)
		}
		w.n.Settle(q)
	}
	return true
}

func (w *mailWorld) enter(name string, serials ...message.Serial) {
	w.t.Helper()
	for _, s := range serials {
		if err := w.n.Enter([]Op{{Kind: Publish, Targets: []*Queue{w.queues[name]}, Body: w.record(s), TTL: -1, Priority: -1}}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// What becomes of entries that a job has sent: each way out of a queue, of each type and from each, is counted once, and
// the tally is the same after a restart, with a checkpoint and without.
func TestWhatBecomesOfWhatAJobSent(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	short := func(s *queue.Settings) { s.TTL = 1 }
	one := func(s *queue.Settings) { s.MaxLength, s.Overflow = 1, queue.DropHead }
	routes := table{"x": {"grave"}, "round": {"there"}, "nowhere": {}}
	for _, source := range []queue.Config{classic, quorum} {
		for _, target := range []queue.Config{classic, quorum} {
			for _, c := range []struct {
				name string
				dead string // exchange
				set  func(*queue.Settings)
				do   func(w *mailWorld)
				want JobTally
			}{
				{"they wait", "", nil, func(*mailWorld) {}, JobTally{Moved: 3, Came: 3}},
				{"acknowledged", "", nil, func(w *mailWorld) { w.takeOne("there", Ack) }, JobTally{Moved: 3, Came: 3, Acknowledged: 1}},
				{"got without acknowledgement", "", nil, func(w *mailWorld) { w.takeOne("there", Publish) }, JobTally{Moved: 3, Came: 3, Acknowledged: 1}},
				{"returned", "", nil, func(w *mailWorld) { w.takeOne("there", Return) }, JobTally{Moved: 3, Came: 3}},
				{"rejected and sent on", "x", nil, func(w *mailWorld) { w.takeOne("there", Reject) }, JobTally{Moved: 3, Came: 3, DiedAgain: 1}},
				{"rejected, in a cycle", "round", nil, func(w *mailWorld) {
					for range 8 {
						w.takeOne("there", Reject)
						w.calm("there")
					}
				}, JobTally{Moved: 3, Came: 3, DiedAgain: 3}},
				{"rejected for good", "", nil, func(w *mailWorld) { w.takeOne("there", Reject) }, JobTally{Moved: 3, Came: 3, Dropped: 1}},
				{"rejected, no route", "nowhere", nil, func(w *mailWorld) { w.takeOne("there", Reject) }, JobTally{Moved: 3, Came: 3, Dropped: 1}},
				{"expired", "", short, nil, JobTally{Moved: 3, Came: 3, Expired: 3}},
				{"expired and sent on", "x", short, nil, JobTally{Moved: 3, Came: 3, DiedAgain: 3}},
				{"expired, no exchange", "missing", short, nil, JobTally{Moved: 3, Came: 3, Expired: 3}},
				{"too many", "", one, nil, JobTally{Moved: 3, Came: 3, Dropped: 2}},
				{"purged", "", nil, func(w *mailWorld) {
					if _, err := w.n.Purge(w.queues["there"]); err != nil {
						w.t.Error(err)
					}
				}, JobTally{Moved: 3, Came: 3, Removed: 3}},
				{"moved on", "", nil, func(w *mailWorld) { w.sentTo(8, "there", 2, "grave") }, JobTally{Moved: 3, Came: 3, Removed: 2}},
			} {
				t.Run(fmt.Sprintf("%v to %v %s", source.Type, target.Type, c.name), func(t *testing.T) {
					there := mailQueue("there", target, c.dead, false)
					if c.set != nil {
						c.set(&there.settings)
					}
					defs := []definition{{"here", source, queue.Unlimited(), DeadLetter{}}, there, {"grave", classic, queue.Unlimited(), DeadLetter{}}}
					fs := vfs.NewMem()
					w := startQueues(t, fs, 1, nil, defs, routes)
					w.drops.Store(true)
					w.enter("here", 1, 2, 3)
					if n := w.sentTo(7, "here", 10, "there"); n != 3 {
						t.Fatalf("%d were moved", n)
					}
					if c.do != nil {
						c.do(w)
					}
					for life := uint64(2); ; life++ {
						w.calm("there")
						w.await(fmt.Sprintf("the tally is %+v", c.want), func() bool { return w.n.JobTally(7) == c.want })
						checkTallies(t, w.n)
						if life == 4 {
							break
						}
						if life == 3 {
							if err := w.n.Checkpoint(); err != nil {
								t.Fatal(err)
							}
						}
						w.stop()
						w = startQueues(t, fs, life, nil, defs, routes)
						w.drops.Store(true)
					}
					if err := w.n.ForgetJobs(func(job uint64) bool { return job == 8 }); err != nil {
						t.Fatal(err)
					}
					w.await("the job is forgotten", func() bool { return w.n.JobTally(7) == JobTally{} })
					for w.takeOne("there", Ack) {
					}
					if got := w.n.JobTally(7); got != (JobTally{}) {
						t.Errorf("forgotten, and counted again: %+v", got)
					}
					w.stop()
				})
			}
		}
	}
}

// calm waits until all that has died in a queue has gone where it goes.
func (w *mailWorld) calm(name string) {
	q := w.queues[name]
	w.n.SettleDeaths(q)
	w.await("nothing is dying", func() bool {
		w.n.SettleDeaths(q)
		c := w.n.Counts(q)
		return c.Dying+c.Transit == 0
	})
}

// A deletion counts what was there, whether the crash after it brings the queue back or not.
func TestADeletionCountsWhatAJobSent(t *testing.T) {
	for _, config := range []queue.Config{classic, quorum} {
		defs := []definition{{"here", classic, queue.Unlimited(), DeadLetter{}}, {"there", config, queue.Unlimited(), DeadLetter{}}}
		fs := vfs.NewMem()
		w := startQueues(t, fs, 1, nil, defs, table{})
		w.enter("here", 1, 2, 3)
		w.sentTo(7, "here", 10, "there")
		w.takeOne("there", Ack)
		there := w.queues["there"]
		w.remove("there")
		want := JobTally{Moved: 3, Came: 3, Acknowledged: 1, Removed: 2}
		if got := w.n.JobTally(7); got != want {
			t.Errorf("%v: %+v, want %+v", config.Type, got, want)
		}
		checkTallies(t, w.n)
		if there.sent != nil {
			t.Error("the deleted queue counts")
		}
		w.stop()
		for life, left := range [][]definition{defs, defs[:1], defs[:1]} { // the deletion was not on disk; then it was
			if config.Type == queue.Quorum && life == 0 {
				continue // its log has the deletion
			}
			w = startQueues(t, fs, uint64(life+2), nil, left, table{})
			want := JobTally{Moved: 3, Came: 3, Acknowledged: 1, Removed: 2}
			if life == 0 {
				want.Removed = 0
			}
			if got := w.n.JobTally(7); got != want {
				t.Errorf("%v, life %d: %+v, want %+v", config.Type, life, got, want)
			}
			checkTallies(t, w.n)
			w.stop()
		}
	}
}

// A purge in slices, of pages that are on disk, counts each entry of a job and nothing else.
func TestAPurgeCountsWhatIsOnDisk(t *testing.T) {
	for _, config := range []queue.Config{classic, quorum} {
		defs := []definition{{"here", classic, queue.Unlimited(), DeadLetter{}}, {"there", config, queue.Unlimited(), DeadLetter{}}}
		w := startQueues(t, vfs.NewMem(), 1, nil, defs, table{})
		for job := range uint64(3) {
			for s := range 400 {
				w.enter("here", message.Serial(int(job)*1000+s+1))
			}
			w.sentTo(job, "here", 1000, "there") // job 0 is none
		}
		if err := w.n.Checkpoint(); err != nil {
			t.Fatal(err)
		}
		w.takeOne("there", Ack) // of none
		if n, err := w.n.Purge(w.queues["there"]); err != nil || n != 1199 {
			t.Fatal(n, err)
		}
		if got := w.n.JobTallies(); len(got) != 2 || got[1] != got[2] || got[1] != (JobTally{Moved: 400, Came: 400, Removed: 400}) {
			t.Errorf("%v: %+v", config.Type, got)
		}
		checkTallies(t, w.n)
		w.stop()
	}
}

// What is in no journal ends with the process, and so does what was counted of it.
func TestTransientEntriesAreCountedUntilTheEnd(t *testing.T) {
	defs := []definition{{"here", classic, queue.Unlimited(), DeadLetter{}}}
	fs := vfs.NewMem()
	w := startQueues(t, fs, 1, nil, defs, table{})
	q := &Queue{Incarnation: 9, VHost: "/", Name: "there"}
	w.n.Create(q, queue.Config{Type: queue.Classic, MaxPriority: -1}, queue.Unlimited(), DeadLetter{})
	w.queues["there"] = q
	w.enter("here", 1, 2, 3)
	w.sentTo(7, "here", 10, "there")
	w.takeOne("there", Ack)
	if got := w.n.JobTally(7); got != (JobTally{Moved: 3, Came: 3, Acknowledged: 1}) {
		t.Errorf("%+v", got)
	}
	checkTallies(t, w.n)
	if err := w.n.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	w.stop()
	w = startQueues(t, fs, 2, nil, defs, table{})
	if got := w.n.JobTallies(); len(got) != 1 || got[7] != (JobTally{Moved: 3}) { // they have left a durable queue
		t.Errorf("after a restart %+v", got)
	}
	w.stop()
}

// A node dies at some step while jobs move messages from queues of both types to others, in its own log and in another, and
// clients acknowledge, reject and purge them. In its next life what came is what has left the queues where it died, what
// waits is what is there, and what has gone has gone as the only way out of its target says: exactly.
func TestTalliesAfterACrash(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	defs := []definition{{"c", classic, queue.Unlimited(), DeadLetter{}}, {"q", quorum, queue.Unlimited(), DeadLetter{}}}
	routes := table{"x": {"grave"}}
	sinks := []struct {
		name string
		kind OpKind
	}{{"ack", Ack}, {"reject", Reject}, {"lose", Reject}, {"purge", 0}}
	for i, s := range sinks {
		exchange := ""
		if s.name == "reject" {
			exchange = "x"
		}
		for k, config := range []queue.Config{classic, quorum} {
			d := mailQueue(fmt.Sprint(s.name, k), config, exchange, i == 1 && k == 1)
			defs = append(defs, d)
		}
	}
	defs = append(defs, definition{"grave", classic, queue.Unlimited(), DeadLetter{}})
	var sum JobTally
	points := slices.Concat(Failpoints, cluster.Failpoints, journal.Failpoints)
	for seed := range uint64(3 * len(points)) {
		rng := rand.New(rand.NewPCG(seed, 23))
		point, left := points[int(seed)%len(points)], 1+rng.IntN(30)
		fs := vfs.NewCrashableMem()
		chance := rand.New(rand.NewPCG(seed, 24))
		var mu sync.Mutex
		var clone *vfs.MemFS
		begun := false
		w := startQueues(t, fs, 2*seed+1, func(name string) {
			mu.Lock()
			defer mu.Unlock()
			if name != point || !begun || clone != nil {
				return
			}
			if left--; left == 0 {
				clone = crash(fs, chance)
			}
		}, defs, routes)
		w.drops.Store(true)
		const messages = 60
		for s := range message.Serial(messages) {
			w.enter([]string{"c", "q"}[s%2], s+1)
		}
		if err := w.j.Sync(); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		begun = true
		mu.Unlock()
		for range 12 {
			i := rng.IntN(len(sinks))
			k := rng.IntN(2)
			name := fmt.Sprint(sinks[i].name, k)
			w.sentTo(uint64(10*i+k+1), []string{"c", "q"}[rng.IntN(2)], 1+rng.IntN(8), name)
			for range rng.IntN(8) {
				i := rng.IntN(len(sinks))
				name := fmt.Sprint(sinks[i].name, rng.IntN(2))
				if sinks[i].name == "purge" {
					if _, err := w.n.Purge(w.queues[name]); err != nil {
						t.Fatal(err)
					}
				} else {
					w.takeOne(name, sinks[i].kind)
				}
			}
			if rng.IntN(6) == 0 {
				if err := w.n.Checkpoint(); err != nil {
					t.Fatal(err)
				}
			}
		}
		mu.Lock()
		if clone == nil {
			clone = crash(fs, chance)
		}
		mu.Unlock()
		w.stop()

		w = startQueues(t, clone, 2*seed+2, nil, defs, routes)
		w.drops.Store(true)
		for _, d := range defs {
			w.calm(d.name)
		}
		w.await("all held are routed", func() bool { return w.n.Counts(w.queues["reject1"]).Held == 0 })
		checkTallies(t, w.n)
		in := func(name string) (list []deadletter.History) {
			_, _, err := w.n.Browse(w.queues[name], queue.Cursor{}, 1000, func(_ queue.View, _ message.Record, history []byte) bool {
				h, _ := deadletter.Parse(history)
				list = append(list, h)
				return true
			})
			if err != nil {
				t.Fatal(err)
			}
			return list
		}
		var came uint64
		for job, got := range w.n.JobTallies() {
			i, k := int(job-1)/10, int(job-1)%10
			waits := uint64(len(in(fmt.Sprint(sinks[i].name, k))))
			want := JobTally{Came: got.Came, Moved: got.Came}
			ended := got.Came - waits
			switch sinks[i].name {
			case "ack":
				want.Acknowledged = ended
			case "reject":
				want.DiedAgain = ended
				if n := slices.IndexFunc(in("grave"), func(h deadletter.History) bool { return h.Job == job }); ended > 0 && n < 0 {
					t.Errorf("seed %d: what died again does not say that job %d sent it", seed, job)
				}
			case "lose":
				want.Dropped = ended
			case "purge":
				want.Removed = ended
			}
			if got != want {
				t.Errorf("seed %d at %s: job %d, %s: %+v, want %+v", seed, point, job, sinks[i].name, got, want)
			}
			came += got.Came
			sum.add(&got)
		}
		if left := len(in("c")) + len(in("q")); int(came)+left != messages {
			t.Errorf("seed %d at %s: %d came and %d are left of %d", seed, point, came, left, messages)
		}
		w.stop()
		if t.Failed() {
			return
		}
	}
	for i, v := range sum.numbers() {
		if *v == 0 && JobOutcome(i) != JobExpired {
			t.Errorf("%+v: that shows little", sum)
		}
	}
}

// Tallies are read back as they were written, and to their end.
func TestTalliesAreReadBack(t *testing.T) {
	ts := newTallies()
	ts.logged[3] = &JobTally{Came: 5, Acknowledged: 1}
	ts.logged[1<<40] = &JobTally{Came: 1 << 50, Removed: 2}
	var w commandWriter
	ts.append(&w)
	back := newTallies()
	r := commandReader{}
	r.all = w.b
	back.restore(&r)
	if r.bad || r.more() || len(back.logged) != 2 || *back.logged[3] != *ts.logged[3] || *back.logged[1<<40] != *ts.logged[1<<40] {
		t.Errorf("read back as %+v", back.logged)
	}
	for n := range len(w.b) {
		r := commandReader{}
		r.all = w.b[:n]
		newTallies().restore(&r)
		if !r.bad {
			t.Errorf("%d bytes of %d are taken for all", n, len(w.b))
		}
	}
}
