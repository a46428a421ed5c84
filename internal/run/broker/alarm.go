package broker

import (
	"sync"
	"sync/atomic"
)

// Alarm is a resource that runs low (BR-13.1). Alarms form a set: values may be or-ed.
type Alarm uint8

// The alarms.
const (
	Memory Alarm = 1 << iota
	Disk
)

// String returns the reason that clients get (BR-13.2), "" for no alarm.
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

// alarms are the alarms in force and the functions to call when they change.
type alarms struct {
	any atomic.Bool // active is not 0; publishers read it for each message

	mu      sync.Mutex // guards what follows
	active  Alarm
	last    uint64 // number of the last subscription
	waiting map[uint64]func()
}

// intake limits what clients may send between two checks of memory and disk. With one check each second, a fast
// publisher could exceed a limit by hundreds of megabytes.
type intake struct {
	left    atomic.Int64 // bytes left until the next check
	look    func()       // set before the node serves; nil: no checks
	looking sync.Mutex
}

// WatchIntake sets the check that runs whenever clients have sent as much as AllowIntake has allowed. It is called
// before the node serves. look calls AllowIntake. Any goroutine may run it, one at a time, with nothing locked.
func (b *Broker) WatchIntake(look func()) { b.intake.look = look }

// AllowIntake sets how many bytes clients may send until the next check.
func (b *Broker) AllowIntake(bytes int64) { b.intake.left.Store(bytes) }

// Received counts bytes that a client has sent or has made the broker store.
func (b *Broker) Received(n int) {
	if b.intake.left.Add(-int64(n)) >= 0 || b.intake.look == nil || !b.intake.looking.TryLock() {
		return
	}
	defer b.intake.looking.Unlock()
	b.intake.look()
}

// ShortOfRoom sets whether the disk has little room, and how much in bytes. While it has little, the node keeps no
// file that it does not need, and frees space soon.
func (b *Broker) ShortOfRoom(short bool, room int64) { b.node.ShortOfRoom(short, room) }

// ShortOfMemory sets whether the node's memory is nearly used up. Then messages that are on disk leave it. The caller
// repeats it while that is so.
func (b *Broker) ShortOfMemory(short bool) { b.node.ShortOfMemory(short) }

// SetAlarm raises or clears an alarm. If that changes anything, it calls the functions of OnAlarm before it returns.
func (b *Broker) SetAlarm(a Alarm, on bool) {
	l := &b.alarms
	l.mu.Lock()
	before := l.active
	if on {
		l.active |= a
	} else {
		l.active &^= a
	}
	now := l.active
	changed := before != now
	l.any.Store(l.active != 0)
	var tell []func()
	if changed {
		for _, f := range l.waiting {
			tell = append(tell, f)
		}
	}
	l.mu.Unlock()
	b.notifyAlarms(before, now)
	for _, f := range tell {
		f()
	}
}

// Alarmed says whether any alarm is in force.
func (b *Broker) Alarmed() bool { return b.alarms.any.Load() }

// ActiveAlarms returns the set of alarms in force.
func (b *Broker) ActiveAlarms() Alarm {
	b.alarms.mu.Lock()
	defer b.alarms.mu.Unlock()
	return b.alarms.active
}

// Alarms says whether publishers must be blocked, and with which reason (BR-13.2).
func (b *Broker) Alarms() (reason string, active bool) {
	a := b.ActiveAlarms()
	return a.String(), a != 0
}

// OnAlarm calls f after each change of the alarms until cancel is called; one call may still be running then. f must
// not block; it calls Alarms for the present state.
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
