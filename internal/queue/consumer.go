package queue

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

	// On a replicated queue the two of them stand in the log.
	Number  uint64 // names the consumer; 0 elsewhere
	Metered bool   // it gets no more than Machine.Credit allows

	// Gate is asked before each delivery that wants an acknowledgement, if it is
	// set: the prefetch limit that a channel's consumers share (BR-9.9).
	Gate interface{ TryTake() bool }

	slot   uint32
	order  uint64 // of attaching
	out    int    // deliveries not settled
	stale  int    // deliveries taken back by the timeout and not yet settled by the client
	paused bool   // it cannot take more for now: see Machine.Pause
	credit int    // deliveries still allowed if it is metered
	gone   bool   // cancelled; its deliveries may still be settled
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
	if c.blocked() {
		return false
	}
	return c.NoAck || (c.Prefetch == 0 || c.out < c.Prefetch) && (c.Gate == nil || c.Gate.TryTake())
}

// blocked says whether c can take nothing, whatever its prefetch limit.
func (c *Consumer) blocked() bool {
	return c.paused || c.stale > 0 || c.Metered && c.credit <= 0
}

// consumers are those attached to a queue, highest priority first.
type consumers struct {
	list   []*Consumer // by priority, then in the order in which they are served next
	slots  []*Consumer // by Consumer.slot; slot 0 is basic.get
	taken  int         // no slot below it is free, but for slot 0: whoever gets without acknowledging has very many
	single bool        // BR-9.5
	active *Consumer   // the one that gets messages if single
	quorum bool
	count  uint64 // of all ever attached
	plain  int    // of list, those that do not acknowledge
	hushed int    // while it is not 0 nobody gets anything
}

// attach adds c. Of those with equal priority the older come first.
func (cs *consumers) attach(c *Consumer) {
	at := len(cs.list)
	for i, other := range cs.list {
		if other.Priority < c.Priority {
			at = i
			break
		}
	}
	cs.list = append(cs.list, nil)
	copy(cs.list[at+1:], cs.list[at:])
	cs.list[at] = c
	cs.count++
	c.order = cs.count
	if c.NoAck {
		cs.plain++
	}
	cs.seat(c)
	cs.choose()
}

// seat gives c a slot.
func (cs *consumers) seat(c *Consumer) {
	if len(cs.slots) == 0 {
		cs.slots = append(cs.slots, nil)
	}
	at := max(cs.taken, 1)
	for at < len(cs.slots) && cs.slots[at] != nil {
		at++
	}
	if at < len(cs.slots) {
		cs.slots[at] = c
	} else {
		at = len(cs.slots)
		cs.slots = append(cs.slots, c)
	}
	c.slot, cs.taken = uint32(at), at+1
}

// detach removes c from those that get messages; its slot stays while
// deliveries are out.
func (cs *consumers) detach(c *Consumer) bool {
	for i, other := range cs.list {
		if other == c {
			cs.list = append(cs.list[:i], cs.list[i+1:]...)
			c.gone = true
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
	}
	return false
}

// forget frees the slot of a consumer that is gone and holds nothing.
func (cs *consumers) forget(c *Consumer) {
	if c.gone && c.out == 0 && c.slot != 0 {
		cs.slots[c.slot] = nil
		cs.taken = min(cs.taken, int(c.slot))
		c.slot = 0
		if cs.single && cs.active == nil {
			cs.choose()
		}
	}
}

// choose keeps a single active consumer: the first in order of attaching; on
// quorum queues one of higher priority takes over once the active one has
// nothing out (BR-9.5).
func (cs *consumers) choose() {
	if !cs.single || len(cs.list) == 0 {
		return
	}
	if cs.quorum {
		best := cs.list[0]
		if cs.active == nil || best.Priority > cs.active.Priority && cs.active.out == 0 {
			cs.active = best
		}
		return
	}
	if cs.active == nil {
		first := cs.list[0]
		for _, c := range cs.list {
			if c.order < first.order {
				first = c
			}
		}
		cs.active = first
	}
}

// anyAble says whether some consumer can take a message, a shared limit aside.
func (cs *consumers) anyAble() bool {
	if cs.hushed > 0 {
		return false
	}
	for _, c := range cs.list {
		if (!cs.single || cs.active == c) && !c.blocked() && (c.NoAck || c.Prefetch == 0 || c.out < c.Prefetch) {
			return true
		}
	}
	return false
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
			if a := cs.active; a != nil && cs.list[0].Priority > a.Priority {
				return nil // it finishes what it has before the better one takes over
			}
		}
		if cs.active != nil && cs.active.canTake() {
			return cs.active
		}
		return nil
	}
	if len(cs.list) == 1 {
		if c := cs.list[0]; c.canTake() {
			return c
		}
		return nil
	}
	for i, c := range cs.list {
		if c.canTake() {
			cs.stepBack(i)
			return c
		}
	}
	return nil
}

// stepBack moves the consumer at i behind its equals.
func (cs *consumers) stepBack(i int) {
	c := cs.list[i]
	for ; i+1 < len(cs.list) && cs.list[i+1].Priority == c.Priority; i++ {
		cs.list[i] = cs.list[i+1]
	}
	cs.list[i] = c
}

// credited is called when a delivery to c was settled. One that could take no
// more steps back behind those that could all the time, as in RabbitMQ.
func (cs *consumers) credited(c *Consumer) {
	if c.Prefetch == 0 || c.out+1 != c.Prefetch || len(cs.list) < 2 || cs.single {
		return
	}
	for i, other := range cs.list {
		if other == c {
			cs.stepBack(i)
			return
		}
	}
}
