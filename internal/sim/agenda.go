package sim

import "container/heap"

// event is something that happens at a moment. Those of one moment happen in the
// order they were planned.
type event struct {
	at  int64 // virtual microseconds
	seq uint64
	do  func()
}

// agenda is the events to come, earliest first.
type agenda struct {
	events []event
	seq    uint64
}

func (a *agenda) Len() int { return len(a.events) }
func (a *agenda) Less(i, j int) bool {
	x, y := &a.events[i], &a.events[j]
	return x.at < y.at || x.at == y.at && x.seq < y.seq
}
func (a *agenda) Swap(i, j int) { a.events[i], a.events[j] = a.events[j], a.events[i] }
func (a *agenda) Push(x any)    { a.events = append(a.events, x.(event)) }
func (a *agenda) Pop() any {
	last := len(a.events) - 1
	e := a.events[last]
	a.events[last] = event{}
	a.events = a.events[:last]
	return e
}

func (a *agenda) plan(at int64, do func()) {
	a.seq++
	heap.Push(a, event{at, a.seq, do})
}

func (a *agenda) next() event { return heap.Pop(a).(event) }
