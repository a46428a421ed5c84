package partition

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue/index"
	"bartleby.mq/internal/disk/bodyfile"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/disk/store"
)

// Reading the last whole checkpoint: a start reads all of it, an examination only its cut and generation. Each copy
// in the store has the version of its checkpoint. Recovery takes the newest copy that is not newer than the last
// whole checkpoint, and deletes the others.

// CheckpointCut returns the cut of the last whole checkpoint in the store of the index; 0 if there is none.
func CheckpointCut(index *store.Store) (journal.Pos, error) {
	c, err := readCheckpoint(index)
	return c.Cut, err
}

// Generation returns the generation of the last whole checkpoint in the store of the index; 0 if there is none, or if
// an earlier release wrote it.
func Generation(index *store.Store) (uint64, error) {
	c, err := readCheckpoint(index)
	return c.Generation, err
}

func readCheckpoint(index *store.Store) (c checkpoint, err error) {
	value, ok, err := index.Get(nil, []byte{keyCheckpoint})
	if err != nil || !ok {
		return c, err
	}
	if err := json.Unmarshal(value, &c); err != nil {
		return c, &DamageError{fmt.Errorf("the checkpoint cannot be read: %w", err)}
	}
	return c, nil
}

// loadCheckpoint restores the last whole checkpoint and returns its cut, from where the journal continues.
func (r *recovery) loadCheckpoint() (cut journal.Pos, err error) {
	n := r.node
	if n.Index == nil {
		return 0, r.loadGroups()
	}
	c, err := readCheckpoint(n.Index)
	if err == nil && c.Version == 0 {
		err = r.checkBeginning()
	}
	if err != nil {
		return 0, err
	}
	n.checkpoints.generation = c.Generation
	if n.CatchUp != nil && c.Version != 0 {
		n.CatchUp(c.At.UnixMilli())
	}
	if c.Declared != nil {
		n.declared.at = *c.Declared
	}
	for _, kind := range []byte{keyLoosePage, keyLooseSum} {
		if err := n.Index.DeletePrefix([]byte{kind}); err != nil {
			return 0, err
		}
	}
	for _, p := range n.all {
		p.pages.Begin(c.Version + 1)
	}
	if err := r.loadLocal(); err != nil {
		return 0, fmt.Errorf("the outboxes in the checkpoint: %w", err)
	}
	if err := r.loadGroups(); err != nil {
		return 0, err
	}
	if err := r.loadMetas(c.Version); err != nil {
		return 0, err
	}
	if err := r.loadPages(c.Version); err != nil {
		return 0, err
	}
	if err := r.finishGroups(); err != nil {
		return 0, err
	}
	for _, f := range c.Files {
		if f.Space >= message.Spaces || f.Segment > message.MaxSegment || f.Placed < 0 || f.Placed > maxPlaced {
			return 0, &DamageError{fmt.Errorf("the checkpoint names a file that cannot be: %+v", f)}
		}
		n.bodies.SetPlaced(f.Space, f.Segment, f.Placed)
	}
	n.checkpoints.cut.Store(uint64(c.Cut))
	return c.Cut, nil
}

// checkBeginning returns an error if there is no checkpoint and the journal does not begin with its first segment:
// only a checkpoint allows segments to be freed or kept.
func (r *recovery) checkBeginning() error {
	n := r.node
	if n.Repair.Damaged {
		return nil
	}
	first := n.Journal.First()
	var kept []bodyfile.File
	var err error
	if n.Keep != nil {
		kept, err = n.Keep.List()
	}
	switch {
	case err != nil:
		return err
	case first > 1:
		return &DamageError{fmt.Errorf("the index has no checkpoint, but the journal begins with segment %d: everything before is lost with the index", first)}
	case len(kept) > 0:
		return &DamageError{fmt.Errorf("the index has no checkpoint, but there are %d kept files, which only a checkpoint can name", len(kept))}
	}
	return nil
}

// loadMetas restores the state of queues beside their pages, and deletes what an unfinished checkpoint has left.
func (r *recovery) loadMetas(version uint32) error {
	stale, err := r.latest(keyMeta, metaKeyBytes, version, func(incarnation uint64, v uint32, _, value []byte) error {
		q := r.queue(incarnation)
		q.metaSaved = v
		if err := q.m.RestoreMeta(value); err != nil {
			return fmt.Errorf("queue %q in vhost %q: %w", q.Name, q.VHost, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return r.node.Index.Apply(deletions(stale), false)
}

// deltas are the versions of deltas by the copy that each belongs to.
type deltas map[copyKey]uint32

// copyKey names a copy of a page among all queues.
type copyKey struct {
	incarnation uint64
	id          index.PageID
}

// loadDeltas finds the latest delta of each page and deletes the others.
func (r *recovery) loadDeltas(version uint32) (deltas, error) {
	found := deltas{}
	stale, err := r.latest(keyDelta, pageKeyBytes, version, func(_ uint64, own uint32, key, value []byte) error {
		incarnation, id, _ := splitPageKey(key)
		of, err := index.DeltaOf(value)
		if err != nil {
			return fmt.Errorf("the delta of page %d of level %d of a queue: %w", id.Number, id.Lane, err)
		}
		id.Version = of
		found[copyKey{incarnation, id}] = own
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, r.node.Index.Apply(deletions(stale), false)
}

// loadPages restores the pages. It reads their summaries and deltas, not the pages themselves.
func (r *recovery) loadPages(version uint32) error {
	deltas, err := r.loadDeltas(version)
	if err != nil {
		return err
	}
	var delta []byte
	stale, err := r.latest(keySummary, pageKeyBytes, version, func(incarnation uint64, _ uint32, key, value []byte) error {
		q := r.queue(incarnation)
		_, id, _ := splitPageKey(key)
		placed := func(segment uint64, k int64) {
			at := message.Location(segment << 32)
			r.node.bodies.AddLive(at.Space(), at.Segment(), k)
		}
		var err error
		if own := deltas[copyKey{incarnation, id}]; own == 0 {
			err = q.m.RestorePage(id, value, placed)
		} else if delta, err = r.takeDelta(delta, deltas, incarnation, id, own); err == nil {
			err = q.m.RestoreSplit(id, own, delta, placed)
		}
		if err != nil {
			return fmt.Errorf("queue %q in vhost %q: page %d of level %d: %w", q.Name, q.VHost, id.Number, id.Lane, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, key := range stale[:len(stale):len(stale)] {
		page := slices.Clone(key)
		page[0] = keyPage
		stale = append(stale, page)
	}
	var key []byte
	for c, own := range deltas { // the page was saved anew since
		c.id.Version = own
		key = appendPageKey(key[:0], keyDelta, c.incarnation, c.id)
		stale = append(stale, slices.Clone(key))
	}
	return r.node.Index.Apply(deletions(stale), false)
}

// takeDelta reads the delta of a copy and removes it from deltas, so that it is not deleted as stale.
func (r *recovery) takeDelta(b []byte, deltas deltas, incarnation uint64, id index.PageID, own uint32) ([]byte, error) {
	delete(deltas, copyKey{incarnation, id})
	id.Version = own
	b, ok, err := r.node.Index.Get(b[:0], appendPageKey(nil, keyDelta, incarnation, id))
	if err == nil && !ok {
		err = errors.New("its delta is not there")
	}
	return b, err
}

// latest calls f for the latest copy of each thing of a kind that is not newer than version. It returns the keys of
// all other copies.
func (r *recovery) latest(kind byte, size int, version uint32, f func(incarnation uint64, v uint32, key, value []byte) error) (stale [][]byte, err error) {
	var key, value []byte // the latest copy so far
	flush := func() error {
		if key == nil {
			return nil
		}
		return f(binary.BigEndian.Uint64(key[1:]), binary.BigEndian.Uint32(key[size-4:]), key, value)
	}
	err = r.node.Index.Range([]byte{kind}, func(k, v []byte) error {
		if len(k) != size {
			return fmt.Errorf("key %x is malformed", k)
		}
		if binary.BigEndian.Uint32(k[size-4:]) > version {
			stale = append(stale, slices.Clone(k))
			return nil
		}
		if key != nil && slices.Equal(key[:size-4], k[:size-4]) {
			stale = append(stale, slices.Clone(key))
		} else if err := flush(); err != nil {
			return err
		}
		key, value = append(key[:0], k...), append(value[:0], v...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return stale, flush()
}

func deletions(keys [][]byte) func(func([]byte, []byte) bool) {
	return func(yield func([]byte, []byte) bool) {
		for _, k := range keys {
			if !yield(k, nil) {
				return
			}
		}
	}
}
