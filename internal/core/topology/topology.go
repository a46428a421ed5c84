// Package topology is the machine of declarations: virtual hosts, exchanges, queues, bindings, policies and
// parameters. It also routes messages from an exchange to queues.
//
// The State owns all of it. The package broker calls it and holds a read-write lock around it: methods that change the
// State need the lock for writing, all others only read, so that many publishers may route at once. The State records
// durable changes in a log, which the broker takes and stores before it answers.
//
// The package knows declarations, not messages in queues: counts, consumers and the messages of a deleted queue are the
// broker's. It never opens a file or reads a clock. It checks permissions only with a Permit from its caller, because
// these checks have a fixed place in the order of errors (DL-3.3).
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
	// DefaultProfile is the profile of virtual hosts that are created without one; empty means RabbitMQ's.
	DefaultProfile deadletter.Profile
	// ApsaraPriorities enables priorities in queues of ApsaraMQ's profile; it is stored with each queue at its creation.
	ApsaraPriorities bool
	// DefaultQueueType applies if a virtual host has none; empty means classic (BR-7.3).
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
	traced     map[message.VHost]*VHost // those with Metadata.Tracing
	leaving    map[string]int           // keys of deleted objects whose bindings are still stored: number of deletions

	// Incarnations come from a block that is reserved on disk, so that transient queues cost no write of their own. The
	// reservation is an earlier change than the one that makes the queue: a group may create the queue before that change
	// is stored, or hold its dead letters. If the change is never stored, no other queue may get the number.
	incarnation uint64   // the last number in use
	reserved    uint64   // the last number before the next reservation
	numbered    uint64   // the last number whose reservation is stored
	made        []*Queue // durable queues since TakeMade
	ended       []*Queue // queues of deleted exchanges since TakeEnded
}

// Made lists new objects that are in force only after their changes are stored.
type Made struct {
	queues   []*Queue
	reserved uint64
}

// ErrUnstored refuses a change that depends on another change that is not stored yet. It has changed nothing; the caller
// tries again after that change is stored.
var ErrUnstored = errors.New("a declaration that this depends on is not stored yet")

// ErrLeaving is ErrUnstored for a new object with the name of a deleted one whose bindings are still stored.
var ErrLeaving = fmt.Errorf("bindings of a deleted object with this name are still stored: %w", ErrUnstored)

// incarnationBlock is the number of incarnations that one record reserves.
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

// TakeMade returns the objects made since the last call. They are not in force until the caller has stored the result of
// TakeChanges and called Stored.
func (s *State) TakeMade() Made {
	m := Made{queues: s.made, reserved: s.reserved}
	for _, q := range m.queues {
		q.unstored = true
	}
	s.made = nil
	return m
}

// Numbered says whether the next incarnation is reserved on disk: see State.incarnation.
func (s *State) Numbered() bool { return s.incarnation < s.numbered }

// Stored puts new objects in force, and says whether this changes routes.
func (s *State) Stored(m Made) (opened bool) {
	s.numbered = m.reserved
	for _, q := range m.queues {
		q.unstored = false
		s.revision++
	}
	return len(m.queues) > 0
}

// Reserve reserves incarnations for the next queues. The caller stores the change before it declares the first of them.
func (s *State) Reserve() {
	if s.incarnation+incarnationBlock/2 > s.reserved {
		s.reserved = s.incarnation + incarnationBlock
		s.log.Put(counterKey, counterRecord{Version: recordVersion, Reserved: s.reserved})
	}
}

// Reserved is the highest incarnation that a stored queue may have.
func (s *State) Reserved() uint64 { return s.reserved }

// GoOnFrom ensures that later incarnations are larger than n. Smaller ones may belong to queues that are no
// longer known.
func (s *State) GoOnFrom(n uint64) {
	s.incarnation = max(s.incarnation, n)
	s.Reserve()
}

// nextIncarnation returns a number that no queue of this broker ever had.
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
