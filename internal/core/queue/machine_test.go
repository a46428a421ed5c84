package queue

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue/index"
)

// The machine does what the model does, for any commands in any order. Its invariants hold after every command. Every
// reference that it takes is given back exactly once. What a journal would have recorded restores the same queue.
func TestMachineAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPair(t)
		t.Repeat(map[string]func(*rapid.T){
			"":           p.check,
			"enqueue":    p.enqueue,
			"enqueue2":   p.enqueue,
			"many":       p.enqueueMany,
			"force":      p.force,
			"get":        p.get,
			"settle":     p.settle,
			"settle2":    p.settle,
			"attach":     p.attach,
			"detach":     p.detach,
			"resume":     p.resume,
			"share":      p.share,
			"tick":       p.tick,
			"tick2":      p.tick,
			"configure":  p.configure,
			"reset":      p.reset,
			"purge":      p.purge,
			"deaths":     p.deaths,
			"bury":       p.bury,
			"take":       p.take,
			"take page":  p.takePage,
			"offer":      p.offer,
			"answer":     p.answerOffer,
			"restore":    p.restore,
			"put away":   p.putAway,
			"bodies":     p.putBodiesAway,
			"all bodies": p.putEveryBodyAway,
			"foresee":    p.foresee,
			"move":       p.move,
			"leap":       p.leap,
			"cut":        p.cut,
			"save":       p.save,
			"save2":      p.save,
		})
		p.close(t)
	})
}

// The same with mostly split pages: messages die out of long lanes whose pages are put away, with a checkpoint now
// and then.
func TestSplitPagesAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPair(t)
		p.m.pages.Hot, p.m.pages.Horizon = 0, rapid.SampledFrom([]int64{100, 400, 1000}).Draw(t, "near")
		s := Unlimited()
		s.DeadLetter, s.LostAndFound = rapid.Bool().Draw(t, "dies somewhere"), rapid.Bool().Draw(t, "lost and found")
		s.Rules = p.drawRules(t)
		p.m.Configure(p.now, s)
		p.q.breakBy(s.Breaker)
		p.q.settings = s
		t.Repeat(map[string]func(*rapid.T){
			"":           p.check,
			"spread":     p.enqueueSpread,
			"away":       p.putAllAway,
			"away2":      p.putAllAway,
			"soon":       p.soon,
			"soon2":      p.soon,
			"deaths":     p.deaths,
			"bury":       p.bury,
			"offer":      p.offer,
			"answer":     p.answerOffer,
			"get":        p.get,
			"settle":     p.settle,
			"put away":   p.putAway,
			"bodies":     p.putBodiesAway,
			"all bodies": p.putEveryBodyAway,
			"foresee":    p.foresee,
			"move":       p.move,
			"leap":       p.leap,
			"purge":      p.purge,
			"cut":        p.cut,
			"save":       p.save,
			"save2":      p.save,
			"save3":      p.save,
		})
		p.close(t)
	})
}

// The same while whole pages are filled, put away and emptied, between and during checkpoints.
func TestCheckpointsAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPair(t)
		p.m.pages.Hot, p.m.pages.Horizon = 0, 8
		p.m.Configure(p.now, Unlimited())
		p.q.breakBy(Breaker{})
		p.q.settings = Unlimited()
		t.Repeat(map[string]func(*rapid.T){
			"":           p.check,
			"spread":     p.enqueueSpread,
			"spread2":    p.enqueueSpread,
			"leap":       p.leap,
			"away":       p.putAllAway,
			"away2":      p.putAllAway,
			"take page":  p.takePage,
			"take page2": p.takePage,
			"bury":       p.bury,
			"purge":      p.purge,
			"cut":        p.cut,
			"save":       p.save,
			"save2":      p.save,
		})
		p.close(t)
	})
}

// pair is a machine and its model, kept in step.
type pair struct {
	m   *Machine
	q   *model
	now int64

	profile   deadletter.Profile
	effects   []string
	owed      map[message.Ref]bool // references the machine holds
	ended     int                  // deaths that went with the queue
	purged    map[message.Ref]bool // those of them that a purge removed
	purging   bool
	nextRef   message.Ref
	consumers []*twins
	gates     []*gates
	unsettled []delivered // deliveries that clients have not settled, in order
	routing   []Death     // taken from Deaths, not yet buried or held
	log       []func(*Machine)
	cold      *shelf
	active    *Consumer                // of a quorum queue: whom the machine has called active last
	suspended bool                     // it was told since that it is not
	told      map[ID]deadletter.Reason // deaths that the journal records: a restored queue has them too
}

// twins are a consumer of the machine and that of the model.
type twins struct {
	c    *Consumer
	mc   *modelConsumer
	room int
}

// gates are a limit that consumers of the machine share, and that of the model.
type gates struct{ machine, model *gate }

type delivered struct {
	id ID
	to *twins // nil: basic.get
}

const day = 24 * 60 * 60 * 1000

func newPair(t *rapid.T) *pair {
	config := Config{
		Type:         rapid.SampledFrom([]Type{Classic, Quorum}).Draw(t, "type"),
		Strict:       rapid.Bool().Draw(t, "strict"),
		Durable:      true,
		MaxPriority:  rapid.SampledFrom([]int{-1, -1, 0, 3, 255}).Draw(t, "max priority"),
		SingleActive: rapid.IntRange(0, 3).Draw(t, "single active") == 0,
	}
	p := &pair{now: 1_700_000_000_000, owed: map[message.Ref]bool{}, purged: map[message.Ref]bool{}, told: map[ID]deadletter.Reason{}}
	settings := drawSettings(t)
	if rapid.IntRange(0, 2).Draw(t, "profile") == 0 {
		p.profile = deadletter.ApsaraMQ
	}
	settings.Rules = p.drawRules(t)
	p.m = New(config, settings, &Pages{Hot: rapid.IntRange(0, 2).Draw(t, "hot pages"), Horizon: rapid.SampledFrom([]int64{8, 60, 1000, 0, 100 * day}).Draw(t, "horizon")}, p, p.now)
	p.cold = newShelf()
	p.m.SetCold(p.cold)
	p.m.pages.Hash = p.cold.Bytes
	p.m.pages.Begin(1)
	p.q = &model{config: config, settings: settings, next: map[int]uint64{}, slots: []*modelConsumer{nil}}
	p.q.breakBy(settings.Breaker)
	start := rapid.SampledFrom([]uint64{1, 200, 250, 255, 256, 1020}).Draw(t, "first number")
	for level := range p.m.Terms.Levels {
		p.m.Reserve(index.MakeID(level, start-1))
		p.q.next[level] = start
	}
	return p
}

// drawRules draws rules of the queue's profile, which stays the same.
func (p *pair) drawRules(t *rapid.T) deadletter.Rules {
	if p.profile == "" {
		return deadletter.Rules{}
	}
	return deadletter.Rules{
		Profile: p.profile, MaxHops: 16, Retention: rapid.SampledFrom([]int64{0, 30, 500, 70 * day}).Draw(t, "retention"),
	}
}

func drawSettings(t *rapid.T) Settings {
	limit := rapid.SampledFrom([]int64{-1, -1, -1, 0, 1, 3, 5, 20})
	return Settings{
		DeadLetter:      rapid.Bool().Draw(t, "dead letter"),
		LostAndFound:    rapid.Bool().Draw(t, "lost and found"),
		TTL:             rapid.SampledFrom([]int64{-1, -1, -1, 0, 1, 50, 1000, 60 * day}).Draw(t, "queue ttl"),
		Expires:         -1,
		MaxLength:       limit.Draw(t, "max length"),
		MaxBytes:        rapid.SampledFrom([]int64{-1, -1, -1, 0, 10, 100}).Draw(t, "max bytes"),
		Overflow:        rapid.SampledFrom([]Overflow{DropHead, RejectPublish, RejectPublishDLX}).Draw(t, "overflow"),
		DeliveryLimit:   rapid.SampledFrom([]int64{-1, 0, 1, 3}).Draw(t, "delivery limit"),
		CountNack:       rapid.Bool().Draw(t, "count nack"),
		ConsumerTimeout: rapid.SampledFrom([]int64{-1, -1, 40, 2000}).Draw(t, "consumer timeout"),
		Retry: Retry{
			Type: rapid.SampledFrom([]RetryType{RetryDisabled, RetryAll, RetryFailed, RetryReturned}).Draw(t, "retry"),
			Min:  rapid.SampledFrom([]int64{0, 1, 30, 51 * day}).Draw(t, "retry min"),
			Max:  rapid.SampledFrom([]int64{0, 70, 120 * day}).Draw(t, "retry max"),
		},
		Breaker: rapid.SampledFrom([]Breaker{{}, {}, {1, 1, 60}, {2, 60, 1000}, {2, 100, 7}, {3, 25, day}}).Draw(t, "breaker"),
	}
}

// The machine's effects.

func (p *pair) note(format string, args ...any) {
	p.effects = append(p.effects, fmt.Sprintf(format, args...))
}

func (p *pair) journal(f func(*Machine)) { p.log = append(p.log, f) }

func (p *pair) handBack(refs ...message.Ref) {
	for _, ref := range refs {
		if ref == 0 {
			continue
		}
		if !p.owed[ref] {
			p.note("reference %d was handed back twice", ref)
		}
		delete(p.owed, ref)
		delete(p.purged, ref)
	}
}

func (p *pair) Deliver(c *Consumer, d *Delivery) bool {
	to := c.Target.(*twins)
	d.Body = name(d.Body)
	p.note("deliver %s %d %d %v redelivered=%v logged=%v noack=%v", c.Tag, d.Body, d.History, d.Counts, d.Redelivered, d.Logged, d.NoAck)
	if d.NoAck {
		p.handBack(d.Body, d.History)
	} else {
		p.unsettled = append(p.unsettled, delivered{d.ID, to})
	}
	p.journalDelivery(d)
	to.room--
	return to.room > 0
}

func (p *pair) journalDelivery(d *Delivery) {
	id := d.ID
	switch {
	case !d.Logged:
	case d.NoAck:
		p.journal(func(m *Machine) { m.RestoreRemoved(id) })
	default:
		p.journal(func(m *Machine) { m.RestoreOut(id) })
	}
}

func (p *pair) Removed(id ID, body, history message.Ref, logged bool) {
	body = name(body)
	if p.purging {
		if !p.purged[body] {
			p.note("purge took out %d", body)
		}
		p.handBack(body, history)
		return
	}
	p.note("removed %d %d logged=%v", body, history, logged)
	p.handBack(body, history)
	if logged {
		p.journal(func(m *Machine) { m.RestoreRemoved(id) })
	}
}

func (p *pair) Died(reason deadletter.Reason, routed bool) { p.note("died %v %v", reason, routed) }

func (p *pair) Returned(id ID, n Counts, notBefore int64) {
	if p.m.config.Type == Quorum || notBefore != 0 || p.profile != "" { // others take their old place, and nothing is noted
		p.note("returned %d %v until=%d", id, n, notBefore)
		p.journal(func(m *Machine) { m.RestoreReturned(id, n, notBefore) })
	}
}

func (p *pair) Ended(ID, deadletter.Reason, bool) { p.ended++ }

func (p *pair) Broke(change BreakerChange, b Broken) {
	p.note("breaker %d %v %d %d %d", change, b.State, b.Until, b.Died, b.Ended)
}

func (p *pair) TookBack(c *Consumer, id ID) { p.note("took back %d from %s", id, c.Tag) }

func (p *pair) Active(c *Consumer, active bool, _ int) {
	switch {
	case active:
		p.active, p.suspended = c, false
	case c == p.active:
		p.suspended = true
	case c.gone:
		p.note("%s, which is gone, is called passive", c.Tag)
	}
}

func (p *pair) TimedOut(c *Consumer, n int) {
	if n > 0 {
		p.note("timed out %s %d", c.Tag, n)
	}
}

// Commands.

func (p *pair) entry(t *rapid.T) Entry {
	e := Entry{
		Content:  Content{Body: p.ref(), Size: rapid.Uint32Range(0, 30).Draw(t, "size"), Logged: rapid.IntRange(0, 3).Draw(t, "logged") > 0},
		Priority: rapid.SampledFrom([]int{-1, 0, 2, 9, 255}).Draw(t, "priority"),
		TTL:      rapid.SampledFrom([]int64{-1, -1, 0, 1, 20, 100, 70 * day, 10 * 365 * day}).Draw(t, "ttl"),
	}
	if rapid.IntRange(0, 4).Draw(t, "dead letter") == 0 {
		e.History, e.Counts.Deliveries = p.ref(), rapid.Uint32Range(0, 3).Draw(t, "deliveries")
		e.Redelivered = e.Counts.Deliveries > 0
		e.Rests = rapid.Bool().Draw(t, "rests")
	} else if rapid.IntRange(0, 4).Draw(t, "delayed") == 0 {
		e.Delay = rapid.SampledFrom([]int64{1, 25, 300, 60 * day}).Draw(t, "delay")
	}
	return e
}

func (p *pair) ref() message.Ref {
	p.nextRef++
	p.owed[p.nextRef] = true
	return p.nextRef
}

func (p *pair) enqueue(t *rapid.T) { p.enter(t, p.entry(t), false) }
func (p *pair) force(t *rapid.T)   { p.enter(t, p.entry(t), true) }
func (p *pair) enqueueMany(t *rapid.T) {
	e := p.entry(t)
	for range rapid.IntRange(2, 80).Draw(t, "messages") {
		p.enter(t, e, false)
		e.Body = p.ref()
		if e.History != 0 {
			e.History = p.ref()
		}
	}
	p.handBack(e.Body, e.History)
}

// enqueueSpread enters messages that are due at different moments.
func (p *pair) enqueueSpread(t *rapid.T) {
	e := p.entry(t)
	p.handBack(e.Body, e.History)
	history := e.History != 0
	ttl := rapid.SliceOfN(rapid.Int64Range(-1, 1500), 1, 7).Draw(t, "ttls")
	for i := range rapid.IntRange(20, 150).Draw(t, "messages") {
		e.Body, e.TTL = p.ref(), ttl[i%len(ttl)]
		if history {
			e.History = p.ref()
		}
		p.enter(t, e, false)
	}
}

func (p *pair) enter(t *rapid.T, e Entry, force bool) {
	enqueue := p.m.Enqueue
	if force {
		enqueue = p.m.Force
	}
	id, result := enqueue(p.now, &e)
	wantID, want := p.q.enqueue(p.now, e, force)
	if id != wantID || result != want {
		t.Fatalf("a message that enters is %d, result %d; want %d, %d", id, result, wantID, want)
	}
	if result == Refused {
		p.handBack(e.Body, e.History)
	}
	if e.Logged && id != 0 {
		r := Restored{Entry: e}
		r.Due = p.m.Due(id)
		p.journal(func(m *Machine) { c := r; m.Restore(id, &c) })
		if until := p.m.NotBefore(id); until != 0 {
			p.journal(func(m *Machine) { m.RestoreDelayed(id, until) })
		}
		if result == RefusedDead {
			now := p.now
			p.journal(func(m *Machine) { m.RestoreHeld(id, deadletter.MaxLen, now) })
			p.told[id] = deadletter.MaxLen
		}
	}
	p.m.Flow(p.now, id)
	p.q.flow(p.now, id != 0)
}

func (p *pair) get(t *rapid.T) {
	noAck := rapid.Bool().Draw(t, "no ack")
	d, ok := p.m.Get(p.now, noAck)
	d.Body = name(d.Body)
	want, wantOK := p.q.get(p.now, noAck)
	if ok != wantOK || d != want {
		t.Fatalf("get is %+v, %v; want %+v, %v", d, ok, want, wantOK)
	}
	if !ok {
		return
	}
	p.journalDelivery(&d)
	if noAck {
		p.handBack(d.Body, d.History)
	} else {
		p.unsettled = append(p.unsettled, delivered{d.ID, nil})
	}
}

func (p *pair) settle(t *rapid.T) {
	if len(p.unsettled) == 0 {
		t.Skip("nothing is out")
	}
	i := rapid.IntRange(0, len(p.unsettled)-1).Draw(t, "delivery")
	d := p.unsettled[i]
	p.unsettled = slices.Delete(p.unsettled, i, i+1)
	if rapid.Bool().Draw(t, "annotated") {
		p.annotate(t, d)
	}
	switch rapid.IntRange(0, 4).Draw(t, "how") {
	case 0, 1:
		p.settleOne(t, d, func(c *Consumer) bool { return p.m.Ack(p.now, d.id, c) }, func(e *modelEntry) {
			p.q.removed(e)
			p.q.ended(p.now, e, endAcked)
		})
	case 2:
		failed := rapid.Bool().Draw(t, "failed")
		p.settleOne(t, d, func(c *Consumer) bool { return p.m.Reject(p.now, d.id, c, failed) }, func(e *modelEntry) {
			if failed {
				e.e.Counts.Deliveries++
			}
			reason := deadletter.Rejected
			if p.q.apsara() && !failed {
				reason = deadletter.Nacked // DL-22.7
			}
			p.q.die(p.now, e, reason)
			p.q.ended(p.now, e, endDied)
		})
		if rapid.Bool().Draw(t, "noted") {
			p.noteDeath(t, d.id)
		}
		if rapid.Bool().Draw(t, "told") {
			p.tell(d.id)
		}
	default:
		p.giveBack(t, d, ReturnKind(rapid.IntRange(int(ReturnNack), int(ReturnFailed)).Draw(t, "kind")), rapid.SampledFrom([]int64{0, 0, 1, 40}).Draw(t, "wait"))
	}
	p.m.Flow(p.now, 0)
	p.q.flow(p.now, false)
}

func (p *pair) giveBack(t *rapid.T, d delivered, kind ReturnKind, wait int64) {
	p.settleOne(t, d, func(c *Consumer) bool { return p.m.ReturnFor(p.now, d.id, c, kind, wait) },
		func(e *modelEntry) { p.q.giveBack(p.now, e, kind, wait) })
}

// annotate gives a message another history before its delivery ends (DL-14.6).
func (p *pair) annotate(t *rapid.T, d delivered) {
	var c *Consumer
	var mc *modelConsumer
	if d.to != nil {
		c, mc = d.to.c, d.to.mc
	}
	before, ok := p.m.Annotatable(d.id, c)
	e := p.q.find(d.id)
	if is := e != nil && e.state == index.Out && e.owner == mc && p.m.Config().Type == Quorum; ok != is {
		t.Fatalf("delivery %d can be annotated: %v, want %v", d.id, ok, is)
	}
	if !ok {
		return
	}
	history := p.ref()
	if got := p.m.Annotate(d.id, history); got != before || before != e.e.History {
		t.Fatalf("delivery %d had history %d, %d, want %d", d.id, got, before, e.e.History)
	}
	p.handBack(before)
	if e.e.History = history; e.e.Logged {
		p.journal(func(m *Machine) { m.RestoreNoted(d.id, history) })
	}
}

// noteDeath gives a message that was rejected another history.
func (p *pair) noteDeath(t *rapid.T, id ID) {
	d, ok := p.m.Notable(id)
	e := p.q.find(id) // it may have expired, where a timeout had taken the delivery back: nobody has a word to say then
	if is := e != nil && e.state == index.Dying && e.reason.Counted() != deadletter.Expired; ok != is {
		t.Fatalf("death %d can be noted: %v, want %v", id, ok, is)
	} else if ok {
		history := p.ref()
		if before := p.m.PutNote(id, history); before != d.History {
			t.Fatalf("death %d had history %d, want %d", id, before, d.History)
		}
		if again, ok := p.m.Notable(id); !ok || !again.Noted || again.History != history {
			t.Fatalf("death %d is noted as %+v", id, again)
		}
		p.handBack(d.History)
		e.e.History, e.noted = history, true
		if d.Logged {
			p.journal(func(m *Machine) { m.RestoreNoted(id, history) })
		}
	}
}

// tell makes the journal record a death.
func (p *pair) tell(id ID) {
	d, ok := p.m.Tell(id)
	if !ok {
		return
	}
	p.told[id] = d.Reason
	p.journal(func(m *Machine) {
		m.RestoreReturned(id, d.Counts, 0)
		m.RestoreHeld(id, d.Reason, d.At)
	})
}

func (p *pair) settleOne(t *rapid.T, d delivered, machine func(*Consumer) bool, model func(*modelEntry)) {
	var c *Consumer
	var mc *modelConsumer
	if d.to != nil {
		c, mc = d.to.c, d.to.mc
		if mc.gate != nil && rapid.Bool().Draw(t, "makes room") {
			p.open(d.to, mc.gate.room+1)
		}
	}
	ok := machine(c)
	e := p.q.settled(d.id, mc)
	if ok != (e != nil) {
		t.Fatalf("delivery %d was settled: %v, want %v", d.id, ok, e != nil)
	}
	if e != nil {
		model(e)
	}
}

func (p *pair) attach(t *rapid.T) {
	if len(p.consumers) > 6 {
		t.Skip("enough consumers")
	}
	tag := fmt.Sprintf("c%d", p.q.attached)
	to := &twins{room: rapid.IntRange(1, 12).Draw(t, "room")}
	to.c = &Consumer{
		Target: to, Tag: tag, NoAck: rapid.IntRange(0, 2).Draw(t, "no ack") == 0,
		Priority: rapid.Int64Range(-1, 1).Draw(t, "priority"), Prefetch: rapid.IntRange(0, 3).Draw(t, "prefetch"),
		Timeout: rapid.SampledFrom([]int64{0, 0, 30}).Draw(t, "timeout"),
	}
	to.mc = &modelConsumer{tag: tag, noAck: to.c.NoAck, priority: to.c.Priority, prefetch: to.c.Prefetch, timeout: to.c.Timeout, room: to.room}
	if rapid.IntRange(0, 3).Draw(t, "shared limit") == 0 {
		g := p.gate(t)
		to.c.Gate, to.mc.gate = g.machine, g.model
	}
	if !p.m.Attach(p.now, to.c) {
		t.Fatal("a consumer was refused")
	}
	p.q.attach(to.mc)
	p.consumers = append(p.consumers, to)
	p.pump()
}

// gate is a limit, which other consumers may share already.
func (p *pair) gate(t *rapid.T) *gates {
	if len(p.gates) == 0 || rapid.IntRange(0, 3).Draw(t, "new limit") == 0 {
		room := rapid.IntRange(0, 5).Draw(t, "shared room")
		p.gates = append(p.gates, &gates{&gate{room}, &gate{room}})
	}
	return rapid.SampledFrom(p.gates).Draw(t, "gate")
}

// open gives room to the gate of a consumer, if it has one.
func (p *pair) open(to *twins, room int) {
	if to.mc.gate != nil {
		to.c.Gate.(*gate).room, to.mc.gate.room = room, room
		p.m.Open(to.c.Gate)
	}
}

func (p *pair) share(t *rapid.T) {
	to := p.consumer(t)
	if to.mc.gate != nil {
		t.Skip("it shares a limit")
	}
	g := p.gate(t)
	p.m.Share(to.c, g.machine)
	to.mc.gate = g.model
	if rapid.Bool().Draw(t, "pump") {
		p.pump()
	}
}

func (p *pair) pump() {
	p.m.Pump(p.now, sliceLimit)
	p.q.pump(p.now)
}

func (p *pair) consumer(t *rapid.T) *twins {
	if len(p.consumers) == 0 {
		t.Skip("no consumers")
	}
	return rapid.SampledFrom(p.consumers).Draw(t, "consumer")
}

func (p *pair) detach(t *rapid.T) {
	to := p.consumer(t)
	if !p.m.Detach(p.now, to.c) {
		t.Fatal("a consumer was not attached")
	}
	p.q.detach(to.mc)
	p.consumers = slices.DeleteFunc(p.consumers, func(x *twins) bool { return x == to })
	p.pump()
	if rapid.Bool().Draw(t, "its channel closes") {
		for _, d := range slices.Clone(p.unsettled) {
			if d.to == to {
				p.giveBack(t, d, ReturnClosed, 0)
			}
		}
		p.unsettled = slices.DeleteFunc(p.unsettled, func(d delivered) bool { return d.to == to })
		p.m.Flow(p.now, 0)
		p.q.flow(p.now, false)
	}
}

func (p *pair) resume(t *rapid.T) {
	to := p.consumer(t)
	if rapid.IntRange(0, 3).Draw(t, "pause") == 0 {
		p.m.Pause(to.c)
		to.mc.paused = true
		return
	}
	to.room = rapid.IntRange(1, 12).Draw(t, "room")
	to.mc.room = to.room
	p.open(to, to.room)
	p.m.Resume(to.c)
	to.mc.paused = false
	p.pump()
}

func (p *pair) tick(t *rapid.T) {
	p.now += rapid.SampledFrom([]int64{0, 1, 2, 10, 60, 1000, 50 * day, 200 * day}).Draw(t, "later")
	limit := rapid.SampledFrom([]int{1, 2, 50, sliceLimit}).Draw(t, "limit")
	if p.q.config.Strict {
		limit = sliceLimit // slices change the order of deaths between levels
	}
	p.tickAll(t, limit)
}

func (p *pair) tickAll(t *rapid.T, limit int) {
	for n := 0; p.m.Tick(p.now, limit); n++ {
		if n > 5000 {
			t.Fatal("the machine has more to do for ever")
		}
	}
	p.q.tick(p.now)
	if p.m.NextDue() <= p.now { // it may be early, but not for ever
		p.m.Tick(p.now, limit)
		p.q.tick(p.now)
	}
	if due := p.m.NextDue(); due <= p.now {
		t.Fatalf("after all is done at %d, the next tick is at %d", p.now, due)
	}
}

func (p *pair) configure(t *rapid.T) {
	s := drawSettings(t)
	s.Rules = p.drawRules(t)
	p.m.Configure(p.now, s)
	p.q.breakBy(s.Breaker)
	p.q.settings, p.q.refusing = s, false
	p.m.Trim(p.now, sliceLimit)
	p.q.trim(p.now)
}

// reset closes the breaker by hand.
func (p *pair) reset(t *rapid.T) {
	if !p.q.breaker.rule.On() {
		t.Skip("there is no breaker")
	}
	p.m.ResetBreaker()
	if p.q.breaker.state != BreakerClosed {
		p.q.shut(BreakerReset)
	}
	p.pump()
}

func (p *pair) purgeAll(limit int, told func(first ID, n int)) (purged int) {
	var to index.Purging
	for more := true; more; {
		k := 0
		k, more = p.m.PurgeSome(&to, limit, told)
		purged += k
	}
	return purged
}

func (p *pair) purge(t *rapid.T) {
	p.purging = true
	refs := p.q.purge()
	n := 0
	for i, ref := range refs {
		if ref != 0 {
			p.purged[ref] = true
		}
		n += i % 2
	}
	var gone []ID
	told := func(first ID, n int) {
		for k := range n {
			gone = append(gone, first+ID(k))
		}
	}
	if limit := rapid.SampledFrom([]int{math.MaxInt, 1, index.PageSize}).Draw(t, "limit of a slice"); p.purgeAll(limit, told) != n {
		t.Fatalf("purge does not say %d", n)
	}
	p.purging = false
	p.journal(func(m *Machine) {
		for _, id := range gone {
			m.RestoreRemoved(id)
		}
	})
	if rapid.Bool().Draw(t, "bury the rest at once") {
		p.buryRest(1)
	}
}

func (p *pair) buryRest(limit int) {
	p.purging = true
	for p.m.BuryRest(limit) {
	}
	p.purging = false
}

func (p *pair) deaths(t *rapid.T) {
	limit := rapid.IntRange(1, 20).Draw(t, "limit")
	var want []Death
	var dying []*modelEntry
	for _, e := range p.q.entries {
		if e.state == index.Dying {
			dying = append(dying, e)
		}
	}
	if p.m.HasDeaths() != (len(dying) > 0) {
		t.Fatalf("there are deaths: %v; %d entries are dying", p.m.HasDeaths(), len(dying))
	}
	slices.SortFunc(dying, func(a, b *modelEntry) int { return a.order - b.order }) // DL-1.9
	for _, e := range dying[:min(limit, len(dying))] {
		d := Death{ID: e.id, Content: e.e.Content, Reason: e.reason, At: e.diedAt}
		d.Redelivered = e.redelivered
		want = append(want, d)
	}
	got := p.m.Deaths(limit, nil)
	for i := range got {
		got[i].Body = name(got[i].Body)
	}
	for i := range got {
		if e := p.q.find(got[i].ID); got[i].Noted != (got[i].By == nil || e != nil && e.noted) {
			t.Fatalf("death %d of %v is noted: %v", got[i].ID, got[i].By, got[i].Noted)
		}
		got[i].By, got[i].Noted = nil, false
		if !slices.ContainsFunc(p.routing, func(d Death) bool { return d.ID == got[i].ID }) {
			p.routing = append(p.routing, got[i])
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("deaths (-want +got):\n%s", diff)
	}
}

// bury ends the routing of a death: it is moved, or held for its targets.
func (p *pair) bury(t *rapid.T) {
	if len(p.routing) == 0 {
		t.Skip("nothing is being routed")
	}
	i := rapid.IntRange(0, len(p.routing)-1).Draw(t, "death")
	d := p.routing[i]
	e := p.q.find(d.ID)
	gone := e == nil // a purge removed it while it was held
	if !gone && rapid.IntRange(0, 2).Draw(t, "hold") == 0 {
		if held := p.m.Hold(d.ID); held != (e.state == index.Dying) {
			t.Fatalf("death %d was held: %v", d.ID, held)
		}
		e.state = index.Held
		if d.Logged {
			p.journal(func(m *Machine) { m.RestoreHeld(d.ID, d.Reason, d.At) })
		}
		if again, ok := p.m.Held(d.ID); !ok || again.ID != d.ID {
			t.Fatalf("death %d is not held", d.ID)
		}
		return
	}
	p.routing = slices.Delete(p.routing, i, i+1)
	body, history, ok := p.m.Bury(d.ID)
	body = name(body)
	if ok == gone || ok && (body != d.Body || history != d.History) {
		t.Fatalf("death %d was buried: %v, with %d and %d", d.ID, ok, body, history)
	}
	if ok {
		p.q.remove(e)
		p.handBack(body, history)
		if d.Logged {
			p.journal(func(m *Machine) { m.RestoreRemoved(d.ID) })
		}
	}
}

func (p *pair) take(t *rapid.T) {
	if len(p.q.entries) == 0 {
		t.Skip("the queue is empty")
	}
	p.takeEntry(t, rapid.SampledFrom(p.q.entries).Draw(t, "entry"))
}

// takePage takes the entries of a page that can be taken. The page may be empty then.
func (p *pair) takePage(t *rapid.T) {
	if len(p.q.entries) == 0 {
		t.Skip("the queue is empty")
	}
	id := rapid.SampledFrom(p.q.entries).Draw(t, "entry").id
	for _, e := range slices.Clone(p.q.entries) {
		if e.id/index.PageSize == id/index.PageSize {
			p.takeEntry(t, e)
		}
	}
}

func (p *pair) takeEntry(t *rapid.T, e *modelEntry) {
	body, history, logged, ok := p.m.Take(e.id)
	body = name(body)
	want := e.state == index.Ready || e.state == index.Returned
	if ok != want || ok && (body != e.e.Body || history != e.e.History || logged != e.e.Logged) {
		t.Fatalf("entry %d in state %d was taken: %v", e.id, e.state, ok)
	}
	if ok {
		p.q.remove(e)
		p.handBack(body, history)
		if logged {
			p.journal(func(m *Machine) { m.RestoreRemoved(e.id) })
		}
	}
}

// offer offers an entry to queues in other logs, or tries to.
func (p *pair) offer(t *rapid.T) {
	if len(p.q.entries) == 0 {
		t.Skip("the queue is empty")
	}
	e := rapid.SampledFrom(p.q.entries).Draw(t, "entry")
	ok := p.m.Offer(e.id)
	if want := e.state == index.Ready || e.state == index.Returned; ok != want {
		t.Fatalf("entry %d in state %d was offered: %v", e.id, e.state, ok)
	}
	if !ok {
		return
	}
	e.state = index.Offered
	if e.e.Logged {
		p.journal(func(m *Machine) { m.RestoreOffered(e.id) })
	}
}

// answerOffer ends the offer of an entry: it was taken or not.
func (p *pair) answerOffer(t *rapid.T) {
	offered := slices.DeleteFunc(slices.Clone(p.q.entries), func(e *modelEntry) bool { return e.state != index.Offered })
	if len(offered) == 0 {
		t.Skip("nothing is offered")
	}
	e := rapid.SampledFrom(offered).Draw(t, "entry")
	if !p.m.Offered(e.id) {
		t.Fatalf("entry %d is not offered", e.id)
	}
	if rapid.Bool().Draw(t, "taken") {
		body, history, logged, ok := p.m.Accept(e.id)
		body = name(body)
		if !ok || body != e.e.Body || history != e.e.History || logged != e.e.Logged {
			t.Fatalf("entry %d was accepted: %v", e.id, ok)
		}
		p.q.remove(e)
		p.handBack(body, history)
		if logged {
			p.journal(func(m *Machine) { m.RestoreRemoved(e.id) })
		}
		return
	}
	if !p.m.Withdraw(e.id) {
		t.Fatalf("entry %d was not withdrawn", e.id)
	}
	if e.e.Logged {
		p.journal(func(m *Machine) { m.Withdraw(e.id) })
	}
	for p.m.Expire(p.now) {
	}
	p.m.Flow(p.now, 0)
	e.state = index.Ready
	p.q.expire(p.now)
	p.q.flow(p.now, false)
}

// check compares everything that can be seen of the two.
// checkRetries compares what waits for a retry with what a look at all entries shows.
func (p *pair) checkRetries(t *rapid.T) {
	var got, want []int64
	var cursor index.SaveCursor
	for done := false; !done; {
		cursor, done = p.m.RetriesFrom(cursor, rapid.IntRange(1, 300).Draw(t, "slice"), func(until int64) { got = append(got, until) })
	}
	for _, v := range browse(p.m, 7) {
		if v.NotBefore != 0 && v.Redelivered {
			want = append(want, v.NotBefore)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("retries are due at %v, want %v", got, want)
	}
}

func (p *pair) check(t *rapid.T) {
	if diff := cmp.Diff(p.q.effects, p.effects); diff != "" {
		t.Fatalf("effects (-want +got):\n%s", diff)
	}
	p.effects, p.q.effects = nil, nil
	if err := p.m.Check(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p.q.totals(), p.m.Count); diff != "" {
		t.Fatalf("totals (-want +got):\n%s", diff)
	}
	if due, latest := p.m.NextDue(), p.q.nextDue(); due > max(latest, p.now) {
		t.Fatalf("the next tick would be at %d, something is due at %d", due, latest)
	}
	if diff := cmp.Diff(p.settleDues(p.want()), p.settleDues(browse(p.m, 7))); diff != "" {
		t.Fatalf("entries (-want +got):\n%s", diff)
	}
	if a := p.m.cs.active; a != nil && p.m.cs.quorum && a != p.active {
		t.Fatalf("%s is active, and was not told", a.Tag)
	} else if a != nil && p.suspended && a.stale == 0 {
		t.Fatalf("%s was told that it is not active, and it is", a.Tag)
	}
	p.checkRetries(t)
	held := len(p.purged)
	for _, e := range p.q.entries {
		held++
		if e.e.History != 0 {
			held++
		}
	}
	if held != len(p.owed) {
		t.Fatalf("%d references were not handed back, %d are held", len(p.owed), held)
	}
	b, want := p.m.Breaker(p.now), &p.q.breaker
	if state := want.at(p.now); b.State != state || b.State == BreakerOpen && (b.Until != want.until || b.Died != want.died || b.Ended != want.ended) {
		t.Fatalf("the breaker is %+v, want %v and %+v", b, state, want)
	}
	for _, to := range p.consumers {
		if to.c.Out() != to.mc.out {
			t.Fatalf("consumer %s has %d out, want %d", to.c.Tag, to.c.Out(), to.mc.out)
		}
	}
	for _, c := range p.m.Attached() {
		if want := !p.q.config.SingleActive || p.q.active == c.Target.(*twins).mc; c.Active != want {
			t.Fatalf("consumer %s is active: %v, want %v", c.Tag, c.Active, want)
		}
	}
}

// want is what Browse must show.
func (p *pair) want() (list []View) {
	for level := p.m.Terms.Levels - 1; level >= 0; level-- {
		for _, e := range p.q.entries {
			if e.id.Lane() == level {
				list = append(list, p.q.view(e))
			}
		}
	}
	return list
}

// settleDues makes all past moments equal: a page that counts from a later moment no longer knows how long ago they
// were.
func (p *pair) settleDues(list []View) []View {
	for i := range list {
		if list[i].Due != 0 && list[i].Due <= p.now {
			list[i].Due = p.now
		}
	}
	return list
}

func browse(m *Machine, step int) (list []View) {
	var cursor Cursor
	for done := false; !done; {
		cursor, done = m.Browse(cursor, step, func(v View) bool {
			v.Body = name(v.Body)
			list = append(list, v)
			return true
		})
	}
	return list
}

func (p *pair) close(t *rapid.T) {
	p.check(t)
	for _, e := range p.q.entries {
		p.purged[e.e.Body] = true
		if e.e.History != 0 {
			p.purged[e.e.History] = true
		}
	}
	before := p.m.Count // Totals counts messages beyond the limit as dying before they die
	p.cold.locked = true
	if got := len(p.m.Close()); got != len(p.consumers) {
		t.Fatalf("close returned %d consumers, want %d", got, len(p.consumers))
	}
	if err := p.m.Check(); err != nil {
		t.Fatal(err)
	}
	p.cold.locked = false
	p.buryRest(100)
	if want := before.Dying + before.Held; p.ended != want {
		t.Fatalf("%d deaths have gone with the queue, want %d", p.ended, want)
	}
	if len(p.owed) > 0 || len(p.effects) > 0 {
		t.Fatalf("after the end %d references are held, effects %v", len(p.owed), p.effects)
	}
	if err := p.m.Check(); err != nil { // no side row is lost
		t.Fatal(err)
	}
}

// In strict mode an unused quorum queue is deleted at the first tick of 5 s, counted from its declaration, that finds
// it unused for long enough (DL-8.12).
func TestDL_8_12_StrictTick(t *testing.T) {
	const born = 1_234_567
	settings := Unlimited()
	settings.Expires = 400
	m := New(Config{Type: Quorum, Strict: true}, settings, &Pages{}, nil, born)
	if due := m.NextDue(); due != born+strictTick || m.Unused(born+strictTick-1) || !m.Unused(born+strictTick) {
		t.Errorf("due %d after the declaration, want %d", due-born, strictTick)
	}
	m.Touch(born + 4_700)
	if due := m.NextDue(); due != born+2*strictTick {
		t.Errorf("used after 4.7 s, it is due at %d, want %d", due-born, 2*strictTick)
	}
}
