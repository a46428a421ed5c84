package queue

import (
	"math"
	"slices"
	"testing"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue/index"
)

// script is a machine that keeps its deliveries as a list.
type script struct {
	nobody
	*Machine
	got []Delivery
}

func newScript(config Config, settings Settings) *script {
	s := &script{}
	s.Machine = New(config, settings, &Pages{}, s, 1000)
	return s
}

func (s *script) Deliver(_ *Consumer, d *Delivery) bool {
	s.got = append(s.got, *d)
	return true
}

func (s *script) publish(now, ttl int64) ID {
	id, _ := s.Enqueue(now, &Entry{Content: Content{Body: 1, Logged: true}, Priority: -1, TTL: ttl})
	s.Flow(now, id)
	return id
}

func unlimited(change func(*Settings)) Settings {
	s := Unlimited()
	change(&s)
	return s
}

// DL-8.7: a message with a TTL of 0 that goes to a consumer without acknowledgements is gone, even if other consumers
// of the queue acknowledge.
func TestTTLZeroToMixedConsumers(t *testing.T) {
	s := newScript(Config{MaxPriority: -1}, Unlimited())
	s.Attach(1000, &Consumer{NoAck: true})
	s.Attach(1000, &Consumer{})
	s.publish(1000, 0)
	if len(s.got) != 1 || !s.got[0].NoAck || s.Totals().Out != 0 {
		t.Errorf("deliveries %+v, totals %+v; want one without acknowledgement", s.got, s.Totals())
	}
}

// DL-12.7, BR-9.5: when a delivery to a single active consumer times out, the first consumer without timeouts takes
// its place and gets what came back. The former one is the next again once it has settled.
func TestDL_12_7_ASingleActiveConsumerThatTimesOutGivesItsPlace(t *testing.T) {
	s := newScript(Config{Type: Quorum, SingleActive: true, MaxPriority: -1}, unlimited(func(s *Settings) { s.ConsumerTimeout = 100 }))
	a, b := &Consumer{Tag: "a", Prefetch: 2}, &Consumer{Tag: "b", Prefetch: 2}
	s.Attach(1000, a)
	s.Attach(1000, b)
	m0, m1 := s.publish(1000, -1), s.publish(1000, -1)
	s.publish(1000, -1)
	s.Tick(1100, sliceLimit)
	if _, active := s.Distinguished(); active != "b" || b.Out() != 2 || len(s.got) != 4 || s.got[2].ID != m0 || s.got[3].ID != m1 {
		t.Fatalf("%q is active, b has %d of %+v; want b with what a had", active, b.Out(), s.got)
	}
	s.Tick(1200, sliceLimit)
	if _, active := s.Distinguished(); active != "b" || a.Out()+b.Out() != 0 {
		t.Fatalf("all have timed out: %q is active, %d and %d are out", active, a.Out(), b.Out())
	}
	s.Ack(0, m0, a)
	s.Ack(0, m1, a)
	s.Pump(1200, sliceLimit)
	if _, active := s.Distinguished(); active != "a" || a.Out() != 2 {
		t.Errorf("a has settled: %q is active, a has %d, want 2", active, a.Out())
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

// BR-9.5: on a quorum queue a consumer of higher priority takes over as soon as the active one has settled all.
func TestBR_9_5_AConsumerOfHigherPriorityTakesOverAtOnce(t *testing.T) {
	s := newScript(Config{Type: Quorum, SingleActive: true, MaxPriority: -1}, Unlimited())
	a, b := &Consumer{Tag: "a"}, &Consumer{Tag: "b", Priority: 1}
	s.Attach(1000, a)
	id := s.publish(1000, -1)
	s.Attach(1000, b)
	if _, active := s.Distinguished(); active != "a" {
		t.Fatalf("%q is active while a holds a delivery", active)
	}
	s.Ack(1000, id, a)
	if _, active := s.Distinguished(); active != "b" {
		t.Errorf("%q is active, want b", active)
	}
	s.publish(1000, -1)
	if b.Out() != 1 {
		t.Errorf("b has %d", b.Out())
	}
}

// DL-12.7: the time of a delivery begins with that delivery, not with an earlier one of the same message to the same
// consumer.
func TestTimeoutCountsFromTheLastDelivery(t *testing.T) {
	s := newScript(Config{Type: Quorum}, unlimited(func(s *Settings) { s.ConsumerTimeout = 100 }))
	c := &Consumer{}
	s.Attach(1000, c)
	id := s.publish(1000, -1)
	s.Return(1090, id, c, ReturnNack)
	s.Flow(1090, 0)
	s.Tick(1150, 10)
	if c.Out() != 1 || len(s.got) != 2 {
		t.Fatalf("after 60 of 100 ms %d are out, %d were delivered; want 1 and 2", c.Out(), len(s.got))
	}
	s.Tick(1190, 10)
	if c.Out() != 0 {
		t.Error("the delivery did not time out after 100 ms")
	}
}

// BR-9.13: a message that comes back again goes behind those that came back meanwhile.
func TestReturnsInOrderOfReturn(t *testing.T) {
	s := newScript(Config{Type: Quorum}, Unlimited())
	a, b := s.publish(1000, -1), s.publish(1000, -1)
	s.Get(1000, false)
	s.Get(1000, false)
	s.Return(1000, a, nil, ReturnNack)
	s.Return(1000, b, nil, ReturnNack)
	s.Get(1000, false) // a, once more
	s.Return(1000, a, nil, ReturnNack)
	if d, _ := s.Get(1000, true); d.ID != b {
		t.Errorf("the next is %d, want %d, which came back before", d.ID, b)
	}
}

// DL-12.4: a message that waits for its retry keeps its TTL, also if either moment is further away than a page's
// column can hold, and through a recovery.
func TestDelayAndTTLFarAway(t *testing.T) {
	const days = 24 * 60 * 60 * 1000
	retry := unlimited(func(s *Settings) { s.Retry = Retry{Type: RetryAll, Min: 60 * days} })
	for _, ttl := range []int64{-1, 50 * days, 100 * days, 300 * days} {
		s := newScript(Config{Type: Quorum}, retry)
		id := s.publish(1000, ttl)
		s.Get(1000, false)
		s.Return(1000, id, nil, ReturnNack)
		for now := int64(0); now < 60*days; now += days {
			s.Tick(now, 10)
			if n := s.Totals(); n.Delayed != 1 {
				t.Fatalf("ttl %d days: it came back after %d of 60 days", ttl/days, now/days)
			}
		}
		s.Tick(60*days+1001, 10)
		if got, want := s.Totals().Ready, ttl < 0 || ttl > 60*days; (got == 1) != want {
			t.Errorf("ttl %d days: after 60 days it is there: %v", ttl/days, got == 1)
		}
	}

	s := newScript(Config{Type: Quorum}, Unlimited())
	id := index.MakeID(4, 1)
	s.Restore(id, &Restored{Entry: Entry{Content: Content{Body: 1}, Due: 0}})
	s.RestoreOut(id)
	s.RestoreReturned(id, Counts{Acquired: 1}, 2000)
	s.RestoreOut(id) // its wait ended, which nothing recorded
	s.Restored(5000)
	if n := s.Totals(); n.Ready != 1 {
		t.Errorf("a message that had waited is %+v after recovery, want ready: the end of its wait is no TTL", n)
	}
}

// DL-8.12: publishing is no use of a queue; consumers, get and declare are.
func TestUnused(t *testing.T) {
	s := newScript(Config{MaxPriority: -1}, unlimited(func(s *Settings) { s.Expires = 100 }))
	s.publish(1050, -1)
	if s.Unused(1099) || !s.Unused(1100) || s.NextDue() != 1100 {
		t.Errorf("unused at 1099: %v, at 1100: %v, due %d; want false, true, 1100", s.Unused(1099), s.Unused(1100), s.NextDue())
	}
	s.Get(1050, true)
	if s.Unused(1149) || !s.Unused(1150) {
		t.Error("a get is a use")
	}
	c := &Consumer{}
	s.Attach(1100, c)
	if s.Unused(math.MaxInt64 / 2) {
		t.Error("a queue with a consumer is used")
	}
	s.Detach(2000, c)
	s.Touch(2010)
	if s.Unused(2109) || !s.Unused(2110) {
		t.Error("it is unused since its last use")
	}
}

// BR-9.3: exclusive consumers are alone on classic queues; quorum queues enforce nothing.
func TestExclusiveConsumer(t *testing.T) {
	for _, config := range []Config{{MaxPriority: -1}, {Type: Quorum}} {
		free := config.Type == Quorum
		s := newScript(config, Unlimited())
		s.Attach(1, &Consumer{})
		if s.Attach(1, &Consumer{Exclusive: true}) != free {
			t.Errorf("%s: an exclusive consumer joined others: %v", config.Type, !free)
		}
		s = newScript(config, Unlimited())
		s.Attach(1, &Consumer{Exclusive: true})
		if s.Attach(1, &Consumer{}) != free {
			t.Errorf("%s: a consumer joined an exclusive one: %v", config.Type, !free)
		}
	}
}

// DL-6.12, DL-6.13: how a full target treats a dead letter.
func TestForce(t *testing.T) {
	for _, c := range []struct {
		config   Config
		overflow Overflow
		want     Result
	}{
		{Config{MaxPriority: -1}, RejectPublish, Refused},
		{Config{MaxPriority: -1}, RejectPublishDLX, RefusedDead},
		{Config{MaxPriority: -1}, DropHead, Stored},
		{Config{Type: Quorum}, RejectPublish, Stored},
	} {
		s := newScript(c.config, unlimited(func(s *Settings) { s.MaxLength, s.Overflow, s.DeadLetter = 1, c.overflow, true }))
		s.publish(1, -1)
		if _, got := s.Force(1, &Entry{Content: Content{Body: message.Ref(2)}, Priority: -1, TTL: -1}); got != c.want {
			t.Errorf("%s, overflow %d: result %d, want %d", c.config.Type, c.overflow, got, c.want)
		}
	}
}

// Returned entries are mostly offered in the order in which they came back. None of the many others is moved for
// that.
func TestAnOfferFromTheFrontOfTheReturns(t *testing.T) {
	s := newScript(Config{Type: Quorum, MaxPriority: -1}, Unlimited())
	const messages = 4
	for range messages {
		s.publish(1000, -1)
	}
	var out []ID
	for range messages {
		d, _ := s.Get(1000, false)
		out = append(out, d.ID)
	}
	for _, id := range out {
		s.Return(1000, id, nil, ReturnNack)
	}
	list, _ := s.Listed()
	first, second := list[0], &list[1]
	offered := s.Offer(first)
	if list, _ = s.Listed(); !offered || &list[0] != second {
		t.Error("the others were moved")
	}
	offered = s.Offer(*second)
	if list, _ = s.Listed(); !offered || len(list) != messages-2 || s.Check() != nil {
		t.Errorf("%d are in the list, want %d: %v", len(list), messages-2, s.Check())
	}
}

// Entries offered in another order leave the list as it is: none of the many others is moved. A reader of the list
// does not see them.
func TestAnOfferFromTheMiddleOfTheReturns(t *testing.T) {
	s := newScript(Config{Type: Quorum, MaxPriority: -1}, Unlimited())
	const messages = 6
	var out []ID
	for range messages {
		s.publish(1000, -1)
	}
	for range messages {
		d, _ := s.Get(1000, false)
		out = append(out, d.ID)
	}
	for _, id := range out {
		s.Return(1000, id, nil, ReturnNack)
	}
	list, _ := s.Listed()
	for k := messages - 1; k > 0; k-- {
		offered := s.Offer(out[k])
		if now, _ := s.Listed(); !offered || len(now) != messages || &now[0] != &list[0] || !slices.Equal(list, out) {
			t.Fatalf("the list was moved for entry %d: %v", k, list)
		}
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
	// Two are refused and stand behind the one that was never offered, in their places.
	s.Withdraw(out[3])
	s.Withdraw(out[2])
	var again []ID
	for {
		d, ok := s.Get(1000, false)
		if !ok {
			break
		}
		again = append(again, d.ID)
	}
	if want := []ID{out[0], out[2], out[3]}; !slices.Equal(again, want) {
		t.Errorf("delivered %v, want %v", again, want)
	}
	for _, id := range again {
		s.Return(1000, id, nil, ReturnNack)
	}
	list, strays := s.Listed()
	if err := s.Check(); err != nil || !slices.Equal(list, again) || strays > 0 {
		t.Errorf("the returns are %v, %d of them were there before: %v", list, strays, err)
	}
}
