package queue

import (
	"cmp"
	"slices"
)

// Consumer takes messages from a queue. Its caller sets the fields of the first two groups before it attaches the
// consumer, and they never change. Gate may be set then, or once later by Machine.Share. The other fields are the
// machine's.
type Consumer struct {
	Target    any // the owner; the machine only hands it back
	Tag       string
	NoAck     bool
	Exclusive bool
	Priority  int64 // BR-9.4; higher first, 0 is usual
	Prefetch  int   // unsettled deliveries allowed at once; 0 = no limit (BR-9.8)
	Timeout   int64 // milliseconds a delivery may stay unsettled; 0 = no limit (DL-12.7)
	Credited  bool  // its client gives its credit (AMQP 1.0, 2.6.7): it is metered, and has no credit when it attaches

	// These are in the log of a replicated queue, and 0 elsewhere.
	Number  uint64 // names the consumer
	Origin  uint64 // the process whose session it belongs to
	Metered bool   // it gets only as many deliveries as Machine.Credit allows

	// Gate, if set, is asked before each delivery that needs an acknowledgement.
	Gate Gate

	slot   uint32
	place  int    // index in consumers.list plus 1; 0 = not attached
	spot   int    // index in consumers.line or party.waiting plus 1; 0 = in neither
	party  *party // the consumers with the same Gate; nil: it shares none
	turn   uint64 // among equal priorities the lowest is served next
	order  uint64 // number in the order of attaching
	out    int    // deliveries not settled
	stale  int    // deliveries taken back by the timeout and not yet settled by the client
	late   int    // deliveries the timeout took back and has not reported yet (Sink.TimedOut)
	paused bool   // it cannot take more for now: see Machine.Pause
	credit int    // deliveries still allowed if it is metered
	waits  bool   // it is in party.waiting, not in line
	gone   bool   // cancelled; its deliveries may still be settled
	meant  bool   // the running call of HeldBy asks for it
	kept   uint32 // version of the last Rest that has it, or that began before it attached: see consumers.touch
	shared bool   // a Rest shares outs: append and cut only, never overwrite
	outs   []outstanding
}

// Gate is a prefetch limit that consumers of one channel share, perhaps on several queues (BR-9.9). Gates are
// compared, so a pointer must implement it.
//
// After a Gate has refused, a queue does not ask it again before Machine.Open. When the Gate has room again, the
// caller must call Open on all queues of the Gate's consumers.
type Gate interface {
	// TryTake takes room for one delivery and says whether there was room.
	TryTake() bool
}

// outstanding is a delivery that the consumer timeout watches.
type outstanding struct {
	id       ID
	returned uint32 // how often the message had come back before: see Machine.returned
	at       int64  // when it was delivered, in milliseconds since 1970
}

// got says whether c stands for a basic.get: such a consumer has no tag.
func (c *Consumer) got() bool { return c.Tag == "" }

// Out is the number of its deliveries that are not settled.
func (c *Consumer) Out() int { return c.out }

// canTake says whether c can take a message now. If it says yes, c must get one, because its gate has counted it.
func (c *Consumer) canTake() bool {
	return c.able() && (c.NoAck || c.Gate == nil || c.Gate.TryTake())
}

// able is canTake without asking the gate.
func (c *Consumer) able() bool {
	return !c.paused && c.stale == 0 && (!c.Metered || c.credit > 0) && (c.NoAck || c.Prefetch == 0 || c.out < c.Prefetch)
}

// consumers are the consumers of a queue. There may be very many, so no operation searches the list of all.
//
// The order is by priority, highest first, then by turn: each delivery moves a consumer behind its equals. On a
// classic queue with a single active consumer it is the order of attaching (before).
//
// line is a heap of consumers that can take a message. Of the consumers that share a gate (a party) only the first is
// in line, for all of them; the others wait in the party. While the gate is shut, all wait: a gate that has refused
// once is not asked for each consumer and each message.
//
// Invariant: an attached consumer that belongs into line (belongs) is in it, or waits in its party. A consumer that
// begins to belong is added by awake. One that ceases to belong stays until it comes to the top and is met there.
type consumers struct {
	list    []*Consumer // in no order
	line    []*Consumer // a heap, the next to be served on top
	turns   uint64      // turns given so far
	slots   []*Consumer // by Consumer.slot; slot 0 is basic.get
	free    slotHeap    // the free slots, except slot 0
	parties map[Gate]*party
	shut    []*party // the parties whose gate is shut and that have a consumer waiting; in no order
	of      *Machine
	single  bool      // BR-9.5
	active  *Consumer // with single: the consumer that gets messages
	quorum  bool
	count   uint64 // number of consumers ever attached
	plain   int    // number of consumers in list that do not acknowledge
	hushed  int    // while it is not 0, nobody gets anything
	looks   int    // for tests: how many consumers were looked at
	rest    *Rest  // the Rest being collected, or nil
}

// party are the consumers of a queue that share a Gate, except on a queue with a single active consumer.
//
// Invariants: first comes before all that wait. If a consumer waits and the gate is not shut, there is a first.
type party struct {
	gate    Gate
	size    int         // number of attached consumers
	first   *Consumer   // the one in line, nil if none is
	waiting []*Consumer // a heap of the others that would belong into line
	shut    bool        // the gate has refused and was not opened since
	at      int         // index in consumers.shut plus 1; 0 = not in it
}

// attach adds c. Among equal priorities the older consumer comes first.
func (cs *consumers) attach(c *Consumer) {
	cs.count++
	c.order = cs.count
	cs.add(c)
	cs.seat(c)
	cs.choose()
}

// add puts c among the attached consumers, behind those of its priority.
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

// join puts c into the party of its Gate, if its Gate is asked at all.
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

// part undoes join. REQUIRES: c neither is in line nor waits.
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

// share gives a Gate to c, which had none.
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

// detach removes c from the attached consumers and says whether it was one. c keeps its slot while it holds
// deliveries.
func (cs *consumers) detach(c *Consumer) bool {
	if c.place == 0 || c.place > len(cs.list) || cs.list[c.place-1] != c {
		return false // not attached, or attached to another queue
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

// forget frees the slot of a consumer that is detached and holds nothing.
func (cs *consumers) forget(c *Consumer) {
	if c.gone && c.out == 0 && c.slot != 0 { // the caller has called touch
		cs.slots[c.slot] = nil
		cs.free.push(c.slot)
		c.slot = 0
		if cs.single && cs.active == nil {
			cs.choose()
		}
	}
}

// choose keeps a single active consumer. It is the first in the order of before. On a quorum queue a consumer of
// higher priority takes over once the active one holds no delivery (BR-9.5). If deliveries of the active one have
// timed out, the next takes over at once (DL-12.7). If that is so of all consumers, the active one stays until one of
// them settles.
func (cs *consumers) choose() {
	if !cs.single {
		return
	}
	best := cs.best()
	switch a := cs.active; {
	case best == nil:
	case a == nil, a.stale > 0,
		cs.quorum && best.Priority > a.Priority && a.out == 0:
		cs.activate(best)
	}
}

// activate makes c the active consumer.
func (cs *consumers) activate(c *Consumer) {
	before := cs.active
	if cs.active = c; before == c || !cs.quorum {
		return
	}
	cs.of.sink.Active(c, true, cs.of.Available(c))
	if before != nil {
		cs.of.sink.Active(before, false, 0)
	}
}

// suspend tells the active consumer that it is none for now: its deliveries have timed out, and no other can take its place.
func (cs *consumers) suspend() {
	if a := cs.active; cs.quorum && a != nil && a.stale > 0 {
		cs.of.sink.Active(a, false, 0)
	}
}

// resume ends suspend: the consumer has settled what had timed out.
func (cs *consumers) resume(c *Consumer) {
	if cs.quorum && cs.active == c {
		cs.of.sink.Active(c, true, cs.of.Available(c))
	}
}

// best returns the first consumer that may be the active one, nil if there is none.
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

// belongs says whether c, which is attached, belongs into line. With a single active consumer, line has the
// candidates; without, the consumers that are able.
func (cs *consumers) belongs(c *Consumer) bool {
	if cs.single {
		return c.stale == 0
	}
	return c.able()
}

// anyAble says whether some consumer can take a message, shared limits aside.
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

// first returns the next consumer that is able, nil if none is. REQUIRES: not single.
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

// nextNoAck is next if no consumer acknowledges; otherwise it returns nil and no turn passes.
func (cs *consumers) nextNoAck() *Consumer {
	if cs.plain < len(cs.list) {
		return nil // some acknowledge: next must choose among all
	}
	return cs.next()
}

// next returns the consumer whose turn it is and that can take a message, nil if there is none. The consumer moves
// behind its equals (BR-9.4).
func (cs *consumers) next() *Consumer {
	if cs.hushed > 0 {
		return nil
	}
	return cs.turn()
}

// turn is next without regard to Hush.
func (cs *consumers) turn() *Consumer {
	if cs.single {
		if cs.quorum {
			cs.choose()
			if a, best := cs.active, cs.best(); a != nil && best != nil && best.Priority > a.Priority {
				return nil // the active one first finishes what it holds, then the better one takes over
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

// close notes that p's gate has refused its first consumer, and so refuses all of them.
func (cs *consumers) close(p *party) {
	c := p.first
	p.shut = true
	cs.leave(c)
	cs.enter(c)
}

// open lets the consumers of the gate be asked again.
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
		cs.leave(c) // leave lets the waiting one enter
		cs.enter(c)
	default:
		cs.down(cs.line, c.spot-1)
	}
}

// credited is called when a delivery to c was settled. If c had reached its prefetch limit, it moves behind consumers
// that could take messages all the time, as in RabbitMQ.
func (cs *consumers) credited(c *Consumer) {
	if c.place != 0 && c.Prefetch != 0 && c.out+1 == c.Prefetch && !cs.single {
		cs.stepBack(c)
	}
	cs.awake(c)
	if c == cs.active && c.out == 0 {
		cs.choose()
	}
}

// awake is called when c may have begun to belong into line.
func (cs *consumers) awake(c *Consumer) {
	switch {
	case c.place == 0 || !cs.belongs(c):
		return
	case c.spot == 0:
		cs.enter(c)
	case !cs.single:
		return
	}
	cs.relieve() // even if it was in line before: after a restart all are
}

// relieve chooses anew if no consumer is active, or if deliveries of the active one have timed out.
func (cs *consumers) relieve() {
	if a := cs.active; a == nil || a.stale > 0 {
		cs.choose()
	}
}

// inOrder returns the attached consumers in the order in which they are served.
func (cs *consumers) inOrder() []*Consumer {
	list := slices.Clone(cs.list)
	slices.SortFunc(list, func(a, b *Consumer) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.turn, b.turn))
	})
	return list
}

// clear removes all consumers and returns those that were attached, in order.
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

// before says whether a is served before b.
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

// enter puts c into line, or among the waiting of its party. REQUIRES: it is in neither.
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

// leave takes c out of line or out of its party's waiting, if it is in one.
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

// wait puts c among the waiting of its party.
func (cs *consumers) wait(c *Consumer) {
	c.waits = true
	cs.push(&c.party.waiting, c)
	cs.mark(c.party)
}

// admit moves the first waiting consumer of p into line. REQUIRES: p has none in line.
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

// mark makes cs.shut have p if p is shut and a consumer waits, and not have it otherwise.
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

// push puts c, which is in no heap, into one.
func (cs *consumers) push(heap *[]*Consumer, c *Consumer) {
	*heap = append(*heap, c)
	cs.up(*heap, len(*heap)-1)
}

// pull takes c out of its heap.
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

// up moves the consumer at index i towards the top of its heap.
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

// down moves the consumer at index i away from the top of its heap.
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

// slotHeap is a heap of slots, the lowest on top.
type slotHeap []uint32

func (h *slotHeap) push(slot uint32) {
	s := append(*h, slot)
	i := len(s) - 1
	for ; i > 0 && slot < s[(i-1)/2]; i = (i - 1) / 2 {
		s[i] = s[(i-1)/2]
	}
	s[i], *h = slot, s
}

// pop takes the lowest slot. REQUIRES: there is one.
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
