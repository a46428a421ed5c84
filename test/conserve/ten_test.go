package conserve

import (
	"slices"
	"strings"
	"testing"

	"bartleby.mq/internal/wire/amqp10"
	"bartleby.mq/test/client10"
)

// session is a client of AMQP 1.0 with one session, and a consumer of a that has credit for 2.
func (s *story) session() (*channel, *link) {
	ch := s.channel(confirming)
	ch.c.ten = &ten{conn: &client10.Conn{}, theirs: map[uint16]*channel{}}
	ch.beginTen(4)
	ch.c.ten.theirs[1] = ch
	s.hears(ch, &amqp10.Begin{RemoteChannel: amqp10.Some[uint16](1), IncomingWindow: 100}, nil)
	k := ch.attachReceiver(&consumer{ch: ch, queue: "a", last: map[*channel]*message{}})
	source := client10.Described(&amqp10.Source{})
	s.hears(ch, &amqp10.Attach{Name: []byte(k.name), Handle: k.handle, Role: amqp10.RoleSender, Source: source}, nil)
	ch.credit(k, 2, false)
	return ch, k
}

func (s *story) hears(ch *channel, c amqp10.Composite, payload []byte) {
	ch.c.frameTen(&client10.Frame{Channel: 1, Is: c, Payload: payload})
}

// transfers has the server send a message.
func (s *story) transfers(ch *channel, k *link, m *message, id uint32) {
	b := client10.Message{
		ID: m.id, Priority: m.priority, TTL: -1, Properties: map[string]string{"id": m.id}, Data: [][]byte{[]byte(body)}, Durable: m.persistent,
	}
	s.hears(ch, &amqp10.Transfer{Handle: k.handle, DeliveryID: amqp10.Some(id), DeliveryTag: []byte{1}, Settled: amqp10.Some(false)}, b.Append(nil))
}

// The ledger complains of what no server of AMQP 1.0 may send, each in its own words, and of nothing else.
func TestLedgerHearsAMQP10(t *testing.T) {
	outcome := func(state amqp10.Composite) *amqp10.Disposition {
		return &amqp10.Disposition{Role: amqp10.RoleReceiver, First: 1, Settled: true, State: client10.Described(state)}
	}
	drained := func(k *link, count, credit uint32) *amqp10.Flow {
		return &amqp10.Flow{
			NextIncomingID: amqp10.Some[uint32](0), IncomingWindow: 100, Handle: amqp10.Some(k.handle),
			DeliveryCount: amqp10.Some(count), LinkCredit: amqp10.Some(credit), Drain: true,
		}
	}
	for name, c := range map[string]struct {
		tell func(s *story, ch *channel, k *link)
		want string
	}{
		"a drain that ends with all its credit": {func(s *story, ch *channel, k *link) {
			ch.credit(k, 5, true)
			s.hears(ch, drained(k, 5, 0), nil)
		}, ""},
		"a drain that leaves credit": {func(s *story, ch *channel, k *link) {
			ch.credit(k, 5, true)
			s.hears(ch, drained(k, 3, 2), nil)
		}, "is drained up to 3 and has credit 2, want 5 and 0"},
		"more messages than credit": {func(s *story, ch *channel, k *link) {
			for i := range uint32(3) {
				s.transfers(ch, k, s.publish("m"+string('0'+rune(i))), i)
			}
		}, "more messages to consume1 than it has had credit for"},
		"more transfers than the window": {func(s *story, ch *channel, k *link) {
			for range 5 {
				s.hears(ch, &amqp10.Transfer{Handle: k.handle, DeliveryID: amqp10.Some[uint32](0), DeliveryTag: []byte{1}, More: true}, nil)
			}
		}, "more transfers than the window"},
		"a message settled that must not be": {func(s *story, ch *channel, k *link) {
			m := client10.Message{ID: s.publish("m").id, TTL: -1}
			s.hears(ch, &amqp10.Transfer{Handle: k.handle, DeliveryID: amqp10.Some[uint32](0), DeliveryTag: []byte{1}, Settled: amqp10.Some(true)}, m.Append(nil))
		}, "is settled: true"},
		"an outcome of nothing": {func(s *story, ch *channel, _ *link) {
			s.hears(ch, outcome(&amqp10.Accepted{}), nil)
		}, "confirmed 1, which is not waiting for it"},
		"a link that ends by itself": {func(s *story, ch *channel, k *link) {
			s.hears(ch, &amqp10.Detach{Handle: k.handle, Closed: true}, nil)
		}, "without an error"},
		"a queue that is deleted": {func(s *story, ch *channel, k *link) {
			s.hears(ch, &amqp10.Detach{Handle: k.handle, Closed: true, Error: &amqp10.Error{Condition: []byte(amqp10.ConditionResourceDeleted)}}, nil)
		}, ""},
		"a session that ends for its own reasons": {func(s *story, ch *channel, _ *link) {
			s.hears(ch, &amqp10.End{Error: &amqp10.Error{Condition: []byte(amqp10.ConditionInternalError)}}, nil)
		}, "ended the session"},
		"a session that its client ends": {func(s *story, ch *channel, _ *link) {
			ch.wait(ch.sayTen("close", "", &amqp10.End{}))
			ch.closes(s.l.ticks)
			s.hears(ch, &amqp10.End{}, nil)
			if !ch.ended || ch.byPeer {
				t.Error("it has not ended, or by the server")
			}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			ch, k := s.session()
			c.tell(s, ch, k)
			complains := func(f string) bool { return strings.Contains(f, c.want) }
			if c.want == "" && len(s.l.faults) > 0 || c.want != "" && !slices.ContainsFunc(s.l.faults, complains) {
				t.Errorf("complaints: %q, want %q", s.l.faults, c.want)
			}
		})
	}
}

// What a link holds goes back with it, and what is on its way too: that it is delivered to somebody else then is no fault.
func TestLedgerGivesBackWithALink(t *testing.T) {
	s := newStory(t)
	ch, k := s.session()
	m := s.publish("m")
	a := ch.detachLink(k, "cancel", true)
	own := func(d *delivery) bool { return d.consumer == k.consumer }
	s.l.settlingThose(ch, a, requeued, own)
	s.transfers(ch, k, m, 0)
	s.l.settlingThose(ch, a, requeued, own)
	if len(ch.outstanding) != 0 || ch.settled[0].how != requeued {
		t.Errorf("the client still has %d", len(ch.outstanding))
	}
	s.hears(ch, &amqp10.Detach{Handle: k.handle, Closed: true}, nil)
	if len(ch.waiting) > 0 || len(ch.ten.links) > 0 {
		t.Errorf("%d acts wait, and %d links are there", len(ch.waiting), len(ch.ten.links))
	}
	if len(s.l.faults) > 0 {
		t.Error(s.l.faults)
	}
}

// Episodes with both protocols are those of AMQP 0-9-1 with others between their operations.
func TestSeedsOfBothProtocols(t *testing.T) {
	credits := 0
	for i := range uint64(40) {
		a, b := generate(920000+i, options{}), generate(protocols+920000+i, options{})
		if !slices.Contains(b.tens, true) || len(a.clients) != len(b.clients) {
			t.Fatalf("seed %d: %v", i, b.tens)
		}
		var left []op
		for _, o := range b.ops {
			if o.verb == doCredit {
				credits++
				continue
			}
			o.index = len(left)
			left = append(left, o)
		}
		if !slices.Equal(a.ops, left) {
			t.Errorf("seed %d has other operations", i)
		}
	}
	if credits == 0 {
		t.Error("nobody gives credit")
	}
}
