package queue

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue/index"
	"bartleby.mq/internal/sim"
)

// replica is a quorum queue on one node, with its consumers, and a Sink that notes what it does.
type replica struct {
	*Machine
	consumers map[uint64]*Consumer // by number: attached, or with deliveries out
	effects   []string
}

func (r *replica) note(format string, args ...any) {
	r.effects = append(r.effects, fmt.Sprintf(format, args...))
}

// Deliver implements Sink.
func (r *replica) Deliver(c *Consumer, d *Delivery) bool {
	r.note("deliver %d %d %d %v %v %v %v", c.Number, d.ID, name(d.Body), d.Counts, d.Redelivered, d.NoAck, d.History)
	return true
}

// Removed implements Sink.
func (r *replica) Removed(_ ID, body, _ message.Ref, _ bool) { r.note("removed %d", name(body)) }

// Died implements Sink.
func (r *replica) Died(reason deadletter.Reason, routed bool) { r.note("died %v %v", reason, routed) }

// Returned implements Sink.
func (r *replica) Returned(id ID, n Counts, notBefore int64) {
	r.note("returned %d %v %d", id, n, notBefore)
}

// TimedOut implements Sink.
func (r *replica) TookBack(c *Consumer, id ID) { r.note("took back %d of %d", id, c.Number) }

func (r *replica) Active(c *Consumer, active bool, ready int) {
	r.note("active %d %v %d", c.Number, active, ready)
}

func (r *replica) TimedOut(c *Consumer, n int) { r.note("timed out %d %d", c.Number, n) }

// Broke implements Sink.
func (r *replica) Broke(change BreakerChange, b Broken) { r.note("breaker %d %+v", change, b) }

// Ended implements Sink.
func (r *replica) Ended(ID, deadletter.Reason, bool) {}

// run runs a command, and forgets consumers that are detached and hold nothing afterwards.
func (r *replica) run(command func(*replica)) {
	command(r)
	maps.DeleteFunc(r.consumers, func(_ uint64, c *Consumer) bool { return c.Idle() })
}

// lockstep is one quorum queue on two nodes.
type lockstep struct {
	draw
	config   Config
	settings Settings
	apsara   bool
	long     bool // its backlog is long
	now      int64

	plain *replica // on the node that has everything in memory and never restarts
	paged *replica // on the other node, see disk
	shelf *shelf   // where its pages are

	refs      message.Ref // the last one given out
	consumers uint64      // the last number given out

	// Of the last checkpoint.
	rest      *Rest
	restBytes []byte // what rest must encode to
	collected bool
	then      Settings         // the settings at the cut
	since     []func(*replica) // commands since the cut

	log   []string // what was done
	count map[string]int
	err   error // the first difference
}

const lockstepSteps = 400

// Two nodes get the same commands for a quorum queue with any settings. One node has everything in memory. On the
// other, pages are put away and read ahead, checkpoints are written while the queue goes on, and the queue is
// restored from them with the commands since, or from a snapshot. After each command both have done the same to the
// outside, and have the same entries and the same rest. A Rest is what the queue was at the cut, and no consumer
// waits while a message is ready for it.
func TestReplicasInLockstepDoTheSame(t *testing.T) {
	seeds.Run(t, "./internal/core/queue", 2, func(_ *testing.T, seed uint64) (sim.Result, error) {
		x := newLockstep(drawing(seed))
		for i := 0; i < lockstepSteps && x.err == nil; i++ {
			x.step()
			if x.IntN(3) == 0 {
				x.disk()
			}
			if x.IntN(80) == 0 && x.shelf.cut == 0 {
				x.snapshot()
			}
			if i%5 == 0 {
				x.compare()
			}
		}
		x.count["messages"] = int(x.refs)
		return sim.Result{Counts: x.count}, x.err
	})
}

func newLockstep(d draw) *lockstep {
	x := &lockstep{draw: d, now: 1_700_000_000_000, apsara: d.IntN(3) == 0, long: d.bool(), shelf: newShelf(), count: map[string]int{}}
	x.config = Config{Type: Quorum, Durable: true, MaxPriority: -1, Strict: d.IntN(3) == 0, SingleActive: d.IntN(3) == 0}
	x.settings = x.drawSettings()
	x.plain = x.replica(x.settings, &Pages{Log: index.Commands, Hot: 16, Hash: x.shelf.Bytes})
	x.paged = x.pagedReplica(x.settings)
	x.paged.SetCold(x.shelf)
	x.paged.pages.Begin(1)
	x.plain.pages.Begin(1)
	start := pick[uint64](d, 1, 200, 255, 256)
	for level := range x.plain.Terms.Levels {
		x.plain.Reserve(index.MakeID(level, start-1))
		x.paged.Reserve(index.MakeID(level, start-1))
	}
	return x
}

func (x *lockstep) replica(s Settings, pages *Pages) *replica {
	r := &replica{consumers: map[uint64]*Consumer{}}
	r.Machine = New(x.config, s, pages, r, 1_700_000_000_000)
	return r
}

// pagedReplica keeps nothing in memory that may leave.
func (x *lockstep) pagedReplica(s Settings) *replica {
	return x.replica(s, &Pages{Log: index.Commands, Horizon: pick[int64](x.draw, 8, 60, 1000, 0, 100*day), Hash: x.shelf.Bytes})
}

func (x *lockstep) drawSettings() Settings {
	d := x.draw
	s := Settings{
		DeadLetter: d.IntN(3) > 0, LostAndFound: d.IntN(3) == 0, AtLeastOnce: d.bool(),
		TTL: pick[int64](d, -1, -1, -1, 0, 5, 100, 2000, 60*day), Expires: -1,
		MaxLength: pick[int64](d, -1, -1, -1, 0, 3, 20, 300), MaxBytes: pick[int64](d, -1, -1, -1, 0, 100, 3000), Overflow: pick(d, DropHead, RejectPublish, RejectPublishDLX),
		DeliveryLimit: pick[int64](d, -1, -1, 0, 1, 3), ConsumerTimeout: pick[int64](d, -1, 40, 500, 3000),
		Retry: Retry{
			Type: pick(d, RetryDisabled, RetryAll, RetryFailed, RetryReturned), Min: pick[int64](d, 0, 1, 30, 500, 51*day), Max: pick[int64](d, 0, 70, 3000, 120*day),
			Multiplier: pick(d, 0, 0, 2, 1.5), Jitter: pick(d, 0, 0, 0.3, 1),
		},
		Breaker: pick(d, Breaker{}, Breaker{}, Breaker{1, 1, 60}, Breaker{2, 60, 1000}, Breaker{3, 25, day}),
	}
	if x.apsara {
		s.Rules = deadletter.Rules{Profile: deadletter.ApsaraMQ, MaxHops: 16, Retention: pick[int64](d, 0, 300, 5000, 70*day)}
	}
	return s
}

// fail notes the first difference.
func (x *lockstep) fail(format string, args ...any) {
	if x.err == nil {
		last := x.log[max(0, len(x.log)-12):]
		x.err = fmt.Errorf("%s\nthe last commands:\n  %s", fmt.Sprintf(format, args...), strings.Join(last, "\n  "))
	}
}

// do runs a command on both nodes and compares what it does.
func (x *lockstep) do(command func(*replica), format string, args ...any) {
	x.log = append(x.log, fmt.Sprintf("at %d: %s", x.now, fmt.Sprintf(format, args...)))
	x.since = append(x.since, command)
	for _, r := range []*replica{x.plain, x.paged} {
		r.effects = nil
		r.run(command)
	}
	if !slices.Equal(x.plain.effects, x.paged.effects) {
		x.fail("one node did\n  %s\nthe other\n  %s", strings.Join(x.plain.effects, "\n  "), strings.Join(x.paged.effects, "\n  "))
	}
	x.count["commands"]++
}

func refBytes(ref message.Ref) []byte { return binary.AppendUvarint(nil, uint64(name(ref))) }

// compare compares the whole state of both.
func (x *lockstep) compare() {
	a, b := x.plain, x.paged
	for _, r := range []*replica{a, b} {
		if err := r.Check(); err != nil {
			x.fail("%v", err)
			return
		}
	}
	if !bytes.Equal(a.AppendEntries(nil, refBytes, refBytes), b.AppendEntries(nil, refBytes, refBytes)) {
		ta, tb := told(a.Machine), told(b.Machine)
		i := 0
		for i < min(len(ta), len(tb)) && ta[i] == tb[i] {
			i++
		}
		x.fail("of %d and %d entries the first that differs is %d:\n%v\n%v", len(ta), len(tb), i, ta[i:min(i+1, len(ta))], tb[i:min(i+1, len(tb))])
	}
	if ra, rb := a.AppendRest(nil), b.AppendRest(nil); !bytes.Equal(ra, rb) {
		x.fail("the rest is\n%x\nand\n%x", ra, rb)
	}
	if a.Count != b.Count || a.StateHash() != b.StateHash() {
		x.fail("totals are %+v and %+v, hashes %x and %x", a.Count, b.Count, a.StateHash(), b.StateHash())
	}
	if c := starving(a.Machine, x.now); c != nil {
		x.fail("%d messages are ready, and a consumer waits: %+v", a.Count.Ready, *c)
	}
}

func (x *lockstep) step() {
	x.now += pick[int64](x.draw, 0, 0, 0, 1, 3, 20)
	switch k := x.IntN(100); {
	case k < 22:
		x.publish()
	case k < 30:
		x.attach()
	case k < 34:
		x.detach()
	case k < 38:
		x.credit()
	case k < 44:
		x.get()
	case k < 64:
		x.settle()
	case k < 66:
		x.settleStale()
	case k < 70:
		x.quit()
	case k < 80:
		x.tick()
	case k < 86:
		x.bury()
	case k < 88:
		x.buryHeld()
	case k < 92:
		x.offer()
	case k < 95:
		x.answer()
	case k < 96:
		if x.IntN(3) == 0 {
			now := x.now
			x.do(func(r *replica) { r.Expire(now); r.note("purged %d", r.Purge(nil)) }, "purge")
		}
	case k < 98:
		s, now := x.drawSettings(), x.now
		x.do(func(r *replica) { r.Configure(now, s); r.Trim(now, sliceLimit) }, "configure %+v", s)
		x.settings = s
	case k < 99:
		now := x.now
		if x.bool() {
			x.do(func(r *replica) { r.ResetBreaker(); r.Pump(now, sliceLimit) }, "close the breaker")
			return
		}
		x.do(func(r *replica) { r.Touch(now); r.Expire(now) }, "touch")
	default:
		x.do(func(r *replica) { r.note("accepts %v", r.Accepts(5)) }, "accepts")
	}
}

func (x *lockstep) publish() {
	count := pick(x.draw, 1, 1, 2, 5, 40)
	if x.long {
		count = pick(x.draw, 1, 30, 300)
	}
	how := pick(x.draw, "enqueue", "enqueue", "enqueue", "enqueue", "force", "impose")
	ttls := make([]int64, 1+x.IntN(5))
	for i := range ttls {
		ttls[i] = pick(x.draw, -1, -1, 0, 1, 20, 100, 3000, 30_000, 70*day, 3650*day, x.Int64N(4000))
	}
	e := Entry{Content: Content{Size: x.Uint32N(30), Logged: true}, Priority: pick(x.draw, -1, -1, 0, 2, 9, 31, 255)}
	history := x.IntN(5) == 0 // they are dead letters
	switch {
	case history:
		e.Counts.Deliveries, e.Rests = x.Uint32N(3), x.bool()
		e.Redelivered = e.Counts.Deliveries > 0
	case x.IntN(6) == 0:
		e.Delay = pick[int64](x.draw, 1, 25, 300, 4000, 60*day)
	}
	first, now := x.refs+1, x.now
	x.refs += message.Ref(count)
	x.do(func(r *replica) {
		enter := map[string]func(int64, *Entry) (ID, Result){"enqueue": r.Enqueue, "force": r.Force, "impose": r.Impose}[how]
		for i := range count {
			e := e
			e.Body, e.TTL = first+message.Ref(i), ttls[i%len(ttls)]
			if history {
				e.History = e.Body
			}
			id, result := enter(now, &e)
			r.note("entered %d %v", id, result)
			if result != Refused {
				r.Flow(now, id)
			}
		}
	}, "%s %d of %+v, ttls %v", how, count, e, ttls)
}

func (x *lockstep) attach() {
	if len(x.plain.consumers) > 10 {
		return
	}
	x.consumers++
	c := Consumer{
		Number: x.consumers, Tag: "t", NoAck: x.IntN(5) == 0, Prefetch: pick(x.draw, 0, 1, 3, 30), Priority: x.Int64N(3),
		Timeout: pick[int64](x.draw, 0, 0, 100, 2000),
	}
	credit, now := 0, x.now
	if c.NoAck || c.Prefetch == 0 {
		c.Metered, credit = true, pick(x.draw, 1, 5, 100)
	}
	x.do(func(r *replica) {
		c := c
		if r.Attach(now, &c) {
			r.Credit(&c, credit)
			r.consumers[c.Number] = &c
		}
		r.Pump(now, sliceLimit)
	}, "attach %+v with credit %d", c, credit)
}

// consumer returns the number of one of the consumers, 0 if there is none.
func (x *lockstep) consumer() uint64 {
	if numbers := x.numbers(); len(numbers) > 0 {
		return pick(x.draw, numbers...)
	}
	return 0
}

func (x *lockstep) numbers() []uint64 { return slices.Sorted(maps.Keys(x.plain.consumers)) }

func (x *lockstep) detach() {
	number, now := x.consumer(), x.now
	x.do(func(r *replica) {
		if c := r.consumers[number]; c != nil {
			r.note("attached %v", r.Detach(now, c))
			r.Pump(now, sliceLimit)
		}
	}, "detach %d", number)
}

func (x *lockstep) credit() {
	number, n, now := x.consumer(), 1+x.IntN(50), x.now
	x.do(func(r *replica) {
		if c := r.consumers[number]; c != nil && c.Metered {
			r.Credit(c, n)
			r.Pump(now, sliceLimit)
		}
	}, "credit %d for %d", n, number)
}

func (x *lockstep) get() {
	x.consumers++
	number, noAck, now := x.consumers, x.IntN(4) == 0, x.now
	x.do(func(r *replica) {
		c := &Consumer{Number: number}
		d, ok, again := r.GetFor(now, c, noAck)
		r.note("got %d %d %v %v %v %v", d.ID, name(d.Body), d.Counts, d.Redelivered, ok, again)
		if ok && !noAck {
			r.consumers[number] = c
		}
		r.Expire(now)
	}, "get, no ack %v", noAck)
}

// held returns the deliveries that are not settled, of any consumer.
func (x *lockstep) held() []Holding {
	var all []*Consumer
	for _, number := range x.numbers() {
		all = append(all, x.plain.consumers[number])
	}
	return x.plain.HeldBy(all...)
}

// settle settles some deliveries. One may be settled twice.
func (x *lockstep) settle() {
	held := x.held()
	for range x.IntN(1 + min(len(held), 20)) {
		h := pick(x.draw, held...)
		id, number, how, failed, now := h.ID, h.By.Number, x.IntN(9), x.bool(), x.now
		noted, annotated, wait := x.bool(), x.bool(), pick[int64](x.draw, 0, 0, 1, 300, 60*day)
		x.do(func(r *replica) {
			c := r.consumers[number]
			if c == nil {
				return
			}
			if history, ok := r.Annotatable(id, c); ok && annotated {
				r.note("annotated %d, before %d", id, r.Annotate(id, history+1))
			}
			switch how {
			case 0, 1:
				r.note("settled %v", r.Ack(now, id, c))
			case 2:
				r.note("settled %v", r.Reject(now, id, c, failed))
				if d, ok := r.Notable(id); ok && noted {
					r.note("noted %d, before %d", id, r.PutNote(id, name(d.Body)))
				}
			default:
				r.note("settled %v", r.ReturnFor(now, id, c, ReturnKind(how-3), wait))
			}
			r.Flow(now, 0)
		}, "settle %d of %d in way %d", id, number, how)
	}
}

// settleStale settles entries for a consumer that are not out at it: the timeout may have taken them back.
func (x *lockstep) settleStale() {
	number, now := x.consumer(), x.now
	for range 1 + x.IntN(10) {
		x.do(func(r *replica) {
			if c := r.consumers[number]; c != nil {
				r.Ack(now, index.MakeID(4, 1), c)
				r.Flow(now, 0)
			}
		}, "settle what is not out, for %d", number)
	}
}

// quit ends a connection. The client itself gives back some deliveries of its consumers, in any order.
func (x *lockstep) quit() {
	numbers, held, now := x.numbers(), x.held(), x.now
	numbers = numbers[:x.IntN(len(numbers)+1)]
	type delivery struct {
		id ID
		by uint64
	}
	var some []delivery
	for _, k := range x.Perm(len(held))[:x.IntN(len(held)+1)] {
		some = append(some, delivery{held[k].ID, held[k].By.Number})
	}
	x.do(func(r *replica) {
		var quit []*Consumer
		for _, number := range numbers {
			if c := r.consumers[number]; c != nil {
				r.Detach(now, c)
				quit = append(quit, c)
			}
		}
		for _, d := range some {
			if c := r.consumers[d.by]; slices.Contains(quit, c) {
				r.note("returned %v", r.Return(now, d.id, c, ReturnClosed))
			}
		}
		for _, h := range r.HeldBy(quit...) {
			r.note("returned %d", h.ID)
			r.Return(now, h.ID, h.By, ReturnClosed)
		}
		r.Flow(now, 0)
	}, "quit %v", numbers)
}

// tick lets time pass, or go back a little, and does what is due then, sometimes only the first slice of it.
func (x *lockstep) tick() {
	x.now += pick[int64](x.draw, 0, 1, 2, 10, 60, 300, 2000, 20_000)
	if x.IntN(200) == 0 {
		x.now -= 3000
	}
	now := x.now
	for n, more := 0, true; more && x.err == nil; n++ {
		x.do(func(r *replica) {
			more = r.Tick(now, sliceLimit)
			r.note("more %v", more)
		}, "tick")
		if n == 5000 {
			x.fail("there is more to do for ever")
		}
		if x.IntN(4) == 0 {
			return
		}
	}
}

// bury ends the routing of deaths, or holds them for their targets.
func (x *lockstep) bury() {
	deaths, same := x.plain.Deaths(1+x.IntN(60), nil), x.paged.Deaths(math.MaxInt, nil)
	for i, d := range deaths {
		if o := same[i]; d.ID != o.ID || d.Reason != o.Reason || d.At != o.At || d.Counts != o.Counts {
			x.fail("a death is %+v and %+v", d, o)
			return
		}
		id, hold := d.ID, x.IntN(3) == 0
		x.do(func(r *replica) {
			d, ok := r.DeathOf(id)
			r.note("%v %v %v %v", ok, d.Reason, d.At, d.Counts)
			if hold {
				r.note("held %v", r.Hold(id))
				return
			}
			body, _, ok := r.Bury(id)
			r.note("buried %d %v", name(body), ok)
		}, "bury %d, hold %v", id, hold)
	}
}

func (x *lockstep) buryHeld() {
	var held []ID
	x.plain.RangeHeld(func(d Death) bool { held = append(held, d.ID); return true })
	if len(held) == 0 {
		return
	}
	id := pick(x.draw, held...)
	x.do(func(r *replica) {
		d, ok := r.Held(id)
		r.note("%v %v %v", d.Reason, d.At, ok)
		r.Bury(id)
	}, "bury %d, which is held", id)
}

// offer offers, takes or discards an entry in any state.
func (x *lockstep) offer() {
	all := browse(x.plain.Machine, math.MaxInt)
	for range x.IntN(1 + min(len(all), 8)) {
		id := pick(x.draw, all...).ID
		switch x.IntN(3) {
		case 0:
			x.do(func(r *replica) {
				body, _, _, ok := r.Take(id)
				r.note("%d %v", name(body), ok)
			}, "take %d", id)
		case 1:
			x.do(func(r *replica) { r.note("%v", r.Offer(id)) }, "offer %d", id)
		default:
			x.do(func(r *replica) { r.note("%v", r.Discard(id, nil, false)) }, "discard %d", id)
		}
	}
}

// answer answers some of the offers.
func (x *lockstep) answer() {
	var offered []ID
	x.plain.RangeOffered(func(id ID) bool { offered = append(offered, id); return true })
	now := x.now
	for _, id := range offered {
		switch x.IntN(4) {
		case 0:
			x.do(func(r *replica) {
				_, _, _, ok := r.Accept(id)
				r.note("%v", ok)
			}, "accept %d", id)
		case 1:
			x.do(func(r *replica) {
				r.note("%v", r.Withdraw(id))
				r.Expire(now)
				r.Flow(now, 0)
			}, "withdraw %d", id)
		}
	}
}

// disk does what only one node has to do with its disk. That changes nothing. It also continues the checkpoint.
func (x *lockstep) disk() {
	switch x.IntN(6) {
	case 0:
		x.paged.SweepAgain(x.bool())
		x.paged.PutAway(1+x.IntN(5), x.IntN(3) > 0)
	case 1:
		x.paged.SweepAgain(true)
		x.paged.PutAway(math.MaxInt, true)
	case 2:
		x.paged.ReadAhead(x.now)
	case 3:
		x.paged.BuryRest(1 + x.IntN(300))
	case 4:
		if x.shelf.cut == 0 {
			x.cut()
			return
		}
	case 5:
		x.plain.BuryRest(math.MaxInt)
	}
	if x.shelf.cut != 0 {
		x.save()
	}
}

// cut begins a checkpoint.
func (x *lockstep) cut() {
	x.shelf.cut, x.shelf.cursor = x.paged.pages.Cut(), index.SaveCursor{}
	x.rest, x.restBytes, x.collected = x.paged.KeepRest(), x.paged.AppendRest(nil), false
	x.since, x.then = nil, x.settings
}

// save continues a checkpoint. When it is complete, a new replica is restored from it, and may replace the one that
// wrote it.
func (x *lockstep) save() {
	if !x.collected {
		_, more := x.rest.Collect(1 + x.IntN(5))
		x.collected = !more
	}
	var done bool
	if x.shelf.cursor, done = x.paged.SaveSome(x.shelf.cursor, 1+x.IntN(3)); !done {
		return
	}
	for more := !x.collected; more; {
		_, more = x.rest.Collect(5)
	}
	if got := x.rest.Append(nil); !bytes.Equal(got, x.restBytes) {
		x.fail("the rest that was collected is\n%x\nat the cut it was\n%x", got, x.restBytes)
		return
	}
	x.paged.pages.CutDone()
	version := x.shelf.cut
	x.shelf.cut = 0
	x.shelf.saved(version)
	x.restart(version)
}

func (x *lockstep) restart(version uint32) {
	was := x.shelf.asOf(version)
	r := x.pagedReplica(x.then)
	if err := was.restore(r.Machine, version); err != nil {
		x.fail("%v", err)
		return
	}
	left, err := r.RestoreRest(x.restBytes, func(c *Consumer) { r.consumers[c.Number] = c })
	if err != nil || len(left) > 0 {
		x.fail("the rest cannot be read: %v, %d bytes are left", err, len(left))
		return
	}
	for _, command := range x.since {
		r.run(command)
	}
	x.log = append(x.log, fmt.Sprintf("a restart with %d commands and %d pages", len(x.since), len(was.pages)))
	replica, shelf := x.paged, x.shelf
	x.paged, x.shelf = r, was
	x.compare()
	if x.count["checkpoints"]++; x.bool() {
		x.paged, x.shelf = replica, shelf
	} else {
		x.count["restarts"]++
	}
}

// snapshot restores the paged replica from a snapshot that it wrote itself.
func (x *lockstep) snapshot() {
	entries, rest := x.paged.AppendEntries(nil, refBytes, refBytes), x.paged.AppendRest(nil)
	r := x.pagedReplica(x.settings)
	x.shelf = newShelf()
	r.SetCold(x.shelf)
	r.pages.Begin(1)
	_, err := r.RestoreEntries(entries, func(b []byte, _ bool, _ int) (message.Ref, error) {
		ref, _ := binary.Uvarint(b)
		return message.Ref(ref), nil
	})
	if err == nil {
		_, err = r.RestoreRest(rest, func(c *Consumer) { r.consumers[c.Number] = c })
	}
	if err != nil {
		x.fail("a snapshot cannot be read: %v", err)
	}
	x.paged = r
	x.log = append(x.log, "a snapshot")
	x.count["snapshots"]++
}
