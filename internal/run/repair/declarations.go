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

// withDeclarations opens the declarations of a data directory for f, and stores what f has changed if f says so. With
// torn, some declarations may be lost: the others are made to agree, and lost says what was done (topology.LoadTorn).
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

// readmit declares queues that have messages, under their old numbers. It returns their names; a name that is unknown
// is made up.
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

// repairedVHost and repairedQueue name the queue for messages whose queue is unknown. The virtual host has nothing
// else: no policy applies, and nobody may read messages that may belong to any other virtual host before an
// administrator allows it.
const (
	repairedVHost = "journal.repaired"
	repairedQueue = "journal.repaired"
)

// declareRepaired returns the number of that queue, and declares it if it does not exist.
func declareRepaired(files vfs.FS, dir string) (incarnation uint64, err error) {
	err = withDeclarations(files, dir, nil, false, func(state *topology.State, _ []string) (bool, error) {
		for _, v := range state.VHosts() {
			for _, q := range v.Queues() {
				mine := v.Name == repairedVHost && q.Name == repairedQueue
				if mine && q.Durable && q.Type == topology.Classic && len(q.Arguments) <= 1 { // only x-queue-type: no client has made it
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

// readNames reads the declarations of a data directory. Opening the store changes its files.
func readNames(files vfs.FS, dir string, onFatal func(error)) (n names, err error) {
	n = names{}
	err = withDeclarations(files, dir, onFatal, false, func(state *topology.State, _ []string) (bool, error) {
		n.add(state)
		return false, nil
	})
	return n, err
}
