package queue

import (
	"encoding/binary"

	"bartleby.mq/internal/core/moment"
	"bartleby.mq/internal/core/queue/index"
)

// The breaker: a queue whose deliveries die too often hands out nothing for a while, so that a service that is down does not
// send its whole queue to the dead letters.
//
//	closed  deliveries are handed out, and their ends are counted
//	open    nothing is handed out until the window is over
//	trying  one delivery at a time: the first that is acknowledged closes the breaker, one that dies opens it again
//
// What was handed out before it opened stays at its consumers, and how it ends changes nothing. A delivery that comes back has
// neither died nor been acknowledged. One without acknowledgements ends, acknowledged, as it leaves.
//
// On a quorum queue all of this is part of the replicated state. On a classic queue it ends with the process.

// Breaker says when a breaker opens. The zero value is none.
type Breaker struct {
	Deaths  int64 // it opens when so many deliveries have died within the window,
	Percent int64 // and they are at least this share of those that ended in it, 1 to 100
	Window  int64 // milliseconds; it stays open as long
}

// On says whether there is a breaker.
func (b Breaker) On() bool { return b.Deaths > 0 }

// MostWindow is the longest window of a breaker, in milliseconds: a day.
const MostWindow = 24 * 60 * 60 * 1000

// Valid says whether the values can be in force.
func (b Breaker) Valid() bool {
	return b.Deaths > 0 && b.Percent > 0 && b.Percent <= 100 && b.Window > 0 && b.Window <= MostWindow
}

// BreakerState is the state of a breaker.
type BreakerState uint8

// The states. The numbers are part of snapshots.
const (
	BreakerNone BreakerState = iota
	BreakerClosed
	BreakerOpen
	BreakerTrying
)

// String returns the state as the management API shows it, "" for BreakerNone.
func (s BreakerState) String() string { return [...]string{"", "closed", "open", "trying"}[s] }

// Broken is a breaker as it is shown.
type Broken struct {
	State       BreakerState
	Until       int64   // open: when it begins to try, in milliseconds since 1970
	Died, Ended int64   // how many deliveries had died, and had ended, when it opened
	Again       bool    // it opened again, because a delivery died while it was trying
	Rule        Breaker // in force
}

// BreakerChange is a change that Sink.Broke tells of.
type BreakerChange uint8

// The changes.
const (
	BreakerOpens      BreakerChange = iota + 1 // too much has died
	BreakerOpensAgain                          // a delivery has died while it was trying
	BreakerCloses                              // a delivery was acknowledged while it was trying
	BreakerReset                               // somebody has closed it
	BreakerLifted                              // the settings no longer have it, or have another one
)

// breakerSteps is into how many steps a window is divided, at most. What has died within a window is known as exactly.
const breakerSteps = 60

// breaker is the state of a Breaker.
//
// Invariants: died and ended are the sums over ring. trial is 0 or an entry that is out, and 0 unless the state is
// BreakerTrying.
type breaker struct {
	rule        Breaker
	state       BreakerState
	until       int64 // open: when it begins to try
	trial       ID    // trying: the delivery that is out
	openedBy    tally // what was counted when it opened
	again       bool
	at          int64 // the number of the latest step: a moment divided by the length of a step
	died, ended int64
	ring        [breakerSteps]tally // by the number of the step
}

// tally counts ends of deliveries.
type tally struct{ died, ended uint32 }

// steps is the length of a step in milliseconds, and how many of them a window has.
func (b *breaker) steps() (length, n int64) {
	length = (b.rule.Window + breakerSteps - 1) / breakerSteps
	return length, (b.rule.Window + length - 1) / length
}

// count counts the end of a delivery.
func (b *breaker) count(now int64, died bool) {
	length, n := b.steps()
	b.pass(now/length, n)
	t := &b.ring[b.at%n]
	t.ended++
	b.ended++
	if died {
		t.died++
		b.died++
	}
}

// pass forgets the steps that are no longer within a window of n steps. The clock may be set back: by less than a window,
// what comes counts in the latest step; by more, all is forgotten.
func (b *breaker) pass(at, n int64) {
	passed := at - b.at
	if passed >= n || passed <= -n {
		b.forget()
		b.at = at
		return
	}
	for ; passed > 0; passed-- {
		b.at++
		t := &b.ring[b.at%n]
		b.died -= int64(t.died)
		b.ended -= int64(t.ended)
		*t = tally{}
	}
}

// forget forgets what was counted.
func (b *breaker) forget() { b.ring, b.died, b.ended = [breakerSteps]tally{}, 0, 0 }

// begins lets an open breaker try when its window is over. If the clock was set back, it does not stay open for longer than a
// window from now.
func (b *breaker) begins(now int64) {
	if b.state != BreakerOpen {
		return
	}
	if b.until = min(b.until, moment.After(now, b.rule.Window)); now >= b.until {
		b.state, b.until = BreakerTrying, 0
	}
}

// stopped says whether nothing may be handed out now.
func (m *Machine) stopped(now int64) bool {
	b := m.breaker
	if b == nil {
		return false
	}
	b.begins(now)
	return b.state == BreakerOpen || b.state == BreakerTrying && b.trial != 0
}

// tries notes that an entry was handed out.
func (m *Machine) tries(id ID) {
	if b := m.breaker; b != nil && b.state == BreakerTrying {
		b.trial = id
	}
}

// end is how a delivery ended.
type end uint8

const (
	endReturned end = iota
	endAcked
	endDied
)

// ended notes how the delivery of an entry ended; id is 0 for a message that never was an entry.
func (m *Machine) ended(now int64, id ID, how end) {
	b := m.breaker
	if b == nil {
		return
	}
	tried := b.state == BreakerTrying && b.trial == id
	if tried {
		b.trial = 0
		m.busy = true // the next one may try
	}
	switch {
	case how == endReturned:
	case b.state == BreakerClosed:
		b.count(now, how == endDied)
		if how == endDied && b.died >= b.rule.Deaths && b.died*100 >= b.rule.Percent*b.ended {
			m.trip(now, BreakerOpens)
		}
	case tried && how == endDied:
		m.trip(now, BreakerOpensAgain)
	case tried:
		m.shut(BreakerCloses)
	}
}

// passedOn is ended for a message that has just been given to a consumer, or to basic.get, without acknowledgements.
func (m *Machine) passedOn(now int64, id ID) {
	m.tries(id)
	m.ended(now, id, endAcked)
}

// trip opens the breaker.
func (m *Machine) trip(now int64, change BreakerChange) {
	b := m.breaker
	b.state, b.until, b.again = BreakerOpen, moment.After(now, b.rule.Window), change == BreakerOpensAgain
	if !b.again {
		b.openedBy = tally{uint32(b.died), uint32(b.ended)}
	}
	b.forget()
	m.sink.Broke(change, m.Breaker(now))
}

// shut closes the breaker. Those who wait get messages by the next Tick, if the caller does not pump.
func (m *Machine) shut(change BreakerChange) {
	b := m.breaker
	*b = breaker{rule: b.rule, state: BreakerClosed, at: b.at}
	m.busy = true
	m.sink.Broke(change, m.Breaker(0))
}

// ResetBreaker closes a breaker that is open or trying. The caller pumps.
func (m *Machine) ResetBreaker() {
	if b := m.breaker; b != nil && b.state != BreakerClosed {
		m.shut(BreakerReset)
	}
}

// setBreaker puts another breaker in force, which is closed and has counted nothing. The same one stays as it is.
func (m *Machine) setBreaker(rule Breaker) {
	before := m.breaker
	if before != nil && before.rule == rule || before == nil && !rule.On() {
		return
	}
	if m.breaker = nil; rule.Valid() {
		m.breaker = &breaker{rule: rule, state: BreakerClosed}
	}
	if before != nil && before.state != BreakerClosed {
		m.busy = true
		m.sink.Broke(BreakerLifted, m.Breaker(0))
	}
}

// Breaker shows the breaker as it is at a moment. It changes nothing.
func (m *Machine) Breaker(now int64) Broken {
	b := m.breaker
	if b == nil {
		return Broken{}
	}
	v := Broken{State: b.state, Until: b.until, Died: int64(b.openedBy.died), Ended: int64(b.openedBy.ended), Again: b.again, Rule: b.rule}
	if b.state == BreakerOpen && now >= b.until {
		v.State, v.Until = BreakerTrying, 0
	}
	return v
}

// append appends the breaker to a snapshot.
func (b *breaker) append(to []byte) []byte {
	if b == nil {
		return append(to, byte(BreakerNone))
	}
	to = append(to, byte(b.state), index.Bit(b.again))
	for _, v := range []uint64{uint64(b.until), uint64(b.trial), uint64(b.openedBy.died), uint64(b.openedBy.ended), uint64(b.at)} {
		to = binary.AppendUvarint(to, v)
	}
	for _, t := range b.ring {
		to = binary.AppendUvarint(to, uint64(t.died))
		to = binary.AppendUvarint(to, uint64(t.ended))
	}
	return to
}

// readBreaker reads what append wrote. The settings must be in force, and the entries there.
func (m *Machine) readBreaker(r *index.Reader) {
	state, b := BreakerState(r.Byte()), m.breaker
	if b == nil || state == BreakerNone || state > BreakerTrying {
		r.Bad = r.Bad || b != nil || state != BreakerNone
		return
	}
	b.state, b.again = state, r.Byte() != 0
	b.until, b.trial = r.Moment(), ID(r.Uint())
	b.openedBy, b.at = tally{r.Small(), r.Small()}, r.Moment()
	for i := range b.ring {
		t := tally{r.Small(), r.Small()}
		b.ring[i] = t
		b.died += int64(t.died)
		b.ended += int64(t.ended)
	}
	r.Bad = r.Bad || m.checkBreaker() != nil
}
