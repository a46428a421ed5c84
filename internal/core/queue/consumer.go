package queue

import (
	"cmp"
	"slices"
)

// Consumer is who takes messages from a queue. The fields of the first two groups are
// set by whoever attaches it and do not change. Gate may be set then, too, or later by
// Machine.Share, and does not change any more. The rest belongs to the machine.
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

	// Gate is asked before each delivery that wants an acknowledgement, if it is set.
	Gate Gate

	slot   uint32
	place  int    // in consumers.list, counted from 1; 0 = it is not attached
	spot   int    // in consumers.line or party.waiting, counted from 1; 0 = it stands in neither
	party  *party // nil: it shares no Gate
	turn   uint64 // of those of its priority the least is served next
	order  uint64 // of attaching
	out    int    // deliveries not settled
	stale  int    // deliveries taken back by the timeout and not yet settled by the client
	late   int    // of what the timeout took back, those that it has not been told of (Sink.TimedOut)
	paused bool   // it cannot take more for now: see Machine.Pause
	credit int    // deliveries still allowed if it is metered
	waits  bool   // it stands in party.waiting
	gone   bool   // cancelled; its deliveries may still be settled
	meant  bool   // by the call of HeldBy that runs
	kept   uint32 // the Rest that has it, or that it came after: see consumers.touch
	shared bool   // a Rest has outs, too: nothing may be written into it
	outs   []outstanding
}

// Gate is the prefetch limit that a channel's consumers share, of several queues maybe (BR-9.9). Gates are
// compared, so that a pointer implements it.
//
// Once it has refused, a queue does not ask again before Machine.Open: whoever makes room opens all the queues
// of its consumers afterwards.
type Gate interface {
	// TryTake says whether there is room for a delivery, and if so takes it.
	TryTake() bool
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
// Of a party only the first stands in line, for all of them, and none while its gate is shut: one that
// has refused is not asked for each of them, and for each message.
//
// Invariant: line has all of list that belong there (belongs), or their party has them waiting; those
// that came to belong are brought back by awake, those that do not any more go when they are met.
type consumers struct {
	list    []*Consumer // in no order
	line    []*Consumer // a heap of them, the next one on top
	turns   uint64      // given so far
	slots   []*Consumer // by Consumer.slot; slot 0 is basic.get
	free    slotHeap    // of slots, those free, but for slot 0
	parties map[Gate]*party
	shut    []*party  // of these, those whose gate is shut and that have somebody waiting; in no order
	pages   *Pages    // which rules of earlier releases hold
	single  bool      // BR-9.5
	active  *Consumer // the one that gets messages if single
	quorum  bool
	count   uint64 // of all ever attached
	plain   int    // of list, those that do not acknowledge
	hushed  int    // while it is not 0 nobody gets anything
	looks   int    // at consumers of line and of those waiting, for tests
	rest    *Rest  // the one being collected, nil if none is
}

// party are the consumers of a queue that share a Gate, a single active one's aside.
//
// Invariants: first stands above all that wait. If somebody waits and the gate is not shut, there is a first.
type party struct {
	gate    Gate
	size    int         // how many are attached
	first   *Consumer   // the one that stands in line, nil if none does
	waiting []*Consumer // a heap of those who would else stand there
	shut    bool        // the gate has refused, and was not opened since
	at      int         // in consumers.shut, counted from 1; 0 = it is not there
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
	cs.join(c)
	cs.enter(c)
}

// join makes c one of those that share its Gate, if it has one that is asked.
func (cs *consumers) join(c *Consumer) {
	if c.Gate == nil || c.NoAck || cs.single {
		return
	}
	p := cs.parties[c.Gate]
	if p == nil {
		if cs.parties == nil {
			cs.parties = map[Gate]*party{}
		}
		p = &party{gate: c.Gate}
		cs.parties[c.Gate] = p
	}
	p.size++
	c.party = p
}

// part ends what join began. REQUIRES: c does not stand in line, and does not wait.
func (cs *consumers) part(c *Consumer) {
	p := c.party
	if p == nil {
		return
	}
	c.party = nil
	if p.size--; p.size == 0 {
		delete(cs.parties, p.gate)
	}
}

// share gives c a Gate that it did not have.
func (cs *consumers) share(c *Consumer, gate Gate) {
	stood := c.spot != 0
	if stood {
		cs.leave(c)
	}
	c.Gate = gate
	if c.place != 0 {
		cs.join(c)
	}
	if stood {
		cs.enter(c)
	}
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
	cs.part(c)
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
	case cs.first() != nil:
		return true
	}
	for len(cs.shut) > 0 {
		c := cs.shut[0].waiting[0]
		if cs.looks++; c.able() {
			return true
		}
		cs.leave(c)
	}
	return false
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
		cs.close(c.party)
	}
	if c != nil {
		cs.stepBack(c)
	}
	return c
}

// close notes that the gate of p has refused the first of them, and so all.
func (cs *consumers) close(p *party) {
	c := p.first
	p.shut = true
	cs.leave(c)
	cs.enter(c)
}

// open lets those be asked again that share the gate.
func (cs *consumers) open(gate Gate) {
	p := cs.parties[gate]
	if p == nil || !p.shut {
		return
	}
	p.shut = false
	cs.mark(p)
	cs.admit(p)
}

// stepBack moves c behind its equals.
func (cs *consumers) stepBack(c *Consumer) {
	cs.touch(c)
	cs.turns++
	c.turn = cs.turns
	switch p := c.party; {
	case c.spot == 0:
	case c.waits:
		cs.down(p.waiting, c.spot-1)
	case p != nil && len(p.waiting) > 0 && cs.before(p.waiting[0], c):
		cs.leave(c) // which lets that one enter
		cs.enter(c)
	default:
		cs.down(cs.line, c.spot-1)
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
	switch {
	case c.place == 0 || !cs.belongs(c):
		return
	case c.spot == 0:
		cs.enter(c)
	case !cs.single || cs.pages.StaleActive:
		return
	}
	cs.relieve() // also if it stood in line: since a restart all do
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
	cs.parties, cs.shut = nil, nil
	for _, c := range list {
		c.gone, c.slot, c.place, c.spot, c.waits, c.party = true, 0, 0, 0, false, nil
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

// enter puts c, which does not stand there and does not wait, into line, if it is not to wait.
func (cs *consumers) enter(c *Consumer) {
	p := c.party
	switch {
	case p == nil:
		cs.push(&cs.line, c)
	case p.shut || p.first != nil && cs.before(p.first, c):
		cs.wait(c)
	default:
		if other := p.first; other != nil {
			cs.pull(&cs.line, other)
			cs.wait(other)
		}
		p.first = c
		cs.push(&cs.line, c)
	}
}

// leave takes c out of line if it is there, or from among those waiting.
func (cs *consumers) leave(c *Consumer) {
	p := c.party
	switch {
	case c.spot == 0:
	case c.waits:
		cs.pull(&p.waiting, c)
		c.waits = false
		cs.mark(p)
	default:
		cs.pull(&cs.line, c)
		if p != nil {
			p.first = nil
			cs.admit(p)
		}
	}
}

// wait puts c among those waiting.
func (cs *consumers) wait(c *Consumer) {
	c.waits = true
	cs.push(&c.party.waiting, c)
	cs.mark(c.party)
}

// admit lets the first of those waiting enter the line. REQUIRES: none of them stands there.
func (cs *consumers) admit(p *party) {
	if p.shut || len(p.waiting) == 0 {
		return
	}
	c := p.waiting[0]
	cs.pull(&p.waiting, c)
	c.waits = false
	p.first = c
	cs.push(&cs.line, c)
}

// mark puts p into shut if it belongs there, and takes it out if it does not.
func (cs *consumers) mark(p *party) {
	switch belongs := p.shut && len(p.waiting) > 0; {
	case belongs && p.at == 0:
		cs.shut = append(cs.shut, p)
		p.at = len(cs.shut)
	case !belongs && p.at != 0:
		last := len(cs.shut) - 1
		cs.shut[p.at-1] = cs.shut[last]
		cs.shut[p.at-1].at = p.at
		cs.shut[last] = nil
		cs.shut = cs.shut[:last]
		p.at = 0
	}
}

// push puts c, which stands in none, into a heap.
func (cs *consumers) push(heap *[]*Consumer, c *Consumer) {
	*heap = append(*heap, c)
	cs.up(*heap, len(*heap)-1)
}

// pull takes c out of the heap that it stands in.
func (cs *consumers) pull(heap *[]*Consumer, c *Consumer) {
	line := *heap
	i, last := c.spot-1, len(line)-1
	other := line[last]
	line[last] = nil
	line = line[:last]
	*heap = line
	if c.spot = 0; other != c {
		line[i] = other
		cs.down(line, i)
		cs.up(line, other.spot-1)
	}
}

// up moves the consumer at i of a heap up to where it belongs.
func (cs *consumers) up(line []*Consumer, i int) {
	c := line[i]
	for i > 0 {
		above := (i - 1) / 2
		if !cs.before(c, line[above]) {
			break
		}
		line[i] = line[above]
		line[i].spot = i + 1
		i = above
	}
	line[i], c.spot = c, i+1
}

// down moves the consumer at i of a heap down to where it belongs.
func (cs *consumers) down(line []*Consumer, i int) {
	c := line[i]
	for {
		below := 2*i + 1
		if below >= len(line) {
			break
		}
		if below+1 < len(line) && cs.before(line[below+1], line[below]) {
			below++
		}
		if !cs.before(line[below], c) {
			break
		}
		line[i] = line[below]
		line[i].spot = i + 1
		i = below
	}
	line[i], c.spot = c, i+1
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
