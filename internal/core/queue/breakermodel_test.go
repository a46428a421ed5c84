package queue

import "slices"

// modelBreaker is a breaker that remembers each delivery that ended.
type modelBreaker struct {
	rule        Breaker
	state       BreakerState
	until       int64
	trial       *modelEntry
	ends        []modelEnd
	died, ended int64 // when it opened
}

type modelEnd struct {
	at   int64
	died bool
}

// at is the state at a moment.
func (b *modelBreaker) at(now int64) BreakerState {
	if b.state == BreakerOpen && now >= b.until {
		return BreakerTrying
	}
	return b.state
}

func (q *model) breakBy(rule Breaker) {
	b := &q.breaker
	if b.rule == rule {
		return
	}
	open := b.state > BreakerClosed
	*b = modelBreaker{rule: rule}
	if rule.On() {
		b.state = BreakerClosed
	}
	if open {
		q.note("breaker %d %v %d %d %d", BreakerLifted, b.state, 0, 0, 0)
	}
}

func (q *model) stopped(now int64) bool {
	b := &q.breaker
	b.state = b.at(now)
	return b.state == BreakerOpen || b.state == BreakerTrying && b.trial != nil
}

func (q *model) tries(e *modelEntry) {
	if q.breaker.state == BreakerTrying {
		q.breaker.trial = e
	}
}

func (q *model) passedOn(now int64, e *modelEntry) {
	q.tries(e)
	q.ended(now, e, endAcked)
}

func (q *model) ended(now int64, e *modelEntry, how end) {
	b := &q.breaker
	tried := b.state == BreakerTrying && b.trial == e
	if tried {
		b.trial = nil
	}
	switch {
	case how == endReturned:
	case b.state == BreakerClosed:
		b.ends = append(b.ends, modelEnd{now, how == endDied})
		if died, ended := b.counted(now); how == endDied && died >= b.rule.Deaths && 100*died >= b.rule.Percent*ended {
			b.died, b.ended = died, ended
			q.trip(now, BreakerOpens)
		}
	case tried && how == endDied:
		q.trip(now, BreakerOpensAgain)
	case tried:
		q.shut(BreakerCloses)
	}
}

// counted counts what ended within the window, which is divided into at most 60 steps.
func (b *modelBreaker) counted(now int64) (died, ended int64) {
	step := (b.rule.Window + 59) / 60
	steps := (b.rule.Window + step - 1) / step
	b.ends = slices.DeleteFunc(b.ends, func(e modelEnd) bool { return e.at/step <= now/step-steps })
	for _, e := range b.ends {
		if ended++; e.died {
			died++
		}
	}
	return died, ended
}

func (q *model) trip(now int64, change BreakerChange) {
	b := &q.breaker
	b.state, b.until, b.ends = BreakerOpen, now+b.rule.Window, nil
	q.note("breaker %d %v %d %d %d", change, b.state, b.until, b.died, b.ended)
}

func (q *model) shut(change BreakerChange) {
	q.breaker = modelBreaker{rule: q.breaker.rule, state: BreakerClosed}
	q.note("breaker %d %v %d %d %d", change, BreakerClosed, 0, 0, 0)
}
