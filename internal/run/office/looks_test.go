package office

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/letters"
)

// Whoever examines letters has a turn for it: while others have all turns, nothing is examined.
func TestWhoeverLooksAtLettersTakesTurns(t *testing.T) {
	d := openBureau(t, vfs.NewMem(), nil)
	defer d.close()
	d.letters("classic", "classic", 3)
	q, err := d.c.Find("dlq", topology.Read)
	if err != nil {
		t.Fatal(err)
	}
	for range max(1, runtime.GOMAXPROCS(0)/2) {
		if !d.office.looks.Begin("user others", nil, nil) {
			t.Fatal("no turn")
		}
		defer d.office.looks.End()
	}
	for what, look := range d.looks(q) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond) // it never has its turn
		if n, err := look(ctx); n != 0 || err == nil {
			t.Errorf("%s looks at %d letters out of turn: %v", what, n, err)
		}
		cancel()
	}
}

// A turn whose time is up ends behind the letter that is looked at, also if it is one of those that are looked for: whoever waits has the next one.
func TestALookGivesItsTurnBackInTime(t *testing.T) {
	const n = 3
	d := openBureau(t, vfs.NewMem(), nil)
	defer d.close()
	d.letters("classic", "classic", n)
	q, err := d.c.Find("dlq", topology.Read)
	if err != nil {
		t.Fatal(err)
	}
	for range max(1, runtime.GOMAXPROCS(0)/2) - 1 {
		d.office.looks.Begin("user others", nil, nil)
		defer d.office.looks.End()
	}
	const other = "user other"
	for what, look := range d.looks(q) {
		asked, held := 0, 0
		d.office.timeUp = func() bool { // the looker asks, who has the only turn
			if asked++; d.office.looks.Line(other) > 0 {
				held++ // another has waited since the letter before
				return true
			}
			go func() {
				if d.office.looks.Begin(other, nil, d.office.life.Done()) {
					d.office.looks.End()
				}
			}()
			d.eventually("another waits for its turn", func() bool { return d.office.looks.Line(other) > 0 })
			return true
		}
		examined, err := look(t.Context())
		if err != nil || examined != n || asked < n || held > 0 {
			t.Errorf("%s examines %d letters of %d, asks %d times whether its time is up, and keeps its turn %d times: %v", what, examined, n, asked, held, err)
		}
		d.eventually("nobody waits", func() bool { return d.office.looks.Line(other) == 0 })
	}
}

// looks are all ways to examine the letters of dlq. Each returns how many it has examined.
func (d *bureau) looks(q broker.QueueInfo) map[string]func(context.Context) (int, error) {
	plan := func(r Request) func(context.Context) (int, error) {
		return func(ctx context.Context) (n int, err error) {
			r.Action, r.VHost, r.ToQueue = letters.Park, "/", "work"
			p, err := d.jobs.Dry(ctx, d.c, &r)
			return p.Of, err
		}
	}
	var ids []string
	for _, l := range d.look("dlq") {
		ids = append(ids, l.id)
	}
	all := map[string][]string{"size": {">=0"}}
	search := func(oldest bool) func(context.Context) (int, error) {
		return func(ctx context.Context) (n int, err error) {
			_, err = d.office.Letters(ctx, q, LettersRequest{By: "ann", Oldest: oldest}, func(*Row) bool { n++; return true }, nil)
			return n, err
		}
	}
	try := func(r Rule) func(context.Context) (int, error) {
		return func(ctx context.Context) (int, error) {
			trial, err := d.office.Rules.Try(ctx, d.c, r, false)
			return trial.Examined, err
		}
	}
	return map[string]func(context.Context) (int, error){
		"a search":                  search(false),
		"a search for the oldest":   search(true),
		"a plan":                    plan(Request{Queue: "dlq", Filter: all}),
		"a plan of an order":        plan(Request{Queue: "dlq", Filter: all, How: How{OrderBy: "header.n"}}),
		"a plan of letters by name": plan(Request{Queue: "dlq", IDs: ids}),
		"a plan of letters by name, and an order": plan(Request{Queue: "dlq", IDs: ids, How: How{OrderBy: "header.n"}}),
		"a trial":                             try(Rule{Action: RuleHold}),
		"a trial that finds nothing":          try(Rule{Action: RuleHold, Match: Filter{"body": {"nothing"}}}),
		"a trial of a rule that goes too far": try(Rule{Action: RuleRetry, AfterMS: minRetry, MaxTimes: 1, Match: Filter{"died": {">=1"}}}),
		"an export": func(ctx context.Context) (int, error) {
			return d.office.Export(ctx, q, "ann", new(letter.Query), func([]byte) error { return nil })
		},
	}
}
