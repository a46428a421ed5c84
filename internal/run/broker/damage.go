package broker

import (
	"errors"
	"fmt"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/disk/bodyfile"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/disk/store"
	"bartleby.mq/internal/run/datadir"
	"bartleby.mq/internal/run/partition"
)

// whatToDo adds to an error of opening a data directory what an operator can do, if the error is about damage.
func whatToDo(dir string, err error) error {
	var log *journal.DamageError
	var state *partition.DamageError
	var parts *datadir.IncompleteError
	var lost *LostDeclarationsError
	if !errors.As(err, &log) && !errors.As(err, &state) && !errors.As(err, &parts) && !errors.As(err, &lost) && !store.IsDamage(err) {
		return err
	}
	return fmt.Errorf("%w\nrun: bartleby journal check --data-dir %s", err, dir)
}

// OpenStopped is Open for an examination or a repair. No worker starts, so messages change only as at any start:
// those that are due expire. Missing files of messages are not an error. The broker serves nobody.
func OpenStopped(o Options, how Stopped) (*Broker, error) {
	return openNode(o, opening{stopped: true, Stopped: how})
}

// Stopped says what OpenStopped tolerates.
type Stopped struct {
	Incomplete bool // parts of the data directory are missing, or differ in age
	// KeepUndeclared turns undeclared queues with messages into a *partition.UndeclaredError. A start would take them
	// for deleted.
	KeepUndeclared bool
	// Salvage recovers what is on disk if the index is lost.
	Salvage *partition.Salvage
}

// opening says for what a data directory is opened.
type opening struct {
	stopped bool // for OpenStopped
	Stopped
}

// SetAside lists the files that were set aside, at most limit.
func (b *Broker) SetAside(limit int) ([]bodyfile.PutAside, error) { return b.data.Aside.List(limit) }

// FilesSetAside is the number of files that were set aside.
func (b *Broker) FilesSetAside() int { return b.data.Aside.Count() }

// QueueMessages is what Verify found in a durable queue.
type QueueMessages struct {
	VHost, Queue string
	Incarnation  uint64
	Messages     int
	Unreadable   []partition.Unreadable

	runtime *partition.Queue
}

// Verify reads every message of every durable queue.
func (b *Broker) Verify() (found []QueueMessages, err error) {
	b.Read(func(s *topology.State, _ *auth.Users) {
		for _, v := range s.VHosts() {
			note := func(q *topology.Queue) {
				found = append(found, QueueMessages{VHost: string(q.VHost), Queue: string(q.Name), Incarnation: q.Incarnation, runtime: runtimeOf(q)})
			}
			for _, q := range v.Queues() {
				note(q)
			}
			v.EachWaiting(note)
		}
	})
	for i := range found {
		q := &found[i]
		// A group may have deleted a queue whose declaration is back; a start deletes the declaration (buryGhosts).
		if q.Messages, q.Unreadable, err = b.node.Verify(q.runtime); err != nil && !partition.Gone(err) {
			return nil, err
		}
	}
	return found, nil
}

// Forget removes the messages that Verify could not read.
func (b *Broker) Forget(found []QueueMessages) error {
	for i := range found {
		if err := b.node.DropUnreadable(found[i].runtime, found[i].Unreadable); err != nil {
			return fmt.Errorf("queue %q in vhost %q: %w", found[i].Queue, found[i].VHost, err)
		}
	}
	return nil
}

// PassOver writes a checkpoint, so that no later start reads again what was set aside.
func (b *Broker) PassOver() error { return b.node.Checkpoint() }
