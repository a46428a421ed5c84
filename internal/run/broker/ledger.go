package broker

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"bartleby.mq/internal/core/mutation"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/safety/held"
)

// A node has two logs: the journal for messages, and the store for declarations and accounts. One rule keeps them in
// order (docs/internals/logs.md). This file enforces it:
//
//  1. Nothing enters a queue that the store does not have yet. Its name is taken, but no key leads to it, and
//     nothing can be bound to it.
//  2. An answer that depends on declarations leaves when the store has them as they were when it was decided,
//     whoever made them.
//  3. The store deletes something only when the journal has everything that happened before. Until the deletion is
//     stored, nothing that comes after it is final: no answer to a publish, no dead letter, no checkpoint.
//
// The store gets changes in the order in which they were made. A goroutine that waits for the store holds no lock.
// The first one to wait writes for all that wait.

// ledger has the changes of declarations that are on their way to the store.
type ledger struct {
	issued  atomic.Uint64 // ticket of the last change; raised with topo held for writing
	removed atomic.Uint64 // ticket of the last change that deletes something; likewise
	stored  atomic.Uint64 // ticket of the last change that is stored and in force
	owing   atomic.Int32  // number of changes whose bindings are still leaving

	mu      held.Mutex // guards what follows; no other lock is taken under it
	turn    sync.Cond  // a write has ended, or an awaited change was issued
	waiting []entry    // issued and not written, in order
	busy    bool       // a goroutine writes, and owns what follows
	leaving []leaving
	err     error // a write failed: the node is stopping
}

// leaving are the bindings of a deleted object. The store deletes them after the change that deleted the object.
type leaving struct {
	ticket   uint64            // ticket of that change
	marks    []mutation.Change // delete the records that tell a start about it
	ends     []string
	bindings []mutation.Change
}

// How many bindings may be deleted with a change itself, and how many at a time after it.
const (
	leaveAtOnce = 1024
	leaveSlice  = 256
)

// entry is one change of declarations.
type entry struct {
	ticket  uint64
	changes []mutation.Change
	made    topology.Made // put in force once they are stored
	removes bool
	vhosts  []endedVHost // that it deletes
}

// The steps of a change at which tests may stop it, in order.
const (
	FailDeclareChanged = "declare-changed" // it is in memory
	FailDeclareLogged  = "declare-logged"  // the journal has everything before
	FailDeclareStored  = "declare-stored"  // the store has it
	FailDeclareOpened  = "declare-opened"  // it is in force
)

// Failpoints are the names with which this package calls Options.Failpoint.
var Failpoints = []string{FailDeclareChanged, FailDeclareLogged, FailDeclareStored, FailDeclareOpened}

func (b *Broker) at(step string) {
	if b.Failpoint != nil {
		b.Failpoint(step)
	}
}

// removing says that the change in progress deletes something. Others may find it gone before they can lock topo, so
// they wait for this change. REQUIRES: topo is held for writing.
func (b *Broker) removing() { b.ledger.removed.Store(b.ledger.issued.Load() + 1) }

// issue enters the change just made into the ledger. It returns the ticket of the last change. REQUIRES: topo is held
// for writing.
func (b *Broker) issue(changes []mutation.Change, made topology.Made) uint64 {
	l := &b.ledger
	e := entry{ticket: l.issued.Load() + 1, changes: changes, made: made, vhosts: b.endedVHosts}
	b.endedVHosts = nil
	if len(changes) == 0 && l.removed.Load() < e.ticket {
		return l.issued.Load()
	}
	for i := range changes {
		e.removes = e.removes || changes[i].Value == nil
	}
	l.mu.Lock()
	l.waiting = append(l.waiting, e)
	if l.removed.Load() == e.ticket {
		l.turn.Broadcast() // awaitRemovals may wait for it already
	}
	l.mu.Unlock()
	if e.removes {
		l.removed.Store(e.ticket)
	}
	l.issued.Store(e.ticket)
	return e.ticket
}

// AwaitStored returns when all changes up to this ticket are stored and in force. An error means that the disk failed and
// the node is stopping. REQUIRES: nothing is locked.
func (b *Broker) AwaitStored(ticket uint64) error {
	held.Nothing("the log of declarations")
	l := &b.ledger
	if l.stored.Load() >= ticket {
		return nil
	}
	l.mu.Lock() // no deferred unlock: a panic of write would run it
	for l.stored.Load() < ticket && l.err == nil {
		if l.busy || len(l.waiting) == 0 { // the last change was announced (removing), and is still being made
			l.turn.Wait()
			continue
		}
		l.busy = true
		batch := l.waiting
		l.waiting = nil
		l.mu.Unlock()
		err := b.write(batch)
		l.mu.Lock()
		l.busy, l.err = false, err
		if err == nil {
			l.stored.Store(batch[len(batch)-1].ticket)
		}
		l.turn.Broadcast()
	}
	err := l.err
	l.mu.Unlock()
	return err
}

// write stores a batch of changes and puts them in force.
func (b *Broker) write(batch []entry) error {
	b.at(FailDeclareChanged)
	if err := b.writeAll(batch); err != nil {
		// Memory has changes that may not be on disk.
		b.OnFatal(err)
		return err
	}
	b.at(FailDeclareStored)
	b.node.Declared(b.data.State.Reached()) // before anything enters a queue of this batch
	b.topo.Lock()
	for i := range batch {
		if b.state.Stored(batch[i].made) {
			b.revision.Add(1)
		}
	}
	b.topo.Unlock()
	b.at(FailDeclareOpened)
	return nil
}

func (b *Broker) writeAll(batch []entry) error {
	last, removes := -1, false
	for i := range batch {
		if removes = removes || batch[i].removes; len(batch[i].changes) > 0 {
			last = i
		}
	}
	if removes {
		// Messages that left a queue must be durable at their targets before the queue is deleted.
		if err := b.data.Journal.Sync(); err != nil {
			return fmt.Errorf("journal: %w", err)
		}
	}
	b.at(FailDeclareLogged)
	for i := 0; i <= last; i++ {
		for _, v := range batch[i].vhosts {
			for _, f := range b.vhostEnds {
				f(v.name, v.by)
			}
		}
		if err := b.data.State.Apply(mutation.All(b.postpone(&batch[i])), i == last); err != nil {
			return fmt.Errorf("store: %w", err)
		}
	}
	return nil
}

// postpones says whether there are so many changes that some must be stored later.
func postpones(changes []mutation.Change) bool { return mutation.CountLate(changes) > leaveAtOnce }

// postpone returns the changes of e to be stored at once, and notes the others as leaving.
func (b *Broker) postpone(e *entry) []mutation.Change {
	if !postpones(e.changes) {
		return e.changes
	}
	now, late := mutation.Split(e.changes)
	ends := topology.Ends(now)
	marks := topology.Leaving(e.ticket, ends)
	now = append(now, marks...)
	for i := range marks {
		marks[i].Value = nil
	}
	b.ledger.leaving = append(b.ledger.leaving, leaving{e.ticket, marks, ends, late})
	b.ledger.owing.Add(1)
	return now
}

// leave stores the deletion of the next bindings that are leaving. REQUIRES: the caller owns the writing (busy).
func (b *Broker) leave(l *leaving) error {
	some := l.bindings[:min(len(l.bindings), leaveSlice)]
	l.bindings = l.bindings[len(some):]
	if len(l.bindings) == 0 {
		some = append(slices.Clip(some), l.marks...)
	}
	if err := b.data.State.Apply(mutation.All(some), false); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if len(l.bindings) == 0 {
		ticket := l.ticket
		b.topo.Lock()
		b.state.Left(l.ends)
		b.topo.Unlock()
		b.ledger.leaving = slices.DeleteFunc(b.ledger.leaving, func(l leaving) bool { return l.ticket == ticket })
		b.ledger.owing.Add(-1)
	}
	return nil
}

// sweep stores the deletion of all bindings that leave with the change of this ticket (0: with any change), in slices
// with other writes in between. The goroutine that made the change calls it once the change is in force, as does one
// that needs one of the names. REQUIRES: nothing is locked.
func (b *Broker) sweep(ticket uint64) (err error) {
	for left := b.ledger.owing.Load() > 0; left; {
		// A goroutine that waits for its turn may find it taken again. So first everything that was issued is
		// written.
		if err = b.awaitAll(); err != nil {
			return err
		}
		b.between(func() {
			i := slices.IndexFunc(b.ledger.leaving, func(l leaving) bool { return ticket == 0 || l.ticket == ticket })
			if left = i >= 0; left {
				err = b.leave(&b.ledger.leaving[i])
			}
		})
		if err != nil {
			b.OnFatal(err)
			return err
		}
	}
	return nil
}

// awaitAll returns when every change so far is stored.
func (b *Broker) awaitAll() error { return b.AwaitStored(b.ledger.issued.Load()) }

// awaitRemovals returns when every deletion so far is stored.
func (b *Broker) awaitRemovals() error { return b.AwaitStored(b.ledger.removed.Load()) }

// between runs f while nobody writes to the store.
func (b *Broker) between(f func()) {
	l := &b.ledger
	l.mu.Lock()
	for l.busy {
		l.turn.Wait()
	}
	l.busy = true
	l.mu.Unlock()
	f()
	l.mu.Lock()
	l.busy = false
	l.turn.Broadcast()
	l.mu.Unlock()
}

// look runs f with the topology locked for reading, and returns when what f saw is stored. f must not wait for
// anything. REQUIRES: nothing is locked.
func (b *Broker) look(f func()) error {
	return b.AwaitStored(b.glance(f))
}

// glance runs f with the topology locked for reading. It returns the ticket that an answer must wait for if it
// depends on what f saw.
func (b *Broker) glance(f func()) (ticket uint64) {
	b.topo.RLock()
	defer b.topo.RUnlock()
	f()
	return b.ledger.issued.Load()
}
