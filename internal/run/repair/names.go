package repair

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/mutation"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/disk/store"
	"bartleby.mq/internal/run/broker"
)

// names are the declared queues, by incarnation.
type names map[uint64]Touched

// of names a queue, which may have been deleted.
func (n names) of(incarnation uint64) Touched {
	if t, ok := n[incarnation]; ok {
		return t
	}
	return Touched{Queue: fmt.Sprintf("#%d, not declared any more", incarnation)}
}

// namesIn are the queues of a broker.
func namesIn(b *broker.Broker) names {
	n := names{}
	b.Read(func(s *topology.State, _ *auth.Users) { n.add(s) })
	return n
}

func (n names) add(s *topology.State) {
	for _, v := range s.VHosts() {
		for _, q := range v.Queues() {
			n[q.Incarnation] = Touched{VHost: string(q.VHost), Queue: string(q.Name)}
		}
	}
}

// readNames reads the declarations of a data directory, which is changed by that.
func readNames(files vfs.FS, dir string, onFatal func(error)) (n names, err error) {
	s, err := store.Open(files, files.PathJoin(dir, stateDir), slog.New(slog.DiscardHandler), onFatal)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	var pairs []mutation.Change
	err = s.Range(nil, func(key, value []byte) error {
		pairs = append(pairs, mutation.Change{Key: slices.Clone(key), Value: slices.Clone(value)})
		return nil
	})
	if err != nil {
		return nil, err
	}
	state, err := topology.Load(topology.Options{}, mutation.All(pairs))
	if err != nil {
		return nil, err
	}
	n = names{}
	n.add(state)
	return n, nil
}
