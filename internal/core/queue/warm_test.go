package queue

import (
	"math/rand/v2"
	"testing"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue/index"
)

// half is an attic for bodies of which every other one is nowhere on disk.
type half struct{ *attic }

func (h half) Locate(body message.Ref) uint64 {
	if !body.OnDisk() && body%2 == 1 {
		return 0
	}
	return h.attic.Locate(body)
}

// hold counts the queue's bodies in memory: of large messages, of small ones that are on disk, and of those that are
// nowhere on disk.
func (m *Machine) hold(cold index.Cold) (large, small, nowhere int) {
	m.RangeInMemory(func(_ ID, p index.Place, split bool) {
		switch body := p.Body(); {
		case split || body.OnDisk():
		case cold.Locate(body) == 0:
			nowhere++
		case p.Size() > index.LargeBody:
			large++
		default:
			small++
		}
	})
	return large, small, nowhere
}

// However queues grow and shrink while bodies are put away a few at a time, no body that is on disk is overlooked: of
// a large message or a small one, at the ends of a queue or between.
func TestNoBodyIsOverlooked(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		pages := &Pages{Hot: 1 + rng.IntN(3)}
		pages.Begin(1)
		machines := make([]*Machine, 3)
		unsettled := make([][]ID, len(machines))
		for i := range machines {
			machines[i] = New(Config{MaxPriority: 2}, Unlimited(), pages, &nobody{}, 1)
			machines[i].SetCold(half{&attic{pages: map[index.PageID][]byte{}}})
		}
		next := message.Ref(1000)
		for range 100 {
			k := rng.IntN(len(machines))
			m := machines[k]
			switch rng.IntN(8) {
			case 0, 1, 2:
				large := rng.IntN(2) > 0
				for range rng.IntN(3 * index.PageSize) {
					size := uint32(10)
					if large && rng.IntN(10) == 0 {
						size = index.LargeBody + 1
					}
					next++
					m.Enqueue(1, &Entry{Content: Content{Body: next, Size: size}, Priority: rng.IntN(3), TTL: -1})
				}
			case 3, 4:
				noAck := rng.IntN(2) > 0
				for range rng.IntN(2 * index.PageSize) {
					if d, ok := m.Get(1, noAck); ok && !noAck {
						unsettled[k] = append(unsettled[k], d.ID)
					}
				}
			case 5:
				for n := rng.IntN(index.PageSize); n > 0 && len(unsettled[k]) > 0; n-- {
					last := len(unsettled[k]) - 1
					m.Return(1, unsettled[k][last], nil, ReturnNack)
					unsettled[k] = unsettled[k][:last]
				}
			default:
				pages.PutBodiesAway(1+rng.IntN(5), int64(1+rng.IntN(20*index.LargeBody)))
			}
		}
		for n := 0; pages.PutBodiesAway(1+rng.IntN(20), 1<<20); n++ {
			if n > 10_000 {
				t.Fatalf("seed %d: there are more to be put away for ever", seed)
			}
		}
		for i, m := range machines {
			if large, small, _ := m.hold(half{}); large > 0 || small > 0 {
				t.Fatalf("seed %d: queue %d has %d bodies of large messages in memory, and %d of small ones that are on disk", seed, i, large, small)
			}
			m.Close()
		}
		if pages.HasBodies() {
			t.Fatalf("seed %d: queues that are gone are still looked at", seed)
		}
	}
}
