package crash

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"bartleby.mq/test/node"
)

var (
	binary   = flag.String("bartleby", "", "the server to kill; if it is built without the tag failpoints it is only killed from outside (default: build one)")
	kills    = flag.Int("kills", 32, "how often to kill, over all scenarios")
	duration = flag.Duration("for", 0, "go on with new lives, of as many kills each, until so much time has passed")
	seed     = flag.Uint64("seed", 0, "of the first life of each scenario (default: by chance)")
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if *binary == "" {
		dir, err := os.MkdirTemp("", "bartleby-bin-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }()
		if *binary, err = node.Build(dir, "failpoints"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return m.Run()
}

// passed is what all lives have passed.
var passed = steps{rounds: map[string]int{}}

// checkSteps tells in how many rounds each failpoint was passed. With enough rounds each
// must have been: pages are put away, checkpoints written, files compacted.
func checkSteps(t *testing.T) {
	t.Logf("rounds that passed each step: %v", passed.rounds)
	if *kills < 200 {
		return
	}
	for _, name := range failpoints() {
		if passed.rounds[name] == 0 {
			t.Errorf("no round passed the failpoint %s", name)
		}
	}
}

// After a kill at any moment every confirmed message is in exactly one place, with
// the history of that place (DL-21.1, DL-21.2, DL-21.3).
func TestKills(t *testing.T) {
	if testing.Short() {
		t.Skip("kills servers for a while")
	}
	began := time.Now()
	defer checkSteps(t)
	for generation := uint64(0); generation == 0 || !t.Failed() && time.Since(began) < *duration; generation++ {
		t.Run(strconv.FormatUint(generation+1, 10), func(t *testing.T) {
			all := scenarios()
			for _, s := range all {
				t.Run(s.name, func(t *testing.T) {
					t.Parallel()
					first := *seed
					if first == 0 {
						first = rand.Uint64() >> 16
					}
					newLife(t, s, first+generation).live(max(1, *kills/len(all)))
				})
			}
		})
	}
}
