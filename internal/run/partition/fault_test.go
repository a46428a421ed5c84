package partition

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"bartleby.mq/internal/safety/held"
)

var errInjected = errors.New("injected")

// faultKinds are the file operations that are made to fail.
var faultKinds = map[string][]errorfs.OpKind{
	"create": {errorfs.OpCreate, errorfs.OpOpen},
	"write":  {errorfs.OpFileWrite, errorfs.OpFileWriteAt},
	"sync":   {errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo},
	"rename": {errorfs.OpRename},
	"remove": {errorfs.OpRemove},
	"read":   {errorfs.OpFileRead, errorfs.OpFileReadAt},
}

// fault fails one operation of a kind, once: later steps must not depend on the disk failing again.
type fault struct {
	kinds []errorfs.OpKind
	left  atomic.Int64 // 0: not armed, or done
	hit   atomic.Pointer[errorfs.Op]
}

func (f *fault) String() string { return "fault" }

func (f *fault) MaybeError(op errorfs.Op) error {
	// A failure of Pebble's manifest ends the process in a goroutine of Pebble: test/crash covers that.
	if strings.Contains(op.Path, "MANIFEST") || strings.Contains(op.Path, "marker.") {
		return nil
	}
	for _, k := range f.kinds {
		if op.Kind == k && f.left.Add(-1) == 0 {
			f.hit.Store(&op)
			return errInjected
		}
	}
	return nil
}

// Any one file operation fails while messages are published, settled and die, pages are put away, checkpoints are
// written and files compacted. Either the node goes on, or it says that it cannot. Then a recovery from the disk
// finds everything that was committed.
func TestFaults(t *testing.T) {
	rounds := 20
	if testing.Short() {
		rounds = 4
	}
	var mu sync.Mutex
	hits := map[string]int{}
	t.Run("kinds", func(t *testing.T) {
		for kind := range faultKinds {
			for seed := range uint64(rounds) {
				t.Run(fmt.Sprintf("%s/%d", kind, seed), func(t *testing.T) {
					t.Parallel()
					if op := playWithFault(t, kind, seed); op != nil {
						mu.Lock()
						hits[kind]++
						mu.Unlock()
					}
				})
			}
		}
	})
	for kind := range faultKinds {
		if hits[kind] == 0 {
			t.Errorf("no %s was failed", kind)
		}
	}
}

func playWithFault(t *testing.T, kind string, seed uint64) (failed *errorfs.Op) {
	rng := rand.New(rand.NewPCG(seed, 11))
	defs, routes := crashTopology()
	f := &fault{kinds: faultKinds[kind]}
	fs := vfs.NewCrashableMem()
	w := &world{
		t: t, fs: fs, disk: errorfs.Wrap(fs, f), routes: routes, now: 1_700_000_000_000, queues: map[string]*Queue{}, faulty: true,
	}
	w.make(defs, nil)
	t.Cleanup(w.close)
	if err := w.n.Recover(); err != nil {
		t.Fatal(err)
	}
	p := &player{world: w, rng: rng, ledger: ledger{}}
	f.left.Store(1 + int64(rng.ExpFloat64()*20))
	var stopped error
	held.Apart(func() { stopped = p.playUntilFailure() }) // a failure leaves the locks of its node locked
	failed = f.hit.Load()
	if stopped == nil && w.fatals.Load() == 0 {
		p.ledger.verify(t, p.find(), true) // it went on
	}
	if stopped != nil && (failed == nil || !errors.Is(stopped, errInjected) || w.fatals.Load() == 0) {
		t.Fatalf("the node stopped with %v, told %d times, after the fault %+v", stopped, w.fatals.Load(), failed)
	}
	for range 3 {
		recoverAndVerify(t, crashed{"fault", crash(fs, rng), p.ledger.clone(), p.now}, defs, routes, rng)
	}
	return failed
}

// playUntilFailure plays for a while, or until the node says that the disk failed. It returns that error.
func (p *player) playUntilFailure() (stopped error) {
	defer func() {
		if v := recover(); v != nil {
			err, ok := v.(error)
			if !ok || !errors.Is(err, errInjected) {
				panic(v)
			}
			stopped = err
		}
	}()
	for range 400 {
		p.step()
		if p.rng.IntN(15) == 0 {
			p.checkpoint()
		}
		if p.rng.IntN(10) == 0 {
			p.putAway(p.rng.IntN(3) > 0)
		}
	}
	return nil
}
