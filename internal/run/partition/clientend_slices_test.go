package partition

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

var singleQuorum = queue.Config{Type: queue.Quorum, Durable: true, MaxPriority: -1, SingleActive: true}

// departing is a node with quorum queues of one group that clients leave.
type departing struct {
	*mailWorld
	serial message.Serial
}

func startDeparting(t *testing.T, fs *vfs.MemFS, life uint64, quitSlice int) *departing {
	defs := []definition{{"q", singleQuorum, queue.Unlimited(), DeadLetter{}}, {"other", quorum, queue.Unlimited(), DeadLetter{}}}
	w := &departing{mailWorld: openMail(t, fs, life, nil, table{})}
	w.n.quitSlice = quitSlice
	for i, d := range defs {
		q := &Queue{Incarnation: uint64(i + 1), VHost: "/", Name: d.name, Durable: true, Group: 1}
		w.n.Create(q, d.config, d.settings, d.dead)
		w.queues[d.name] = q
	}
	w.start()
	w.n.SettleAll()
	return w
}

func (w *departing) publish(name string, n int) {
	w.t.Helper()
	var ops []Op
	for range n {
		w.serial++
		ops = append(ops, Op{Kind: Publish, Targets: []*Queue{w.queues[name]}, Body: w.record(w.serial), TTL: -1, Priority: -1})
	}
	w.n.Run(ops)
	w.n.SettleAll()
}

func (w *departing) attach(s *client, name string) *queue.Consumer {
	w.t.Helper()
	c := &queue.Consumer{Target: s, Tag: "c", Prefetch: 1 << 20}
	if ok, err := w.n.Attach(w.queues[name], c, func() {}); !ok || err != nil {
		w.t.Fatal(ok, err)
	}
	return c
}

// got returns the next n deliveries of a client.
func (w *departing) got(s *client, n int) (list []outstanding) {
	w.t.Helper()
	within(w.t, fmt.Sprintf("%d deliveries", n), func() {
		for list = s.take(); len(list) < n; list = append(list, s.take()...) {
			w.n.SettleAll()
		}
	})
	for _, o := range list {
		w.n.bodies.Release(o.d.Body)
		w.n.bodies.Release(o.d.History)
	}
	return list
}

// inOrder checks that a queue has its messages in the order of their serials from first on: those up to failed, which
// had one failed delivery, before those that were never delivered.
func (w *departing) inOrder(what string, list []outstanding, failed int) {
	w.t.Helper()
	for i, o := range list {
		want := queue.Counts{}
		if i < failed {
			want = queue.Counts{Deliveries: 1, Acquired: 1}
		}
		if i > 0 && o.d.ID <= list[i-1].d.ID || o.d.Counts != want || o.d.Redelivered != (i < failed) {
			w.t.Fatalf("%s: delivery %d is of %d, counts %+v, redelivered %t; %d have failed once", what, i, o.d.ID, o.d.Counts, o.d.Redelivered, failed)
		}
	}
}

func returning(list []outstanding, by *queue.Consumer) []Delivered {
	var returns []Delivered
	for _, o := range list {
		returns = append(returns, Delivered{o.q, o.d.ID, by})
	}
	return returns
}

// each calls between before each element.
func each[E any](list []E, between func(i int)) func(func(E) bool) {
	return func(yield func(E) bool) {
		for i, e := range list {
			between(i)
			if !yield(e) {
				return
			}
		}
	}
}

// longest is how many entries a hold of the group handled at most since before was called.
func (w *departing) longest(during func()) int {
	p := w.queues["q"].part
	p.mu.Lock()
	p.longest = 0
	p.mu.Unlock()
	during()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.longest
}

// BR-4.5: however much a client has of quorum queues when it ends, nobody of the group waits for more than slices of
// it.
func TestTheEndOfAClientGoesInSlices(t *testing.T) {
	const many, most = 20_000, 2*sliceSteps + 3*sliceLimit
	w := startDeparting(t, vfs.NewMem(), 1, sliceSteps)
	defer w.stop()
	var leaves, stays client
	c := w.attach(&leaves, "other")
	w.publish("other", many)
	returns := returning(w.got(&leaves, many), c)
	w.attach(&stays, "other")
	if n := w.longest(func() { w.n.Quit([]Seat{{w.queues["other"], c}}, slices.Values(returns))() }); n > most || n < sliceSteps {
		t.Errorf("others waited for %d entries of %d deliveries, want %d at most", n, many, most)
	}
	if got := w.got(&stays, many); len(got) != many {
		t.Errorf("the one who stays has %d", len(got))
	}

	var seats []Seat
	for range many {
		seats = append(seats, Seat{w.queues["q"], w.attach(&leaves, "q")})
	}
	if n := w.longest(func() { w.n.Quit(seats, nil)() }); n > most || n < sliceSteps {
		t.Errorf("others waited for %d entries of %d consumers, want %d at most", n, many, most)
	}
	if n := w.n.Counts(w.queues["q"]).Consumers; n != 0 {
		t.Errorf("%d consumers stay", n)
	}
	w.idle()
}

// The end of a client goes in slices also if it has consumers of very many queues, each with a message for others.
func TestTheEndOfAClientOfManyQueuesGoesInSlices(t *testing.T) {
	const queues, messages, slice = 30, 2 * sliceLimit, 10
	w := startDeparting(t, vfs.NewMem(), 1, slice)
	defer w.stop()
	var leaves, stays client
	var seats []Seat
	var returns []Delivered
	for i := range queues {
		name := fmt.Sprint("m", i)
		q := &Queue{Incarnation: uint64(100 + i), VHost: "/", Name: name, Durable: true, Group: 1}
		w.n.Create(q, quorum, queue.Unlimited(), DeadLetter{})
		w.queues[name] = q
		c := w.attach(&leaves, name)
		w.publish(name, messages)
		seats = append(seats, Seat{q, c})
		returns = append(returns, returning(w.got(&leaves, messages), c)...)
		w.attach(&stays, name)
	}
	if n := w.longest(func() { w.n.Quit(seats, slices.Values(returns))() }); n > sliceSteps+3*sliceLimit || n < sliceSteps {
		t.Errorf("others waited for %d entries", n)
	}
	if got := w.got(&stays, queues*messages); len(got) != queues*messages {
		t.Errorf("the one who stays has %d", len(got))
	}
	w.idle()
}

// idle checks that nothing is hushed.
func (w *departing) idle() {
	w.t.Helper()
	w.n.SettleAll()
	for _, p := range w.n.groups {
		p.mu.Lock()
		if n := len(p.group.departures); n > 0 {
			w.t.Errorf("group %d: %d departures are left", p.group.id, n)
		}
		p.mu.Unlock()
	}
}

// BR-9.5: the next single active consumer first gets everything that comes back, in order, although that comes in
// slices and others publish in between. Each message has failed once.
func TestWhoFollowsGetsWhatComesBackInSlicesFirst(t *testing.T) {
	const out, slice = 60, 7
	w := startDeparting(t, vfs.NewMem(), 1, slice)
	defer w.stop()
	var leaves, stays client
	c, idle := w.attach(&leaves, "q"), w.attach(&leaves, "q")
	w.publish("q", out)
	got := w.got(&leaves, out)
	w.attach(&stays, "q")
	// The last ones are still on their way to the client.
	known, failed, published := returning(got[:out-5], c), 0, 0
	applied := w.n.Quit([]Seat{{w.queues["q"], c}, {w.queues["q"], idle}}, each(known, func(i int) {
		if i%slice == 3 {
			w.publish("q", 1)
			published++
		}
		if n := len(stays.take()); n > 0 {
			t.Fatalf("who follows has %d before all are back", n)
		}
	}))
	failed = out + published // messages published until then are delivered to the leaving client
	published = 0
	applied()
	all := w.got(&stays, failed+published)
	if published == 0 || len(all) != failed+published {
		t.Fatalf("%d deliveries, %d messages were published in between", len(all), published)
	}
	w.inOrder("who follows", all, failed)
	if got := w.got(&leaves, failed-out); len(got) != failed-out {
		t.Errorf("who leaves got %d", len(got))
	}
	w.idle()
}

// After a crash between the slices no delivery stays out, no queue stays hushed, and each message is there once, in
// order, whether or not recovery begins at a checkpoint from in between.
func TestACrashBetweenTheSlicesOfAnEnd(t *testing.T) {
	const out, never, slice = 40, 5, 8
	for _, checkpoint := range []bool{false, true} {
		for stop := 0; stop <= out; stop += slice {
			t.Run(fmt.Sprintf("after %d, checkpoint %t", stop, checkpoint), func(t *testing.T) {
				fs, life := vfs.NewCrashableMem(), uint64(1)
				w := startDeparting(t, fs, life, slice)
				var leaves, follows client
				c := w.attach(&leaves, "q")
				w.publish("q", out)
				returns := returning(w.got(&leaves, out), c)
				applies := false
				var image *vfs.MemFS
				look := func(i int) {
					if applies && i == 0 {
						w.publish("q", never) // no consumer gets them
					}
					if !applies || i != stop {
						return
					}
					if checkpoint {
						if err := w.n.Checkpoint(); err != nil {
							t.Error(err)
						}
					}
					if err := w.n.decideAll(); err != nil {
						t.Error(err)
					}
					image = crash(fs, rand.New(rand.NewPCG(uint64(stop), 1)))
				}
				applied := w.n.Quit([]Seat{{w.queues["q"], c}}, func(yield func(Delivered) bool) {
					for i, d := range returns {
						look(i)
						if !yield(d) {
							return
						}
					}
					look(out) // all are back, but the end was not applied
				})
				applies = true
				applied()
				w.idle()
				w.stop()
				if image == nil {
					t.Fatal("it did not crash")
				}
				again := startDeparting(t, image, life+1, slice)
				defer again.stop()
				again.idle()
				if n := again.n.Counts(again.queues["q"]); n.Ready != out+never || n.Out != 0 || n.Consumers != 0 {
					t.Errorf("after the crash: %+v", n)
				}
				again.attach(&follows, "q")
				again.inOrder("after the crash", again.got(&follows, out+never), out)
			})
		}
	}
}

// A queue that is deleted while a client leaves it does not stop the end in other queues. A queue that is declared
// anew is not hushed.
func TestAQueueIsDeletedInTheMiddleOfAnEnd(t *testing.T) {
	const messages, slice = 20, 6
	w := startDeparting(t, vfs.NewMem(), 1, slice)
	defer w.stop()
	var leaves, stays client
	c, d := w.attach(&leaves, "q"), w.attach(&leaves, "other")
	w.publish("q", messages)
	returns := returning(w.got(&leaves, messages), c)
	w.publish("other", messages)
	returns = append(returns, returning(w.got(&leaves, messages), d)...)
	w.attach(&stays, "other")
	q := w.queues["q"]
	applies := false
	applied := w.n.Quit([]Seat{{q, c}, {w.queues["other"], d}}, each(returns, func(i int) {
		if applies && i == messages/2 {
			n, err := w.n.Delete(q, nil)
			if err != nil {
				t.Fatal(err)
			}
			w.n.Deleted(q, n)
		}
	}))
	applies = true
	applied()
	w.inOrder("who stays", w.got(&stays, messages), messages)
	w.idle()
}

// Deliveries of a cancelled consumer stay out while another client ends. They also stay out while their own client
// ends, if they are not among the deliveries that come back.
func TestWhatACancelledConsumerHoldsStaysOut(t *testing.T) {
	const messages, slice = 20, 6
	w := startDeparting(t, vfs.NewMem(), 1, slice)
	defer w.stop()
	var leaves, stays client
	s := w.attach(&stays, "other")
	w.publish("other", messages)
	kept := w.got(&stays, messages)
	w.n.Detach(w.queues["other"], s, func() {})
	c := w.attach(&leaves, "other")
	w.publish("other", messages)
	w.n.Quit([]Seat{{w.queues["other"], c}}, slices.Values(returning(w.got(&leaves, messages), c)))()
	if n := w.n.Counts(w.queues["other"]); n.Out != messages || n.Ready != messages {
		t.Errorf("%d are out and %d ready, want %d of each", n.Out, n.Ready, messages)
	}
	w.n.Quit(nil, slices.Values(returning(kept, s)))()
	if n := w.n.Counts(w.queues["other"]); n.Out != 0 || n.Ready != 2*messages {
		t.Errorf("at the end %d are out and %d ready", n.Out, n.Ready)
	}
	w.idle()
}

// A replica that is restored from the group's state in the middle of an end continues as the others do. So does one
// whose proposals were not taken for a while.
func TestAnEndGoesOnWhereItIsRestored(t *testing.T) {
	const messages, slice = 40, 8
	for _, interrupted := range []bool{false, true} {
		f := newFleet(t, []definition{{"q", singleQuorum, queue.Unlimited(), DeadLetter{}}}, table{})
		f.leader.quitSlice = slice
		q := f.queues["q"]
		g := q.part.group
		k := int(g.id) - 1
		var leaves, stays client
		attach := func(s *client) *queue.Consumer {
			c := &queue.Consumer{Target: s, Tag: "c", Prefetch: 1000}
			if ok, err := f.leader.Attach(q, c, func() {}); !ok || err != nil {
				t.Fatal(ok, err)
			}
			return c
		}
		c := attach(&leaves)
		for range messages {
			f.publish("q", nil, -1)
		}
		f.quiesce()
		returns := returning(leaves.take(), c)
		attach(&stays)
		applies := false
		applied := f.leader.Quit([]Seat{{q, c}}, each(returns, func(i int) {
			if !applies || i == 0 || i%slice != 0 {
				return
			}
			f.publish("q", nil, -1)
			f.quiesce()
			f.replace(i/slice%2, k)
			f.agree()
			o := f.others[i/slice%2].groups[k].group
			if len(o.departures) != 1 || o.p.queues[q.Incarnation].m.Totals().Ready == 0 {
				t.Fatalf("%d departures after %d", len(o.departures), i)
			}
			if interrupted && i == 3*slice {
				f.logs[k].mu.Lock()
				f.logs[k].down = true
				f.logs[k].mu.Unlock()
			}
		}))
		applies = true
		applied()
		applies = false
		if interrupted {
			if n := len(stays.take()); n > 0 || len(g.departures) != 1 {
				t.Errorf("nobody leads, and %d were delivered", n)
			}
			f.logs[k].mu.Lock()
			f.logs[k].down = false
			f.logs[k].mu.Unlock()
			g.quitAgain()
		}
		f.quiesce()
		f.agree()
		if got := stays.take(); len(got) < messages || len(g.departures) != 0 {
			t.Errorf("interrupted %t: %d deliveries, %d departures", interrupted, len(got), len(g.departures))
		}
		if n := q.m.Totals(); n.Ready != 0 {
			t.Errorf("interrupted %t: %+v", interrupted, n)
		}
	}
}

// The queues of one group do not stay hushed until those of another group have everything back.
func TestOneGroupDoesNotWaitForAnothersEnd(t *testing.T) {
	const few, many, slice = 9, 60, 4
	w := startDeparting(t, vfs.NewMem(), 1, slice)
	defer w.stop()
	far := &Queue{Incarnation: 100, VHost: "/", Name: "far", Durable: true, Group: 2}
	w.n.Create(far, quorum, queue.Unlimited(), DeadLetter{})
	w.queues["far"] = far
	var leaves, stays client
	c, d := w.attach(&leaves, "far"), w.attach(&leaves, "q")
	w.publish("far", few)
	returns := returning(w.got(&leaves, few), c)
	w.publish("q", many)
	returns = append(returns, returning(w.got(&leaves, many), d)...)
	w.attach(&stays, "far")
	applies := false
	applied := w.n.Quit([]Seat{{far, c}, {w.queues["q"], d}}, each(returns, func(i int) {
		if applies && i == few+slice {
			w.n.SettleAll()
			if n := len(stays.take()); n != few {
				t.Errorf("%d of %d were handed out while another group's come back", n, few)
			}
		}
	}))
	applies = true
	applied()
	w.idle()
}
