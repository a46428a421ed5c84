package broker

import (
	"sync"
	"sync/atomic"
)

// Alarm is a resource that runs low (BR-13.1). Alarms are a set: values may be or-ed.
type Alarm uint8

// The alarms.
const (
	Memory Alarm = 1 << iota
	Disk
)

// String returns the reason that clients are told (BR-13.2), or "" for no alarm.
func (a Alarm) String() string {
	switch a {
	case Memory:
		return "low on memory"
	case Disk:
		return "low on disk"
	case Memory | Disk:
		return "low on memory & disk"
	}
	return ""
}

// alarms are those in force and who wants to know of a change.
type alarms struct {
	any atomic.Bool // active is not 0; for publishers, who ask at each message

	mu      sync.Mutex // guards what follows
	active  Alarm
	last    uint64 // number of the last subscription
	waiting map[uint64]func()
}

// intake bounds what clients may send between two looks at memory and disk: a look each
// second would let one fast publisher take hundreds of megabytes beyond a limit.
type intake struct {
	left    atomic.Int64 // bytes until somebody is to look
	look    func()       // static once the node serves; nil: nobody looks
	looking sync.Mutex
}

// WatchIntake has look called whenever clients have sent what AllowIntake has allowed.
// It is called before the node serves. look calls AllowIntake; it may be called by any
// goroutine, by one at a time, with nothing locked.
func (b *Broker) WatchIntake(look func()) { b.intake.look = look }

// AllowIntake says how many bytes clients may send until the next look.
func (b *Broker) AllowIntake(bytes int64) { b.intake.left.Store(bytes) }

// Received counts bytes that a client has sent, or made the broker keep.
func (b *Broker) Received(n int) {
	if b.intake.left.Add(-int64(n)) >= 0 || b.intake.look == nil || !b.intake.looking.TryLock() {
		return
	}
	defer b.intake.looking.Unlock()
	b.intake.look()
}

// ShortOfRoom says whether there is little room on the disk, and how much, in bytes: the node
// then keeps no more of it than it needs, and gives back soon what it needs no more.
func (b *Broker) ShortOfRoom(short bool, room int64) { b.node.ShortOfRoom(short, room) }

// ShortOfMemory says whether the memory that the node may use is nearly used up: then messages leave it that
// are on disk already. It is to be said again as long as it is so.
func (b *Broker) ShortOfMemory(short bool) { b.node.ShortOfMemory(short) }

// SetAlarm raises or clears an alarm, and tells those who asked by OnAlarm before
// it returns if that changed anything.
func (b *Broker) SetAlarm(a Alarm, on bool) {
	l := &b.alarms
	l.mu.Lock()
	before := l.active
	if on {
		l.active |= a
	} else {
		l.active &^= a
	}
	changed := before != l.active
	l.any.Store(l.active != 0)
	var tell []func()
	if changed {
		for _, f := range l.waiting {
			tell = append(tell, f)
		}
	}
	l.mu.Unlock()
	for _, f := range tell {
		f()
	}
}

// Alarmed says whether any alarm is in force.
func (b *Broker) Alarmed() bool { return b.alarms.any.Load() }

// ActiveAlarms is the set of alarms in force.
func (b *Broker) ActiveAlarms() Alarm {
	b.alarms.mu.Lock()
	defer b.alarms.mu.Unlock()
	return b.alarms.active
}

// Alarms says whether publishers are to be blocked, and the reason they are told (BR-13.2).
func (b *Broker) Alarms() (reason string, active bool) {
	a := b.ActiveAlarms()
	return a.String(), a != 0
}

// OnAlarm has f called after each change of the alarms until cancel is called; one
// call may still be under way then. f must not block; it asks Alarms what holds.
func (b *Broker) OnAlarm(f func()) (cancel func()) {
	l := &b.alarms
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting == nil {
		l.waiting = map[uint64]func(){}
	}
	l.last++
	id := l.last
	l.waiting[id] = f
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.waiting, id)
	}
}
