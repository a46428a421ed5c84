package twodrivers

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"

	"pgregory.net/rapid"
)

// Rapid's flags where they are not given: 100 lists of 30 operations, by chance, are its own.
const (
	usualSeed   = "1"  // lists of "go test" are always the same, and 0 is by chance
	usualChecks = "30" // lists of each kind of episode
	usualSteps  = "60" // operations of a list, on average
)

func TestMain(m *testing.M) {
	for name, value := range map[string]string{"rapid.checks": usualChecks, "rapid.steps": usualSteps, "rapid.seed": usualSeed} {
		if err := flag.Set(name, value); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
	os.Exit(m.Run())
}

// The same operations on a classic and on a quorum queue give the same deliveries, deaths,
// counts and texts, but for what the table of differences names.
func TestClassicAndQuorumQueuesDoTheSame(t *testing.T) {
	for _, e := range []struct {
		name string
		episode
	}{
		{name: "plain"},
		{"transient", episode{transient: true}},
		{"priorities", episode{priorities: true}},
		{"limits in bytes", episode{large: true}},
		{"delayed retries", episode{retries: true}},
		{"at least once", episode{atLeast: true}},
		{"ApsaraMQ", episode{apsara: true}},
	} {
		t.Run(e.name, func(t *testing.T) {
			cryptotest.SetGlobalRandom(t, 1) // election times
			rapid.Check(t, func(rt *rapid.T) {
				if difference := playList(t, e.episode, drawList(rt, e.episode)); difference != "" {
					rt.Fatal(difference)
				}
			})
		})
	}
	for what, n := range tally.by {
		t.Logf("%s: %d", what, n)
	}
	if tally.by["dead letters compared"] == 0 {
		t.Error("no dead letter was compared")
	}
}

// drawList draws operations, the first of which declare the queues.
func drawList(t *rapid.T, e episode) (ops []op) {
	for q := range queues {
		ops = append(ops, op{kind: "declare", queue: q, args: drawArguments(t, e, q, false)})
	}
	t.Repeat(map[string]func(*rapid.T){
		"":          func(*rapid.T) {},
		"operation": func(t *rapid.T) { ops = append(ops, drawOp(e).Draw(t, "operation")) },
	})
	return ops
}

// playList plays operations and returns where the nodes differ, with all that was played.
func playList(t *testing.T, e episode, ops []op) (difference string) {
	synctest.Test(t, func(*testing.T) { difference = newPlay(e).run(ops) })
	if difference == "" {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\nof these operations:\n", difference)
	for i, o := range ops {
		fmt.Fprintf(&b, "  %d: %s\n", i, o)
	}
	return b.String()
}
