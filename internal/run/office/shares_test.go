package office

import (
	"context"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/expression"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/letters"
	"bartleby.mq/internal/wire/amqp091"
)

// oneInAnother lets a message die into another queue, dlq2.
func (d *bureau) oneInAnother() {
	d.t.Helper()
	d.declare("dlq2", "classic")
	d.declare("work2", "classic", amqp091.Field{Key: "x-dead-letter-exchange", Value: ""}, amqp091.Field{Key: "x-dead-letter-routing-key", Value: "dlq2"})
	d.publish("work2", "x")
	d.kill("work2")
	d.eventually("it has died", func() bool { return d.ready("dlq2") == 1 })
}

// A virtual host that has had its share of a step waits for the next one, whatever it has: others have theirs meanwhile.
func TestAVirtualHostHasAShareOfAStep(t *testing.T) {
	d := openChancery(t, vfs.NewMem(), 0)
	d.letters("classic", "classic", 3)
	d.oneInAnother()
	d.put(Rule{Name: "again", On: true, Action: RuleRetry, AfterMS: 60_000, Factor: 1, MaxTimes: 1})
	w := d.rules.watch
	if len(w.queues) != 2 || w.pending != 4 {
		t.Fatalf("%d queues are watched, %d letters wait", len(w.queues), w.pending)
	}
	for _, q := range w.queues {
		w.walk(q)
	}
	w.share = 0 // the first look takes all of it
	if wait := w.step(); wait > 0 || w.pending != 1 && w.pending != 3 {
		t.Fatalf("after a step %d of 4 letters are met, and it waits %v; want those of one queue", w.pending, wait)
	}
	w.share = vhostTime
	d.work()
	if w.pending != 4 {
		t.Errorf("%d of 4 letters are met in the end", w.pending)
	}
	// What is due goes in shares, too, and none is lost.
	d.ahead.Add(60_000)
	w.share = 0
	for range 100 {
		w.step()
	}
	if d.ready("work")+d.ready("work2") != 4 {
		t.Errorf("%d and %d are back", d.ready("work"), d.ready("work2"))
	}
}

// What is due is moved although there is more to read of its virtual host than a step has time for.
func TestMuchToReadKeepsNothingFromBeingMoved(t *testing.T) {
	d := openChancery(t, vfs.NewMem(), 0)
	d.letters("classic", "classic", 3)
	d.oneInAnother()
	d.put(Rule{Name: "again", On: true, Action: RuleRetry, AfterMS: 60_000, Factor: 1, MaxTimes: 1})
	w := d.rules.watch
	d.ahead.Add(60_000)
	w.share = 0 // a look takes all of it
	for range 100 {
		for _, q := range w.queues {
			if q.info.Decl.Name == "dlq2" {
				w.walk(q) // so there is always something to read
			}
		}
		w.step()
	}
	if d.ready("work") != 3 {
		t.Errorf("%d of 3 letters that are due are back", d.ready("work"))
	}
}

// A search ends with its client, at the next letter.
func TestASearchEndsWithItsClient(t *testing.T) {
	d := openChancery(t, vfs.NewMem(), 0)
	d.letters("classic", "classic", 5)
	q, err := d.c.Find("dlq", topology.Read)
	if err != nil {
		t.Fatal(err)
	}
	for _, oldest := range []bool{false, true} {
		ctx, gone := context.WithCancel(t.Context())
		seen := 0
		_, err := d.f.Letters(ctx, q, LettersRequest{Oldest: oldest}, func(*Row) bool {
			seen++
			gone()
			return true
		}, nil)
		if err != context.Canceled || seen != 1 {
			t.Errorf("oldest %t: %d letters were looked at: %v", oldest, seen, err)
		}
	}
}

// A page whose slices end early has each letter once, in both orders.
func TestASearchThatGivesWayGoesOn(t *testing.T) {
	d := openChancery(t, vfs.NewMem(), 0)
	d.letters("classic", "classic", 7)
	q, err := d.c.Find("dlq", topology.Read)
	if err != nil {
		t.Fatal(err)
	}
	for _, oldest := range []bool{false, true} {
		e, err := letters.Extent(d.b, q)
		if err != nil {
			t.Fatal(err)
		}
		w := walk{f: d.f, q: q, e: e, oldest: oldest, cursor: e.There}
		if err := w.start(""); err != nil {
			t.Fatal(err)
		}
		seen := map[uint64]bool{}
		for more, rounds := true, 0; more; rounds++ {
			if more, err = w.next(t.Context(), func(v queue.View, _ message.Record, _ []byte) bool {
				if seen[uint64(v.ID)] {
					t.Fatalf("entry %d is shown twice", v.ID)
				}
				seen[uint64(v.ID)] = true
				return false // after each letter
			}); err != nil || rounds > 20 {
				t.Fatal(err, rounds)
			}
		}
		if len(seen) != 7 {
			t.Errorf("oldest %t: %d of 7 were shown", oldest, len(seen))
		}
	}
}

// Which rules are for a queue is found out once for its name while the rules are the same, and in slices: a virtual host that has had its share waits.
func TestRulesAreMatchedWithTheNamesOfQueuesOnce(t *testing.T) {
	d := openChancery(t, vfs.NewMem(), 0)
	d.letters("classic", "classic", 1)
	d.oneInAnother()
	w := d.rules.watch
	matched := func() (n int) {
		b := d.rules.books["/"]
		for _, q := range w.queues {
			if q.book == b && len(q.rules) == 1 {
				n++
			}
		}
		return n
	}
	hold := Rule{Name: "hold", On: true, Action: RuleHold, Queues: "^dlq"}
	for _, name := range []string{"as they are met", "when the rules have changed"} {
		hold.Name = name
		if _, err := d.rules.Put(d.c, Actor{}, []Rule{hold}, nil, false); err != nil {
			t.Fatal(err)
		}
		w.share = 0 // the first look takes all of it
		if w.step(); matched() != 1 {
			t.Errorf("%s: after a step the rules are matched with %d queues; want one", name, matched())
		}
		w.share = vhostTime
		if d.work(); matched() != 2 {
			t.Fatalf("%s: in the end the rules are matched with %d of 2 queues", name, matched())
		}
	}
	never, err := expression.CompileName("^$")
	if err != nil {
		t.Fatal(err)
	}
	d.rules.books["/"].active[0].queues = never // who asks it again gets another answer
	d.publish("work2", "y")
	d.kill("work2")
	d.eventually("it has died", func() bool { return d.ready("dlq2") == 2 })
	w.discover(nil, true)
	d.work()
	if matched() != 2 {
		t.Errorf("after another letter the rule is for %d queues: their names were matched again", matched())
	}
}

// A look ends between two rules if its time is up there, and the next one goes on with the rule that follows: in what is new and in what is due.
func TestALookEndsBetweenTwoRules(t *testing.T) {
	d := openChancery(t, vfs.NewMem(), 0)
	d.letters("classic", "classic", 2)
	var rules []Rule
	for i := range 4 {
		rules = append(rules, Rule{Name: fmt.Sprint(i), On: true, Action: RuleHold, Match: Filter{"body": {"nothing"}}})
	}
	rules = append(rules, Rule{Name: "again", On: true, Action: RuleRetry, AfterMS: 60_000})
	if _, err := d.rules.Put(d.c, Actor{}, rules, nil, false); err != nil {
		t.Fatal(err)
	}
	d.f.timeUp = func() bool { return true }
	w := d.rules.watch
	w.share = 0 // the first look takes all of it
	look := func(what string, letters int) {
		t.Helper()
		for n := 1; n < len(rules)*letters; n++ {
			w.step()
			for _, q := range w.queues {
				asked := 0
				for _, at := range q.asked {
					asked += at.next
				}
				if q.info.Decl.Name == "dlq" && asked != n%len(rules) {
					t.Fatalf("%s: after look %d %d rules were asked about a letter; want %d", what, n, asked, n%len(rules))
				}
			}
		}
		w.step()
	}
	if look("what is new", 2); w.pending != 2 {
		t.Fatalf("%d of 2 letters wait", w.pending)
	}
	d.work()
	d.ahead.Add(60_000)
	if look("what is due", 2); d.ready("work") != 2 {
		t.Errorf("%d of 2 letters are back", d.ready("work"))
	}
}
