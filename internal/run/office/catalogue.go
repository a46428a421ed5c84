package office

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/letters"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/safety/bug"
)

// entry is what a catalogue keeps of a letter: 16 bytes.
type entry struct {
	id    queue.ID
	group uint32 // index in catalogue.groups
	died  uint32 // in seconds since 1970
}

const entryBytes = 16

// maxGroups is how many groups a catalogue tells apart. Letters beyond share one for each source and reason, because what
// a client writes into headers may differ in any way.
const maxGroups = 4096

// otherErrors is the error of the groups for letters beyond maxGroups.
const otherErrors = "(many different errors)"

// readSlice is how many messages are read in one hold of the queue, glanceSlice how many entries are looked at without their
// messages.
const (
	readSlice   = 256
	glanceSlice = 4096
)

// catalogue is what is known of the letters of one queue.
//
// Invariant: what has left the queue up to the moment at which partition.Extent.Left was left is not in entries; and of
// what was there then, all letters with a number below read are, as long as they are there.
type catalogue struct {
	mu      sync.Mutex // guards what follows; only the goroutine that brings it up to date changes levels, read and groups
	info    broker.QueueInfo
	reads   broker.QueueInfo // info when that goroutine began, which reads it without the lock
	levels  [][]entry        // by level; each in the order of numbers
	read    []uint64         // by level: every letter with a lower number is known
	left    uint64
	made    bool          // it was up to date once
	busy    chan struct{} // a goroutine brings it up to date, and closes it then; nil: none does
	done    int           // entries that this goroutine has looked at
	total   int           // and that it will look at, about
	groups  []groupOf
	index   map[letter.Key]uint32
	version uint64 // rises with each change
	err     error  // of the last try
	asked   int64  // when somebody last asked, for eviction
}

type groupOf struct {
	key   letter.Key
	id    letter.GroupID
	shown letter.Key // behind the mask
	mask  *letter.Mask
}

// shown is what is shown of a group: of one that was read behind another mask than there is now, nothing. REQUIRES: the mu of its catalogue
// is held.
func (f *Office) shown(g *groupOf, vhost message.VHost, reveal bool) letter.Key {
	switch {
	case reveal:
		return g.key
	case g.mask != f.masks.Mask(string(vhost)):
		return letter.Key{Source: letter.Hidden, Reason: g.key.Reason, Class: letter.Hidden, Error: letter.Hidden, Type: letter.Hidden}
	}
	return g.shown
}

func (c *catalogue) letters() (n int) {
	for _, l := range c.levels {
		n += len(l)
	}
	return n
}

// bytes is about what it takes in memory.
func (c *catalogue) bytes() (n int64) {
	for _, l := range c.levels {
		n += int64(cap(l)) * entryBytes
	}
	return n + int64(len(c.groups))*512
}

// catalogues are those of all queues, by incarnation.
type catalogues struct {
	mu     sync.Mutex // guards what follows; taken before the mu of a catalogue
	of     map[uint64]*catalogue
	looked map[uint64]uint64 // queues without letters at their ends: how many numbers were issued then
}

// catalogueOf returns the catalogue of a queue, empty at first.
func (f *Office) catalogueOf(q broker.QueueInfo) *catalogue {
	cs := &f.catalogues
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.of[q.Incarnation()]
	if c == nil {
		c = &catalogue{index: map[letter.Key]uint32{}}
		cs.of[q.Incarnation()] = c
	}
	c.mu.Lock()
	c.info, c.asked = q, f.now()
	c.mu.Unlock()
	return c
}

// forget drops a catalogue.
func (f *Office) forget(c *catalogue) {
	cs := &f.catalogues
	cs.mu.Lock()
	defer cs.mu.Unlock()
	maps.DeleteFunc(cs.of, func(_ uint64, other *catalogue) bool { return other == c })
}

// evict drops catalogues while all of them take more than they may: those of which nobody has asked for longest.
func (f *Office) evict() {
	cs := &f.catalogues
	cs.mu.Lock()
	defer cs.mu.Unlock()
	type candidate struct {
		number       uint64
		bytes, asked int64
	}
	var all []candidate
	sum := int64(0)
	for number, c := range cs.of {
		c.mu.Lock()
		bytes, asked, idle := c.bytes(), c.asked, c.busy == nil
		c.mu.Unlock()
		sum += bytes
		if idle {
			all = append(all, candidate{number, bytes, asked})
		}
	}
	slices.SortFunc(all, func(a, b candidate) int { return cmp.Compare(a.asked, b.asked) })
	for _, c := range all[:max(0, len(all)-1)] { // the one that was asked for last is what somebody looks at
		if sum <= f.CatalogueBytes {
			return
		}
		sum -= c.bytes
		delete(cs.of, c.number)
	}
}

// freshen brings the catalogues of queues up to date, and returns when they are, when patience has passed, or when ctx
// ends. What is not done then goes on.
func (f *Office) freshen(ctx context.Context, queues []broker.QueueInfo, patience time.Duration) []*catalogue {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	list := make([]*catalogue, len(queues))
	waits := make([]<-chan struct{}, len(queues))
	joined := make([]bool, len(queues))
	for i, q := range queues {
		list[i] = f.catalogueOf(q)
		waits[i], joined[i] = f.begin(list[i])
	}
	for i := range list {
		if !await(ctx, waits[i]) {
			break
		}
		if joined[i] { // it had begun before, so that it may not have seen what has come since
			waits[i], _ = f.begin(list[i])
			if !await(ctx, waits[i]) {
				break
			}
		}
	}
	f.evict()
	return list
}

func await(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// begin starts to bring a catalogue up to date, or joins the goroutine that has started.
func (f *Office) begin(c *catalogue) (done <-chan struct{}, joined bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy != nil {
		return c.busy, true
	}
	ended := make(chan struct{})
	c.busy, c.reads = ended, c.info
	f.work.Go(bug.Guarded(f.Logger, "the catalogue of a queue", func() {
		defer close(ended)
		err := c.update(f)
		c.mu.Lock()
		c.busy, c.err = nil, err
		large := c.bytes() > f.CatalogueBytes/16
		c.mu.Unlock()
		if partition.Gone(err) {
			f.forget(c)
		}
		if large {
			f.evict()
		}
	}))
	return ended, false
}

// update brings the catalogue up to date. REQUIRES: the caller has set busy.
func (c *catalogue) update(f *Office) error {
	e, err := letters.Extent(f.b, c.reads)
	if err != nil {
		return err
	}
	ends := e.There.Ends()
	c.mu.Lock()
	for len(c.levels) < len(ends) {
		c.levels, c.read = append(c.levels, nil), append(c.read, 0)
	}
	nothingLeft := c.made && c.left == e.Left()
	c.done, c.total = 0, 0
	if !c.made {
		c.total = e.Entries
	}
	c.mu.Unlock()
	if !nothingLeft && c.made {
		if err := c.prune(f, e); err != nil {
			return err
		}
	}
	reader := letter.NewReader(f.Names).Masked(f.masks.Mask(string(c.reads.Decl.VHost)))
	for level := range ends {
		if err := c.readLevel(f, reader, e, level); err != nil {
			return err
		}
	}
	c.mu.Lock()
	// What has left while it was read for the first time may be in entries: the next call finds that Left has changed.
	c.left, c.made = e.Left(), true
	for i, l := range c.levels {
		if cap(l) > len(l)+len(l)/4 {
			c.levels[i] = slices.Clip(slices.Clone(l))
		}
	}
	c.mu.Unlock()
	return nil
}

// prune takes out what has left, by one walk over the index, without messages.
func (c *catalogue) prune(f *Office, e partition.Extent) error {
	kept := make([][]entry, len(c.levels)) // only this goroutine changes levels
	at := make([]int, len(c.levels))
	for cursor, done := e.There, false; !done; {
		if err := f.life.Err(); err != nil {
			return err
		}
		var err error
		cursor, done, err = letters.Glance(f.b, c.reads, cursor, glanceSlice, func(v queue.View) bool {
			level := v.ID.Lane()
			if level >= len(at) {
				return true
			}
			known := c.levels[level]
			i := at[level]
			for i < len(known) && known[i].id < v.ID {
				i++
			}
			if i < len(known) && known[i].id == v.ID {
				kept[level] = append(kept[level], known[i])
				i++
			}
			at[level] = i
			return true
		})
		if err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.levels = kept
	c.version++
	c.dropGroups()
	return nil
}

// dropGroups forgets groups without letters, once they are most of those that are known. REQUIRES: mu is held.
func (c *catalogue) dropGroups() {
	used := make([]bool, len(c.groups))
	n := 0
	for _, l := range c.levels {
		for i := range l {
			if g := l[i].group; !used[g] {
				used[g] = true
				n++
			}
		}
	}
	if len(c.groups) < 64 || n > len(c.groups)/2 {
		return
	}
	to := make([]uint32, len(c.groups))
	var groups []groupOf
	clear(c.index)
	for i, g := range c.groups {
		if used[i] {
			to[i] = uint32(len(groups))
			c.index[g.key] = to[i]
			groups = append(groups, g)
		}
	}
	c.groups = groups
	for _, l := range c.levels {
		for i := range l {
			l[i].group = to[l[i].group]
		}
	}
}

// readLevel reads what has come to a level.
func (c *catalogue) readLevel(f *Office, reader *letter.Reader, e partition.Extent, level int) error {
	end := e.There.Ends()[level]
	vhost := string(c.reads.Decl.VHost)
	type found struct {
		entry
		key, shown letter.Key
	}
	var some []found
	for cursor := e.There.At(level, c.read[level]); c.read[level] < end; {
		some = some[:0]
		looked, beyond := 0, false
		within, over, err := f.lookOf(f.life, "vhost "+vhost)
		if err != nil {
			return err
		}
		next, done, err := letters.Browse(f.life, f.b, c.reads, cursor, readSlice, func(v queue.View, r message.Record, history []byte) bool {
			if beyond = v.ID.Lane() != level; beyond {
				return false
			}
			looked++
			if l, ok := reader.Read(r, history); ok {
				some = append(some, found{entry{id: v.ID, died: uint32(max(0, l.Died) / 1000)}, l.Group(), l.GroupShown()})
			}
			return within()
		})
		over()
		if err != nil {
			return err
		}
		c.mu.Lock()
		for i := range some {
			some[i].group = c.group(vhost, some[i].key, some[i].shown, reader.Mask())
			c.levels[level] = append(c.levels[level], some[i].entry)
		}
		if len(some) > 0 {
			c.version++
		}
		c.done += looked
		cursor = next
		if done || beyond {
			c.read[level] = end
		} else if id, ok := next.Last(); ok && id.Lane() == level {
			c.read[level] = id.Seq() + 1
		} else {
			c.read[level] = end // the level has ended
		}
		c.mu.Unlock()
	}
	return nil
}

// group returns the index of a group. REQUIRES: mu is held.
func (c *catalogue) group(vhost string, k, shown letter.Key, mask *letter.Mask) uint32 {
	if i, ok := c.index[k]; ok {
		return i
	}
	if len(c.groups) >= maxGroups {
		k.Class, k.Error, k.Type = "", otherErrors, ""
		shown.Class, shown.Error, shown.Type = "", otherErrors, ""
		if i, ok := c.index[k]; ok {
			return i
		}
		if len(c.groups) >= 2*maxGroups {
			k, shown = letter.Key{Error: otherErrors}, letter.Key{Error: otherErrors}
			if i, ok := c.index[k]; ok {
				return i
			}
		}
	}
	i := uint32(len(c.groups))
	c.groups = append(c.groups, groupOf{k, k.ID(vhost), shown, mask})
	c.index[k] = i
	return i
}
