package cluster

import (
	"runtime"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A node without others has no timer running; a member more, and it has one.
func TestTimerStandsStill(t *testing.T) {
	n := openNode(t, vfs.NewCrashableMem(), FirstState(1), &recorder{})
	if err := n.d.Start(); err != nil {
		t.Fatal(err)
	}
	defer n.j.Close()
	defer n.d.Stop()
	armed := func() bool {
		n.d.ticker.mu.Lock()
		defer n.d.ticker.mu.Unlock()
		return n.d.ticker.armed
	}
	if armed() {
		t.Error("the only voter leads, and a tick is to come")
	}
	if err := n.g.AddLearner(2); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); !armed(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("a learner joined, and no tick is to come")
		}
	}
}
