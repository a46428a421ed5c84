package queue

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"testing"
)

// fewLooks is how many consumers a number of steps may look at if there are n.
func fewLooks(steps, n int) int { return 4 * steps * bits.Len(uint(n)) }

// A client with very many consumers of a queue ends them one by one, or all in one command. No consumer is searched
// for among the others with the queue locked.
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

// Consumers that cannot take more are not asked again for each message. A consumer that settles a message gets the
// next.
func TestBlockedConsumersAreNotAskedForEachMessage(t *testing.T) {
	const n = 2000
	m, list := share(0, 0)
	for range n {
		c := &Consumer{Tag: "c", Prefetch: 1}
		m.Attach(1, c)
		list = append(list, c)
	}
	e := Entry{Content: Content{Body: 1, Size: 10}, Priority: -1, TTL: -1}
	for range 3 * n {
		id, _ := m.Enqueue(1, &e)
		m.Flow(1, id)
	}
	for round, first := range m.HeldBy(list...) {
		if first.By != list[round] {
			t.Fatalf("delivery %d went to another", round)
		}
		m.Ack(0, first.ID, first.By)
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

// Each client that ends asks what its consumers hold. That needs no list of the queue's other consumers.
func TestWhatAFewHoldNeedsNoListOfAllConsumers(t *testing.T) {
	m, list := share(1000, 0)
	if n := testing.AllocsPerRun(10, func() { m.HeldBy(list[7]) }); n != 0 {
		t.Errorf("%v allocations for who holds nothing", n)
	}
}

// asked is a gate that counts how often it is asked.
type asked struct {
	gate
	times int
}

func (g *asked) TryTake() bool {
	g.times++
	return g.gate.TryTake()
}

// BR-9.9: consumers that wait for a shared limit are not asked for each message, nor one after the other once the
// limit is reached. Consumers that share a limit still get messages in turn.
func TestConsumersThatShareALimitAreNotAskedForEachMessage(t *testing.T) {
	const n = 2000
	m := New(Config{MaxPriority: -1}, Unlimited(), &Pages{}, &nobody{}, 1)
	g := &asked{}
	var list []*Consumer
	for range n {
		c := &Consumer{Tag: "c", Gate: g}
		m.Attach(1, c)
		list = append(list, c)
	}
	e := Entry{Content: Content{Body: 1, Size: 10}, Priority: -1, TTL: -1}
	publish := func() {
		id, _ := m.Enqueue(1, &e)
		m.Flow(1, id)
	}
	publish() // reaches the limit
	if g.times != 1 || m.cs.looks > fewLooks(n+1, n) {
		t.Errorf("the gate was asked %d times, with %d looks at consumers; want once, and %d at most", g.times, m.cs.looks, fewLooks(n+1, n))
	}
	m.cs.looks = 0
	for range 3 * n {
		publish()
	}
	if g.times != 1 || m.cs.looks > 3*n {
		t.Errorf("the gate was asked %d times, with %d looks at consumers; want once, and %d at most", g.times, m.cs.looks, 3*n)
	}
	m.cs.looks = 0
	for k := range 2 * n {
		g.room = 1
		m.Open(g)
		m.Pump(1, sliceLimit)
		if c := list[k%n]; c.out != k/n+1 {
			t.Fatalf("delivery %d went to another", k)
		}
	}
	if most := fewLooks(4*n, n); g.times > 6*n || m.cs.looks > most {
		t.Errorf("the gate was asked %d times, with %d looks at consumers; want %d and %d at most", g.times, m.cs.looks, 6*n, most)
	}
	if err := m.Check(); err != nil {
		t.Fatal(err)
	}
	m.cs.looks = 0
	rand.New(rand.NewPCG(1, 2)).Shuffle(n, func(i, j int) { list[i], list[j] = list[j], list[i] })
	for _, c := range list {
		m.Detach(1, c)
	}
	if most := fewLooks(n, n); m.cs.looks > most {
		t.Errorf("%d looks at consumers when they went, want %d at most", m.cs.looks, most)
	}
	if err := m.Check(); err != nil {
		t.Fatal(err)
	}
}

// BR-9.9: when many consumers with deliveries come under a limit, none is searched for among the others.
func TestConsumersComeUnderALimitWithoutALookAtAll(t *testing.T) {
	const n = 2000
	m, list := share(0, 0)
	for range n {
		c := &Consumer{Tag: "c"}
		m.Attach(1, c)
		list = append(list, c)
	}
	m.cs.looks = 0
	g := &asked{}
	for _, c := range list {
		m.Share(c, g)
	}
	if most := fewLooks(n, n); m.cs.looks > most {
		t.Errorf("%d looks at consumers, want %d at most", m.cs.looks, most)
	}
	if err := m.Check(); err != nil {
		t.Fatal(err)
	}
}
