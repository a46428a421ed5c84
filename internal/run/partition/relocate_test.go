package partition

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/queue"
)

// dying is the definition of a queue whose dead go to an exchange.
func dying(name string, config queue.Config, exchange string) definition {
	return definition{name, config, settings(func(s *queue.Settings) { s.DeadLetter = true }), DeadLetter{Exchange: exchange}}
}

// die lets n messages die of their own TTL in a queue; then they are in the outbox.
func (f *fleet) die(name string, n int) {
	for range n {
		f.publish(name, nil, 10)
	}
	f.quiesce()
	f.now.Add(20)
	for f.route() {
	}
}

func (f *fleet) remove(name string) {
	if _, err := f.leader.Delete(f.queues[name], nil); err != nil {
		f.t.Fatal(err)
	}
	f.leader.Deleted(f.queues[name], Counts{})
}

func (f *fleet) ready(name string) int { return f.leader.Counts(f.queues[name]).Ready }

// Stranded messages go where an operator says, or back to the queue they left, as many as were asked for, and are
// counted.
func TestRelocate(t *testing.T) {
	for _, tc := range []struct {
		name          string
		source, other queue.Config // of the queue they leave, and of their target in another log
	}{
		{"from a group", quorum, classic},
		{"from the local partitions", classic, quorum},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFleet(t, []definition{
				dying("q", tc.source, "x"), {"gone", tc.other, queue.Unlimited(), DeadLetter{}},
				{"e", quorum, queue.Unlimited(), DeadLetter{}}, {"y", classic, queue.Unlimited(), DeadLetter{}},
				{"full", classic, settings(func(s *queue.Settings) { s.MaxLength, s.Overflow = 0, queue.RejectPublish }), DeadLetter{}},
			}, table{"x": {"gone"}})
			f.die("q", 5)
			f.remove("gone")
			f.routes["x"] = nil
			f.work()
			f.leader.RetryAllHeld()
			f.work()
			if n := f.leader.Stranded(); n != 5 {
				t.Fatalf("%d messages are stranded, want 5", n)
			}
			if c := f.leader.Counts(f.queues["q"]); c.Stranded != 5 || c.Messages() != 5 {
				t.Errorf("their queue shows %d stranded of %d", c.Stranded, c.Messages())
			}
			if list := f.leader.Outboxes(); len(list) != 1 || list[0].Stranded != 5 || list[0].From == list[0].To {
				t.Errorf("the outboxes are %+v", list)
			}
			for _, step := range []struct {
				r    Relocation
				want int
			}{
				{Relocation{VHost: "other", Target: f.queues["e"]}, 0},
				{Relocation{VHost: "/", Source: f.queues["e"], Target: f.queues["e"]}, 0},
				{Relocation{VHost: "/", Target: f.queues["e"], Limit: 1}, 1},
				{Relocation{VHost: "/", Source: f.queues["q"], Limit: 2}, 2},
				{Relocation{VHost: "/", Target: f.queues["y"], Limit: 1}, 1},
			} {
				if moved, err := f.leader.Relocate(t.Context(), step.r); moved != step.want || err != nil {
					t.Fatalf("%+v: %d moved, want %d: %v", step.r, moved, step.want, err)
				}
				f.work()
			}
			for name, want := range map[string]int{"e": 1, "q": 2, "y": 1} {
				if got := f.ready(name); got != want {
					t.Errorf("%s has %d messages, want %d", name, got, want)
				}
			}
			if _, err := f.leader.Relocate(t.Context(), Relocation{VHost: "/", Target: f.queues["full"]}); err != nil {
				t.Error(err)
			}
			f.work()
			if n := f.leader.Stranded(); n != 1 {
				t.Errorf("%d messages are stranded after their target had no room, want 1", n)
			}
			for s, places := range f.places() {
				if len(places) != 1 {
					t.Errorf("message %d is in %v", s, places)
				}
			}
			f.agree()
		})
	}
}

// A dead letter that was stranded has no TTL at its new place, as it would have had none at its first target
// (DL-22.8): in queues of its own log, and in those of others.
func TestDL_22_8_WhatWasStrandedRests(t *testing.T) {
	for _, source := range []queue.Config{classic, quorum} {
		rested := settings(func(s *queue.Settings) {
			s.DeadLetter, s.TTL, s.Rules = true, 10, deadletter.Rules{Profile: deadletter.ApsaraMQ, MaxHops: 100}
		})
		other := classic
		if source == classic {
			other = quorum
		}
		defs := []definition{{"q", source, rested, DeadLetter{Exchange: "x"}}, {"gone", other, queue.Unlimited(), DeadLetter{}}}
		routes := table{"x": {"gone"}}
		var late []string
		for i := range 20 { // some of them in the group of their source
			late = append(late, fmt.Sprint("late", i))
			defs = append(defs, definition{late[i], []queue.Config{source, other}[i%2], rested, DeadLetter{}})
		}
		f := newFleet(t, defs, routes)
		f.die("q", 1)
		f.remove("gone")
		f.routes["x"] = nil
		f.work()
		f.routes["x"] = late
		f.leader.RetryStranded()
		f.work()
		f.now.Add(1000)
		f.work()
		near := 0
		for _, name := range late {
			q := f.queues[name]
			if n := f.ready(name); n != 1 {
				t.Errorf("%s has %d messages a second later, want 1", name, n)
			}
			if !f.queues["q"].apart(q) {
				near++
			}
		}
		if near == 0 {
			t.Fatal("no target is in the log of its source")
		}
	}
}

// A message from a group to a full classic queue is stranded again while it is still being relocated, or routed
// again. That loop does not take it again: it would never end.
func TestWhatIsStrandedAgainIsNotTakenAgain(t *testing.T) {
	full := settings(func(s *queue.Settings) { s.MaxLength, s.Overflow = 0, queue.RejectPublish })
	f := newFleet(t, []definition{
		dying("q", quorum, "x"), {"gone", classic, queue.Unlimited(), DeadLetter{}}, {"full", classic, full, DeadLetter{}},
	}, table{"x": {"gone"}})
	const messages = 5
	f.die("q", messages)
	f.remove("gone")
	f.routes["x"] = nil
	f.work()
	asked := 0
	f.asked = func() {
		if asked++; asked > 10*messages {
			t.Fatal("there is no end of it")
		}
		f.work()
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if moved, err := f.leader.Relocate(ended, Relocation{VHost: "/", Target: f.queues["full"]}); moved != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d moved for somebody who is gone: %v", moved, err)
	}
	if moved, err := f.leader.Relocate(t.Context(), Relocation{VHost: "/", Target: f.queues["full"]}); moved != messages || err != nil {
		t.Errorf("%d went, want %d: %v", moved, messages, err)
	}
	f.asked()
	if n := f.leader.Stranded(); n != messages {
		t.Errorf("%d are stranded, want %d", n, messages)
	}
	asked = 0
	f.routes["x"] = []string{"full"}
	f.leader.RetryStranded()
	f.asked()
	if n := f.leader.Stranded(); n != messages {
		t.Errorf("%d are stranded after they were routed, want %d", n, messages)
	}
	close(f.leader.stop)
	asked = 0
	if moved, err := f.leader.Relocate(t.Context(), Relocation{VHost: "/", Target: f.queues["full"]}); moved != 0 || !Lost(err) {
		t.Errorf("%d moved in a node that stops: %v", moved, err)
	}
	if f.leader.RetryStranded(); asked != 0 {
		t.Error("a node that stops goes on")
	}
}

// Nothing stays on its way to a node that never comes back, and nothing is sent there from then on. A snapshot has
// that, too.
func TestForgetNode(t *testing.T) {
	f := newFleet(t, []definition{dying("q", quorum, "nowhere"), {"e", quorum, queue.Unlimited(), DeadLetter{}}}, table{})
	g := f.queues["q"].part.group
	there := LogName{Node: 2}
	send := func(ttl int64, how func(w *commandWriter, q uint64, id queue.ID, history []byte, p *plan)) {
		f.publish("q", nil, ttl)
		f.quiesce()
		f.now.Add(5 * max(ttl, 0))
		_ = g.tell(func(w *commandWriter) {
			id := queue.ID(0)
			f.queues["q"].m.Browse(queue.Cursor{}, 1, func(v queue.View) bool { id = v.ID; return true })
			h := deadletter.History{Exchange: "x", Keys: []string{"k"}}
			how(w, f.queues["q"].Incarnation, id, h.Append(nil), &plan{remote: []target{{localLog | 2, 99}}})
		})
		f.quiesce()
	}
	send(1000, func(w *commandWriter, q uint64, id queue.ID, history []byte, p *plan) {
		w.op(cmdTick, q) // it expires
		w.dead(q, p, false, history, []queue.Death{{ID: id}})
	})
	if list := f.leader.Outboxes(); !reflect.DeepEqual(list, []Outbox{{From: LogName{Group: g.id}, To: there, Waiting: 1}}) {
		t.Fatalf("the outboxes are %+v", list)
	}
	number := uint64(2)<<originTimeBits | 7
	_ = g.tell(func(w *commandWriter) { w.attach(f.queues["q"].Incarnation, &queue.Consumer{Number: number}, 0) })
	f.quiesce()
	g.consumers[number].c.Origin = number // as if that node had proposed it
	f.leader.ForgetNode(1)                // itself: never
	for range 2 {
		f.leader.ForgetNode(2)
		f.quiesce()
	}
	if len(g.consumers) != 0 {
		t.Error("the node's consumer is still attached")
	}
	send(-1, func(w *commandWriter, q uint64, id queue.ID, history []byte, p *plan) {
		w.take(q, id, history, p) // the queue keeps it
	})
	if list := f.leader.Outboxes(); !reflect.DeepEqual(list, []Outbox{{From: LogName{Group: g.id}, To: there, Stranded: 1, Closed: true}}) {
		t.Fatalf("the outboxes are %+v", list)
	}
	if n := f.ready("q"); n != 1 {
		t.Errorf("the queue has %d messages, want the one that had nowhere to go", n)
	}
	f.replace(0, int(g.id)-1)
	if moved, err := f.leader.Relocate(t.Context(), Relocation{VHost: "/", Target: f.queues["e"]}); moved != 1 || err != nil {
		t.Errorf("%d moved: %v", moved, err)
	}
	f.work()
	if n := f.ready("e"); n != 1 {
		t.Errorf("e has %d messages, want 1", n)
	}
}

// Messages that the local partitions took from a group go on to another log only when the group knows that they were
// taken; see outbox.Boxes.Took.
func TestOnwardWhenTheSourceKnows(t *testing.T) {
	f := newFleet(t, []definition{
		dying("q", quorum, "x"), {"x", classic, settings(func(s *queue.Settings) { s.DeadLetter, s.TTL = true, 10 }), DeadLetter{Exchange: "e"}},
		{"e", quorum, queue.Unlimited(), DeadLetter{}},
	}, table{"x": {"x"}, "e": {"e"}})
	f.die("q", 1)
	from, local := f.queues["q"].part.outboxes, f.leader.outboxes
	b, _ := from.load(0)
	if len(b.Entries) != 1 {
		t.Fatalf("%d entries are on their way", len(b.Entries))
	}
	upTo, refused, err := from.carry(&b)
	from.release(b.Entries)
	if upTo != 1 || err != nil {
		t.Fatal(upTo, err)
	}
	f.now.Add(20)
	for f.route() {
	}
	waiting := func() int {
		b, _ := local.load(0)
		local.release(b.Entries)
		return len(b.Entries)
	}
	if n := len(f.leader.outboxes.Find(f.queues["e"].part.group.id).Waiting()); n != 1 {
		t.Fatalf("%d entries are in the local outbox, want 1", n)
	}
	if n := waiting(); n != 0 {
		t.Errorf("%d entries may go on before the source knows", n)
	}
	f.leader.outboxes.Retake() // as after a start
	if n := waiting(); n != 0 {
		t.Errorf("%d entries may go on after a start before the source knows", n)
	}
	if err := from.acknowledge(b.To, upTo, refused); err != nil {
		t.Fatal(err)
	}
	f.quiesce()
	if n := waiting(); n != 1 {
		t.Errorf("%d entries may go on, want 1", n)
	}
	f.work()
	if n := f.ready("e"); n != 1 {
		t.Errorf("e has %d messages, want 1", n)
	}
	f.agree()
}
