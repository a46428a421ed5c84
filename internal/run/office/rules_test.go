package office

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"bartleby.mq/internal/core/declare"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/mutation"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/datadir"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
)

// chancery is a bureau whose clock the test sets forward, and whose watch it steps.
type chancery struct {
	*bureau
	f     *Office
	hooks *Webhooks
	rules *Rules
	ahead atomic.Int64 // milliseconds
}

func openChancery(t *testing.T, fs vfs.FS, ahead int64) *chancery {
	t.Helper()
	return openFailing(t, fs, ahead, nil)
}

func openFailing(t *testing.T, fs vfs.FS, ahead int64, fail func(string)) *chancery {
	t.Helper()
	d := &chancery{}
	d.ahead.Store(ahead)
	d.bureau = openBureauWith(t, fs, Options{
		Now: func() time.Time { return time.Now().Add(time.Duration(d.ahead.Load()) * time.Millisecond) }, WebhooksLocal: true, Failpoint: fail, idle: true,
	})
	d.f, d.hooks, d.rules = d.office, d.office.Webhooks, d.office.Rules
	return d
}

func (d *chancery) shutDown() { d.close() }

// work steps until nothing is left to do now.
func (d *chancery) work() {
	d.t.Helper()
	d.eventually("the watch has nothing to do now", func() bool { return d.rules.watch.step() > 0 })
}

func (d *chancery) pass(ms int64) {
	d.ahead.Add(ms)
	d.work()
}

func (d *chancery) put(rules ...Rule) RuleBook {
	d.t.Helper()
	if rules == nil {
		rules = []Rule{}
	}
	b, err := d.rules.Put(d.c, Actor{}, rules, nil, false)
	if err != nil {
		d.t.Fatal(err)
	}
	d.work()
	return b
}

func (d *chancery) rule(name string) RuleShown {
	d.t.Helper()
	for _, r := range d.rules.Book("/").Rules {
		if r.Name == name {
			return r
		}
	}
	d.t.Fatalf("there is no rule %s", name)
	return RuleShown{}
}

func jobID(r RuleShown) uint64 {
	id, _ := strconv.ParseUint(r.Job, 10, 64)
	return id
}

func (d *chancery) jobOf(rule string) uint64 { return jobID(d.rule(rule)) }

// A letter goes back when it is due and not before, later each time, and once it was sent back often enough it goes to the next rule.
func TestARuleRetriesAndThenSends(t *testing.T) {
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			d := openChancery(t, vfs.NewMem(), 0)
			d.letters(kind, kind, 2)
			d.declare("park", kind)
			d.put(Rule{Name: "again", On: true, Action: RuleRetry, AfterMS: 60_000, Factor: 2, MaxTimes: 2, Queues: "^dlq$"},
				Rule{Name: "park", On: true, Action: RuleSend, ToQueue: "park"})
			for n, wait := range []int64{60_000, 120_000} {
				if r := d.rule("again"); r.Waiting != 2 || d.ready("dlq") != 2 {
					t.Fatalf("round %d: %+v, %d in dlq", n, r, d.ready("dlq"))
				}
				d.pass(wait - 30_000)
				if d.ready("work") != 0 {
					t.Fatalf("round %d: sent back too early", n)
				}
				d.pass(30_000)
				if d.ready("work") != 2 || d.rule("again").Acted != uint64(2*n+2) || d.rule("again").LastMS == 0 {
					t.Fatalf("round %d: %d are back, %+v", n, d.ready("work"), d.rule("again"))
				}
				d.ahead.Store(0)
				for range 2 {
					d.kill("work")
				}
				d.eventually("they have died", func() bool { return d.ready("dlq")+d.ready("park") == 2 })
				d.work()
			}
			d.work()
			if d.ready("park") != 2 || d.ready("dlq") != 0 {
				t.Fatalf("%d are parked", d.ready("park"))
			}
			j := d.job(d.jobOf("again"))
			if j.Rule != "again" || j.State != Running || j.Moved != 4 || j.Outcomes.DiedAgain != 4 || j.By != "guest" {
				t.Errorf("%+v", j)
			}
			if _, err := d.jobs.Cancel(j.ID, Actor{}); err == nil {
				t.Error("somebody cancels the work of a rule")
			}
		})
	}
}

// A rule publishes with the rights of who has set it. So it does not go where a client's headers or an imported history say, unless it says parked:
// whoever may write to a queue with letters would publish anywhere.
func TestARuleDoesNotTrustTheWayThatAClientNames(t *testing.T) {
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			d := openChancery(t, vfs.NewMem(), 0)
			d.letters(kind, kind, 1)
			d.declare("bank", kind)
			forged := strings.ReplaceAll(d.export("dlq", nil), `"work"`, `"bank"`)
			d.declare("in", "classic", amqp091.Field{Key: "x-dead-letter-exchange", Value: ""}, amqp091.Field{Key: "x-dead-letter-routing-key", Value: "dlq"})
			d.importInto("dlq", forged)
			d.importInto("in", forged)
			d.kill("in") // this is a death of its own, but its origin is still the client's word
			d.importInto("in", withoutHistory(t, forged))
			d.kill("in") // and so it is of a message that had not died yet
			d.publish("dlq", "parked", amqp091.Field{Key: "x-exception-message", Value: "m"}, amqp091.Field{Key: "x-original-exchange", Value: ""}, amqp091.Field{Key: "x-original-routingKey", Value: "bank"})
			d.eventually("all letters are there", func() bool { return d.ready("dlq") == 5 })
			rule := Rule{Name: "again", On: true, Action: RuleRetry, AfterMS: 1000, Queues: "^dlq$"}
			got, err := d.rules.Try(t.Context(), d.c, rule, false)
			if err != nil || got.Matched != 1 || got.Parked != 4 || got.TooOften != 0 {
				t.Errorf("%+v, %v", got, err)
			}
			d.put(rule)
			d.pass(600_000)
			if d.ready("work") != 1 || d.ready("bank") != 0 || d.ready("dlq") != 4 {
				t.Fatalf("%d went back, %d where a client says, %d stayed", d.ready("work"), d.ready("bank"), d.ready("dlq"))
			}
			direct := ""
			d.put(Rule{Name: "send", On: true, Action: RuleSend, ToExchange: &direct, Queues: "^dlq$"})
			if d.pass(600_000); d.ready("dlq") != 4 {
				t.Errorf("the key of a client is followed: %d stayed", d.ready("dlq"))
			}
			d.put(Rule{Name: "away", On: true, Action: RuleSend, ToQueue: "in", Queues: "^dlq$"}) // it says where to itself
			d.pass(1000)
			if d.ready("in") != 4 {
				t.Fatalf("%d were sent", d.ready("in"))
			}
			rule.Queues = "^in$"
			d.put(rule)
			if d.pass(600_000); d.ready("in") != 4 {
				t.Errorf("a move makes a history the broker's own: %d stayed", d.ready("in"))
			}
			rule.Parked = true
			d.put(rule)
			if d.pass(600_000); d.ready("bank") != 4 {
				t.Errorf("with parked %d went where clients say, %+v", d.ready("bank"), d.rule("again"))
			}
		})
	}
}

// withoutHistory takes the histories out of an export.
func withoutHistory(t *testing.T, lines string) (text string) {
	t.Helper()
	for line := range strings.Lines(lines) {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatal(err)
		}
		delete(fields, "history")
		fields["exchange"], fields["routing_key"] = []byte(`""`), []byte(`"bank"`)
		rest, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		text += string(rest) + "\n"
	}
	return text
}

// The first rule that matches is the one; hold keeps a letter from those that follow, discard puts it into the archive, and the archive and the
// queue that a rule sends to are left alone.
func TestTheFirstRuleThatMatchesIsTheOne(t *testing.T) {
	d := openChancery(t, vfs.NewMem(), 0)
	d.letters("classic", "classic", 3)
	d.declare("park", "classic")
	d.put(
		Rule{Name: "keep", On: true, Action: RuleHold, Match: map[string][]string{"body": {"0"}}},
		Rule{Name: "off", Action: RuleSend, ToQueue: "park"},
		Rule{Name: "drop", On: true, Action: RuleDiscard, Match: map[string][]string{"body": {"1"}}},
		Rule{Name: "never", On: true, Action: RuleDiscard, Match: map[string][]string{"died": {">=2"}}},
		Rule{Name: "move", On: true, Action: RuleSend, ToQueue: "park"},
	)
	if d.ready("dlq") != 1 || d.ready("park") != 1 || d.ready(string(broker.Archive)) != 1 {
		t.Errorf("%d, %d, %d", d.ready("dlq"), d.ready("park"), d.ready(string(broker.Archive)))
	}
	d.pass(1000)
	if d.rule("move").Acted != 1 || d.rule("drop").Acted != 1 || d.rule("never").Acted != 0 || d.rule("off").State != "off" {
		t.Errorf("%+v", d.rules.Book("/"))
	}
	if body, _ := d.take("dlq", partition.Ack); body != "0" {
		t.Errorf("held is %q", body)
	}
}

// Two rules that send letters to each other's queue stop, because what rules have moved is counted in the letter.
func TestRulesDoNotSendLettersRoundForEver(t *testing.T) {
	d := openChancery(t, vfs.NewMem(), 0)
	d.letters("classic", "classic", 1)
	d.declare("park", "quorum")
	d.put(Rule{Name: "there", On: true, Action: RuleSend, ToQueue: "park", MaxTimes: 7}, Rule{Name: "back", On: true, Action: RuleSend, ToQueue: "dlq", MaxTimes: 7})
	for range 40 {
		d.pass(100)
	}
	if a, b := d.rule("there").Acted, d.rule("back").Acted; a+b != 7 {
		t.Errorf("there %d times, back %d times", a, b)
	}
	if d.ready("dlq")+d.ready("park") != 1 {
		t.Errorf("%d and %d", d.ready("dlq"), d.ready("park"))
	}
}

// A letter that a consumer has is not touched; when it comes back the rule goes on.
func TestARuleLeavesWhatAConsumerHas(t *testing.T) {
	d := openChancery(t, vfs.NewMem(), 0)
	d.letters("classic", "classic", 1)
	d.declare("park", "classic")
	err := d.c.Take("dlq", 1, broker.AckRemoves, func(*broker.Shown) (bool, error) {
		d.put(Rule{Name: "move", On: true, Action: RuleSend, ToQueue: "park"})
		d.pass(1000)
		if d.rule("move").Waiting != 1 || d.ready("park") != 0 {
			t.Errorf("%+v", d.rule("move"))
		}
		return false, fmt.Errorf("it goes back")
	})
	if err == nil {
		t.Fatal("it did not go back")
	}
	d.c.Settle()
	d.eventually("it is moved", func() bool { d.pass(5000); return d.ready("park") == 1 })
}

// A rule acts with the rights of who has set it: who loses them stops the rule, which says why, and whoever switches it on goes on.
func TestARuleStopsWithTheRightsOfItsUser(t *testing.T) {
	d := openChancery(t, vfs.NewMem(), 0)
	d.letters("classic", "classic", 1)
	d.declare("park", "classic")
	mustUser(d, "ann")
	ann := d.b.As("ann", "/")
	b, err := d.rules.Put(ann, Actor{Who: "ann"}, []Rule{{Name: "move", On: true, Action: RuleSend, ToQueue: "park"}}, nil, false)
	if err != nil || b.Rules[0].By != "ann" {
		t.Fatal(b, err)
	}
	d.work()
	if d.ready("park") != 1 {
		t.Fatal("it has not moved")
	}
	if _, err := d.b.By("").Do(declare.DeleteUser{Name: "ann"}); err != nil {
		t.Fatal(err)
	}
	d.more(1, 1)
	d.work()
	if r := d.rule("move"); r.State != "stopped" || r.Why == "" || d.ready("dlq") != 1 {
		t.Fatalf("%+v", r)
	}
	d.pass(100_000)
	if d.ready("dlq") != 1 {
		t.Fatal("it has moved")
	}
	mustUser(d, "ann") // another person
	d.pass(100_000)
	if d.ready("dlq") != 1 || d.rule("move").State != "stopped" {
		t.Fatal("a rule is inherited with a name")
	}
	if _, err := d.rules.Switch(d.c, Actor{}, "move", true, false); err != nil {
		t.Fatal(err)
	}
	d.work()
	if r := d.rule("move"); r.State != "on" || r.By != "guest" || d.ready("park") != 2 {
		t.Errorf("%+v, %d", r, d.ready("park"))
	}
}

// After a restart a rule does not go on for an account that was made anew under the name of who set it.
func TestARuleIsNotInheritedWithAName(t *testing.T) {
	fs := vfs.NewMem()
	d := openChancery(t, fs, 0)
	d.letters("classic", "classic", 1)
	mustUser(d, "ann")
	for who, c := range map[string]*broker.Connection{"ann": d.b.As("ann", "/"), "guest": d.c, "op": d.b.AsOperator("op", "/")} {
		if _, err := d.rules.PutRule(c, Actor{}, Rule{Name: who, On: true, Action: RuleDiscard, AfterMS: 1000}, false); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.b.By("").Do(declare.DeleteUser{Name: "ann"}); err != nil {
		t.Fatal(err)
	}
	mustUser(d, "ann")
	d.shutDown()
	d = openChancery(t, fs, 0)
	if r := d.rule("ann"); r.State != "stopped" || !strings.Contains(r.Why, "account of user 'ann'") {
		t.Errorf("%+v", r)
	}
	for _, who := range []string{"guest", "op"} {
		if r := d.rule(who); r.State != "on" {
			t.Errorf("%+v", r)
		}
	}
}

func mustUser(d *chancery, name string) {
	d.t.Helper()
	if err := d.b.CreateDefault(broker.Default{VHost: "/", User: name, Password: "secret", Tags: []string{"policymaker"}, Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
		d.t.Fatal(err)
	}
}

// Rules end with their virtual host, with their jobs.
func TestRulesEndWithTheirVirtualHost(t *testing.T) {
	d := openChancery(t, vfs.NewMem(), 0)
	for range 2 {
		if _, err := d.b.By("").Do(declare.PutVHost{Name: "shop", Change: declare.All(topology.Metadata{}), OnlyNew: true}); err != nil {
			t.Fatal(err)
		}
		if b := d.rules.Book("shop"); len(b.Rules) != 0 || b.Threshold != DefaultThreshold {
			t.Fatalf("%+v", b)
		}
		five := 5
		b, err := d.rules.Put(d.b.AsOperator("op", "shop"), Actor{}, []Rule{{Name: "a", On: true, Action: RuleDiscard}}, &five, false)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.b.By("").Do(declare.DeleteVHost{Name: "shop"}); err != nil {
			t.Fatal(err)
		}
		d.work()
		if j := d.job(jobID(b.Rules[0])); j.State != Cancelled {
			t.Errorf("%+v", j)
		}
	}
	if _, err := d.rules.Put(d.b.AsOperator("op", "shop"), Actor{}, []Rule{}, nil, false); err == nil {
		t.Error("rules of no virtual host are taken")
	}
}

// Wrong rules are refused with the name of the rule and what is wrong.
func TestWrongRules(t *testing.T) {
	d := openChancery(t, vfs.NewMem(), 0)
	for want, r := range map[string]Rule{
		"its name":              {Action: RuleHold},
		"is none; it must be":   {Name: "a", Action: "burn"},
		"cannot ask for an age": {Name: "a", Action: RuleHold, Match: map[string][]string{"older_than": {"1h"}}},
		"parked is for":         {Name: "a", Action: RuleHold, Parked: true},
		"a retry waits":         {Name: "a", Action: RuleRetry},
		"factor is 0.5":         {Name: "a", Action: RuleRetry, AfterMS: 1000, Factor: 0.5},
		"factor is NaN":         {Name: "a", Action: RuleRetry, AfterMS: 1000, Factor: math.NaN()},
		"from after_ms":         {Name: "a", Action: RuleRetry, AfterMS: 1000, MaxMS: 10},
		"jitter_percent is 101": {Name: "a", Action: RuleRetry, AfterMS: 1000, JitterPercent: 101},
		"max_times is 2000":     {Name: "a", Action: RuleSend, ToQueue: "x", MaxTimes: 2000},
		"max_times is for":      {Name: "a", Action: RuleHold, MaxTimes: 2},
		"does not wait":         {Name: "a", Action: RuleHold, AfterMS: 2},
		"send needs":            {Name: "a", Action: RuleSend},
		"are for retry and":     {Name: "a", Action: RuleDiscard, ToQueue: "x"},
		"is the archive":        {Name: "a", Action: RuleSend, ToQueue: "bartleby.archive"},
		"no regular expression": {Name: "a", Action: RuleHold, Queues: "("},
		"filter 'died'":         {Name: "a", Action: RuleHold, Match: map[string][]string{"died": {"x"}}},
		"action webhook":        {Name: "a", Action: RuleHold, Webhook: "x"},
		"webhook 'x' does not":  {Name: "a", Action: RuleWebhook, Webhook: "x"},
		"last can be false":     {Name: "a", Action: RuleHold, Last: new(bool)},
	} {
		_, err := d.rules.Put(d.c, Actor{}, []Rule{r}, nil, false)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	if _, err := d.rules.Put(d.c, Actor{}, []Rule{{Name: "a", Action: RuleHold}, {Name: "a", Action: RuleHold}}, nil, false); err == nil {
		t.Error("two rules of one name are taken")
	}
	if b := d.rules.Book("/"); len(b.Rules) != 0 {
		t.Errorf("%+v", b)
	}
}

// The wait of a letter is always the same, is within its jitter, and differs between letters.
func TestTheWaitOfALetter(t *testing.T) {
	r := Rule{Action: RuleRetry, AfterMS: 10_000, Factor: 3, MaxMS: 50_000, JitterPercent: 20}
	for replays, base := range []int64{10_000, 30_000, 50_000, 50_000} {
		seen := map[int64]bool{}
		for id := range queue.ID(100) {
			w := r.wait(uint64(replays), lot(7, id))
			if w < base*8/10 || w > base*12/10 || w != r.wait(uint64(replays), lot(7, id)) {
				t.Errorf("after %d replays letter %d waits %d", replays, id, w)
			}
			seen[w] = true
		}
		if len(seen) < 50 {
			t.Errorf("after %d replays 100 letters have %d waits", replays, len(seen))
		}
	}
	if w := (&Rule{AfterMS: maxAfter, Factor: maxFactor}).wait(math.MaxUint64, 0); w != maxAfter {
		t.Errorf("the longest wait is %d", w)
	}
}

// Trying a rule says what it would do, and does nothing.
func TestTryingARule(t *testing.T) {
	d := openChancery(t, vfs.NewMem(), 0)
	d.letters("classic", "classic", 5)
	got, err := d.rules.Try(t.Context(), d.c, Rule{Action: RuleRetry, AfterMS: 60_000, Match: map[string][]string{"reason": {"rejected"}}}, false)
	if err != nil || got.Examined != 5 || got.Matched != 5 || got.Due != 0 || len(got.First) != 5 || len(got.ByQueue) != 1 || got.ByQueue[0] != (TrialQueue{"dlq", 5}) || got.Stopped != nil {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err = d.rules.Try(t.Context(), d.c, Rule{Action: RuleDiscard, Match: map[string][]string{"body": {"3"}}}, false); err != nil || got.Matched != 1 || got.Due != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	d.work()
	if d.ready("dlq") != 5 || len(d.rules.Book("/").Rules) != 0 {
		t.Error("trying has changed something")
	}
	if _, err := d.rules.Try(t.Context(), d.c, Rule{Action: "burn"}, false); err == nil {
		t.Error("a wrong rule is tried")
	}
	mustUser(d, "ann")
	if err := d.b.CreateDefault(broker.Default{VHost: "/", User: "eve", Password: "secret", Tags: []string{"policymaker"}, Configure: ".*", Write: ".*", Read: "^other$"}); err != nil {
		t.Fatal(err)
	}
	if got, err = d.rules.Try(t.Context(), d.b.As("eve", "/"), Rule{Action: RuleDiscard}, false); err != nil || got.Examined != 0 {
		t.Errorf("who may not read the queue learns of its letters: %+v, %v", got, err)
	}
}

// Beyond its bound the watch remembers only when the first of the others is due, and finds them then.
func TestManyLettersThatWait(t *testing.T) {
	d := openChancery(t, vfs.NewMem(), 0)
	d.letters("classic", "classic", 20)
	d.rules.watch.most = 6
	d.put(Rule{Name: "again", On: true, Action: RuleRetry, AfterMS: 60_000, JitterPercent: 50})
	if w := d.rule("again").Waiting; w != 6 {
		t.Fatalf("%d are remembered", w)
	}
	for range 12 {
		d.pass(10_000)
	}
	if d.ready("work") != 20 || d.rules.watch.pending != 0 || d.rule("again").Acted != 20 {
		t.Errorf("%d are back, %d wait, %+v", d.ready("work"), d.rules.watch.pending, d.rule("again"))
	}
}

// While nobody needs it the watch does nothing, remembers nothing and has nothing noted.
func TestTheWatchSleepsWhileNobodyNeedsIt(t *testing.T) {
	d := openChancery(t, vfs.NewMem(), 0)
	d.letters("classic", "classic", 3)
	if wait := d.rules.watch.step(); wait != math.MaxInt64 || len(d.rules.watch.queues) != 0 || len(d.b.TakeArrivals()) != 0 {
		t.Errorf("it waits %v, and watches %d queues", wait, len(d.rules.watch.queues))
	}
	d.put(Rule{Name: "a", On: true, Action: RuleHold})
	if wait := d.rules.watch.step(); wait != math.MaxInt64 || len(d.rules.watch.queues) != 1 {
		t.Errorf("with nothing due it waits %v, and watches %d queues", wait, len(d.rules.watch.queues))
	}
	if _, err := d.rules.Switch(d.c, Actor{}, "a", false, false); err != nil {
		t.Fatal(err)
	}
	d.more(3, 1)
	if wait := d.rules.watch.step(); wait != math.MaxInt64 || len(d.rules.watch.queues) != 0 || len(d.b.TakeArrivals()) != 0 {
		t.Errorf("it waits %v, and watches %d queues", wait, len(d.rules.watch.queues))
	}
}

// What is known of a queue ends when the queue is deleted, at the next start at the latest: who declares and deletes queues again and again
// fills neither memory nor store. What a rule has told of stays counted.
func TestTheWatchForgetsDeletedQueues(t *testing.T) {
	fs := vfs.NewMem()
	d := openChancery(t, fs, 0)
	if _, _, err := d.hooks.Put(Webhook{Name: "desk", URL: "http://127.0.0.1:9/", Secret: hookSecret, On: true}, Actor{}); err != nil {
		t.Fatal(err)
	}
	d.put(Rule{Name: "tell", On: true, Action: RuleWebhook, Webhook: "desk"})
	stored := func() (n int) {
		if err := d.b.RangeRecords(toldPrefix, func(_, _ []byte) error { n++; return nil }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	round := func(i int) {
		dlq, work := fmt.Sprintf("dlq%d", i), fmt.Sprintf("work%d", i)
		d.declare(dlq, "classic")
		d.declare(work, "classic", amqp091.Field{Key: "x-dead-letter-exchange", Value: ""}, amqp091.Field{Key: "x-dead-letter-routing-key", Value: dlq})
		d.publish(work, "x")
		d.kill(work)
		d.eventually("it has died", func() bool { return d.ready(dlq) == 1 })
		d.work()
		for _, q := range []string{dlq, work} {
			if _, err := d.c.DeleteQueue(message.QueueName(q), false, false); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range 5 {
		round(i)
	}
	d.pass(lookAgain.Milliseconds())
	if w := d.rules.watch; len(w.queues) != 0 || len(d.rules.told) != 1 || stored() != 1 || d.rule("tell").Acted != 5 {
		t.Errorf("%d queues are watched, %d and %d places are known and stored, %+v", len(w.queues), len(d.rules.told), stored(), d.rule("tell"))
	}
	round(5)
	ahead := d.ahead.Load()
	d.shutDown()
	d = openChancery(t, fs, ahead)
	if len(d.rules.told) != 1 || stored() != 1 || d.rule("tell").Acted != 6 {
		t.Errorf("after a restart %d and %d places are known and stored, %+v", len(d.rules.told), stored(), d.rule("tell"))
	}
	d.put()
	if len(d.rules.told) != 0 || stored() != 0 {
		t.Errorf("%d and %d places outlive their rule", len(d.rules.told), stored())
	}
}

// clerk is a policymaker who may read the queues that a regular expression names, and configure and write all.
func (d *chancery) clerk(name, read string) *broker.Connection {
	d.t.Helper()
	if err := d.b.CreateDefault(broker.Default{VHost: "/", User: name, Password: "secret", Tags: []string{"policymaker"}, Configure: ".*", Write: ".*", Read: read}); err != nil {
		d.t.Fatal(err)
	}
	return d.b.As(name, "/")
}

func (d *chancery) mayRead(name, read string) {
	d.t.Helper()
	if _, err := d.b.By("").Do(declare.PutPermission{Permission: auth.Permission{VHost: "/", User: name, Configure: ".*", Write: ".*", Read: read}}); err != nil {
		d.t.Fatal(err)
	}
}

func (d *chancery) mustPut(c *broker.Connection, rules ...Rule) {
	d.t.Helper()
	for _, r := range rules {
		if _, err := d.rules.PutRule(c, Actor{}, r, false); err != nil {
			d.t.Fatal(err)
		}
	}
}

// A rule is for the queues that its user may read: of letters in others it tells nothing, by counts or a webhook, and it keeps them from no rule that
// follows. Who may not read a queue is not shown what the rules of others do there either.
func TestARuleIsForQueuesThatItsUserMayRead(t *testing.T) {
	d := openChancery(t, vfs.NewMem(), 0)
	d.letters("classic", "classic", 3)
	d.declare("park", "classic")
	l := newListener(t)
	d.hook("desk", l.URL)
	pol := d.clerk("pol", "^other$")
	d.mustPut(pol, Rule{Name: "tell", On: true, Action: RuleWebhook, Webhook: "desk", Last: new(bool)},
		Rule{Name: "spy", On: true, Action: RuleRetry, AfterMS: maxAfter, Match: Filter{"body": {"1"}}}, Rule{Name: "keep", On: true, Action: RuleHold, Match: Filter{"body": {"2"}}})
	d.work()
	if r := d.rule("spy"); r.Waiting != 0 || r.State != "on" {
		t.Errorf("%+v", r)
	}
	d.mustPut(d.c, Rule{Name: "park", On: true, Action: RuleSend, ToQueue: "park", Queues: "^dlq$"})
	d.work()
	if d.ready("park") != 3 || d.rule("park").Acted != 3 || d.rule("tell").Acted != 0 || l.count() != 0 {
		t.Errorf("%d are parked, %+v", d.ready("park"), d.rules.Book("/"))
	}
	for _, r := range d.rules.Book("/").SeenBy(d.rules.SightOf(pol)).Rules {
		if !r.Hidden || r.Acted != 0 || r.LastMS != 0 || r.Waiting != 0 || r.State != "on" || r.By == "" {
			t.Errorf("who may not read the queue is shown %+v", r)
		}
	}
	if s := d.rules.SightOf(d.c); d.rules.Book("/").SeenBy(s).Rules[3].Acted != 3 {
		t.Error("an administrator is not shown what a rule does")
	}
	if j, s := d.job(d.jobOf("park")), d.rules.SightOf(pol); !s.Hides(&j) || j.Uncounted().Moved != 0 || d.rules.SightOf(d.clerk("eve", "^dlq$")).Hides(&j) {
		t.Error("its job shows what the rule does not")
	}
}

// What rules have done in a queue stays hidden from who could not read it when the queue is gone, over a restart too. Of queues that the user may read all is
// shown, gone or not.
func TestWhatRulesDidInAQueueThatIsGoneStaysHidden(t *testing.T) {
	fs := vfs.NewMem()
	d := openChancery(t, fs, 0)
	d.letters("classic", "classic", 3)
	d.declare("park", "classic")
	d.declare("open", "classic")
	l := newListener(t)
	d.hook("desk", l.URL)
	d.clerk("pol", "^(open|park)$")
	d.clerk("eve", "^(open|park|dlq)$")
	d.mustPut(d.c, Rule{Name: "tell", On: true, Action: RuleWebhook, Webhook: "desk", Last: new(bool), Queues: "^(dlq|open)$"},
		Rule{Name: "wait", On: true, Action: RuleSend, ToQueue: "park", Queues: "^(dlq|open)$", AfterMS: 60_000, Match: Filter{"body": {"2"}}},
		Rule{Name: "send", On: true, Action: RuleSend, ToQueue: "park", Queues: "^(dlq|open)$"}, Rule{Name: "none", On: true, Action: RuleDiscard, Queues: "^open$"})
	d.eventually("the letters are told of", func() bool { d.work(); return d.rule("tell").Acted == 3 })
	if d.rule("wait").Waiting != 1 || d.rule("send").Acted != 2 {
		t.Fatalf("%+v", d.rules.Book("/"))
	}
	check := func(when string) {
		t.Helper()
		for user, hidden := range map[string]bool{"pol": true, "eve": false} {
			sight := d.rules.SightOf(d.b.As(user, "/"))
			for _, r := range d.rules.Book("/").SeenBy(sight).Rules {
				if hides := hidden && r.Name != "none"; r.Hidden != hides || hides && (r.Acted != 0 || r.LastMS != 0 || r.Waiting != 0) || r.Name == "send" && !hidden && r.Acted != 2 {
					t.Errorf("%s, to %s: %+v", when, user, r)
				}
				if j, ok := d.f.Jobs.Job(jobID(r)); ok && sight.Hides(&j) != r.Hidden {
					t.Errorf("%s, to %s: the job of %s is not hidden as its rule is", when, user, r.Name)
				}
			}
		}
	}
	check("at first")
	if _, err := d.c.DeleteQueue("dlq", false, false); err != nil {
		t.Fatal(err)
	}
	check("when the queue is gone")
	d.pass(lookAgain.Milliseconds())
	check("when its places have ended")
	d.shutDown()
	d = openChancery(t, fs, 0)
	d.work()
	check("after a restart")
	for range mostNames + 1 { // as if by an earlier release, or in many queues
		j := d.f.Jobs.jobs[d.jobOf("send")]
		j.r.Took = j.r.Took.with(fmt.Sprint("q", len(j.r.Took)))
	}
	for _, took := range []names{d.f.Jobs.jobs[d.jobOf("send")].r.Took, nil} {
		d.f.Jobs.jobs[d.jobOf("send")].r.Took = took
		d.mayRead("eve", ".*")
		if r := d.rules.Book("/").SeenBy(d.rules.SightOf(d.b.As("eve", "/"))).Rules[2]; !r.Hidden {
			t.Errorf("of too many queues, or unknown ones: %+v", r)
		}
		if r := d.rules.Book("/").SeenBy(d.rules.SightOf(d.c)).Rules[2]; r.Hidden || r.Acted != 2 {
			t.Errorf("to an administrator: %+v", r)
		}
	}
	d.shutDown()
}

// Permissions that change count for the letters that are there, and those that come. A rule whose user cannot read a queue any more stops, also over a
// restart, and gives its letters to no other rule.
func TestARuleHeedsPermissionsThatChange(t *testing.T) {
	fs := vfs.NewMem()
	d := openChancery(t, fs, 0)
	d.letters("classic", "classic", 3)
	d.declare("park", "classic")
	l := newListener(t)
	d.hook("desk", l.URL)
	pol := d.clerk("pol", "^other$")
	d.mustPut(pol, Rule{Name: "tell", On: true, Action: RuleWebhook, Webhook: "desk", Last: new(bool)}, Rule{Name: "keep", On: true, Action: RuleHold, Match: Filter{"body": {"2"}}},
		Rule{Name: "again", On: true, Action: RuleRetry, AfterMS: 600_000, Queues: "^dlq$"})
	d.mustPut(d.c, Rule{Name: "park", On: true, Action: RuleSend, ToQueue: "park", AfterMS: 60_000, Queues: "^dlq$"})
	d.work()
	if d.rule("again").Waiting != 0 || d.rule("park").Waiting != 3 {
		t.Fatalf("%+v", d.rules.Book("/"))
	}
	d.mayRead("pol", ".*")
	d.work()
	d.eventually("it is told of the letters that are there", func() bool { return d.rule("tell").Acted == 3 && d.shown("desk").Waiting == 0 })
	if d.rule("again").Waiting != 2 || d.rule("park").Waiting != 0 {
		t.Fatalf("%+v", d.rules.Book("/"))
	}
	d.mayRead("pol", "^other$")
	d.work()
	d.more(3, 1)
	check := func() {
		t.Helper()
		d.pass(60_000)
		for _, name := range []string{"tell", "keep", "again"} {
			if r := d.rule(name); r.State != "stopped" || r.Why != "user 'pol' may not read queue 'dlq' any more" || r.Waiting != 0 {
				t.Errorf("%+v", r)
			}
		}
	}
	check()
	if d.ready("park") != 0 || d.ready("dlq") != 4 || l.count() != 1 {
		t.Errorf("%d are parked, %d told", d.ready("park"), l.count())
	}
	d.shutDown()
	d = openChancery(t, fs, 0)
	check()
	if d.ready("park") != 0 {
		t.Errorf("after a restart %d are parked", d.ready("park"))
	}
	if _, err := d.rules.Switch(d.c, Actor{}, "tell", true, false); err != nil {
		t.Fatal(err)
	}
	d.work()
	if r := d.rule("tell"); r.State != "on" || r.Acted != 4 || r.By != "guest" {
		t.Errorf("%+v", r)
	}
}

// A rule that has stopped keeps letters of a queue by its name, so also of one that was deleted and made anew, before a restart as after it.
func TestAStoppedRuleKeepsLettersOfAQueueThatIsMadeAnew(t *testing.T) {
	fs := vfs.NewMem()
	d := openChancery(t, fs, 0)
	d.letters("classic", "classic", 1)
	d.declare("park", "classic")
	pol := d.clerk("pol", "^dlq$")
	d.mustPut(pol, Rule{Name: "hold", On: true, Action: RuleHold, Queues: "^dlq$"})
	d.mustPut(d.c, Rule{Name: "send", On: true, Action: RuleSend, ToQueue: "park", Queues: "^dlq$"})
	d.work()
	d.mayRead("pol", "^other$")
	d.work()
	for n := range 2 {
		if _, err := d.c.DeleteQueue("dlq", false, false); err != nil {
			t.Fatal(err)
		}
		d.pass(lookAgain.Milliseconds())
		d.declare("dlq", "classic")
		d.more(n+1, 1)
		d.pass(lookAgain.Milliseconds())
		if d.rule("hold").State != "stopped" || d.ready("dlq") != 1 || d.ready("park") != 0 {
			t.Errorf("round %d: %d are kept, %d are parked, %+v", n, d.ready("dlq"), d.ready("park"), d.rule("hold"))
		}
		d.shutDown()
		d = openChancery(t, fs, d.ahead.Load())
	}
}

// The order of rules is power: who takes away, switches off, changes or moves another's rule lets the rules of others behind it act, with their users' rights,
// on letters that were kept from them. Only administrators do that; rules of one's own come, go and move, and what nobody stands behind may be taken over.
func TestWhoMayChangeTheOrderOfRules(t *testing.T) {
	d := openChancery(t, vfs.NewMem(), 0)
	d.letters("classic", "classic", 2)
	d.declare("park", "classic")
	pol := d.clerk("pol", "^other$")
	hold, send := Rule{Name: "hold", On: true, Action: RuleHold, Queues: "^dlq$"}, Rule{Name: "send", On: true, Action: RuleSend, ToQueue: "park", Queues: "^dlq$"}
	mine, quiet := Rule{Name: "mine", On: true, Action: RuleHold}, Rule{Name: "quiet", Action: RuleHold}
	d.put(hold, quiet, send)
	set := func(c *broker.Connection, rules ...Rule) error {
		_, err := d.rules.Put(c, Actor{}, rules, nil, false)
		return err
	}
	narrow, off := hold, hold
	narrow.Match, off.On = Filter{"body": {"x"}}, false
	for what, f := range map[string]func() error{
		"removing":      func() error { _, err := d.rules.Remove(pol, Actor{}, "hold"); return err },
		"switching off": func() error { _, err := d.rules.Switch(pol, Actor{}, "hold", false, false); return err },
		"taking over":   func() error { _, err := d.rules.Switch(pol, Actor{}, "hold", true, false); return err },
		"replacing":     func() error { _, err := d.rules.PutRule(pol, Actor{}, narrow, false); return err },
		"leaving out":   func() error { return set(pol, quiet, send) },
		"reordering":    func() error { return set(pol, send, hold, quiet) },
		"off in a list": func() error { return set(pol, off, quiet, send) },
	} {
		var refused *Error
		if err := f(); !errors.As(err, &refused) || refused.Kind != Forbidden || !strings.Contains(refused.Text, "'send' acts with the rights of user 'guest'") {
			t.Errorf("%s is not refused: %v", what, err)
		}
	}
	d.pass(1000)
	if b := d.rules.Book("/"); d.ready("dlq") != 2 || len(b.Rules) != 3 || b.Rules[0].By != "guest" {
		t.Fatalf("%d stay, %+v", d.ready("dlq"), b)
	}
	for what, f := range map[string]func() error{ // in any order
		"rules of one's own": func() error {
			return cmp.Or(set(pol, mine, hold, quiet, send), set(pol, hold, quiet, mine, send), set(pol, hold, quiet, send))
		},
		"a rule that is off": func() error {
			return cmp.Or(set(pol, hold, send), set(pol, quiet, hold, send), set(pol, hold, quiet, send))
		},
		"the last rule": func() error { return cmp.Or(set(pol, hold, quiet), set(d.c, hold, quiet, send)) },
	} {
		if err := f(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if d.work(); d.ready("dlq") != 2 {
		t.Fatalf("%d stay", d.ready("dlq"))
	}
	if _, err := d.rules.Switch(pol, Actor{}, "send", true, false); err != nil {
		t.Fatal(err)
	}
	if err := set(pol, quiet, send); err != nil { // all behind is pol's now, and moves nothing that pol may not read
		t.Fatal(err)
	}
	if d.pass(1000); d.ready("dlq") != 2 || d.rule("send").By != "pol" {
		t.Errorf("%d stay, %+v", d.ready("dlq"), d.rule("send"))
	}
	if err := set(d.c, send, quiet); err != nil {
		t.Fatal(err)
	}
	if d.pass(1000); d.ready("dlq") != 2 || d.rule("send").By != "pol" {
		t.Errorf("who moves a rule lends it rights: %d stay, %+v", d.ready("dlq"), d.rule("send"))
	}
}

// A rule whose user has lost the right to read a queue keeps its letters; the user cannot let them go to the rules of others.
func TestAStoppedRuleIsNotTakenFromTheFront(t *testing.T) {
	d := openChancery(t, vfs.NewMem(), 0)
	d.letters("classic", "classic", 2)
	d.declare("park", "classic")
	pol := d.clerk("pol", ".*")
	d.mustPut(pol, Rule{Name: "hold", On: true, Action: RuleHold})
	d.mustPut(d.c, Rule{Name: "send", On: true, Action: RuleSend, ToQueue: "park", Queues: "^dlq$"})
	d.work()
	d.mayRead("pol", "^other$")
	d.work()
	if _, err := d.rules.Remove(pol, Actor{}, "hold"); err == nil || d.rule("hold").State != "stopped" {
		t.Errorf("%v, %+v", err, d.rule("hold"))
	}
	d.mayRead("pol", ".*")
	if _, err := d.rules.Remove(pol, Actor{}, "hold"); err != nil {
		t.Error(err)
	}
	if d.work(); d.ready("park") != 2 {
		t.Errorf("%d are parked", d.ready("park"))
	}
}

// The revision of rules is another one after each change, also of a virtual host that was made again, and is the same after a restart.
func TestRevisionsOfRules(t *testing.T) {
	fs := vfs.NewMem()
	d := openChancery(t, fs, 0)
	seen := map[string]bool{d.rules.Book("/").Revision: true}
	changed := func(what string) {
		t.Helper()
		if r := d.rules.Book("/").Revision; seen[r] {
			t.Errorf("%s: revision %s again", what, r)
		} else {
			seen[r] = true
		}
	}
	d.put(Rule{Name: "a", Action: RuleHold})
	changed("set")
	if _, err := d.rules.Switch(d.c, Actor{}, "a", true, false); err != nil {
		t.Fatal(err)
	}
	changed("switched on")
	old := d.rules.Book("/").Revision
	seven := 7
	mine := func(r string) bool { return r == old }
	if _, err := d.rules.PutIf(mine, d.c, Actor{}, nil, &seven, false); err != nil {
		t.Fatal(err)
	}
	changed("threshold")
	var e *Error
	if _, err := d.rules.PutIf(mine, d.c, Actor{}, []Rule{}, nil, false); !errors.As(err, &e) || e.Kind != Stale || len(d.rules.Book("/").Rules) != 1 {
		t.Errorf("a change of what was changed meanwhile: %v, %+v", err, d.rules.Book("/"))
	}
	before := d.rules.Book("/").Revision
	d.letters("classic", "classic", 1)
	d.work()
	if r := d.rules.Book("/").Revision; r != before {
		t.Errorf("what rules do changes their revision: %s, then %s", before, r)
	}
	d.shutDown()
	d = openChancery(t, fs, 0)
	if r := d.rules.Book("/").Revision; r != before {
		t.Errorf("revision %s, after a restart %s", before, r)
	}
	d.put()
	changed("none left")
	d.shutDown()
}

// A slice that is read while the rules change is read again under the new ones: a deleted rule does nothing more.
func TestADeletedRuleStopsWithinASlice(t *testing.T) {
	d := openChancery(t, vfs.NewMem(), 0)
	d.letters("classic", "classic", 1)
	d.put(Rule{Name: "sweep", On: true, Queues: "^dlq$", Action: RuleDiscard, AfterMS: 60_000})
	w := d.rules.watch
	var q *watched
	for _, q = range w.queues { // there is one
	}
	d.more(1, 1)
	if _, err := d.rules.Put(d.c, Actor{}, []Rule{}, nil, false); err != nil {
		t.Fatal(err)
	}
	before := slices.Clone(q.read)
	if more := w.readSome(q); !more || !slices.Equal(q.read, before) || len(q.heap) != 1 {
		t.Errorf("more %t, read %v after %v, %d letters wait for a rule that is deleted", more, q.read, before, len(q.heap))
	}
	d.work()
	if len(q.heap) != 0 {
		t.Errorf("%d letters wait for no rule", len(q.heap))
	}
}

// The system's clock was two hours ahead and steps back. Letters die by the queues' clock, which goes on; so a rule is due by it, too.
func TestRulesGoByTheClockThatLettersDiedBy(t *testing.T) {
	var wrong atomic.Int64
	wrong.Store(2 * time.Hour.Milliseconds())
	d := &chancery{bureau: openBureauOn(t, broker.Options{FS: vfs.NewMem(), Wall: func(t time.Time) int64 { return t.UnixMilli() + wrong.Load() }}, Options{idle: true})}
	d.f, d.hooks, d.rules = d.office, d.office.Webhooks, d.office.Rules
	d.b.Now()
	wrong.Store(0)
	d.letters("classic", "classic", 3)
	got, err := d.rules.Try(t.Context(), d.c, Rule{Action: RuleDiscard, Match: map[string][]string{"reason": {"rejected"}}}, false)
	if err != nil || got.Matched != 3 || got.Due != 3 {
		t.Errorf("%+v, %v", got, err)
	}
}

// The expressions of all rules of a virtual host have one budget, for letters and for the names of queues. Rules stored beyond it are all off.
func TestRulesShareABudgetOfSteps(t *testing.T) {
	fs := vfs.NewMem()
	d := openChancery(t, fs, 0)
	d.letters("classic", "classic", 1)
	rules := []Rule{{Name: "all", On: true, Action: RuleDiscard}}
	for i := range 5 {
		rules = append(rules, Rule{Name: fmt.Sprint(i), On: i%2 == 0, Action: RuleHold, Queues: "a{200}b{40}", Match: Filter{"error": {"c{120}"}, "where": {"header.h~d{120}"}}})
	}
	d.put(rules[1:5]...)
	for what, change := range map[string]func() (RuleBook, error){
		"one more": func() (RuleBook, error) { return d.rules.PutRule(d.c, Actor{}, rules[5], false) },
		"all":      func() (RuleBook, error) { return d.rules.Put(d.c, Actor{}, rules, nil, false) },
		"a larger one": func() (RuleBook, error) {
			r := rules[4]
			r.Queues += "e{120}"
			return d.rules.PutRule(d.c, Actor{}, r, false)
		},
		"queues of many": func() (RuleBook, error) {
			r := rules[0]
			r.Queues = "e{120}"
			return d.rules.PutRule(d.c, Actor{}, r, false)
		},
	} {
		if _, err := change(); err == nil || !strings.Contains(err.Error(), "2000 at most") {
			t.Errorf("%s: %v", what, err)
		}
	}
	b := d.rules.books["/"]
	if len(b.rules) != 4 || b.steps > maxRuleSteps {
		t.Fatalf("%d rules, %d steps", len(b.rules), b.steps)
	}
	d.put(rules[2:5]...)
	for i := range rules {
		b.rules = append(b.rules, storedRule{Rule: rules[i], By: "guest"})
	}
	value, err := json.Marshal(ruleRecord{Version: ruleVersion, Rules: b.rules[4:]})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.b.PutRecords(mutation.All([]mutation.Change{{Key: appendKey([]byte(datadir.RecordPrefix), rulesPrefix, "/", 0), Value: value}}), true); err != nil {
		t.Fatal(err)
	}
	d.shutDown()
	d = openChancery(t, fs, 0)
	d.work()
	if n := len(d.rules.Book("/").Rules); n != 0 || d.ready("dlq") != 1 {
		t.Errorf("beyond the budget %d rules are carried out; %d letters are left", n, d.ready("dlq"))
	}
}
