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

// A node has two logs: the journal, of messages, and the store, of declarations and
// accounts. One rule keeps them in order (docs/internals/logs.md), and it is kept here:
//
//  1. Nothing enters a queue that the store does not have yet. Its name is taken, but no
//     key leads to it and nothing can be bound to it.
//  2. An answer that rests on declarations leaves when the store has them as they were
//     when it looked, whoever made them.
//  3. The store takes something away only when the journal has all that was done before,
//     and no answer to a publish, no dead letter and no checkpoint that comes after it
//     counts before it is stored.
//
// The store has changes in the order in which they were made. Nobody who waits for it
// holds a lock, and who waits first writes for all who wait.

// ledger is what was declared and is on its way to the store.
type ledger struct {
	issued  atomic.Uint64 // the ticket of the last change; raised with topo held for writing
	removed atomic.Uint64 // that of the last one which took something away; likewise
	stored  atomic.Uint64 // the last one that is stored and in force
	owing   atomic.Int32  // how many have something leaving

	mu      held.Mutex // guards what follows; nothing else is taken under it
	turn    sync.Cond  // somebody has written, or issued what was awaited
	waiting []entry    // issued and not written, in order
	busy    bool       // somebody writes, and owns what follows
	leaving []leaving
	err     error // writing failed: the node is ending
}

// leaving are the bindings of what a change has deleted, which are stored as deleted behind it.
type leaving struct {
	ticket   uint64            // of the change
	marks    []mutation.Change // that delete the records which tell a start of it
	ends     []string
	bindings []mutation.Change
}

// How many bindings may go with a change itself, and how many at once behind it.
const (
	leaveAtOnce = 1024
	leaveSlice  = 256
)

// entry is one change of declarations.
type entry struct {
	ticket  uint64
	changes []mutation.Change
	made    topology.Made // to be put in force once they are stored
	removes bool
}

// The steps of a change at which tests may stop it. Each comes after the one before.
const (
	FailDeclareChanged = "declare-changed" // memory has it
	FailDeclareLogged  = "declare-logged"  // the journal has what was done before
	FailDeclareStored  = "declare-stored"  // the store has it
	FailDeclareOpened  = "declare-opened"  // it is in force
)

// Failpoints are the names that Options.Failpoint is called with by this package.
var Failpoints = []string{FailDeclareChanged, FailDeclareLogged, FailDeclareStored, FailDeclareOpened}

func (b *Broker) at(step string) {
	if b.Failpoint != nil {
		b.Failpoint(step)
	}
}

// removing says that the change under way takes something away that others may find gone
// before they can take topo: who does waits for it. REQUIRES: topo is held for writing.
func (b *Broker) removing() { b.ledger.removed.Store(b.ledger.issued.Load() + 1) }

// issue takes what has just changed into the ledger, and returns the ticket of the last
// change there is. REQUIRES: topo is held for writing.
func (b *Broker) issue(changes []mutation.Change, made topology.Made) uint64 {
	l := &b.ledger
	e := entry{ticket: l.issued.Load() + 1, changes: changes, made: made}
	if len(changes) == 0 && l.removed.Load() < e.ticket {
		return l.issued.Load()
	}
	for i := range changes {
		e.removes = e.removes || changes[i].Value == nil
	}
	l.mu.Lock()
	l.waiting = append(l.waiting, e)
	if l.removed.Load() == e.ticket {
		l.turn.Broadcast() // somebody may wait for it already
	}
	l.mu.Unlock()
	if e.removes {
		l.removed.Store(e.ticket)
	}
	l.issued.Store(e.ticket)
	return e.ticket
}

// await returns when the store has all changes up to a ticket and they are in force. An
// error means that the disk failed and the node is stopping. REQUIRES: nothing is locked.
func (b *Broker) await(ticket uint64) error {
	held.Nothing("the log of declarations")
	l := &b.ledger
	if l.stored.Load() >= ticket {
		return nil
	}
	l.mu.Lock() // and no deferred unlock: a panic of write would run it
	for l.stored.Load() < ticket && l.err == nil {
		if l.busy || len(l.waiting) == 0 { // the last one is said to come (removing), and is still being made
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
		// What was changed in memory is not on disk, and nobody knows what is.
		b.OnFatal(err)
		return err
	}
	b.at(FailDeclareStored)
	b.node.Declared(b.data.State.Reached()) // before anything enters a queue that was made
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
		// What has left a queue must be where it went before the queue is gone.
		if err := b.data.Journal.Sync(); err != nil {
			return fmt.Errorf("journal: %w", err)
		}
	}
	b.at(FailDeclareLogged)
	for i := 0; i <= last; i++ {
		if err := b.data.State.Apply(mutation.All(b.postpone(&batch[i])), i == last); err != nil {
			return fmt.Errorf("store: %w", err)
		}
	}
	return nil
}

// postpones says whether changes are so many that some are to be stored behind the others.
func postpones(changes []mutation.Change) bool { return mutation.CountLate(changes) > leaveAtOnce }

// postpone returns the changes of e that are to be stored at once. What is left is noted as leaving.
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

// leave stores the next of what is leaving with a change as deleted. REQUIRES: the caller is the one who writes.
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

// sweep stores what is leaving with the change of a ticket, or of any if that is 0, as deleted, with others in between. Who has
// made the change does it, when it is in force, and who needs one of the names. REQUIRES: nothing is locked.
func (b *Broker) sweep(ticket uint64) (err error) {
	for left := b.ledger.owing.Load() > 0; left; {
		// Whoever waits for a turn finds it taken again when he is woken: so what there is, is written first.
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

// awaitAll returns when all that was changed so far is stored.
func (b *Broker) awaitAll() error { return b.await(b.ledger.issued.Load()) }

// awaitRemovals returns when all that was taken away is stored as gone.
func (b *Broker) awaitRemovals() error { return b.await(b.ledger.removed.Load()) }

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

// look runs f with the topology locked for reading, and returns when what it saw is
// stored. f must not wait for anything. REQUIRES: nothing is locked.
func (b *Broker) look(f func()) error {
	return b.await(b.glance(f))
}

// glance runs f with the topology locked for reading, and returns the ticket that an
// answer which rests on what it saw has to wait for.
func (b *Broker) glance(f func()) (ticket uint64) {
	b.topo.RLock()
	defer b.topo.RUnlock()
	f()
	return b.ledger.issued.Load()
}
