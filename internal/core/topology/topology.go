// Package topology is the machine of declarations: virtual hosts, exchanges, queues, bindings, policies and
// parameters, and the way of a message from an exchange to the queues it reaches.
//
// The State owns all of it. Whoever runs the State (the broker package) holds a read-write lock around it: methods
// that change it need the lock for writing, everything else only reads, so that many publishers may route at once.
// What must survive a restart is recorded in a log of changes, which the caller takes and stores before it answers.
//
// The package knows declarations, not messages in queues: counts, consumers and what happens to a deleted queue's
// messages are the broker's. It opens no files, reads no clock and asks nobody for permission by itself: checks that
// must stand at a certain place in the order of errors (DL-3.3) are made through a Permit handed in.
package topology

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/mutation"
)

// Options are the settings that change what declarations mean.
type Options struct {
	// Strict turns Bartleby's extensions off; it is stored with each queue when it is created.
	Strict bool
	// DenyTransientNonExclusive refuses queues that are neither durable nor exclusive (BR-7.7).
	DenyTransientNonExclusive bool
	// DenyQueueMasterLocator refuses the argument x-queue-master-locator (BR-7.13).
	DenyQueueMasterLocator bool
	// ClassicAtLeastOnce lets classic queues have a dead letter strategy (DL-21.5).
	ClassicAtLeastOnce bool
	// DefaultProfile is that of new virtual hosts which are not told one; empty means RabbitMQ's.
	DefaultProfile deadletter.Profile
	// ApsaraPriorities switches priorities on in queues of ApsaraMQ's profile; it is stored with each when it is created.
	ApsaraPriorities bool
	// DefaultQueueType stands in where a virtual host names none; empty means classic (BR-7.3).
	DefaultQueueType QueueType
}

// State is every declaration of a broker.
type State struct {
	options    Options
	vhosts     map[message.VHost]*VHost
	parameters map[string]json.RawMessage // the global ones
	revision   uint64
	policySeq  uint64 // orders policies of equal priority: the last set wins
	log        mutation.Log
	leaving    map[string]int // keys of what was deleted and has bindings that are stored yet: by how many deletions

	// Incarnations are handed out from a block reserved on disk, so that transient queues cost no write of their own, and
	// by an earlier change than the one that makes the queue: a group may have created it before that one is stored, or have
	// its dead letters, and if it never is, its number must not be another queue's.
	incarnation uint64   // the last one handed out
	reserved    uint64   // the last one that may be handed out before the next reservation
	numbered    uint64   // the last one that a reservation is stored for
	made        []*Queue // durable queues since TakeMade
}

// Made is what changes have made that counts only once they are stored.
type Made struct {
	queues   []*Queue
	reserved uint64
}

// ErrUnstored is the error of a change that rests on another which is not stored yet. It has changed nothing, and is to
// be tried again then.
var ErrUnstored = errors.New("a declaration that this depends on is not stored yet")

// ErrLeaving is ErrUnstored of something whose name another had that was deleted, while bindings of that are stored yet.
var ErrLeaving = fmt.Errorf("bindings of a deleted object with this name are still stored: %w", ErrUnstored)

// incarnationBlock is how many incarnation numbers one record reserves.
const incarnationBlock = 1024

// New returns a State without any virtual host.
func New(o Options) *State {
	if o.DefaultQueueType == "" {
		o.DefaultQueueType = Classic
	}
	if o.DefaultProfile == "" {
		o.DefaultProfile = deadletter.RabbitMQ
	}
	return &State{
		options:    o,
		vhosts:     map[message.VHost]*VHost{},
		parameters: map[string]json.RawMessage{},
	}
}

// Revision is raised by every change. It counts from 0 again after a restart.
func (s *State) Revision() uint64 { return s.revision }

// TakeChanges returns the durable changes since the last call, for the store to keep.
func (s *State) TakeChanges() []mutation.Change { return s.log.Take() }

// TakeMade returns what was made since the last call. It does not count before Stored is told that the changes which
// TakeChanges has returned are stored.
func (s *State) TakeMade() Made {
	m := Made{queues: s.made, reserved: s.reserved}
	for _, q := range m.queues {
		q.unstored = true
	}
	s.made = nil
	return m
}

// Numbered says whether the next queue has a number that is reserved on disk: see State.incarnation.
func (s *State) Numbered() bool { return s.incarnation < s.numbered }

// Stored puts in force what changes have made, and says whether keys lead elsewhere by that.
func (s *State) Stored(m Made) (opened bool) {
	s.numbered = m.reserved
	for _, q := range m.queues {
		q.unstored = false
		s.revision++
	}
	return len(m.queues) > 0
}

// Reserve sees to it that the next queues have numbers that no queue ever had. It is to be stored before the first is declared.
func (s *State) Reserve() {
	if s.incarnation+incarnationBlock/2 > s.reserved {
		s.reserved = s.incarnation + incarnationBlock
		s.log.Put(counterKey, counterRecord{Version: recordVersion, Reserved: s.reserved})
	}
}

// Reserved is the highest number that a queue may have that is stored.
func (s *State) Reserved() uint64 { return s.reserved }

// GoOnFrom sees to it that no queue is given a number up to n, some of which may have been given to queues
// that are not known any more.
func (s *State) GoOnFrom(n uint64) {
	s.incarnation = max(s.incarnation, n)
	s.Reserve()
}

// nextIncarnation returns a number no queue of this broker ever had.
func (s *State) nextIncarnation() uint64 {
	s.incarnation++
	s.Reserve()
	return s.incarnation
}

// sortedValues lists a map in the order of its keys, so that no map order reaches an effect.
func sortedValues[K cmp.Ordered, V any](m map[K]V) []V {
	values := make([]V, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		values = append(values, m[k])
	}
	return values
}
