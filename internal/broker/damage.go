package broker

import (
	"errors"
	"fmt"

	"bartleby.mq/internal/auth"
	"bartleby.mq/internal/journal"
	"bartleby.mq/internal/partition"
	"bartleby.mq/internal/store"
	"bartleby.mq/internal/topology"
)

// whatToDo adds to an error of opening a data directory what an operator is to do, if
// the error is of damage.
func whatToDo(dir string, err error) error {
	var log *journal.DamageError
	var state *partition.DamageError
	if !errors.As(err, &log) && !errors.As(err, &state) && !store.IsDamage(err) {
		return err
	}
	return fmt.Errorf("%w\nrun: bartleby journal check --data-dir %s", err, dir)
}

// OpenStopped is Open for an examination or a repair: no worker begins, so that
// nothing happens to messages but what a start does to those whose time has come, and
// files of messages that are missing are no failure. The broker serves nobody.
func OpenStopped(o Options) (*Broker, error) { return openNode(o, true) }

// QueueMessages is what Verify found of a durable queue.
type QueueMessages struct {
	VHost, Queue string
	Messages     int
	Unreadable   []partition.Unreadable

	runtime *partition.Queue
}

// Verify reads every message of every durable queue.
func (b *Broker) Verify() (found []QueueMessages, err error) {
	b.Read(func(s *topology.State, _ *auth.Users) {
		for _, v := range s.VHosts() {
			for _, q := range v.Queues() {
				found = append(found, QueueMessages{VHost: string(q.VHost), Queue: string(q.Name), runtime: runtimeOf(q)})
			}
		}
	})
	for i := range found {
		q := &found[i]
		if q.Messages, q.Unreadable, err = b.node.Verify(q.runtime); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// Forget removes the messages that Verify could not read.
func (b *Broker) Forget(found []QueueMessages) error {
	for i := range found {
		if err := b.node.Forget(found[i].runtime, found[i].Unreadable); err != nil {
			return fmt.Errorf("queue %q in vhost %q: %w", found[i].Queue, found[i].VHost, err)
		}
	}
	return nil
}
