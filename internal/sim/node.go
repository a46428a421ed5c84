package sim

import (
	"errors"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/run/cluster"
)

// node is one machine: a disk, what it checkpointed, and while it is up a journal, a
// driver and a replica of each group.
type node struct {
	w      *World
	id     uint64
	fs     *vfs.MemFS
	stored map[uint64]checkpoint // by group; durable, written as one
	drift  float64               // of its clock, 1 is none

	up       bool
	dead     bool  // crashed in the middle of an event that is not over
	life     int   // how often it was started: what was planned for an earlier life is void
	paused   int64 // it does nothing until then
	syncing  bool
	journal  *journal.Journal
	driver   *cluster.Driver
	replicas map[uint64]*witness
	host     Host // nil if the model has none
}

// checkpoint is what a node stores of a group.
type checkpoint struct{ state, replica []byte }

// start recovers the node from its disk and runs it.
func (n *node) start() error {
	w := n.w
	n.life++
	n.up, n.syncing, n.replicas, n.host = true, false, map[uint64]*witness{}, nil
	var err error
	n.journal, err = journal.Open(journal.Options{FS: n.fs, Dir: "journal", KeepDir: "keep", SegmentBytes: w.opts.SegmentBytes, KeepRecycled: 2})
	if err != nil {
		return err
	}
	life := n.life
	n.driver, err = cluster.New(cluster.Options{
		ID: n.id, Journal: n.journal, Transport: port{&w.net, n}, TailBytes: w.opts.TailBytes, MaxUncommitted: w.opts.MaxUncommitted,
		OnFatal:   func(err error) { w.fail("node %d: %v", n.id, err) },
		Failpoint: func(name string) { w.failpoint(n, name) },
	})
	if err != nil {
		return err
	}
	if err := n.recover(); err != nil {
		return err
	}
	if err := n.driver.StartStepped(); err != nil {
		return err
	}
	w.settle(n)
	w.tick(n, life)
	return nil
}

// recover brings back what the disk holds.
func (n *node) recover() (err error) {
	if m, ok := n.w.opts.Model.(Hosts); ok {
		n.host, err = m.Start(n.hostEnv())
		return err
	}
	for group := uint64(1); group <= uint64(n.w.opts.Groups); group++ {
		if err := n.open(group); err != nil {
			return err
		}
	}
	return n.journal.Recover(0, n.driver.Recovered)
}

// first is a group's state in the beginning, as this node knows it.
func (n *node) first() cluster.State {
	if n.id > uint64(n.w.opts.Nodes) {
		return cluster.State{}
	}
	ids := make([]uint64, n.w.opts.Nodes)
	for i := range ids {
		ids[i] = uint64(i + 1)
	}
	return cluster.FirstState(ids...)
}

// open opens a group from the checkpoint, or as it was in the beginning.
func (n *node) open(group uint64) error {
	w := n.w
	st := n.first()
	c := n.stored[group]
	if c.state != nil {
		var err error
		if st, err = cluster.DecodeState(c.state); err != nil {
			return err
		}
	}
	r, err := w.opts.Model.Open(Env{Node: n.id, Group: group, Journal: n.journal, Now: func() int64 { return w.now / 1000 }}, c.replica)
	if err != nil {
		return err
	}
	_, err = n.join(group, r, st)
	return err
}

// join makes a replica one of its group's.
func (n *node) join(group uint64, r Replica, st cluster.State) (*cluster.Group, error) {
	x := &witness{Replica: r, w: n.w, node: n, group: group}
	n.replicas[group] = x // what is decided is applied while the journal is read
	g, err := n.driver.Open(group, x, st)
	if err != nil {
		return nil, err
	}
	r.Joined(g)
	return g, nil
}

// checkpoint stores the node's state and frees segments nobody needs.
func (n *node) checkpoint() error {
	if n.host != nil {
		return n.host.Checkpoint(n.w.rng)
	}
	stored := map[uint64]checkpoint{}
	keep := n.journal.Committed()
	for _, g := range n.driver.Groups() {
		x := n.replicas[g.ID()]
		applied, _ := x.Hash()
		st := g.State(applied)
		stored[g.ID()] = checkpoint{st.Append(nil), x.Checkpoint()}
		keep = min(keep, st.Pos)
	}
	if pos, more := n.driver.Unsynced(); more {
		if err := n.journal.Commit(pos); err != nil {
			return err
		}
	}
	n.stored = stored
	return n.journal.Retire(keep.Segment(), nil)
}

// crash ends the node at once.
func (n *node) crash() {
	n.die()
	n.bury()
}

// bury ends what is left of a node that died.
func (n *node) bury() {
	n.up, n.dead = false, false
	n.stop()
}

// stop ends what runs.
func (n *node) stop() {
	n.driver.Stop()
	if n.host != nil {
		n.host.Stop()
	}
}

// die takes the disk as a crash leaves it: all of what was not synced is there,
// nothing, or a torn part. What the node does from here on has no effect on anybody.
func (n *node) die() {
	w := n.w
	n.dead = true
	committed := n.journal.Committed()
	kept := 100 * w.rng.IntN(2)
	clone := n.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: kept, RNG: w.diskRNG})
	if kept == 100 && w.rng.IntN(2) == 0 {
		tear(w, clone, n.journal, committed)
	}
	n.fs = clone
}

// tear overwrites the end of the newest segment, from some point behind what is
// durable, with zeros. (The clone could do so itself, but not in the same order each
// time.)
func tear(w *World, fs *vfs.MemFS, j *journal.Journal, committed journal.Pos) {
	segments := j.Segments()
	if len(segments) == 0 {
		return
	}
	last := segments[len(segments)-1]
	if last.Number != committed.Segment() || last.Bytes <= committed.Offset() {
		return
	}
	names, err := fs.List("journal")
	if err != nil {
		w.fail("list the journal: %v", err)
		return
	}
	newest := ""
	for _, name := range names {
		if len(name) > 4 && name[len(name)-4:] == ".seg" && name > newest {
			newest = name
		}
	}
	f, err := fs.OpenReadWrite("journal/"+newest, vfs.WriteCategoryUnspecified)
	if err != nil {
		w.fail("open a segment: %v", err)
		return
	}
	from := committed.Offset() + w.rng.Int64N(last.Bytes-committed.Offset())
	_, err = f.WriteAt(make([]byte, last.Bytes-from), from)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		w.fail("tear a segment: %v", err)
	}
}
