package queue

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"bartleby.mq/internal/core/queue/index"
)

// share is a queue whose many consumers each hold an equal part, in turn.
func share(consumers, entries int) (*Machine, []*Consumer) {
	m := New(Config{Type: Quorum}, Unlimited(), &Pages{}, &nobody{}, 1)
	var list []*Consumer
	for range consumers {
		c := &Consumer{Tag: "c"}
		list = append(list, c)
		m.Attach(1, c)
	}
	e := Entry{Content: Content{Body: 1, Size: 10}, Priority: -1, TTL: -1}
	for range entries {
		id, _ := m.Enqueue(1, &e)
		m.Flow(1, id)
	}
	return m, list
}

// BR-4.5: what several consumers hold comes back in the order of the queue, each entry once with its holder. What
// other consumers hold stays.
func TestWhatConsumersHoldIsFoundInOrder(t *testing.T) {
	const consumers, entries = 5, 3 * index.PageSize
	m, list := share(consumers, entries)
	some := []*Consumer{list[3], list[0], list[3]}
	held := m.HeldBy(some...)
	if len(held) != list[0].out+list[3].out || len(held) == 0 || len(held) == entries {
		t.Fatalf("%d are held, want %d", len(held), list[0].out+list[3].out)
	}
	if !slices.IsSortedFunc(held, func(a, b Holding) int { return int(a.ID) - int(b.ID) }) {
		t.Error("not in order")
	}
	of := map[*Consumer]int{}
	for _, h := range held {
		of[h.By]++
	}
	if of[list[0]] != list[0].out || of[list[3]] != list[3].out {
		t.Errorf("%d and %d are held, want %d and %d", of[list[0]], of[list[3]], list[0].out, list[3].out)
	}
}

// One walk through the queue finds what all consumers of a client hold, however many they are: other goroutines wait
// for the queue meanwhile.
func BenchmarkHeldBy(b *testing.B) {
	for _, consumers := range []int{1, 500} {
		b.Run(fmt.Sprint(consumers), func(b *testing.B) {
			m, list := share(consumers, 100_000)
			for b.Loop() {
				m.HeldBy(list...)
			}
		})
	}
}

// A get has a slot among the consumers until it is acknowledged. The slot of the next get is found without looking at
// all of them, and is the first free one, as on every replica.
func TestAGetDoesNotLookAtThoseBeforeIt(t *testing.T) {
	const gets = 200_000
	s := newScript(Config{Type: Quorum, MaxPriority: -1}, Unlimited())
	var got []*Consumer
	began := time.Now()
	get := func() {
		s.publish(1000, -1)
		c := &Consumer{}
		if _, ok, _ := s.GetFor(1000, c, false); !ok {
			t.Fatal("nothing to get")
		}
		got = append(got, c)
	}
	for range gets {
		get()
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("%d gets took %v", gets, took)
	}
	for _, slot := range []int{70, 7} {
		if !s.Ack(0, index.MakeID(quorumDefault, uint64(slot)), got[slot-1]) {
			t.Fatal("not acknowledged")
		}
	}
	for _, want := range []uint32{7, 70, gets + 1} {
		if get(); got[len(got)-1].slot != want {
			t.Errorf("slot %d, want %d", got[len(got)-1].slot, want)
		}
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}
