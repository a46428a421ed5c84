package queue

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// restless is a queue that goes through everything that a Rest contains.
type restless struct {
	*Machine
	*rand.Rand
	t   *testing.T
	now int64
	all []*Consumer // attached or gone
}

func (q *restless) step() {
	q.now += q.Int64N(3)
	switch q.IntN(14) {
	case 0, 1, 2, 3:
		ttl := int64(-1)
		if q.IntN(3) == 0 {
			ttl = q.Int64N(80)
		}
		id, _ := q.Enqueue(q.now, &Entry{Content: Content{Body: 1, Size: 10}, Priority: q.IntN(8) - 1, TTL: ttl})
		q.Flow(q.now, id)
	case 4:
		c := &Consumer{Number: uint64(len(q.all)) + 1, Tag: "c", NoAck: q.IntN(4) == 0, Prefetch: q.IntN(9), Priority: q.Int64N(3), Metered: q.IntN(2) == 0}
		q.Attach(q.now, c)
		q.Credit(c, q.IntN(20))
		q.all = append(q.all, c)
		q.Pump(q.now, sliceLimit)
	case 5:
		if len(q.all) > 0 {
			q.Detach(q.now, q.all[q.IntN(len(q.all))])
		}
	case 6:
		c := &Consumer{Number: uint64(len(q.all)) + 1}
		if _, ok, _ := q.GetFor(q.now, c, false); ok {
			q.all = append(q.all, c)
		}
	case 7, 8, 9:
		held := q.HeldBy(q.all...)
		for range min(len(held), q.IntN(5)) {
			h := held[q.IntN(len(held))]
			switch q.IntN(4) {
			case 0:
				q.Ack(0, h.ID, h.By)
			case 1:
				q.Reject(q.now, h.ID, h.By, true)
			default:
				q.Return(q.now, h.ID, h.By, ReturnClosed)
			}
		}
		q.Flow(q.now, 0)
	case 10:
		q.Tick(q.now, 1+q.IntN(5))
	case 11:
		if list := q.Returned(); len(list) > 0 {
			q.Offer(list[q.IntN(len(list))])
		}
		q.RangeOffered(func(id ID) bool {
			switch q.IntN(4) {
			case 0:
				q.Withdraw(id)
			case 1:
				q.Accept(id)
			}
			return true
		})
	case 12:
		for _, d := range q.Deaths(q.IntN(4), nil) {
			q.Bury(d.ID)
		}
	case 13:
		if q.IntN(20) == 0 {
			q.Purge(nil)
		}
	}
	if err := q.Check(); err != nil {
		q.t.Fatal(err)
	}
}

// A Rest is what the queue was when it began, whatever happens to the queue before it is complete.
func TestARestIsWhatTheQueueWas(t *testing.T) {
	for seed := range uint64(400) {
		s := Unlimited()
		s.DeadLetter, s.ConsumerTimeout = true, 100
		config := Config{Type: Quorum, SingleActive: seed%7 == 0}
		q := &restless{New(config, s, &Pages{}, &nobody{}, 1), rand.New(rand.NewPCG(seed, 0)), t, 1, nil}
		for range 2 {
			for range 100 + q.IntN(300) {
				q.step()
			}
			want := q.AppendRest(nil)
			r := q.KeepRest()
			for most := q.IntN(20); ; {
				looked, more := r.Collect(1 + q.IntN(5))
				if looked > 5 {
					t.Fatalf("it looked at %d", looked)
				}
				if !more {
					break
				}
				for range q.IntN(1 + most) {
					q.step()
				}
			}
			if q.cs.rest != nil {
				t.Fatal("it is collected still")
			}
			for range 20 {
				q.step()
			}
			if got := r.Append(nil); !bytes.Equal(got, want) {
				t.Fatalf("seed %d: the rest is\n%x, was\n%x", seed, got, want)
			}
		}
		want := q.AppendRest(nil)
		r := q.KeepRest()
		r.Collect(1)
		for range q.IntN(3) {
			q.step()
		}
		q.Close()
		for more := true; more; _, more = r.Collect(3) {
		}
		if got := r.Append(nil); !bytes.Equal(got, want) {
			t.Fatalf("seed %d: the rest of a queue that was closed is\n%x, was\n%x", seed, got, want)
		}
	}
}

// Beginning a Rest copies no deliveries and no returned entries, however many there are, and the queue writes into
// none of what the Rest shares afterwards.
func TestTheBeginOfARestCopiesNothing(t *testing.T) {
	const consumers, entries = 10, 1000
	s := Unlimited()
	s.ConsumerTimeout = 1000
	m := New(Config{Type: Quorum}, s, &Pages{}, &nobody{}, 1)
	for k := range consumers {
		m.Attach(1, &Consumer{Number: uint64(k) + 1, Tag: "c"})
	}
	for range entries {
		id, _ := m.Enqueue(1, &Entry{Content: Content{Body: 1, Size: 10}, Priority: -1, TTL: -1})
		m.Flow(1, id)
	}
	m.Hush()
	back := m.HeldBy(m.cs.slots[1])
	for _, h := range back {
		m.Return(1, h.ID, h.By, ReturnNack)
	}
	listed, _ := m.Listed()
	r := m.KeepRest()
	if len(r.consumers) != 0 || len(r.returned) != 0 || len(listed) != len(back) {
		t.Fatalf("%d pieces of consumers and %d returned entries are there already, of %d", len(r.consumers), len(r.returned), len(listed))
	}
	for looked, more := 0, true; more; {
		if looked, more = r.Collect(3); looked > 3 {
			t.Errorf("it looked at %d", looked)
		}
	}
	if len(r.returned) != len(back) || &r.returned[0] != &listed[0] {
		t.Errorf("the returned entries were copied, %d of %d", len(r.returned), len(back))
	}
	c := m.cs.slots[2]
	outs, first := r.consumers[0][1].outs, c.outs[0]
	if &outs[0] != &c.outs[0] || len(outs) != entries/consumers {
		t.Errorf("%d deliveries of a consumer were copied", len(outs))
	}
	m.Ack(0, first.id, c)
	m.compactOuts(c)
	if outs[0] != first || len(c.outs) != len(outs)-1 {
		t.Errorf("what the Rest has became %+v, was %+v", outs[0], first)
	}
}
