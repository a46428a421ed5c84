package partition

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/disk/bodyfile"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/disk/store"
)

// A checkpoint saves what all durable queues were at one moment, the cut, in the
// store of the index, while they go on (see queue's checkpoint.go). Recovery
// takes the last whole one and redoes what the journal holds from the cut on, so
// that how long a start takes depends on what happened lately and not on how
// much there is.
//
// Copies are written under the version of the checkpoint they belong to, beside
// those of the one before; one last batch names the version and deletes the pages it
// has made needless; deltas go after it. Until that batch is on disk the checkpoint
// before counts.
//
// Once a checkpoint is whole the segments of the journal before its cut are not
// read any more but for the bodies in them: those without any are used again,
// the others become files of the keep.

// checkpoint is the value of keyCheckpoint.
type checkpoint struct {
	Version uint32      `json:"version"`
	Cut     journal.Pos `json:"cut"` // what was appended from here on is not in it
	At      time.Time   `json:"at"`
	// Generation counts whole checkpoints; 0: a release before this one has written it.
	Generation uint64 `json:"generation,omitempty"`
	// Files are those that hold bodies, with how many were ever written to each, by
	// which compaction judges how many have gone.
	Files []bodyFile `json:"files"`
	// Declared is how far the log of declarations was on disk.
	Declared *store.Reach `json:"declared,omitempty"`
}

// bodyFile is a file that bodies lie in.
type bodyFile struct {
	Space   message.Space `json:"space"`
	Segment uint32        `json:"segment"`
	Placed  int64         `json:"placed"`
	live    int64
}

// maxPlaced is more than a file has room for.
const maxPlaced = 1<<28 - 1

// saveSlice is how many pages one hold saves.
const saveSlice = 16

// errStopped says that the node was stopped meanwhile.
var errStopped = errors.New("the node is stopping")

// Checkpoint writes a checkpoint and gives back what the journal does not need
// any more. It returns when it is on disk.
func (n *Node) Checkpoint() error {
	if n.Index == nil {
		return nil
	}
	n.checkpointing.Lock()
	defer n.checkpointing.Unlock()
	parts := n.all
	h := n.lock(parts...)
	n.mailMu.Lock()
	cut, operations := n.Journal.Append([]byte{frameVersion, opCut}), n.operationsLogged.Load()
	extras, floor, ok := n.extrasAtCut(cut)
	n.mailMu.Unlock()
	if !ok {
		n.unlock(h)
		return nil // the next one will do
	}
	var version uint32
	queues := make([][]*Queue, len(parts))
	for i, p := range parts {
		version = p.pages.Cut()
		for _, q := range p.queues {
			if q.Durable {
				queues[i] = append(queues[i], q)
			}
		}
	}
	files := n.filesAtCut()
	n.unlock(h)
	n.at(FailCheckpointCut)
	if err := n.completeExtras(extras); err != nil {
		return err
	}
	for i, p := range parts {
		if err := n.saveQueues(p, queues[i]); err != nil {
			return err
		}
	}
	// Nothing of the checkpoint may be on disk that the journal does not have.
	needs := cut
	if n.Cluster != nil {
		pos, _ := n.Cluster.Unsynced()
		needs = max(needs, pos)
	}
	if err := n.Journal.Commit(needs); err != nil {
		return err
	}
	// A queue that is not in it must not come back: it would be empty.
	if n.Removed != nil {
		if err := n.Removed(); err != nil {
			return err
		}
	}
	deltas, err := n.completeCheckpoint(version, cut, files, extras)
	if err != nil {
		n.fail(fmt.Errorf("a checkpoint cannot be written: %w", err))
	}
	n.at(FailCheckpointWhole)
	n.cut.Store(uint64(cut))
	n.operationsAtCut.Store(operations)
	n.giveBack(floor, files)
	if err := n.deleteDeltas(deltas); err != nil {
		n.fail(fmt.Errorf("what a checkpoint does not need cannot be deleted: %w", err))
	}
	return nil
}

// saveQueues saves what the queues of a partition were at the cut.
func (n *Node) saveQueues(p *Partition, queues []*Queue) error {
	// What was purged or deleted before the cut must be gone from the store.
	for p.bury() {
		if n.stopped() {
			return errStopped
		}
	}
	var cursor queue.SaveCursor
	for i := 0; i < len(queues); {
		if n.stopped() {
			return errStopped
		}
		began := time.Now()
		h := n.lock(p)
		before := n.pagesWritten.Load()
		for looked := 0; i < len(queues) && looked < 256 && n.pagesWritten.Load()-before < saveSlice; looked++ {
			var done bool
			if q := queues[i]; q.gone {
				done = !q.m.BuryRest(sliceLimit) // what was logged of it since the cut needs what it was then
				looked += 64
			} else {
				cursor, done = q.m.SaveSome(cursor, saveSlice)
			}
			if done {
				cursor = queue.SaveCursor{}
				i++
			}
		}
		n.unlock(h)
		n.at(FailCheckpointPages)
		p.giveWay(began)
	}
	p.mu.Lock()
	p.pages.CutDone()
	p.mu.Unlock()
	return nil
}

// completeCheckpoint makes the checkpoint the one that counts, and returns the deltas
// that nobody needs any more.
func (n *Node) completeCheckpoint(version uint32, cut journal.Pos, files []bodyFile, extras []extra) (deltas []goneKey, err error) {
	c := checkpoint{Version: version, Cut: cut, At: time.UnixMilli(n.Now()).UTC(), Generation: n.generation + 1, Files: files, Declared: n.noted()}
	value, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	if n.NewGeneration != nil {
		if err := n.NewGeneration(c.Generation); err != nil {
			return nil, err
		}
	}
	var gone []goneKey
	for _, p := range n.all {
		p.mu.Lock()
		p.gone = slices.DeleteFunc(p.gone, func(g goneKey) bool {
			switch {
			case g.by > version:
				return false
			case g.kind == keyDelta:
				deltas = append(deltas, g)
			default:
				gone = append(gone, g)
			}
			return true
		})
		p.mu.Unlock()
	}
	err = n.Index.Apply(func(yield func([]byte, []byte) bool) {
		if !yield([]byte{keyCheckpoint}, value) {
			return
		}
		for _, e := range extras {
			if !yield(e.key, e.value) {
				return
			}
		}
		eachKey(gone, yield)
	}, false)
	if err != nil {
		return nil, err
	}
	if err := n.Index.Flush(); err != nil {
		return nil, err
	}
	n.generation = c.Generation
	return deltas, nil
}

// deleteDeltas deletes deltas that a checkpoint which is whole has made needless.
// They need not go with it at once: a delta means nothing beside a later one, or
// without the copy that it belongs to.
func (n *Node) deleteDeltas(deltas []goneKey) error {
	const slice = 512
	for slice := range slices.Chunk(deltas, slice) {
		if n.stopped() {
			return nil
		}
		began := time.Now()
		if err := n.Index.Apply(func(yield func([]byte, []byte) bool) { eachKey(slice, yield) }, false); err != nil {
			return err
		}
		n.rest(3 * time.Since(began))
	}
	return nil
}

// eachKey yields the deletion of each key that stands in the store for what is gone.
func eachKey(gone []goneKey, yield func(key, value []byte) bool) {
	var key []byte
	for i, more := 0, true; more && i < len(gone); i++ {
		key = gone[i].keys(key, func(k []byte) { more = more && yield(k, nil) })
	}
}

// filesAtCut are the files that hold bodies. REQUIRES: all partitions are held.
func (n *Node) filesAtCut() (files []bodyFile) {
	n.bodies.RangeSegments(func(space message.Space, segment uint32, live, placed int64) bool {
		if space != message.InScratch { // these do not outlive the process
			files = append(files, bodyFile{space, segment, placed, live})
		}
		return true
	})
	return files
}

// giveBack lets go of files that nothing referred to at the cut of a checkpoint
// that is whole: no recovery will ask for them. What was moved or settled since
// the cut still counts, since a recovery from this checkpoint begins with it.
func (n *Node) giveBack(floor uint32, files []bodyFile) {
	if n.Salvage != nil {
		// A repair has put links to the segments away, and what is used again changes: all go to the keep, which
		// only removes files. The next start does that.
		if err := n.Journal.Retire(floor, func(uint32) bool { return true }); err != nil {
			n.Logger.Error("old segments of the journal cannot be moved", "error", err)
		}
		return
	}
	inJournal := uint32(0)
	if segments := n.Journal.Segments(); len(segments) > 0 {
		inJournal = segments[0].Number
	}
	busy := map[uint32]bool{}
	for _, f := range files {
		switch {
		case f.Space == message.InJournal && f.live > 0:
			busy[f.Segment] = true
		case f.live > 0 || f.Segment >= inJournal && f.Space == message.InJournal:
		default:
			if err := n.Keep.Drop(keepKind(f.Space), f.Segment); err != nil {
				n.Logger.Error("a file without messages cannot be removed", "file", f.Segment, "error", err)
				continue
			}
			n.bodies.SetPlaced(f.Space, f.Segment, 0)
		}
	}
	err := n.Journal.Retire(floor, func(segment uint32) bool {
		if !busy[segment] {
			n.bodies.SetPlaced(message.InJournal, segment, 0)
		}
		return busy[segment]
	})
	if err != nil {
		n.Logger.Error("old segments of the journal cannot be given back", "error", err)
	}
}

func keepKind(s message.Space) bodyfile.Kind {
	if s == message.InJournal {
		return bodyfile.Retired
	}
	return bodyfile.Dense
}

func (n *Node) stopped() bool {
	select {
	case <-n.stop:
		return true
	default:
		return false
	}
}

// shortEvery is the time after which a checkpoint is written while room is short: what has
// been drained is given back by checkpoints only.
const shortEvery = 5 * time.Second

// ShortOfRoom says whether there is little room on the disk, and how much, in bytes. While there
// is little, nothing is kept that only saves time, and what was drained is given back soon.
func (n *Node) ShortOfRoom(short bool, room int64) {
	n.room.Store(room)
	if n.scarce.Swap(short) == short {
		return
	}
	if err := n.Journal.ShortOfRoom(short); err != nil {
		n.Logger.Error("recycled files of the journal cannot be removed", "error", err)
	}
	n.hurry.Store(short)
}

// checkpointIfDue writes a checkpoint if enough was logged since the last one,
// or long enough ago.
func (n *Node) checkpointIfDue(last time.Time) (did bool) {
	logged := n.loggedSince()
	operations := n.operationsLogged.Load() - n.operationsAtCut.Load()
	short := n.scarce.Load() && time.Since(last) >= min(shortEvery, n.CheckpointEvery) && (operations > 0 || n.compactLater.Load())
	if logged < n.CheckpointBytes && operations < n.CheckpointOperations && (time.Since(last) < n.CheckpointEvery || logged == 0) &&
		!short && !n.hurry.Swap(false) {
		return false
	}
	if err := n.Checkpoint(); err != nil && !errors.Is(err, errStopped) {
		n.Logger.Error("the checkpoint failed", "error", err)
	}
	return true
}

// loggedSince is how many bytes of the journal recovery would have to read.
func (n *Node) loggedSince() (bytes int64) {
	cut := journal.Pos(n.cut.Load())
	for _, s := range n.Journal.Segments() {
		switch {
		case s.Number > cut.Segment():
			bytes += s.Bytes
		case s.Number == cut.Segment():
			bytes += max(0, s.Bytes-cut.Offset())
		}
	}
	return bytes
}

// loadCheckpoint brings back what the last whole checkpoint saved and returns
// where the journal goes on from there.
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
	n.generation = c.Generation
	if c.Declared != nil {
		n.declared = *c.Declared
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
		return 0, fmt.Errorf("the local mail in the checkpoint: %w", err)
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
	n.cut.Store(uint64(c.Cut))
	return c.Cut, nil
}

// checkBeginning demands that the journal has everything, where there is no checkpoint:
// only after one is anything given back, or kept.
func (r *recovery) checkBeginning() error {
	n := r.node
	if n.Damaged {
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
		return &DamageError{fmt.Errorf("the index has no checkpoint, and the journal begins with segment %d: what was before is lost with the index", first)}
	case len(kept) > 0:
		return &DamageError{fmt.Errorf("the index has no checkpoint, and there are %d kept files, which only it can tell of", len(kept))}
	}
	return nil
}

// loadMetas restores what queues have beside their pages. What a checkpoint that
// was never whole has left is deleted.
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

// deltas are those that a checkpoint has, by the copy that each belongs to.
type deltas map[copyKey]uint32

// copyKey names a copy of a page among all queues.
type copyKey struct {
	incarnation uint64
	id          queue.PageID
}

// loadDeltas finds the latest delta of each page and deletes the others.
func (r *recovery) loadDeltas(version uint32) (deltas, error) {
	found := deltas{}
	stale, err := r.latest(keyDelta, pageKeyBytes, version, func(_ uint64, own uint32, key, value []byte) error {
		incarnation, id, _ := splitPageKey(key)
		of, err := queue.DeltaOf(value)
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

// loadPages restores the pages, none of which is read: their summaries are, and deltas.
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
	for c, own := range deltas { // of copies that were saved anew since
		c.id.Version = own
		key = appendPageKey(key[:0], keyDelta, c.incarnation, c.id)
		stale = append(stale, slices.Clone(key))
	}
	return r.node.Index.Apply(deletions(stale), false)
}

// takeDelta reads the delta of a copy, which is not stale then.
func (r *recovery) takeDelta(b []byte, deltas deltas, incarnation uint64, id queue.PageID, own uint32) ([]byte, error) {
	delete(deltas, copyKey{incarnation, id})
	id.Version = own
	b, ok, err := r.node.Index.Get(b[:0], appendPageKey(nil, keyDelta, incarnation, id))
	if err == nil && !ok {
		err = errors.New("its delta is not there")
	}
	return b, err
}

// latest calls f for the latest copy of each thing of a kind that is not newer
// than version, and returns the keys of the others.
func (r *recovery) latest(kind byte, size int, version uint32, f func(incarnation uint64, v uint32, key, value []byte) error) (stale [][]byte, err error) {
	var key, value []byte // the copy that is the latest so far
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
