package office

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/core/topology"
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
	for what, look := range map[string]func(context.Context) (int, error){
		"a search": func(ctx context.Context) (n int, err error) {
			_, err = d.office.Letters(ctx, q, LettersRequest{By: "ann"}, func(*Row) bool { n++; return true }, nil)
			return n, err
		},
		"an export": func(ctx context.Context) (n int, err error) {
			return d.office.Export(ctx, q, "ann", new(letter.Query), func([]byte) error { return nil })
		},
		"a plan": func(ctx context.Context) (n int, err error) {
			p, err := d.jobs.Dry(ctx, d.c, &Request{Action: letters.Discard, VHost: "/", Queue: "dlq", Filter: map[string][]string{"body": {"m"}}})
			return p.Of, err
		},
		"a trial": func(ctx context.Context) (n int, err error) {
			trial, err := d.office.Rules.Try(ctx, d.c, Rule{Action: RuleHold}, false)
			return trial.Examined, err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond) // it never has its turn
		if n, err := look(ctx); n != 0 || err == nil {
			t.Errorf("%s looks at %d letters out of turn: %v", what, n, err)
		}
		cancel()
	}
}
