package queue

import (
	"testing"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue/index"
)

// warm lists the places of the lane's pages that have bodies in memory.
func (a *away) warm() (list []int) {
	for k, p := range a.Survey(0) {
		if !p.Cold && !p.Cool {
			list = append(list, k)
		}
	}
	return list
}

// However often bodies are put away, those that are needed last go first, and nothing is searched where there are
// none.
func TestBodiesArePutAwayFromTheTailOn(t *testing.T) {
	const pages, hot = 40, 2
	a := newAway(Unlimited(), hot)
	never := func() int64 { return -1 }
	sweep := func(limit int) (handled int) {
		a.SweepAgain(false)
		return a.PutAway(limit, false)
	}
	for round := range 3 {
		a.fill(pages*index.PageSize, never)
		for left := pages - 2*hot; left > 0; left -= 5 {
			sweep(5)
			warm := a.warm()
			if n := len(warm); n < 2*hot || n > max(0, left-5)+2*hot+1 {
				t.Fatalf("round %d: %d pages have bodies in memory of %d", round, n, left+2*hot)
			}
			for k, place := range warm[:len(warm)-hot-1] {
				if place != k {
					t.Fatalf("round %d: page %d was put away before others that are needed later: %v", round, k, warm)
				}
			}
		}
		sweep(1000)
		a.fill(3*index.PageSize, never)
		if handled := sweep(1000); handled < 3 || handled > 4 {
			t.Errorf("round %d: %d pages were looked at for 3 that had come", round, handled)
		}
		a.Purge(nil)
		for a.BuryRest(sliceLimit) {
		}
	}
}

// unwritten is an attic for bodies that are nowhere on disk.
type unwritten struct {
	*attic
	wrote int // bodies
}

func (u *unwritten) Locate(body message.Ref) uint64 {
	if !body.OnDisk() {
		return 0
	}
	return u.attic.Locate(body)
}

func (u *unwritten) Cool(body message.Ref) message.Ref {
	if !body.OnDisk() {
		u.wrote++
	}
	return u.attic.Cool(body)
}

// The holder of the partition waits while bodies are written. It does not wait for all bodies of several pages, which
// may be gigabytes: the rest of a page is written by the next sweep.
func TestLargeBodiesArePutAwayAFewAtATime(t *testing.T) {
	const messages, size, most = 6 * index.PageSize, (8 << 20) / 16, 17
	pages := &Pages{Hot: 1}
	m := New(Config{MaxPriority: -1}, Unlimited(), pages, &nobody{}, 1)
	cold := &unwritten{attic: &attic{pages: map[index.PageID][]byte{}}}
	m.SetCold(cold)
	pages.Begin(1)
	for i := range messages {
		m.Enqueue(1, &Entry{Content: Content{Body: message.Ref(i + 1), Size: size}, Priority: -1, TTL: -1})
	}
	want := 4 * index.PageSize // except those at the ends
	for range 2 * want {
		m.SweepAgain(false)
		before := cold.wrote
		m.PutAway(32, false)
		if n := cold.wrote - before; n > most {
			t.Fatalf("%d bodies of %d bytes were written at once, want %d at most", n, size, most)
		}
		if cold.wrote >= want {
			return
		}
	}
	t.Errorf("%d bodies were put away of %d", cold.wrote, want)
}
