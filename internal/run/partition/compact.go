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
)

// Bodies that outlive most of what was written with them keep whole files from
// being given back. Compaction copies them into dense files of the keep: for each
// file of which less than half lives, in the order of queues, so that what is read
// together lies together, unless the file is about to be empty by itself. The next checkpoint knows the new places, and then the old
// files go. Nothing of it is logged: recovery from the checkpoint before finds
// the bodies where that one says, since files go after a checkpoint only.

const (
	// compactBelow is the default of Checkpointing.CompactBelow.
	compactBelow = 55
	// compactFile is the size of a dense file, in bytes.
	compactFile = 64 << 20
	// compactRate is how many bytes a second are copied while publishers are busy.
	compactRate = 64 << 20
	// compactSlice is how many pages one hold looks at.
	compactSlice = 4
	// swapSlice is how many entries one hold tells of new places.
	swapSlice = 128
)

// moved is a body that was copied.
type moved struct {
	q    *Queue
	id   queue.ID
	from message.Ref // one reference is ours
	to   message.Location
}

// A compactor finds which files are worth a compaction.
type compactor struct {
	n     *Node
	lived map[uint64]int64 // bodies in each old file when it looked last; guarded by checkpointer.mu
	later atomic.Bool      // it has left a file alone that was about to be empty
}

// A compaction is one of them, on its way.
type compaction struct {
	n      *Node
	sparse map[uint64]bool // files, by the upper half of their locations
	out    *bodyfile.Writer
	copied []moved
	window bodies.Window
	bytes  int64
	began  time.Time
	batch  []moved // found under a lock, to be copied outside it
	unread bool    // the log was told of a record that cannot be read
}

// Compact moves bodies out of files that hold few, if there are enough of them to
// be worth it, and says whether it did. A checkpoint should follow.
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

// sparse are the files of which little is left, as many as there is room to copy.
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
	c.later.Store(later)
	if n.checkpoints.scarce.Load() {
		sparse = thatFit(sparse, n.checkpoints.room.Load()/2)
	}
	return sparse
}

// run copies what lies in the files, and finishes the last dense file.
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

// sparseFile is a file of which little lives, and how many bodies of those it had.
type sparseFile struct {
	file         uint64
	live, placed int64
}

// thatFit are those of the files whose bodies take no more than room together: copies
// are made before files go. Those that give back most come first.
func thatFit(files []sparseFile, room int64) []sparseFile {
	slices.SortFunc(files, func(a, b sparseFile) int { return cmp.Compare(a.live*b.placed, b.live*a.placed) })
	for i, f := range files {
		if room -= f.live * compactFile / f.placed; room < 0 {
			return files[:i]
		}
	}
	return files
}

// emptiesItself says whether a file with so many bodies, of those it had when it was
// looked at last (0 = it was not), will soon have none: to copy them would be in vain.
func emptiesItself(had, has int64) bool { return had > has && (had-has)*3 >= has }

// afterCheckpoint compacts, and writes another checkpoint if that has moved anything.
func (c *compactor) afterCheckpoint() {
	n := c.n
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

// queue copies what lies in the files.
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

// copy copies what a hold has found. Nothing is held.
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
			// One that is out at a consumer stays: who has it has read it, or will see.
			n.setAside(&spoilt{q: m.q, id: m.id, body: m.from, err: err})
			n.bodies.Release(m.from)
			continue
		}
		if err != nil { // it may pass: it stays where it is, with its file, until the next time
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

// tell tells the log of the first record that cannot be read.
func (c *compaction) tell(m *moved, err error) {
	if !c.unread {
		c.unread = true
		c.n.Logger.Error("A message cannot be read to be moved out of an old file, which stays", "vhost", string(m.q.VHost), "queue", m.q.Name, "error", err)
	}
}

// leave lets go of what was found and is not copied, from the i-th on.
func (c *compaction) leave(i int) {
	for _, m := range c.batch[i:] {
		c.n.bodies.Release(m.from)
	}
	c.batch = c.batch[:0]
}

// room finishes the file at hand if that is full.
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

// slowDown keeps compaction from taking the disk from everybody else.
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

// finishFile makes the file durable and lets the queues know of it.
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

// swap lets one entry know. REQUIRES: its partition is held.
func (c *compaction) swap(m *moved, moving *index.Relocation) {
	if m.q.gone {
		return
	}
	to := c.n.bodies.Adopt(m.to)
	if moving.Move(m.id, m.from, to) {
		c.n.bodies.Release(m.from) // the entry's
	} else {
		c.n.bodies.Release(to)
	}
}

// abort gives up the file being written.
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
