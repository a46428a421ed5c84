package cluster

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/safety/held"
)

// Options says what a driver works with. ID and Journal must be set.
type Options struct {
	// ID is the node's, not 0. A node that lost data takes a new one: an id stands
	// for what it promised.
	ID        uint64
	Journal   *journal.Journal // recovered by the owner, who hands on our frames by Driver.Recovered
	Transport Transport        // nil: there are no others
	Logger    *slog.Logger     // none if nil

	// Tick is the unit of Raft's time: 100 ms if 0. A leader is heard of every tick;
	// without one for ElectionTicks (10 if 0) to twice as many, others stand.
	Tick          time.Duration
	ElectionTicks int

	// MaxUncommitted is how many bytes of proposals may be undecided in a group:
	// 16 MiB if 0. A single larger one passes if there is no other.
	MaxUncommitted int
	// TailBytes is how much of what is applied is kept in memory for followers:
	// 16 MiB if 0. Who needs more gets a snapshot.
	TailBytes int

	// OnFatal is called once, with what ended the driver: the journal failed, or a
	// machine could not restore a snapshot. The node has to stop.
	OnFatal func(error)
	// OnLost is called with the *LostError of a replica that turns out to have lost
	// part of its log while it runs. It takes nothing more.
	OnLost func(error)
	// Failpoint is called at the steps named in Failpoints. For tests.
	Failpoint func(name string)
}

func (o Options) withDefaults() (Options, error) {
	if o.ID == 0 || o.Journal == nil {
		return o, errors.New("cluster: a driver needs an id and a journal")
	}
	if o.Transport == nil {
		o.Transport = nowhere{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Tick == 0 {
		o.Tick = 100 * time.Millisecond
	}
	if o.ElectionTicks == 0 {
		o.ElectionTicks = 10
	}
	if o.MaxUncommitted == 0 {
		o.MaxUncommitted = 16 << 20
	}
	if o.TailBytes == 0 {
		o.TailBytes = 16 << 20
	}
	if o.OnFatal == nil {
		o.OnFatal = func(error) {}
	}
	if o.OnLost == nil {
		o.OnLost = func(error) {}
	}
	if o.Failpoint == nil {
		o.Failpoint = func(string) {}
	}
	return o, nil
}

// Driver runs the groups of a node. The order of a start is New, Open for each group
// in the node's checkpoint, Recovered for each of our frames in the journal, Start.
//
// There are two ways to run it. Start starts two goroutines, one that ticks and
// one that commits. StartStepped starts none: then its owner calls Tick, Receive,
// and, once the journal has committed what Unsynced names, Durable; a simulation
// decides so what happens when.
type Driver struct {
	opts Options

	mu     held.Mutex // guards changes of groups
	groups atomic.Pointer[[]*Group]

	started bool // of the start's goroutine

	stopped  atomic.Bool
	unsynced atomic.Uint64 // the highest position of a frame of ours
	handled  atomic.Uint64 // what the journal had committed when Durable last ran

	committer committer
	ticker    ticker
	failing   sync.Once
}

// New makes a driver without groups.
func New(o Options) (*Driver, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	d := &Driver{opts: o}
	d.groups.Store(&[]*Group{})
	d.committer.init(d)
	d.ticker.init(d)
	return d, nil
}

// Open adds a group, by an id that no other group ever had, with what the last
// checkpoint holds of it. m is at st.Applied. A group opened after Start joins at
// once.
func (d *Driver) Open(id uint64, m Machine, st State) (*Group, error) {
	if id == 0 {
		return nil, errors.New("cluster: group id 0")
	}
	g := newGroup(d, id, m, &st)
	d.mu.Lock()
	groups := *d.groups.Load()
	at, there := slices.BinarySearchFunc(groups, id, func(g *Group, id uint64) int {
		switch {
		case g.id < id:
			return -1
		case g.id > id:
			return 1
		}
		return 0
	})
	if there {
		d.mu.Unlock()
		return nil, fmt.Errorf("cluster: group %d is open already", id)
	}
	groups = slices.Insert(slices.Clone(groups), at, g)
	d.groups.Store(&groups)
	started := d.started
	d.mu.Unlock()
	if started {
		if err := g.start(); err != nil {
			return nil, err
		}
		d.wake()
		d.ticker.arm()
	}
	return g, nil
}

// Group returns the group of that id, nil if it was not opened.
func (d *Driver) Group(id uint64) *Group {
	for _, g := range *d.groups.Load() {
		if g.id == id {
			return g
		}
	}
	return nil
}

// Groups lists the groups by id.
func (d *Driver) Groups() []*Group { return slices.Clone(*d.groups.Load()) }

// Recovered takes a frame of the journal whose first byte is FrameFirstByte, at the
// position the journal gives. Frames of groups not open are passed over: theirs are
// gone. What is known to be decided is applied at once. It fails with ErrFrame, with a
// *LostError, or with what Machine.Restore said.
func (d *Driver) Recovered(pos journal.Pos, payload []byte) error {
	f, err := readFrame(d.opts.Journal.PayloadPos(pos), payload)
	if err != nil {
		return fmt.Errorf("journal frame at %v: %w", pos, err)
	}
	g := d.Group(f.group)
	if g == nil {
		return nil
	}
	return g.recovered(pos, &f)
}

// Start makes the groups run. Where this node is the only member it leads when
// Start returns. It fails with a *LostError or with the journal's error.
func (d *Driver) Start() error {
	if err := d.StartStepped(); err != nil {
		return err
	}
	for pos, more := d.Unsynced(); more; pos, more = d.Unsynced() {
		if err := d.Commit(pos); err != nil {
			return err
		}
	}
	d.committer.start()
	d.ticker.start()
	return nil
}

// StartStepped is Start without goroutines, and without waiting for a sync.
func (d *Driver) StartStepped() error {
	d.mu.Lock()
	d.started = true
	d.mu.Unlock()
	for _, g := range *d.groups.Load() {
		if err := g.start(); err != nil {
			return err
		}
	}
	return nil
}

// Stop ends the goroutines and waits for them. Groups take nothing more; nothing is
// handed over to anybody, see Group.Transfer. The journal stays open.
func (d *Driver) Stop() {
	d.stopped.Store(true)
	d.ticker.stop()
	d.committer.stop()
	for _, g := range *d.groups.Load() {
		g.stop()
	}
}

// Receive takes messages for a group from another node. What is for a group or a
// node that is not here is dropped.
func (d *Driver) Receive(group uint64, messages []Message) {
	if g := d.Group(group); g != nil && !d.stopped.Load() {
		g.receive(messages)
		d.wake()
	}
}

// SnapshotSent tells what became of a Transport.SendSnapshot: it arrived, or not.
func (d *Driver) SnapshotSent(to, group uint64, arrived bool) {
	if g := d.Group(group); g != nil && !d.stopped.Load() {
		g.snapshotSent(to, arrived)
		d.wake()
	}
}

// Tick lets one Options.Tick pass in all groups.
func (d *Driver) Tick() {
	if d.stopped.Load() {
		return
	}
	for _, g := range *d.groups.Load() {
		g.tick()
	}
	d.wake()
}

// Unsynced is the position of the last frame of ours in the journal, and whether
// anything is left to do for it: a commit, or a Durable after one.
func (d *Driver) Unsynced() (pos journal.Pos, more bool) {
	pos = journal.Pos(d.unsynced.Load())
	return pos, pos != 0 && pos >= journal.Pos(d.handled.Load())
}

// Durable goes on with whatever waited for the journal and has it now: promises to
// others are sent, decisions applied.
func (d *Driver) Durable() {
	committed := d.opts.Journal.Committed()
	for _, g := range *d.groups.Load() {
		g.durable() // nothing, once stopped
	}
	raise(&d.handled, committed)
}

// Commit returns when the frame at pos is durable; what was decided by that is
// applied, by this goroutine or another. It is for proposers that wait (see
// Group.Append), so that no other goroutine has to be woken. It fails with the
// journal's error, after which nothing goes on. It must not be called from within
// Machine's methods.
func (d *Driver) Commit(pos journal.Pos) error {
	if err := d.opts.Journal.Commit(pos); err != nil {
		d.fail(err)
		return err
	}
	d.Durable()
	return nil
}

// appended notes that a frame at pos is to be committed.
func (d *Driver) appended(pos journal.Pos) { raise(&d.unsynced, pos) }

// raise moves a position forward, never back.
func raise(p *atomic.Uint64, to journal.Pos) {
	for {
		old := p.Load()
		if uint64(to) <= old || p.CompareAndSwap(old, uint64(to)) {
			return
		}
	}
}

// wake has the committer look at what is unsynced.
func (d *Driver) wake() {
	if _, more := d.Unsynced(); more {
		d.committer.wake()
	}
}

// fail ends the driver.
func (d *Driver) fail(err error) {
	d.stopped.Store(true)
	if errors.Is(err, journal.ErrClosed) {
		return
	}
	d.failing.Do(func() { d.opts.OnFatal(err) })
}
