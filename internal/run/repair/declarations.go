package repair

import (
	"errors"
	"log/slog"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/mutation"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/disk/store"
	"bartleby.mq/internal/run/datadir"
	"bartleby.mq/internal/run/partition"
)

// withDeclarations opens the declarations of a data directory for f, and stores what f has changed if it says so. Where some
// may be lost, torn has the others made to agree, and f is told which: see topology.LoadTorn.
func withDeclarations(files vfs.FS, dir string, onFatal func(error), torn bool, f func(state *topology.State, lost []string) (changed bool, err error)) (err error) {
	s, err := store.Open(files, files.PathJoin(dir, datadir.StateDir), slog.New(slog.DiscardHandler), onFatal)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	pairs, err := datadir.Declarations(s)
	if err != nil {
		return err
	}
	var state *topology.State
	var lost []string
	if torn {
		state, lost, err = topology.LoadTorn(topology.Options{}, mutation.All(pairs))
	} else {
		state, err = topology.Load(topology.Options{}, mutation.All(pairs))
	}
	if err != nil {
		return err
	}
	if changed, err := f(state, lost); err != nil || !changed {
		return err
	}
	return s.Apply(mutation.All(state.TakeChanges()), true)
}

// readmit declares queues that have messages under the numbers that they had. It returns how they are
// called: what is not known any more is made up.
func readmit(files vfs.FS, dir string, queues []partition.Undeclared) (called []Touched, err error) {
	err = withDeclarations(files, dir, nil, false, func(state *topology.State, _ []string) (bool, error) {
		for _, q := range queues {
			d := topology.Readmitted{VHost: q.VHost, Name: message.QueueName(q.Name), Incarnation: q.Incarnation, Group: q.Group, MaxPriority: q.MaxPriority}
			made, err := state.Readmit(d)
			if err != nil {
				return false, err
			}
			called = append(called, Touched{VHost: string(made.VHost), Queue: string(made.Name), Messages: q.Messages})
		}
		return true, nil
	})
	return called, err
}

// repairedVHost and repairedQueue name where a repair puts messages of which nobody knows the queue. The virtual
// host has nothing else: no policy holds there, and nobody may read what may be of any other virtual host before an
// administrator says so.
const (
	repairedVHost = "journal.repaired"
	repairedQueue = "journal.repaired"
)

// declareRepaired returns the number of the queue for messages of which nobody knows the queue. It is made if it is
// not there.
func declareRepaired(files vfs.FS, dir string) (incarnation uint64, err error) {
	err = withDeclarations(files, dir, nil, false, func(state *topology.State, _ []string) (bool, error) {
		for _, v := range state.VHosts() {
			for _, q := range v.Queues() {
				mine := v.Name == repairedVHost && q.Name == repairedQueue
				if mine && q.Durable && q.Type == topology.Classic && len(q.Arguments) <= 1 { // its type: nobody else has made it
					incarnation = q.Incarnation
					return false, nil
				}
			}
		}
		q, err := state.Readmit(topology.Readmitted{VHost: repairedVHost, Name: repairedQueue})
		if err == nil {
			incarnation = q.Incarnation
		}
		return true, err
	})
	return incarnation, err
}

// repairDeclarations makes the declarations agree if some are lost. It returns what was lost and what it did about it.
func repairDeclarations(files vfs.FS, dir string, onFatal func(error)) (lost []string, err error) {
	err = withDeclarations(files, dir, onFatal, true, func(_ *topology.State, missing []string) (bool, error) {
		lost = missing
		return len(lost) > 0, nil
	})
	return lost, err
}

// readNames reads the declarations of a data directory, which is changed by that.
func readNames(files vfs.FS, dir string, onFatal func(error)) (n names, err error) {
	n = names{}
	err = withDeclarations(files, dir, onFatal, false, func(state *topology.State, _ []string) (bool, error) {
		n.add(state)
		return false, nil
	})
	return n, err
}
