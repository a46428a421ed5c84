package queue

import (
	"cmp"
	"slices"
)

// Consumer is who takes messages from a queue. The fields of the first group are
// set by whoever attaches it and do not change; the rest belongs to the machine.
type Consumer struct {
	Target    any // whose it is; the machine only hands it back
	Tag       string
	NoAck     bool
	Exclusive bool
	Priority  int64 // BR-9.4; higher first, 0 is usual
	Prefetch  int   // unsettled deliveries allowed at once; 0 = no limit (BR-9.8)
	Timeout   int64 // milliseconds a delivery may stay unsettled; 0 = no limit (DL-12.7)

	// On a replicated queue they stand in the log; elsewhere they are 0.
	Number  uint64 // names the consumer
	Origin  uint64 // the process whose session it belongs to
	Metered bool   // it gets no more than Machine.Credit allows

	// Gate is asked before each delivery that wants an acknowledgement, if it is
	// set: the prefetch limit that a channel's consumers share (BR-9.9).
	Gate interface{ TryTake() bool }

	slot   uint32
	place  int    // in consumers.list, counted from 1; 0 = it is not attached
	spot   int    // in consumers.line, counted from 1; 0 = it does not stand there
	turn   uint64 // of those of its priority the least is served next
	order  uint64 // of attaching
	out    int    // deliveries not settled
	stale  int    // deliveries taken back by the timeout and not yet settled by the client
	late   int    // of what the timeout took back, those that it has not been told of (Sink.TimedOut)
	paused bool   // it cannot take more for now: see Machine.Pause
	credit int    // deliveries still allowed if it is metered
	gone   bool   // cancelled; its deliveries may still be settled
	meant  bool   // by the call of HeldBy that runs
	kept   uint32 // the Rest that has it, or that it came after: see consumers.touch
	shared bool   // a Rest has outs, too: nothing may be written into it
	outs   []outstanding
}

// outstanding is a delivery on the watch of a consumer timeout.
type outstanding struct {
	id       ID
	returned uint32 // how often the message had come back before it, see Machine.returned
	at       int64  // when it was delivered, in milliseconds since 1970
}

// got says whether c stands for a basic.get: it has no tag.
func (c *Consumer) got() bool { return c.Tag == "" }

// Out is the number of its deliveries that are not settled.
func (c *Consumer) Out() int { return c.out }

// canTake says whether c can take a message; if so it must get one, since the gate counts it.
func (c *Consumer) canTake() bool {
	return c.able() && (c.NoAck || c.Gate == nil || c.Gate.TryTake())
}

// able says whether c can take a message, a shared limit aside.
func (c *Consumer) able() bool {
	return !c.paused && c.stale == 0 && (!c.Metered || c.credit > 0) && (c.NoAck || c.Prefetch == 0 || c.out < c.Prefetch)
}

// consumers are those attached to a queue, who may be very many: none is looked for among all.
//
// They are served by priority, highest first, and their turns (Consumer.turn); a single
// active one on a classic queue by order alone (before).
//
// Invariant: line has all of list that belong there (belongs); those that came to belong
// are brought back by awake, those that do not any more go when they are met.
type consumers struct {
	list   []*Consumer // in no order
	line   []*Consumer // a heap of them, the next one on top
	turns  uint64      // given so far
	slots  []*Consumer // by Consumer.slot; slot 0 is basic.get
	free   slotHeap    // of slots, those free, but for slot 0
	passed []*Consumer // scratch of turn
	pages  *Pages      // which rules of earlier releases hold
	single bool        // BR-9.5
	active *Consumer   // the one that gets messages if single
	quorum bool
	count  uint64 // of all ever attached
	plain  int    // of list, those that do not acknowledge
	hushed int    // while it is not 0 nobody gets anything
	looks  int    // at consumers of line, for tests
	rest   *Rest  // the one being collected, nil if none is
}

// attach adds c. Of those with equal priority the older come first.
func (cs *consumers) attach(c *Consumer) {
	cs.count++
	c.order = cs.count
	cs.add(c)
	cs.seat(c)
	cs.choose()
}

// add puts c among those attached, behind its equals.
func (cs *consumers) add(c *Consumer) {
	cs.list = append(cs.list, c)
	c.place = len(cs.list)
	if c.NoAck {
		cs.plain++
	}
	cs.turns++
	c.turn = cs.turns
	cs.enter(c)
}

// seat gives c the first free slot.
func (cs *consumers) seat(c *Consumer) {
	if cs.rest != nil {
		c.kept = cs.rest.version
	}
	switch {
	case len(cs.free) > 0:
		c.slot = cs.free.pop()
		cs.slots[c.slot] = c
		return
	case len(cs.slots) == 0:
		cs.slots = append(cs.slots, nil)
	}
	c.slot = uint32(len(cs.slots))
	cs.slots = append(cs.slots, c)
}

// detach removes c from those that get messages; its slot stays while
// deliveries are out.
func (cs *consumers) detach(c *Consumer) bool {
	if c.place == 0 || c.place > len(cs.list) || cs.list[c.place-1] != c {
		return false // or it is attached elsewhere
	}
	cs.touch(c)
	cs.leave(c)
	last := len(cs.list) - 1
	cs.list[c.place-1] = cs.list[last]
	cs.list[c.place-1].place = c.place
	cs.list[last] = nil
	cs.list = cs.list[:last]
	c.place, c.gone = 0, true
	if c.NoAck {
		cs.plain--
	}
	cs.forget(c)
	if cs.active == c {
		cs.active = nil
	}
	cs.choose()
	return true
}

// forget frees the slot of a consumer that is gone and holds nothing.
func (cs *consumers) forget(c *Consumer) {
	if c.gone && c.out == 0 && c.slot != 0 { // who calls it has touched c
		cs.slots[c.slot] = nil
		cs.free.push(c.slot)
		c.slot = 0
		if cs.single && cs.active == nil {
			cs.choose()
		}
	}
}

// choose keeps a single active consumer: the first in order of attaching; on
// quorum queues one of higher priority takes over once the active one has
// nothing out (BR-9.5), and the first at once if the active one has let a
// delivery time out (DL-12.7). Where all have, the active one stays until somebody settles.
func (cs *consumers) choose() {
	if !cs.single {
		return
	}
	best := cs.best()
	switch a := cs.active; {
	case best == nil:
	case a == nil, a.stale > 0 && !cs.pages.StaleActive,
		cs.quorum && best.Priority > a.Priority && a.out == 0:
		cs.active = best
	}
}

// best returns the first of those that may be the single active one, nil if there is none.
func (cs *consumers) best() *Consumer {
	for len(cs.line) > 0 {
		c := cs.line[0]
		if cs.belongs(c) {
			return c
		}
		cs.leave(c)
	}
	return nil
}

// belongs says whether c, which is attached, is to stand in line: of several that are served if it
// can take a message, shared limits aside; else if it may be the active one.
func (cs *consumers) belongs(c *Consumer) bool {
	if cs.single {
		return c.stale == 0 || cs.pages.StaleActive
	}
	return c.able()
}

// anyAble says whether some consumer can take a message, a shared limit aside.
func (cs *consumers) anyAble() bool {
	switch {
	case cs.hushed > 0:
		return false
	case cs.single:
		return cs.active != nil && cs.active.able()
	}
	return cs.first() != nil
}

// first returns the next of those that are able, nil if none is. REQUIRES: not single.
func (cs *consumers) first() *Consumer {
	for len(cs.line) > 0 {
		c := cs.line[0]
		if cs.looks++; c.able() {
			return c
		}
		cs.leave(c)
	}
	return nil
}

// nextNoAck is next if that consumer does not acknowledge; else nobody's turn passes.
func (cs *consumers) nextNoAck() *Consumer {
	if cs.plain < len(cs.list) {
		return nil // some acknowledge: let next choose among all
	}
	return cs.next()
}

// next returns the consumer whose turn it is and that can take a message, nil if
// there is none, and lets it step back behind its equals (BR-9.4).
func (cs *consumers) next() *Consumer {
	if cs.hushed > 0 {
		return nil
	}
	return cs.turn()
}

// turn is next whether the consumers are hushed or not.
func (cs *consumers) turn() *Consumer {
	if cs.single {
		if cs.quorum {
			cs.choose()
			if a, best := cs.active, cs.best(); a != nil && best != nil && best.Priority > a.Priority {
				return nil // it finishes what it has before the better one takes over
			}
		}
		if cs.active != nil && cs.active.canTake() {
			return cs.active
		}
		return nil
	}
	c := cs.first()
	for ; c != nil && !c.canTake(); c = cs.first() {
		cs.leave(c) // its gate is shut; nobody tells when it opens
		cs.passed = append(cs.passed, c)
	}
	for _, other := range cs.passed {
		cs.enter(other)
	}
	clear(cs.passed)
	cs.passed = cs.passed[:0]
	if c != nil {
		cs.stepBack(c)
	}
	return c
}

// stepBack moves c behind its equals.
func (cs *consumers) stepBack(c *Consumer) {
	cs.touch(c)
	cs.turns++
	c.turn = cs.turns
	if c.spot != 0 {
		cs.down(c.spot - 1)
	}
}

// credited is called when a delivery to c was settled. One that could take no
// more steps back behind those that could all the time, as in RabbitMQ.
func (cs *consumers) credited(c *Consumer) {
	if c.place != 0 && c.Prefetch != 0 && c.out+1 == c.Prefetch && !cs.single {
		cs.stepBack(c)
	}
	cs.awake(c)
}

// awake is called when c may have come to belong into the line.
func (cs *consumers) awake(c *Consumer) {
	if c.place == 0 || c.spot != 0 || !cs.belongs(c) {
		return
	}
	cs.enter(c)
	cs.relieve()
}

// relieve chooses anew where nobody is active, or who is has let deliveries time out.
func (cs *consumers) relieve() {
	if a := cs.active; a == nil || a.stale > 0 {
		cs.choose()
	}
}

// inOrder returns those attached in the order in which they are served.
func (cs *consumers) inOrder() []*Consumer {
	list := slices.Clone(cs.list)
	slices.SortFunc(list, func(a, b *Consumer) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.turn, b.turn))
	})
	return list
}

// clear takes all of them out and returns those that were attached, in order.
func (cs *consumers) clear() []*Consumer {
	list := cs.inOrder()
	if cs.rest != nil {
		for _, c := range cs.slots {
			if c != nil {
				cs.touch(c)
			}
		}
	}
	cs.list, cs.line, cs.slots, cs.free, cs.active, cs.plain = nil, nil, nil, nil, nil, 0
	for _, c := range list {
		c.gone, c.slot, c.place, c.spot = true, 0, 0, 0
	}
	return list
}

// before says whether a stands above b in line.
func (cs *consumers) before(a, b *Consumer) bool {
	cs.looks++
	switch {
	case cs.single && !cs.quorum:
		return a.order < b.order
	case a.Priority != b.Priority:
		return a.Priority > b.Priority
	}
	return a.turn < b.turn
}

// enter puts c, which is not there, into line.
func (cs *consumers) enter(c *Consumer) {
	cs.line = append(cs.line, c)
	cs.up(len(cs.line) - 1)
}

// leave takes c out of line if it is there.
func (cs *consumers) leave(c *Consumer) {
	if c.spot == 0 {
		return
	}
	i, last := c.spot-1, len(cs.line)-1
	other := cs.line[last]
	cs.line[last] = nil
	cs.line = cs.line[:last]
	if c.spot = 0; other != c {
		cs.line[i] = other
		cs.down(i)
		cs.up(other.spot - 1)
	}
}

// up moves the consumer at i of line up to where it belongs.
func (cs *consumers) up(i int) {
	c := cs.line[i]
	for i > 0 {
		above := (i - 1) / 2
		if !cs.before(c, cs.line[above]) {
			break
		}
		cs.line[i] = cs.line[above]
		cs.line[i].spot = i + 1
		i = above
	}
	cs.line[i], c.spot = c, i+1
}

// down moves the consumer at i of line down to where it belongs.
func (cs *consumers) down(i int) {
	c := cs.line[i]
	for {
		below := 2*i + 1
		if below >= len(cs.line) {
			break
		}
		if below+1 < len(cs.line) && cs.before(cs.line[below+1], cs.line[below]) {
			below++
		}
		if !cs.before(cs.line[below], c) {
			break
		}
		cs.line[i] = cs.line[below]
		cs.line[i].spot = i + 1
		i = below
	}
	cs.line[i], c.spot = c, i+1
}

// slotHeap has the first slot on top.
type slotHeap []uint32

func (h *slotHeap) push(slot uint32) {
	s := append(*h, slot)
	i := len(s) - 1
	for ; i > 0 && slot < s[(i-1)/2]; i = (i - 1) / 2 {
		s[i] = s[(i-1)/2]
	}
	s[i], *h = slot, s
}

// pop takes the first one. REQUIRES: there is one.
func (h *slotHeap) pop() uint32 {
	s := *h
	first, slot := s[0], s[len(s)-1]
	s = s[:len(s)-1]
	i := 0
	for below := 1; below < len(s); below = 2*i + 1 {
		if below+1 < len(s) && s[below+1] < s[below] {
			below++
		}
		if slot <= s[below] {
			break
		}
		s[i] = s[below]
		i = below
	}
	if len(s) > 0 {
		s[i] = slot
	}
	*h = s
	return first
}
