package conserve

import (
	"fmt"
	"testing"
)

// circle has shovels carry messages between a and a third queue, c, both ways.
func (s *story) circle() *queueSpec {
	c := s.queue("c")
	s.l.shovels = append(s.l.shovels, &mover{"a", "c"}, &mover{"c", "a"})
	return c
}

// Shovels make a message new, so what comes without the flag redelivered may be younger than what
// was read before it. What is wrong in a circle of them is found all the same.
func TestLedgerFollowsWhatShovelsCarry(t *testing.T) {
	for name, c := range map[string]struct {
		tell  func(*story)
		fault string
	}{
		"given back, carried round, and found as new": {func(s *story) {
			s.circle()
			s.publish("m")
			s.deliver(s.ch, "m", "a", body, true)
			s.l.channelEnded(s.ch)
			s.drain("m", "a", false)
		}, ""},
		"acknowledged as new, by a channel that reads it before another that had it": {func(s *story) {
			s.circle()
			s.publish("m")
			other := s.channel(confirming)
			s.done("close", "")
			s.ch.closes(s.l.tick())
			s.settle(s.deliver(other, "m", "a", body, false), acked, "settle ack")
			s.deliver(s.ch, "m", "a", body, true) // it was before, and is read later
			s.l.channelEnded(s.ch)
		}, ""},
		"rejected as new, by a channel that reads it before another whose end is the server's": {func(s *story) {
			s.circle()
			s.publish("m")
			other := s.channel(confirming)
			s.settle(s.deliver(other, "m", "a", body, false), rejected, "settle nack")
			s.deliver(s.ch, "m", "a", body, true) // it was before, and is read later
			s.ch.byPeer = true
			s.l.channelEnded(s.ch)
			s.drain("m", "b", false, "a")
		}, ""},
		"rejected, and carried round back to where it was deleted": {func(s *story) {
			s.circle()
			s.l.shovels = append(s.l.shovels, &mover{"b", "c"})
			s.publish("m")
			s.settle(s.deliver(s.ch, "m", "a", body, false), rejected, "settle nack")
			s.l.deletes["a"] = append(s.l.deletes["a"], s.done("delete", "a"))
			s.l.deletes["a"][0].count = 1
		}, ""},
		"expired where it was carried": {func(s *story) {
			s.circle()
			s.w.slots[0].variants[0].dlrk = "a"
			s.publish("m").expiration = 1
			s.settle(s.deliver(s.ch, "m", "c", body, false), requeued, "settle nack requeue")
			s.l.deaths = 1
		}, ""},
		"dead by a key that it was given where it had died, after it was carried": {func(s *story) {
			s.w.fanouts, s.w.divides = map[string][]string{"divide": {"d"}}, true
			c, d := s.queue("c"), s.queue("d")
			c.dlx, c.dlrk, c.ttl = "divide", "b", 1
			d.dlx, d.ttl = "", 1
			s.l.binds = append(s.l.binds, &binding{s.done("bind", "d"), "divide", ""})
			s.l.shovels = append(s.l.shovels, &mover{"a", "c"})
			s.publish("m")
			s.drain("m", "b", false, "d", "c")
		}, ""},
		"given back, carried round, given back as new, and nowhere": {func(s *story) {
			s.circle()
			s.publish("m")
			other := s.channel(confirming)
			s.deliver(s.ch, "m", "a", body, true)
			s.l.channelEnded(s.ch)
			s.deliver(other, "m", "a", body, false)
			s.l.channelEnded(other)
		}, "lost"},
		"acknowledged in vain, given back, and nowhere": {func(s *story) {
			s.circle()
			s.publish("m")
			other := s.channel(confirming)
			d := s.deliver(s.ch, "m", "a", body, false)
			s.l.settling(s.ch, s.ch.act("settle ack", ""), d.tag, false, acked)
			s.l.connectionEnded(s.ch.c)
			s.deliver(other, "m", "c", body, false)
			s.l.channelEnded(other)
		}, "lost"},
		"rejected, found at its target, given back there, and nowhere": {func(s *story) {
			s.circle()
			s.publish("m")
			s.settle(s.deliver(s.ch, "m", "a", body, false), rejected, "settle nack")
			s.settle(s.deliver(s.ch, "m", "b", body, false, "a"), requeued, "settle nack requeue")
			s.l.deletes["a"] = append(s.l.deletes["a"], s.done("delete", "a"))
			s.l.deletes["a"][0].count = 1
		}, "lost"},
		"refused where it is carried, dead of that, and back where it was": {func(s *story) {
			c := s.circle()
			c.dlx, c.dlrk, c.overflow, c.maxLen = "", "b", "reject-publish-dlx", 0
			s.publish("m")
			s.drain("m", "a", false)
			s.drain("m", "b", false, "c")
		}, ""},
		"one of two is found, and one death is counted": {func(s *story) {
			s.circle().maxLen = 1
			s.publish("m")
			s.publish("n")
			s.deliver(s.ch, "m", "a", body, true)
			s.l.channelEnded(s.ch)
			s.drain("m", "a", false)
			s.l.deaths = 1
		}, ""},
		"two are nowhere, and one death is counted": {func(s *story) {
			s.circle().maxLen = 1
			s.publish("m")
			s.publish("n")
			s.deliver(s.ch, "m", "a", body, true)
			s.l.channelEnded(s.ch)
			s.l.deaths = 1
		}, "explains no more"},
		"found in both queues": {func(s *story) {
			s.circle()
			s.publish("m")
			s.drain("m", "a", false)
			s.drain("m", "c", false)
		}, "doubled"},
		"acknowledged, and found where it was carried": {func(s *story) {
			s.circle()
			s.publish("m")
			s.settle(s.deliver(s.ch, "m", "a", body, false), acked, "settle ack")
			s.drain("m", "c", false)
		}, "doubled"},
		"acknowledged, and given to another where it was carried": {func(s *story) {
			s.circle()
			s.publish("m")
			other := s.channel(confirming)
			s.settle(s.deliver(s.ch, "m", "a", body, false), acked, "settle ack")
			s.deliver(other, "m", "c", body, false)
			s.l.channelEnded(other)
		}, "after it was settled"},
		"with a client, and with another where it was carried": {func(s *story) {
			s.circle()
			s.publish("m")
			other := s.channel(confirming)
			s.deliver(s.ch, "m", "a", body, false)
			s.deliver(other, "m", "c", body, false)
			s.l.channelEnded(s.ch)
			s.l.channelEnded(other)
			s.drain("m", "a", true)
		}, "two clients at once"},
		"twice without the flag, in a queue that nothing is carried to": {func(s *story) {
			s.queue("c")
			s.l.shovels = append(s.l.shovels, &mover{"a", "c"})
			s.publish("m")
			s.deliver(s.ch, "m", "a", body, false)
			s.l.channelEnded(s.ch)
			s.drain("m", "a", false)
		}, "without the flag redelivered"},
		"routed to two queues, and both found in one": {func(s *story) {
			s.circle()
			s.fanned("m", "a", "c")
			other := s.channel(confirming)
			s.settle(s.deliver(s.ch, "m", "a", body, false), acked, "settle ack")
			s.deliver(other, "m", "a", body, true)
			s.l.channelEnded(other)
			s.drain("m", "c", false)
		}, ""},
		"routed to two queues, given back in one, and nowhere": {func(s *story) {
			s.circle()
			s.fanned("m", "a", "c")
			s.deliver(s.ch, "m", "a", body, true)
			s.l.channelEnded(s.ch)
		}, "lost"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			c.tell(s)
			s.complains(c.fault)
		})
	}
}

// fanned publishes a message to several queues, confirmed.
func (s *story) fanned(id string, queues ...string) {
	s.w.fanouts = map[string][]string{"fan": queues}
	for _, q := range queues {
		s.l.binds = append(s.l.binds, &binding{s.done("bind", q), "fan", ""})
	}
	s.publish(id).exchange = "fan"
}

// Each queue gives its messages to each other one, by shovels, and its dead letters to the next.
// The judge looks at no place twice, whatever ways lead there.
func TestCirclesCostNoMoreThanTheirPlaces(t *testing.T) {
	const n = 30
	for name, c := range map[string]struct {
		ttl   int
		tell  func(*story)
		fault string
	}{
		"lost":      {-1, func(*story) {}, "lost"},
		"dead":      {1, func(s *story) { s.l.deaths = 1 }, ""},
		"too many":  {1, func(*story) {}, "explains no more"},
		"found":     {1, func(s *story) { s.drain("m", "q17", false) }, ""},
		"doubled":   {1, func(s *story) { s.drain("m", "q17", false); s.drain("m", "q18", false, "q17") }, "doubled"},
		"seen last": {-1, func(s *story) { s.settle(s.deliver(s.ch, "m", "q17", body, false), requeued, "settle nack requeue") }, "lost"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			s.w.slots[0].variants[0].dlrk = "q0"
			s.l.shovels = append(s.l.shovels, &mover{"a", "q0"})
			for i := range n {
				spec := s.queue(fmt.Sprint("q", i))
				spec.dlx, spec.dlrk, spec.ttl = "", fmt.Sprint("q", (i+1)%n), c.ttl
				for k := range n {
					s.l.shovels = append(s.l.shovels, &mover{fmt.Sprint("q", i), fmt.Sprint("q", k)})
				}
			}
			m := s.publish("m")
			c.tell(s)
			j := &judge{l: s.l, w: s.w}
			j.message(m)
			if j.looks > 2*(n+2) {
				t.Errorf("%d looks at %d queues", j.looks, n+1)
			}
			s.complains(c.fault)
		})
	}
}

// What died into several queues is explained if each of them is.
func TestWhatDiesIntoSeveralQueuesIsFoundInEach(t *testing.T) {
	for name, c := range map[string]struct {
		tell  func(*story)
		fault string
	}{
		"found in both":    {func(s *story) { s.drain("m", "b", false, "a"); s.drain("m", "c", false, "a") }, ""},
		"found in the one": {func(s *story) { s.drain("m", "b", false, "a") }, "lost"},
		"found in the one, purged from the other": {func(s *story) {
			s.drain("m", "b", false, "a")
			s.l.purges["c"] = append(s.l.purges["c"], s.done("purge", "c"))
			s.l.purges["c"][0].count = 1
		}, ""},
		"found in the one, the other was empty when it was purged": {func(s *story) {
			s.drain("m", "b", false, "a")
			s.l.purges["c"] = append(s.l.purges["c"], s.done("purge", "c"))
		}, "explains no more"},
		"found in the one, refused by the other": {func(s *story) {
			s.drain("m", "b", false, "a")
			c := s.l.specs["c"][0]
			c.maxLen, c.overflow = 0, "reject-publish"
		}, ""},
		"found in the one, dead in the other, not counted": {func(s *story) {
			s.drain("m", "b", false, "a")
			s.l.specs["c"][0].ttl = 1
		}, "explains no more"},
		"refused by the one, purged from the other": {func(s *story) {
			b := s.l.specs["b"][0]
			b.maxLen, b.overflow = 0, "reject-publish"
			s.l.purges["c"] = append(s.l.purges["c"], s.done("purge", "c"))
			s.l.purges["c"][0].count = 1
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			s.queue("c")
			a := s.l.specs["a"][0]
			a.dlx, a.dlrk = "divide", ""
			s.w.fanouts, s.w.divides = map[string][]string{"divide": {"b", "c"}}, true
			for _, q := range []string{"b", "c"} {
				s.l.binds = append(s.l.binds, &binding{s.done("bind", q), "divide", ""})
			}
			s.publish("m")
			s.settle(s.deliver(s.ch, "m", "a", body, false), rejected, "settle nack")
			c.tell(s)
			s.complains(c.fault)
		})
	}
}
