package partition

import (
	"fmt"
	"slices"
	"testing"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

// full is the definition of a queue that refuses more than limit messages.
func full(name string, config queue.Config, limit int64) definition {
	return definition{name, config, settings(func(s *queue.Settings) { s.MaxLength, s.Overflow = limit, queue.RejectPublish }), DeadLetter{}}
}

// movesTo returns moves of all ready messages of a queue.
func (f *fleet) movesTo(name string, to ...string) (moves []Move) {
	f.quiesce()
	var targets []*Queue
	for _, t := range to {
		targets = append(targets, f.queues[t])
	}
	h := deadletter.History{Exchange: "x", Keys: []string{"k"}, ReplayedFrom: name}
	_, _, err := f.leader.Browse(f.queues[name], queue.Cursor{}, 1<<10, func(v queue.View, _ message.Record, _ []byte) bool {
		moves = append(moves, Move{ID: v.ID, Targets: targets, History: h.Append(nil)})
		return true
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return moves
}

// moved carries moves out, with something happening while they are on offer, and returns their results.
func (f *fleet) moved(name string, meanwhile func(), to ...string) []Moved {
	f.t.Helper()
	e, err := f.leader.move(f.queues[name], f.movesTo(name, to...))
	if err != nil {
		f.t.Fatal(err)
	}
	if meanwhile != nil {
		meanwhile()
	}
	f.work()
	if e.left != 0 {
		f.t.Fatalf("%d moves are open", e.left)
	}
	return e.moved
}

// in returns the messages of a queue, in order, and where each was replayed from by its history.
func (f *fleet) in(name string) (serials []message.Serial, from []string) {
	f.quiesce()
	_, _, err := f.leader.Browse(f.queues[name], queue.Cursor{}, 1<<10, func(v queue.View, r message.Record, history []byte) bool {
		h, _ := deadletter.Parse(history)
		serials, from = append(serials, r.Serial()), append(from, h.ReplayedFrom)
		return true
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return serials, from
}

// has checks the messages of a queue, in order.
func (f *fleet) has(name string, want ...message.Serial) {
	f.t.Helper()
	if got, _ := f.in(name); !slices.Equal(got, want) {
		f.t.Errorf("%s has %v, want %v", name, got, want)
	}
}

// settled checks that nothing is on its way or stranded, and that all replicas agree.
func (f *fleet) settled() {
	f.t.Helper()
	if n := f.leader.Stranded(); n > 0 {
		f.t.Errorf("%d messages are stranded", n)
	}
	for name, q := range f.queues {
		if c := f.leader.Counts(q); c.Messages() != c.Ready || c.Transit != 0 {
			f.t.Errorf("%s has %d messages, %d of which are ready: %+v", name, c.Messages(), c.Ready, c)
		}
		q.part.mu.Lock()
		if len(q.waiting.asked)+len(q.waiting.taken)+len(q.offers) > 0 {
			f.t.Errorf("%s remembers %v, %v, %v", name, q.waiting.asked, q.waiting.taken, q.offers)
		}
		q.part.mu.Unlock()
	}
	f.agree()
}

func results(moved []Moved) (what []MoveResult) {
	for _, m := range moved {
		what = append(what, m.What)
	}
	return what
}

// ways are the ways from a queue to another: from log to log, and last within one.
var ways = []struct {
	name           string
	source, target queue.Config
}{
	{"classic to quorum", classic, quorum}, {"quorum to classic", quorum, classic}, {"group to group", quorum, quorum}, {"within the local partitions", classic, classic},
}

// moving is a fleet with a queue dlq and targets t0, t1, ... in another log, if there is one of their type. Each
// target has a limit, or none if it is negative.
func moving(t *testing.T, source, target queue.Config, limits ...int64) *fleet {
	// Queues go to groups by their names: the targets are those that are not in the source's log.
	defs := []definition{{"dlq", source, queue.Unlimited(), DeadLetter{}}}
	n := &Node{}
	for i, limit := range limits {
		name := ""
		for k := 0; ; k++ {
			name = fmt.Sprintf("t%d-%d", i, k)
			if target.Type == queue.Classic || source.Type == queue.Classic || n.DefaultGroup("/", name) != n.DefaultGroup("/", "dlq") {
				break
			}
		}
		d := definition{name, target, queue.Unlimited(), DeadLetter{}}
		if limit >= 0 {
			d = full(name, target, limit)
		}
		defs = append(defs, d)
	}
	f := newFleet(t, defs, table{})
	for i := range limits {
		f.queues[fmt.Sprint("t", i)] = f.queues[defs[i+1].name]
		delete(f.queues, defs[i+1].name)
	}
	return f
}

// DL-19.6: messages for which a target in another log has no room stay where they were, in order. The others arrive,
// once.
func TestDL_19_6_WhatAFullTargetRefusesStaysInItsPlace(t *testing.T) {
	for _, way := range ways {
		for _, limit := range []int64{0, 2} {
			t.Run(fmt.Sprintf("%s, room for %d", way.name, limit), func(t *testing.T) {
				f := moving(t, way.source, way.target, limit)
				for range 4 {
					f.publish("dlq", nil, -1)
				}
				got := f.moved("dlq", nil, "t0")
				for i, m := range got {
					want := Moved{MoveRefused, f.queues["t0"].Incarnation}
					if int64(i) < limit {
						want = Moved{What: MoveDone}
					}
					if m != want {
						t.Errorf("move %d: %+v, want %+v", i, m, want)
					}
				}
				all := []message.Serial{1, 2, 3, 4}
				f.has("t0", all[:limit]...)
				f.has("dlq", all[limit:]...)
				if _, from := f.in("dlq"); slices.Contains(from, "dlq") {
					t.Error("what stays has the history of a replay")
				}
				f.settled()
			})
		}
	}
}

// If a target fills up while messages are on their way to it, it refuses them like publishes. They are back in their
// places, before later messages.
func TestDL_19_6_ATargetThatFillsMeanwhile(t *testing.T) {
	for _, way := range ways[:3] {
		t.Run(way.name, func(t *testing.T) {
			f := moving(t, way.source, way.target, 3)
			for range 3 {
				f.publish("dlq", nil, -1)
			}
			got := f.moved("dlq", func() {
				f.publish("dlq", nil, -1)
				f.publish("t0", nil, -1)
				f.publish("t0", nil, -1)
				if c := f.leader.Counts(f.queues["dlq"]); c.Transit != 3 || c.Ready != 1 {
					t.Errorf("while they are on offer, %d are on their way and %d ready", c.Transit, c.Ready)
				}
			}, "t0")
			if want := []MoveResult{MoveDone, MoveRefused, MoveRefused}; !slices.Equal(results(got), want) {
				t.Errorf("the results are %v, want %v", got, want)
			}
			f.has("t0", 5, 6, 1)
			f.has("dlq", 2, 3, 4)
			f.settled()
		})
	}
}

// If a target is deleted while messages are on their way to it, they stay where they were.
func TestDL_19_6_ATargetThatIsDeletedMeanwhile(t *testing.T) {
	for _, way := range ways[:3] {
		t.Run(way.name, func(t *testing.T) {
			f := moving(t, way.source, way.target, -1)
			for range 3 {
				f.publish("dlq", nil, -1)
			}
			inc := f.queues["t0"].Incarnation
			got := f.moved("dlq", func() {
				f.remove("t0")
				delete(f.queues, "t0")
			}, "t0")
			for i, m := range got {
				if want := (Moved{MoveNoTarget, inc}); m != want {
					t.Errorf("move %d: %+v, want %+v", i, m, want)
				}
			}
			f.has("dlq", 1, 2, 3)
			f.settled()
		})
	}
}

// If a source is deleted while its messages are on their way, the messages in it are deleted too. Messages that
// arrive have arrived, and nothing is in two places or remembered.
func TestDL_19_6_ASourceThatIsDeletedMeanwhile(t *testing.T) {
	for _, way := range ways[:3] {
		t.Run(way.name, func(t *testing.T) {
			f := moving(t, way.source, way.target, 2)
			for range 2 {
				f.publish("dlq", nil, -1)
			}
			got := f.moved("dlq", func() {
				f.publish("t0", nil, -1)
				f.remove("dlq")
				delete(f.queues, "dlq")
			}, "t0")
			if want := []MoveResult{MoveGone, MoveGone}; !slices.Equal(results(got), want) {
				t.Errorf("the results are %v, want %v", got, want)
			}
			f.has("t0", 3, 1)
			f.settled()
		})
	}
}

// An offered message stays during a purge and is not delivered to consumers, and a second move does not find it
// ready.
func TestWhatIsOnOfferIsNotReady(t *testing.T) {
	for _, way := range ways[:3] {
		t.Run(way.name, func(t *testing.T) {
			f := moving(t, way.source, way.target, 2, -1)
			for range 3 {
				f.publish("dlq", nil, -1)
			}
			f.quiesce()
			moves := f.movesTo("dlq", "t0")[:2]
			e, err := f.leader.move(f.queues["dlq"], moves)
			if err != nil {
				t.Fatal(err)
			}
			f.publish("t0", nil, -1)
			moves[0].Targets = []*Queue{f.queues["t1"]}
			again, err := f.leader.move(f.queues["dlq"], moves[:1])
			if err != nil || again.moved[0].What != MoveGone {
				t.Errorf("a second move: %v, %v", again.moved, err)
			}
			if n, err := f.leader.Purge(f.queues["dlq"]); n != 1 || err != nil {
				t.Errorf("%d purged, want the one that is ready: %v", n, err)
			}
			f.work()
			if want := []MoveResult{MoveDone, MoveRefused}; !slices.Equal(results(e.moved), want) {
				t.Errorf("the results are %v, want %v", e.moved, want)
			}
			f.has("t0", 4, 1)
			f.has("dlq", 2)
			f.settled()
		})
	}
}

// A message with several targets goes to all of them or to none: it stays if one has no room. If one fills up when
// another has the message already, the message is let in beyond the limit. A target that is deleted has nothing, as
// if it had been deleted a moment later.
func TestDL_19_6_SeveralTargets(t *testing.T) {
	for _, way := range ways[:3] {
		t.Run(way.name, func(t *testing.T) {
			f := moving(t, way.source, way.target, 1, 2, -1)
			for range 2 {
				f.publish("dlq", nil, -1)
			}
			got := f.moved("dlq", func() { f.publish("t0", nil, -1) }, "t2", "t0", "t1")
			if want := []Moved{{What: MoveDone}, {MoveRefused, f.queues["t0"].Incarnation}}; !slices.Equal(got, want) {
				t.Errorf("the results are %v, want %v", got, want)
			}
			f.has("t0", 3, 1)
			f.has("t1", 1)
			f.has("t2", 1)
			f.has("dlq", 2)
			f.settled()

			got = f.moved("dlq", func() {
				f.remove("t1")
				delete(f.queues, "t1")
			}, "t1", "t2")
			if want := []MoveResult{MoveDone}; !slices.Equal(results(got), want) {
				t.Errorf("the results are %v, want %v", got, want)
			}
			f.has("t2", 1, 2)
			f.has("dlq")
			f.settled()
		})
	}
}

// A message has targets in its own log and in another. Its own log does not let it in before the others were asked
// and have refused.
func TestDL_19_6_TargetsInTwoLogs(t *testing.T) {
	f := newFleet(t, []definition{
		{"dlq", classic, queue.Unlimited(), DeadLetter{}}, full("near", classic, 2), full("far", quorum, 1),
	}, table{})
	for range 3 {
		f.publish("dlq", nil, -1)
	}
	far := f.queues["far"].Incarnation
	got := f.moved("dlq", nil, "near", "far")
	if want := []Moved{{What: MoveDone}, {MoveRefused, far}, {MoveRefused, far}}; !slices.Equal(got, want) {
		t.Errorf("the results are %v, want %v", got, want)
	}
	f.has("near", 1)
	f.has("far", 1)
	f.has("dlq", 2, 3)
	got = f.moved("dlq", func() {
		f.remove("far")
		delete(f.queues, "far")
	}, "near", "dlq")
	if want := []Moved{{What: MoveDone}, {MoveRefused, f.queues["near"].Incarnation}}; !slices.Equal(got, want) {
		t.Errorf("the results are %v, want %v", got, want)
	}
	f.has("near", 1, 2)
	f.has("dlq", 3, 2)
	f.settled()
}

// DL-10.9: a message for which a queue with reject-publish-dlx has no room does not die of a replay.
func TestDL_19_6_AFullTargetThatDeadLettersWhatItRefuses(t *testing.T) {
	f := newFleet(t, []definition{
		{"dlq", quorum, queue.Unlimited(), DeadLetter{}},
		{"t", classic, settings(func(s *queue.Settings) {
			s.MaxLength, s.Overflow, s.DeadLetter = 1, queue.RejectPublishDLX, true
		}), DeadLetter{Exchange: "x"}},
	}, table{"x": {"dlq"}})
	for range 2 {
		f.publish("dlq", nil, -1)
	}
	got := f.moved("dlq", func() { f.publish("t", nil, -1) }, "t")
	if want := []MoveResult{MoveRefused, MoveRefused}; !slices.Equal(results(got), want) {
		t.Errorf("the results are %v, want %v", got, want)
	}
	f.has("t", 3)
	f.has("dlq", 1, 2)
	f.settled()
}

// A message whose TTL ended while it was on offer dies when it is back.
func TestWhatExpiresOnOffer(t *testing.T) {
	for _, way := range ways[:3] {
		t.Run(way.name, func(t *testing.T) {
			f := moving(t, way.source, way.target, 1)
			f.publish("dlq", nil, 1000)
			f.publish("dlq", nil, 100_000)
			got := f.moved("dlq", func() {
				f.publish("t0", nil, -1)
				f.now.Add(2000)
			}, "t0")
			if want := []MoveResult{MoveRefused, MoveRefused}; !slices.Equal(results(got), want) {
				t.Errorf("the results are %v, want %v", got, want)
			}
			f.has("dlq", 2)
			f.settled()
		})
	}
}

// A node that will never come back has taken nothing that it has not acknowledged: messages on offer to it are ready
// again, and later nothing is offered to it.
func TestWhatIsOnOfferToANodeThatIsForgotten(t *testing.T) {
	f := newFleet(t, []definition{{"dlq", quorum, queue.Unlimited(), DeadLetter{}}}, table{})
	f.publish("dlq", nil, -1)
	q := f.queues["dlq"]
	m := f.movesTo("dlq", "dlq")[0]
	offer := func() {
		f.t.Helper()
		e := newErrand(1)
		a := newAsk()
		a.errand, a.moves = e, []int{0}
		if err := q.group().question(a, func(w *commandWriter) {
			w.take(q.Incarnation, m.ID, m.History, &plan{remote: []target{{localLog | 2, 99}}})
		}); err != nil {
			t.Fatal(err)
		}
		f.leader.ForgetNode(2)
		f.work()
		if want := (Moved{MoveNoTarget, 99}); e.moved[0] != want {
			t.Errorf("it is %+v, want %+v", e.moved[0], want)
		}
		f.has("dlq", 1)
		f.settled()
	}
	offer()
	offer()
}

// A message that is moved to its own queue, which is full, and to one in another log, goes to both or stays.
func TestDL_19_6_TheSourceIsATargetAndFull(t *testing.T) {
	f := newFleet(t, []definition{full("dlq", classic, 2), {"far", quorum, queue.Unlimited(), DeadLetter{}}}, table{})
	for range 2 {
		f.publish("dlq", nil, -1)
	}
	got := f.moved("dlq", nil, "dlq", "far")
	if want := (Moved{MoveRefused, f.queues["dlq"].Incarnation}); got[0] != want {
		t.Errorf("it is %+v, want %+v", got[0], want)
	}
	f.has("dlq", 1, 2)
	f.has("far")
	f.settled()
}

// Messages that clients give back count for no limit, so a queue may exceed it. A message that is moved to its own
// queue, alone or with another of its log, is there afterwards all the same.
func TestDL_19_6_TheSourceIsATargetAndHasMoreThanItsLimit(t *testing.T) {
	for _, to := range [][]string{{"dlq"}, {"dlq", "near"}} {
		f := newFleet(t, []definition{full("dlq", classic, 1), {"near", classic, queue.Unlimited(), DeadLetter{}}}, table{})
		q := f.queues["dlq"]
		f.publish("dlq", nil, -1)
		d, _, ok, err := f.leader.Get(q, false)
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		f.publish("dlq", nil, -1)
		f.leader.Run([]Op{{Kind: Return, Queue: q, ID: d.ID, How: queue.ReturnNack}})
		f.leader.bodies.Release(d.Body)
		f.has("dlq", 1, 2)
		for _, got := range f.moved("dlq", nil, to...) {
			if got.What != MoveDone {
				t.Errorf("to %v: it is %+v", to, got)
			}
		}
		f.has("dlq", 1, 2)
		f.settled()
	}
}

// An entry that cannot be read is dropped from a group's queue in any state: on offer, or dead and held.
func TestForgetAnEntryThatWaits(t *testing.T) {
	f := newFleet(t, []definition{
		{"q", quorum, queue.Unlimited(), DeadLetter{}}, full("there", classic, 100),
		{"dying", quorum, settings(func(s *queue.Settings) { s.DeadLetter, s.AtLeastOnce = true, true }), DeadLetter{Exchange: "x"}},
		full("full", quorum, 0),
	}, table{"x": {"full"}})
	for range 3 {
		f.publish("q", nil, -1)
	}
	moves := f.movesTo("q", "there")
	e, err := f.leader.move(f.queues["q"], moves[1:])
	if err != nil {
		t.Fatal(err)
	}
	f.die("dying", 1)
	for name, ids := range map[string][]queue.ID{"q": {moves[0].ID, moves[1].ID}, "dying": {moves[0].ID}} {
		q := f.queues[name]
		var entries []Unreadable
		for _, id := range ids {
			entries = append(entries, Unreadable{ID: id})
		}
		if err := f.leader.DropUnreadable(q, entries); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		f.quiesce()
		q.part.mu.Lock()
		for _, id := range ids {
			if v, ok := q.m.View(id); ok {
				t.Errorf("%s still has %+v", name, v)
			}
		}
		q.part.mu.Unlock()
	}
	f.work()
	if e.left != 0 {
		t.Errorf("%d moves are open", e.left)
	}
	f.has("q")
	f.has("dying")
	f.settled()
}
