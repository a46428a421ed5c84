package partition

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue/index"
	"bartleby.mq/internal/disk/bodyfile"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/disk/store"
)

// A checkpoint saves the state of all durable queues at one moment, the cut, in the store of the index. The queues go
// on meanwhile (see index/checkpoint.go). Recovery reads the last whole checkpoint and repeats the journal from its
// cut. So the time of a start depends on what happened lately, not on how many messages there are.
//
// Copies are written under the version of their checkpoint, beside those of the previous one. One last batch names
// the new version and deletes pages that are no longer needed. Invariant: until that batch is on disk, the previous
// checkpoint counts and has all its copies. Deltas are deleted later.
//
//	cut           all partitions held: a mark in the journal, a new version, the small parts of the state
//	save pages    in slices of one partition at a time, beside all other work
//	commit        first the journal up to the cut, then one batch that makes the checkpoint count
//	give back     files without bodies, and deltas that are no longer needed
//
// From the segments before the cut, recovery now needs only bodies. Segments without live bodies are recycled; the
// others move to the keep.

// A checkpointer writes the node's checkpoints and starts the compaction of files after them.
type checkpointer struct {
	n *Node

	// held by one checkpoint, compaction or backup at a time; only the first two free files
	mu         sync.Mutex
	generation uint64 // of the last whole checkpoint; guarded by mu

	cut         atomic.Uint64 // of the last whole checkpoint, a journal.Pos
	logged      atomic.Int64  // operations since the start
	loggedAtCut atomic.Int64  // logged at the cut of the last whole checkpoint

	scarce atomic.Bool  // the disk has little room
	room   atomic.Int64 // free bytes, while scarce
	hurry  atomic.Bool  // a checkpoint is to be written at once

	hurried chan struct{} // wakes run when hurry is set

	compactor compactor
}

// checkpoint is the value of keyCheckpoint.
type checkpoint struct {
	Version uint32      `json:"version"`
	Cut     journal.Pos `json:"cut"` // the checkpoint has everything before and nothing from here on
	At      time.Time   `json:"at"`
	// Generation counts whole checkpoints. It is 0 in a checkpoint of an earlier release.
	Generation uint64 `json:"generation,omitempty"`
	// Files are the files that hold bodies, with how many were ever written to each. Compaction computes from it how
	// many are gone.
	Files []bodyFile `json:"files"`
	// Declared is how far the log of declarations was on disk.
	Declared *store.Reach `json:"declared,omitempty"`
}

// bodyFile is a file with bodies.
type bodyFile struct {
	Space   message.Space `json:"space"`
	Segment uint32        `json:"segment"`
	Placed  int64         `json:"placed"`
	live    int64
}

// maxPlaced is more bodies than a file has room for.
const maxPlaced = 1<<28 - 1

// saveSlice is how many pages one hold saves.
const saveSlice = 16

// errStopped says that the node is stopping.
var errStopped = errors.New("the node is stopping")

// Stopped says whether a checkpoint was cut short because the node stops.
func Stopped(err error) bool { return errors.Is(err, errStopped) }

// CheckpointCaughtUp is Checkpoint when all that earlier lives of this node have left in the logs is applied: no start will apply
// it again. REQUIRES: the node leads its groups alone.
func (n *Node) CheckpointCaughtUp() error {
	for _, p := range n.groups {
		for leads := false; !leads; {
			p.mu.Lock()
			leads = p.group.leads
			p.mu.Unlock()
			if n.stopped() {
				return errStopped
			}
			if !leads {
				n.pause(time.Millisecond)
			}
		}
	}
	return n.Checkpoint()
}

// Checkpoint writes a checkpoint and frees what the journal no longer needs. It returns when the checkpoint is on
// disk.
func (n *Node) Checkpoint() error {
	if n.Index == nil {
		return nil
	}
	return n.checkpoints.write()
}

func (c *checkpointer) write() error {
	n := c.n
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.beginCut()
	if !ok {
		return nil // not now: the next one will do
	}
	n.at(FailCheckpointCut)
	if err := n.completeExtras(s.extras); err != nil {
		return err
	}
	for i, p := range n.all {
		if err := c.saveQueues(p, s.queues[i]); err != nil {
			return err
		}
	}
	// The store must not have anything that the journal lacks.
	needs := s.cut
	if n.Cluster != nil {
		pos, _ := n.Cluster.Unsynced()
		needs = max(needs, pos)
	}
	if err := n.Journal.Commit(needs); err != nil {
		return err
	}
	// A deleted queue that is not in it must not come back: it would be empty.
	if n.Checkpointing.Removed != nil {
		if err := n.Checkpointing.Removed(); err != nil {
			return err
		}
	}
	deltas, err := c.complete(s)
	if err != nil {
		n.fail(fmt.Errorf("a checkpoint cannot be written: %w", err))
	}
	n.at(FailCheckpointWhole)
	c.cut.Store(uint64(s.cut))
	c.loggedAtCut.Store(s.logged)
	c.giveBack(s)
	if err := c.deleteDeltas(deltas); err != nil {
		n.fail(fmt.Errorf("deltas that no checkpoint needs cannot be deleted: %w", err))
	}
	return nil
}

// stateAtCut is what a checkpoint notes with all partitions held.
type stateAtCut struct {
	cut     journal.Pos
	logged  int64 // operations since the start
	version uint32
	queues  [][]*Queue // the durable ones of each partition
	files   []bodyFile
	extras  []extra
	floor   uint32 // the first segment that recovery may need for groups: see extrasAtCut
}

// beginCut begins a checkpoint. ok is false if this is not the moment for one.
func (c *checkpointer) beginCut() (s *stateAtCut, ok bool) {
	n := c.n
	h := n.lock(n.all...)
	n.outboxes.mu.Lock()
	s = &stateAtCut{cut: n.Journal.Append([]byte{frameVersion, opCut}), logged: c.logged.Load(), queues: make([][]*Queue, len(n.all))}
	s.extras, s.floor, ok = n.extrasAtCut(s.cut)
	n.outboxes.mu.Unlock()
	if !ok {
		n.unlock(h)
		return nil, false
	}
	for i, p := range n.all {
		s.version = p.pages.Cut()
		for _, q := range p.queues {
			if q.Durable {
				s.queues[i] = append(s.queues[i], q)
			}
		}
	}
	// Scratch files do not outlive the process.
	n.bodies.RangeSegments(func(space message.Space, segment uint32, live, placed int64) bool {
		if space != message.InScratch {
			s.files = append(s.files, bodyFile{space, segment, placed, live})
		}
		return true
	})
	n.unlock(h)
	return s, true
}

// saveQueues saves the queues of a partition as they were at the cut.
func (c *checkpointer) saveQueues(p *Partition, queues []*Queue) error {
	n := c.n
	// The store must no longer have what was purged or deleted before the cut.
	for p.bury() {
		if n.stopped() {
			return errStopped
		}
	}
	var cursor index.SaveCursor
	for i := 0; i < len(queues); {
		if n.stopped() {
			return errStopped
		}
		began := time.Now()
		h := n.lock(p)
		before := p.store.written
		for looked := 0; i < len(queues) && looked < 256 && p.store.written-before < saveSlice; looked++ {
			var done bool
			if q := queues[i]; q.gone {
				done = !q.m.BuryRest(sliceLimit) // operations logged since the cut refer to what the queue was at the cut
				looked += 64
			} else {
				cursor, done = q.m.SaveSome(cursor, saveSlice)
			}
			if done {
				cursor = index.SaveCursor{}
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

// complete makes the checkpoint count, and returns the deltas that are no longer needed.
func (c *checkpointer) complete(s *stateAtCut) (deltas []needlessCopy, err error) {
	n := c.n
	generation := c.generation + 1
	value, err := json.Marshal(checkpoint{
		Version: s.version, Cut: s.cut, At: time.UnixMilli(n.Now()).UTC(), Generation: generation, Files: s.files, Declared: n.declared.last(),
	})
	if err != nil {
		return nil, err
	}
	if n.Checkpointing.NewGeneration != nil {
		if err := n.Checkpointing.NewGeneration(generation); err != nil {
			return nil, err
		}
	}
	var pages []needlessCopy
	for _, p := range n.all {
		p.mu.Lock()
		pages, deltas = p.store.takeNeedless(s.version, pages, deltas)
		p.mu.Unlock()
	}
	err = n.Index.Apply(func(yield func([]byte, []byte) bool) {
		if !yield([]byte{keyCheckpoint}, value) {
			return
		}
		for _, e := range s.extras {
			if !yield(e.key, e.value) {
				return
			}
		}
		eachKey(pages, yield)
	}, false)
	if err != nil {
		return nil, err
	}
	if err := n.Index.Flush(); err != nil {
		return nil, err
	}
	c.generation = generation
	return deltas, nil
}

// deleteDeltas deletes deltas that a whole checkpoint has made needless. They may stay a while: a delta means nothing
// beside a later one, or without the copy it belongs to.
func (c *checkpointer) deleteDeltas(deltas []needlessCopy) error {
	n := c.n
	const slice = 512
	for slice := range slices.Chunk(deltas, slice) {
		if n.stopped() {
			return nil
		}
		began := time.Now()
		if err := n.Index.Apply(func(yield func([]byte, []byte) bool) { eachKey(slice, yield) }, false); err != nil {
			return err
		}
		n.pause(3 * time.Since(began))
	}
	return nil
}

// eachKey yields a deletion for each key of the needless copies.
func eachKey(needless []needlessCopy, yield func(key, value []byte) bool) {
	var key []byte
	for i, more := 0, true; more && i < len(needless); i++ {
		key = needless[i].keys(key, func(k []byte) { more = more && yield(k, nil) })
	}
}

// giveBack frees the files to which nothing referred at the cut of a whole checkpoint: no recovery asks for them. A
// body that was moved or settled after the cut still counts, because recovery begins at the cut.
func (c *checkpointer) giveBack(s *stateAtCut) {
	n := c.n
	if n.Repair.Salvage != nil {
		// The repair has made links to these segments, and a recycled file changes. So all go to the keep; the next
		// start removes them from there.
		if err := n.Journal.Retire(s.floor, func(uint32) bool { return true }); err != nil {
			n.Logger.Error("old segments of the journal cannot be moved", "error", err)
		}
		return
	}
	inJournal := uint32(0)
	if segments := n.Journal.Segments(); len(segments) > 0 {
		inJournal = segments[0].Number
	}
	busy := map[uint32]bool{}
	for _, f := range s.files {
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
	err := n.Journal.Retire(s.floor, func(segment uint32) bool {
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

// While the disk is short of room a checkpoint is written after shortEvery, because only a checkpoint frees the space of
// consumed messages, and after emptiedEvery if it would free a file.
const shortEvery, emptiedEvery = 5 * time.Second, time.Second

// ShortOfRoom sets whether the disk has little room, and how much in bytes. While it has little, no file is kept just
// to save time, and the space of consumed messages is freed soon.
func (n *Node) ShortOfRoom(short bool, room int64) {
	c := &n.checkpoints
	c.room.Store(room)
	if c.scarce.Swap(short) == short {
		return
	}
	if err := n.Journal.ShortOfRoom(short); err != nil {
		n.Logger.Error("recycled files of the journal cannot be removed", "error", err)
	}
	c.hurry.Store(short)
	select {
	case c.hurried <- struct{}{}:
	default:
	}
}

// A checkpointer looks whether a checkpoint is due after lookEvery, and after lookIdle if nothing was logged since the last one.
const lookEvery, lookIdle = 200 * time.Millisecond, time.Second

// run writes checkpoints when they are due and compacts files after them.
func (c *checkpointer) run() {
	look := time.NewTimer(lookEvery)
	defer look.Stop()
	for last := time.Now(); ; {
		select {
		case <-c.n.stop:
			return
		case <-c.hurried:
		case <-look.C:
		}
		if c.ifDue(last) {
			last = time.Now()
			c.compactor.afterCheckpoint()
		}
		if c.logged.Load() == c.loggedAtCut.Load() && !c.scarce.Load() {
			look.Reset(lookIdle)
		} else {
			look.Reset(lookEvery)
		}
	}
}

// ifDue writes a checkpoint if enough was logged since the last one, or enough time has passed.
func (c *checkpointer) ifDue(last time.Time) (did bool) {
	n := c.n
	logged := c.loggedSince()
	operations := c.logged.Load() - c.loggedAtCut.Load()
	if logged < n.Checkpointing.Bytes && operations < n.Checkpointing.Operations && (time.Since(last) < n.Checkpointing.Every || logged == 0) &&
		!c.dueForRoom(time.Since(last), operations) && !c.hurry.Swap(false) {
		return false
	}
	if err := n.Checkpoint(); err != nil && !errors.Is(err, errStopped) {
		n.Logger.Error("the checkpoint failed", "error", err)
	}
	return true
}

// dueForRoom says whether room is short and a checkpoint may give some back. passed is the time since the last one, in which
// so many operations were logged.
func (c *checkpointer) dueForRoom(passed time.Duration, operations int64) bool {
	if !c.scarce.Load() {
		return false
	}
	every := c.n.Checkpointing.Every
	return passed >= min(shortEvery, every) && (operations > 0 || c.compactor.later.Load()) || passed >= min(emptiedEvery, every) && c.emptied()
}

// emptied says whether a checkpoint would give back a file because the last body in it has gone. It may have gone after the
// cut of the last checkpoint, though all that was logged about it was before: the client or a move still had it.
func (c *checkpointer) emptied() (found bool) {
	n := c.n
	if n.Repair.Salvage != nil {
		return false // nothing is given back: see giveBack
	}
	segments := n.Journal.Segments()
	if len(segments) == 0 {
		return false
	}
	newest := segments[len(segments)-1].Number
	n.bodies.RangeSegments(func(space message.Space, segment uint32, live, _ int64) bool {
		found = live == 0 && (space == message.InKeep || space == message.InJournal && segment < newest)
		return !found
	})
	return found
}

// loggedSince is how many bytes of the journal a recovery would read now.
func (c *checkpointer) loggedSince() (bytes int64) {
	cut := journal.Pos(c.cut.Load())
	for _, s := range c.n.Journal.Segments() {
		switch {
		case s.Number > cut.Segment():
			bytes += s.Bytes
		case s.Number == cut.Segment():
			bytes += max(0, s.Bytes-cut.Offset())
		}
	}
	return bytes
}
