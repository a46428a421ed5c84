package partition

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/message"
)

// Invariant I while messages die out of pages, in memory or on disk, for which checkpoints have deltas.
func TestInvariantIOfDeltas(t *testing.T) {
	t.Run("whole", func(t *testing.T) { invariantIOfDeltas(t, false) })
	t.Run("split", func(t *testing.T) { invariantIOfDeltas(t, true) })
}

func invariantIOfDeltas(t *testing.T, away bool) {
	rounds := 20
	if testing.Short() {
		rounds = 4
	}
	var deltas atomic.Int64
	t.Cleanup(func() {
		if deltas.Load() == 0 {
			t.Error("no checkpoint had a delta")
		}
	})
	for seed := range uint64(rounds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 8))
			defs, routes := crashTopology()
			p := &player{rng: rng, ledger: ledger{}}
			p.world = open(t, vfs.NewCrashableMem(), defs, routes, 1_700_000_000_000, func(name string) {
				if p.world != nil {
					p.failpoint(name)
				}
			})
			p.publishSpread(1500)
			for range 40 {
				p.now += 500
				p.settle()
				if away {
					p.putAway(true)
				}
				if away || rng.IntN(3) == 0 {
					p.step()
				}
				if rng.IntN(4) == 0 {
					p.checkpoint()
					deltas.Add(int64(p.deltas()))
				}
			}
			p.crash = append(p.crash, crashed{"the end", crash(p.fs, rng), p.ledger.clone(), p.now})
			for _, c := range p.crash {
				recoverAndVerify(t, c, defs, routes, rng)
			}
			p.drain()
			p.close()
		})
	}
}

// publishSpread publishes messages to a that are due at random in the next half minute, or never.
func (p *player) publishSpread(n int) {
	ops := make([]Op, n)
	for i := range ops {
		p.serial++
		p.ledger[p.serial] = fate{base: "a", persistent: true, acked: map[string]bool{}}
		ops[i] = Op{
			Kind: Publish, Targets: []*Queue{p.queues["a"]}, TTL: 1 + p.rng.Int64N(30_000), Priority: -1,
			Body: p.record(p.serial, true, p.rng.IntN(100)),
		}
		if p.rng.IntN(10) == 0 {
			ops[i].TTL = -1
		}
	}
	r := p.n.Run(ops)
	for i := range ops {
		serial := p.serial - message.Serial(len(ops)-1-i)
		f := p.ledger[serial]
		f.pos = r.journal
		p.ledger[serial] = f
	}
	p.commit()
}

// deltas is the number of deltas in the store.
func (p *player) deltas() (n int) {
	err := p.index.Range([]byte{keyDelta}, func(_, _ []byte) error {
		n++
		return nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}
