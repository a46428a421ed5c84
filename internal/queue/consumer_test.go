package queue

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"testing"
)

// fewLooks is at how many consumers so many steps may look where there are n.
func fewLooks(steps, n int) int { return 4 * steps * bits.Len(uint(n)) }

// Whoever has very many consumers at a queue ends them one by one, or all in one command: none
// of them is looked for among the others, with the queue locked.
func TestConsumersComeAndGoWithoutALookAtAll(t *testing.T) {
	const n = 2000
	for _, kind := range []Type{Classic, Quorum} {
		for _, single := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v single=%v", kind, single), func(t *testing.T) {
				m := New(Config{Type: kind, SingleActive: single, MaxPriority: -1}, Unlimited(), &Pages{}, &nobody{}, 1)
				list := make([]*Consumer, n)
				for k := range list {
					list[k] = &Consumer{Tag: "c", Priority: int64(k % 7), Prefetch: 1}
					m.Attach(1, list[k])
				}
				if most := fewLooks(n, n); m.cs.looks > most {
					t.Errorf("%d looks at consumers when %d came, want %d at most", m.cs.looks, n, most)
				}
				m.cs.looks = 0
				rand.New(rand.NewPCG(1, 2)).Shuffle(n, func(i, j int) { list[i], list[j] = list[j], list[i] })
				for k, c := range list {
					if !m.Detach(1, c) || m.Detach(1, c) {
						t.Fatal("not detached once")
					}
					if k%100 == 0 {
						if err := m.Check(); err != nil {
							t.Fatal(err)
						}
					}
				}
				if most := fewLooks(n, n); m.cs.looks > most {
					t.Errorf("%d looks at consumers when %d went, want %d at most", m.cs.looks, n, most)
				}
			})
		}
	}
}

// Consumers that cannot take more are not asked again for each message that comes, and
// whoever settles one gets the next.
func TestBlockedConsumersAreNotAskedForEachMessage(t *testing.T) {
	const n = 2000
	m, list := share(0, 0)
	for range n {
		c := &Consumer{Tag: "c", Prefetch: 1}
		m.Attach(1, c)
		list = append(list, c)
	}
	e := Entry{Body: 1, Size: 10, Priority: -1, TTL: -1}
	for range 3 * n {
		id, _ := m.Enqueue(1, &e)
		m.Flow(1, id)
	}
	for round, first := range m.HeldBy(list...) {
		if first.By != list[round] {
			t.Fatalf("delivery %d went to another", round)
		}
		m.Ack(first.ID, first.By)
		m.Flow(1, 0)
		if first.By.out != 1 {
			t.Fatalf("consumer %d has %d deliveries", round, first.By.out)
		}
	}
	if most := fewLooks(5*n, n); m.cs.looks > most {
		t.Errorf("%d looks at consumers, want %d at most", m.cs.looks, most)
	}
	if err := m.Check(); err != nil {
		t.Fatal(err)
	}
}

// Each client that ends asks what its consumers hold: however many others the queue has, it
// needs no list of them.
func TestWhatAFewHoldNeedsNoListOfAllConsumers(t *testing.T) {
	m, list := share(1000, 0)
	if n := testing.AllocsPerRun(10, func() { m.HeldBy(list[7]) }); n != 0 {
		t.Errorf("%v allocations for who holds nothing", n)
	}
}
