package broker

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/mutation"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/disk/bodyfile"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/disk/store"
	"bartleby.mq/internal/run/partition"
)

// whatToDo adds to an error of opening a data directory what an operator is to do, if
// the error is of damage.
func whatToDo(dir string, err error) error {
	var log *journal.DamageError
	var state *partition.DamageError
	var parts *IncompleteError
	var lost *LostDeclarationsError
	if !errors.As(err, &log) && !errors.As(err, &state) && !errors.As(err, &parts) && !errors.As(err, &lost) && !store.IsDamage(err) {
		return err
	}
	return fmt.Errorf("%w\nrun: bartleby journal check --data-dir %s", err, dir)
}

// quiet is the logger of what nobody is to read.
var quiet = slog.New(slog.DiscardHandler)

// OpenStopped is Open for an examination or a repair: no worker begins, so that
// nothing happens to messages but what a start does to those whose time has come, and
// files of messages that are missing are no failure. The broker serves nobody.
func OpenStopped(o Options, how Stopped) (*Broker, error) {
	return openNode(o, opening{stopped: true, Stopped: how})
}

// Stopped says what OpenStopped bears.
type Stopped struct {
	Incomplete bool // parts of the data directory are missing, or of different age
	// KeepUndeclared makes queues with messages that nobody has declared a *partition.UndeclaredError; a
	// start takes them for deleted.
	KeepUndeclared bool
	// Salvage brings back what is on disk where the index is lost.
	Salvage *partition.Salvage
}

// opening says what a data directory is opened for.
type opening struct {
	stopped bool // for OpenStopped
	Stopped
}

// Readmit declares queues that have messages, in the data directory of a stopped node, under the numbers
// that they had. It returns how they are called: what is not known any more is made up.
func Readmit(files vfs.FS, dir string, queues []partition.Undeclared) (called []QueueMessages, err error) {
	s, err := store.Open(files, filepath.Join(dir, stateDir), quiet, nil)
	if err != nil {
		return nil, err
	}
	called, err = readmit(s, queues)
	return called, errors.Join(err, s.Close())
}

func readmit(s *store.Store, queues []partition.Undeclared) (called []QueueMessages, err error) {
	state, err := loadTopology(s)
	if err != nil {
		return nil, err
	}
	for _, q := range queues {
		d := topology.Readmitted{VHost: q.VHost, Name: message.QueueName(q.Name), Incarnation: q.Incarnation, Group: q.Group, MaxPriority: q.MaxPriority}
		made, err := state.Readmit(d)
		if err != nil {
			return nil, err
		}
		called = append(called, QueueMessages{VHost: string(made.VHost), Queue: string(made.Name), Messages: q.Messages})
	}
	return called, s.Apply(mutation.All(state.TakeChanges()), true)
}

// RepairedVHost and RepairedQueue name where a repair puts messages of which nobody knows the queue. The virtual
// host has nothing else: no policy holds there, and nobody may read what may be of any other virtual host before an
// administrator says so.
const (
	RepairedVHost = "journal.repaired"
	RepairedQueue = "journal.repaired"
)

// DeclareRepaired returns the number of the queue for messages of which nobody knows the queue, in the data directory
// of a stopped node. It is made if it is not there.
func DeclareRepaired(files vfs.FS, dir string) (incarnation uint64, err error) {
	s, err := store.Open(files, filepath.Join(dir, stateDir), quiet, nil)
	if err != nil {
		return 0, err
	}
	incarnation, err = declareRepaired(s)
	return incarnation, errors.Join(err, s.Close())
}

func declareRepaired(s *store.Store) (uint64, error) {
	state, err := loadTopology(s)
	if err != nil {
		return 0, err
	}
	for _, v := range state.VHosts() {
		for _, q := range v.Queues() {
			mine := v.Name == RepairedVHost && q.Name == RepairedQueue
			if mine && q.Durable && q.Type == topology.Classic && len(q.Arguments) <= 1 { // its type: nobody else has made it
				return q.Incarnation, nil
			}
		}
	}
	q, err := state.Readmit(topology.Readmitted{VHost: RepairedVHost, Name: RepairedQueue})
	if err != nil {
		return 0, err
	}
	return q.Incarnation, s.Apply(mutation.All(state.TakeChanges()), true)
}

// MendDeclarations makes declarations of a stopped node agree of which some are lost: see topology.LoadTorn. It
// says what it has done.
func MendDeclarations(files vfs.FS, dir string, onFatal func(error)) (lost []string, err error) {
	s, err := store.Open(files, filepath.Join(dir, stateDir), quiet, onFatal)
	if err != nil {
		return nil, err
	}
	lost, err = mendDeclarations(s)
	return lost, errors.Join(err, s.Close())
}

func mendDeclarations(s *store.Store) (lost []string, err error) {
	pairs, err := readPairs(s)
	if err != nil {
		return nil, err
	}
	state, lost, err := topology.LoadTorn(topology.Options{}, mutation.All(pairs))
	if err != nil || len(lost) == 0 {
		return nil, err
	}
	return lost, s.Apply(mutation.All(state.TakeChanges()), true)
}

// loadTopology reads the declarations of a store.
func loadTopology(s *store.Store) (*topology.State, error) {
	pairs, err := readPairs(s)
	if err != nil {
		return nil, err
	}
	return topology.Load(topology.Options{}, mutation.All(pairs))
}

func readPairs(s *store.Store) (pairs []mutation.Change, err error) {
	err = s.Range(nil, func(key, value []byte) error {
		pairs = append(pairs, mutation.Change{Key: slices.Clone(key), Value: slices.Clone(value)})
		return nil
	})
	return pairs, err
}

// SetAside shows what was put aside since it could not be used: limit files at most.
func (b *Broker) SetAside(limit int) ([]bodyfile.PutAside, error) { return b.aside.List(limit) }

// FilesSetAside is how many files there are of what was put aside.
func (b *Broker) FilesSetAside() int { return b.aside.Count() }

// QueueMessages is what Verify found of a durable queue.
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
			for _, q := range v.Queues() {
				found = append(found, QueueMessages{VHost: string(q.VHost), Queue: string(q.Name), Incarnation: q.Incarnation, runtime: runtimeOf(q)})
			}
		}
	})
	for i := range found {
		q := &found[i]
		// A group may have deleted a queue whose declaration is back: a start deletes that (buryGhosts).
		if q.Messages, q.Unreadable, err = b.node.Verify(q.runtime); err != nil && !partition.Gone(err) {
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
