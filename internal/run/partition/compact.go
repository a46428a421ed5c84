package partition

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/queue/index"
	"bartleby.mq/internal/disk/bodyfile"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/run/bodies"
	"bartleby.mq/internal/run/deathstore"
)

// A few bodies that outlive most of their file keep the whole file on disk. Compaction copies them into dense files
// of the keep. It takes files of which less than Checkpointing.CompactBelow percent is still in use, unless a file
// will soon be empty anyway. It copies in the order of queues, so that messages that are read together lie together.
// The next checkpoint has the new places, and then the old files go. Nothing is logged: old files go only after a
// checkpoint, so a recovery from the previous checkpoint still finds the bodies at their old places.

const (
	// compactBelow is the default of Checkpointing.CompactBelow.
	compactBelow = 55
	// compactFile is the size of a dense file in bytes.
	compactFile = 64 << 20
	// compactRate is how many bytes a second are copied while publishers are busy.
	compactRate = 64 << 20
	// compactSlice is how many pages one hold looks at.
	compactSlice = 4
	// swapSlice is how many entries one hold points to new places.
	swapSlice = 128
)

// moved is a body that was copied.
type moved struct {
	q    *Queue
	id   queue.ID
	from message.Ref // holds a reference
	to   message.Location
}

// A compactor finds the files worth compacting.
type compactor struct {
	n     *Node
	lived map[uint64]int64 // live bodies in each old file at the last look; guarded by checkpointer.mu
	later atomic.Bool      // a file was left alone because it will soon be empty, or because there was no room for it
}

// A compaction is one run.
type compaction struct {
	n      *Node
	sparse map[uint64]bool // files, by the upper half of their locations
	out    *bodyfile.Writer
	copied []moved
	window bodies.Window
	bytes  int64
	began  time.Time
	batch  []moved // found under a lock, copied without it
	unread bool    // a record that cannot be read was logged
}

// Compact copies bodies out of sparse files and says whether there were any. A checkpoint should follow.
func (n *Node) Compact() (did bool, err error) {
	if n.Keep == nil {
		return false, nil
	}
	n.checkpoints.mu.Lock()
	defer n.checkpoints.mu.Unlock()
	c := compaction{n: n, sparse: map[uint64]bool{}, began: time.Now()}
	for _, f := range n.checkpoints.compactor.sparse() {
		c.sparse[f.file] = true
	}
	if len(c.sparse) == 0 {
		return false, nil
	}
	return true, c.run()
}

// sparse returns the files worth compacting, as many as the disk has room to copy.
func (c *compactor) sparse() (sparse []sparseFile) {
	n := c.n
	cut := journal.Pos(n.checkpoints.cut.Load())
	lived := c.lived
	c.lived = map[uint64]int64{}
	later := false
	n.bodies.RangeSegments(func(space message.Space, segment uint32, live, placed int64) bool {
		old := space == message.InKeep || space == message.InJournal && segment < cut.Segment()
		if !old || live == 0 {
			return true
		}
		file := uint64(message.MakeLocation(space, segment, 0)) >> 32
		c.lived[file] = live
		switch {
		case live*100 >= placed*n.Checkpointing.CompactBelow:
		case emptiesItself(lived[file], live):
			later = true
		default:
			sparse = append(sparse, sparseFile{file, live, placed})
		}
		return true
	})
	if n.checkpoints.scarce.Load() {
		fit := thatFit(sparse, n.checkpoints.room.Load()/2)
		later = later || len(fit) < len(sparse) // what these give back may make room for the others
		sparse = fit
	}
	c.later.Store(later)
	return sparse
}

// run copies the bodies of the sparse files, and finishes the last dense file.
func (c *compaction) run() error {
	defer c.window.Free()
	for _, p := range c.n.all {
		p.mu.Lock()
		var queues []*Queue
		for _, q := range p.queues {
			queues = append(queues, q)
		}
		p.mu.Unlock()
		for _, q := range queues {
			if err := c.queue(q); err != nil {
				c.abort()
				return err
			}
		}
	}
	return c.finishFile()
}

// sparseFile is a sparse file: how many bodies live in it, and how many were ever written to it.
type sparseFile struct {
	file         uint64
	live, placed int64
}

// thatFit returns the files whose bodies fit into room together, because copies are made before files go. Files that
// free the most come first.
func thatFit(files []sparseFile, room int64) []sparseFile {
	slices.SortFunc(files, func(a, b sparseFile) int { return cmp.Compare(a.live*b.placed, b.live*a.placed) })
	for i, f := range files {
		if room -= f.live * compactFile / f.placed; room < 0 {
			return files[:i]
		}
	}
	return files
}

// emptiesItself says whether a file will soon be empty without copying: it had `had` live bodies at the last look
// (0 = not looked at) and has `has` now.
func emptiesItself(had, has int64) bool { return had > has && (had-has)*3 >= has }

// afterCheckpoint compacts, and writes another checkpoint if anything was moved.
func (c *compactor) afterCheckpoint() {
	n := c.n
	deathstore.Compact(n.bodies, n.stopped)
	did, err := n.Compact()
	if err != nil && !errors.Is(err, errStopped) {
		n.Logger.Error("messages cannot be moved out of old files", "error", err)
	}
	if did && err == nil {
		if err := n.Checkpoint(); err != nil && !errors.Is(err, errStopped) {
			n.Logger.Error("the checkpoint failed", "error", err)
		}
	}
}

// queue copies the queue's bodies out of the sparse files.
func (c *compaction) queue(q *Queue) error {
	n := c.n
	var cursor index.SaveCursor
	for done := false; !done; {
		if n.stopped() {
			return errStopped
		}
		began := time.Now()
		h := n.lock(q.part)
		if q.gone {
			n.unlock(h)
			return nil
		}
		cursor, done = q.m.RangeBodies(cursor, compactSlice, func(at uint64) bool { return c.sparse[at>>32] },
			func(id queue.ID, body message.Ref) {
				n.bodies.Retain(body, 1)
				c.batch = append(c.batch, moved{q: q, id: id, from: body})
			})
		n.unlock(h)
		q.part.giveWay(began)
		if err := c.copy(); err != nil {
			return err
		}
	}
	return nil
}

// copy copies the batch that a hold has found. Nothing is locked.
func (c *compaction) copy() error {
	n := c.n
	for i := range c.batch {
		m := &c.batch[i]
		if err := c.room(); err != nil {
			c.leave(i)
			return err
		}
		record, err := n.bodies.Read(m.from, &c.window)
		if bodies.Lost(err) {
			// An entry that is out at a consumer stays: the consumer has read it already, or will find the damage.
			n.setAside(&spoilt{q: m.q, id: m.id, body: m.from, err: err})
			n.bodies.Release(m.from)
			continue
		}
		if err != nil { // the error may pass: the body stays where it is, with its file, until the next run
			c.tell(m, err)
			n.bodies.Release(m.from)
			continue
		}
		if c.out == nil {
			c.out, err = n.Keep.Create()
		}
		var offset uint32
		if err == nil {
			offset, err = c.out.Append(record)
		}
		if err != nil {
			c.leave(i)
			return fmt.Errorf("compaction: queue %q in vhost %q: %w", m.q.Name, m.q.VHost, err)
		}
		m.to = message.MakeLocation(message.InKeep, c.out.Number(), offset)
		c.copied = append(c.copied, *m)
		c.bytes += int64(len(record))
	}
	c.leave(len(c.batch))
	c.slowDown()
	return c.room()
}

// tell logs the first record that cannot be read.
func (c *compaction) tell(m *moved, err error) {
	if !c.unread {
		c.unread = true
		c.n.Logger.Error("A message in an old file cannot be read for compaction; the file stays", "vhost", string(m.q.VHost), "queue", m.q.Name, "error", err)
	}
}

// leave releases the batch from the i-th body on.
func (c *compaction) leave(i int) {
	for _, m := range c.batch[i:] {
		c.n.bodies.Release(m.from)
	}
	c.batch = c.batch[:0]
}

// room finishes the current file if it is full.
func (c *compaction) room() error {
	if c.out == nil || c.out.Size() < compactFile {
		return nil
	}
	c.slowDown()
	if c.n.stopped() {
		return errStopped
	}
	return c.finishFile()
}

// slowDown keeps compaction at compactRate, so that others can use the disk.
func (c *compaction) slowDown() {
	ahead := time.Duration(float64(c.bytes)/compactRate*float64(time.Second)) - time.Since(c.began)
	if ahead < 10*time.Millisecond {
		return
	}
	select {
	case <-c.n.stop:
	case <-time.After(min(ahead, time.Second)):
	}
}

// finishFile makes the file durable and points the queues to it.
func (c *compaction) finishFile() error {
	n := c.n
	if c.out == nil {
		return nil
	}
	if err := c.out.Finish(); err != nil {
		if errors.Is(err, bodyfile.ErrSync) {
			n.fail(fmt.Errorf("compaction: %w", err))
		}
		c.abort()
		return fmt.Errorf("compaction: %w", err)
	}
	n.bodies.Place(message.InKeep, c.out.Number(), int64(len(c.copied)))
	c.out = nil
	n.at(FailKeepCopied)
	for len(c.copied) > 0 {
		q, k, began := c.copied[0].q, 0, time.Now()
		h := n.lock(q.part)
		moving := index.Relocation{X: &q.m.Index}
		for ; k < len(c.copied) && k < swapSlice && c.copied[k].q == q; k++ {
			m := &c.copied[k]
			c.swap(m, &moving)
			h.dropped = append(h.dropped, m.from)
		}
		if !q.gone {
			moving.End()
		}
		c.copied = c.copied[k:]
		n.unlock(h)
		q.part.giveWay(began)
	}
	n.at(FailKeepSwapped)
	return nil
}

// swap points one entry to the copy. REQUIRES: its partition is held.
func (c *compaction) swap(m *moved, moving *index.Relocation) {
	if m.q.gone {
		return
	}
	to := c.n.bodies.Adopt(m.to)
	if moving.Move(m.id, m.from, to) {
		c.n.bodies.Release(m.from) // the entry's reference
	} else {
		c.n.bodies.Release(to)
	}
}

// abort gives up the current file.
func (c *compaction) abort() {
	if c.out != nil {
		_ = c.out.Abort()
		c.out = nil
	}
	for _, m := range c.copied {
		c.n.bodies.Release(m.from)
	}
	c.copied = nil
}
