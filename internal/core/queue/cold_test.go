package queue

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"

	"pgregory.net/rapid"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue/index"
)

// shelf is a Cold in memory. The location of a body is its number. The bytes of a history are its number, and the
// part that it shares with others is another number.
type shelf struct {
	pages map[index.PageID]shelved
	metas map[uint32][]byte
	away  map[message.Ref]int       // histories, less the references in memory
	gone  map[uint32][]index.PageID // copies by the version that makes them needless

	deltas     map[index.PageID][]byte
	goneDeltas map[uint32][]index.PageID

	cut     uint32 // the checkpoint being written, 0 = none
	logFrom int
	cursor  index.SaveCursor

	nonsense bool // copies that come back may be anything
	locked   bool // a read now would make all declarations wait for a disk
}

type shelved struct{ page, summary []byte }

func newShelf() *shelf {
	return &shelf{pages: map[index.PageID]shelved{}, metas: map[uint32][]byte{}, away: map[message.Ref]int{}, gone: map[uint32][]index.PageID{},
		deltas: map[index.PageID][]byte{}, goneDeltas: map[uint32][]index.PageID{}}
}

const diskBit message.Ref = 1 << 63

// name is the number of a body, wherever the body is.
func name(body message.Ref) message.Ref { return body &^ diskBit }

func (s *shelf) Locate(body message.Ref) uint64    { return uint64(name(body)) }
func (s *shelf) Cool(body message.Ref) message.Ref { return body | diskBit }
func (s *shelf) At(location uint64) message.Ref    { return message.Ref(location) | diskBit }
func (s *shelf) Bytes(history message.Ref) []byte {
	return binary.AppendUvarint(nil, uint64(history))
}
func (s *shelf) Parts(history message.Ref) (common message.Ref, own []byte) {
	if history%3 > 0 {
		common = history/8 + 1
	}
	return common, s.Bytes(history)
}
func (s *shelf) Keep(common, own []byte) message.Ref {
	v, _ := binary.Uvarint(own)
	history := message.Ref(v)
	var want []byte
	if c, _ := s.Parts(history); c != 0 {
		want = s.Bytes(c)
	}
	if !bytes.Equal(common, want) && !s.nonsense {
		panic(fmt.Sprintf("history %d has %x in common with others, and comes back with %x", history, want, common))
	}
	s.away[history]--
	return history
}
func (s *shelf) Retain(history message.Ref)  { s.away[history]-- }
func (s *shelf) Release(history message.Ref) { s.away[history]++ }
func (s *shelf) enter() {
	if s.locked {
		panic("the disk is asked")
	}
}
func (s *shelf) Write(id index.PageID, page, summary []byte) {
	s.enter()
	s.pages[id] = shelved{bytes.Clone(page), bytes.Clone(summary)}
}
func (s *shelf) Read(id index.PageID) []byte {
	s.enter()
	p, ok := s.pages[id]
	if !ok {
		panic(fmt.Sprintf("page %+v was never written, or discarded", id))
	}
	return p.page
}
func (s *shelf) WriteMeta(version uint32, meta []byte) {
	s.enter()
	s.metas[version] = bytes.Clone(meta)
}
func (s *shelf) Discard(id index.PageID, by uint32) {
	if slices.Contains(s.gone[by], id) {
		panic(fmt.Sprintf("page %+v was discarded twice", id))
	}
	if id.Version >= by {
		if _, ok := s.pages[id]; !ok {
			panic(fmt.Sprintf("page %+v was discarded and is not there", id))
		}
		delete(s.pages, id)
		return
	}
	s.gone[by] = append(s.gone[by], id)
}
func (s *shelf) WriteDelta(id index.PageID, delta []byte) {
	s.enter()
	s.deltas[id] = bytes.Clone(delta)
}
func (s *shelf) DiscardDelta(id index.PageID, by uint32) {
	if slices.Contains(s.goneDeltas[by], id) {
		panic(fmt.Sprintf("the delta of page %+v was discarded twice", id))
	}
	s.goneDeltas[by] = append(s.goneDeltas[by], id)
}
func (s *shelf) Fail(id index.PageID, err error) { panic(fmt.Sprintf("page %+v: %v", id, err)) }

// putAway takes pages out of memory. Nothing that can be seen changes.
func (p *pair) putAway(t *rapid.T) {
	if rapid.Bool().Draw(t, "again") {
		p.m.SweepAgain(rapid.Bool().Draw(t, "index again"))
	}
	p.m.PutAway(rapid.IntRange(1, 5).Draw(t, "pages"), rapid.IntRange(0, 3).Draw(t, "index") > 0)
}

// putBodiesAway takes all bodies out of memory that may leave. The bodies that stay belong to pages at the ends of a
// lane, or to split pages.
func (p *pair) putBodiesAway(t *rapid.T) {
	p.m.SweepAgain(false)
	p.m.PutAway(math.MaxInt, false)
	if err := p.m.Middle(); err != nil {
		t.Fatal(err)
	}
}

// putEveryBodyAway takes all bodies out of memory, wherever they stand, a few at a time.
func (p *pair) putEveryBodyAway(t *rapid.T) {
	for n := 0; p.m.pages.PutBodiesAway(rapid.IntRange(1, 5).Draw(t, "pages"), rapid.Int64Range(1, 1000).Draw(t, "bytes")); n++ {
		if rapid.IntRange(0, 9).Draw(t, "enough") == 0 {
			return
		}
	}
	if large, small, nowhere := p.m.hold(p.cold); large+small+nowhere > 0 {
		t.Fatalf("%d bodies of large messages and %d others are in memory", large, small+nowhere)
	}
}

// putAllAway takes all pages out of memory that may leave.
func (p *pair) putAllAway(*rapid.T) {
	p.m.SweepAgain(true)
	p.m.PutAway(math.MaxInt, true)
}

// move moves the bodies on disk, wherever their pages are. A new place has the name of the old one, by which the
// model knows a body.
func (p *pair) move(t *rapid.T) {
	type found struct {
		id   ID
		body message.Ref
	}
	var list []found
	odd := rapid.Uint64Range(1, 3).Draw(t, "every")
	for cursor, done := (index.SaveCursor{}), false; !done; {
		cursor, done = p.m.RangeBodies(cursor, 2, func(at uint64) bool { return at%odd == 0 }, func(id ID, body message.Ref) {
			list = append(list, found{id, body})
		})
	}
	moving := index.Relocation{X: &p.m.Index}
	for _, f := range list {
		if !moving.Move(f.id, f.body, f.body) {
			t.Fatalf("entry %d has another body than it just had", f.id)
		}
	}
	moving.End()
}

// soon lets a little time pass.
func (p *pair) soon(t *rapid.T) {
	p.now += rapid.SampledFrom([]int64{1, 10, 60}).Draw(t, "soon")
	p.tickAll(t, sliceLimit)
}

// leap makes the next entries go into other pages.
func (p *pair) leap(t *rapid.T) {
	by := rapid.Uint64Range(100, 300).Draw(t, "numbers")
	for level := range p.q.next {
		p.q.next[level] += by
		p.m.Reserve(index.MakeID(level, p.q.next[level]-1))
	}
}

// cut begins a checkpoint. save continues it while the queue is used.
func (p *pair) cut(t *rapid.T) {
	if p.cold.cut != 0 {
		t.Skip("one is being written")
	}
	p.cold.cut, p.cold.logFrom, p.cold.cursor = p.m.pages.Cut(), len(p.log), index.SaveCursor{}
}

func (p *pair) save(t *rapid.T) {
	if p.cold.cut == 0 {
		t.Skip("none is being written")
	}
	var done bool
	p.purging = true // the queue buries what it purged
	p.cold.cursor, done = p.m.SaveSome(p.cold.cursor, rapid.IntRange(1, 3).Draw(t, "pages"))
	p.purging = false
	if !done {
		return
	}
	p.m.pages.CutDone()
	version := p.cold.cut
	p.cold.cut = 0
	p.cold.saved(version)
	p.restoreFrom(t, version)
}

// restoreFrom makes the queue anew from its checkpoint and what was logged after the cut, and compares it with the
// queue that went on.
func (p *pair) restoreFrom(t *rapid.T, version uint32) {
	sink := &restored{}
	was := p.cold.asOf(version)
	m := New(p.m.config, p.m.settings, &Pages{Hot: 1, Hash: was.Bytes}, sink, p.now)
	if err := was.restore(m, version); err != nil {
		t.Fatal(err)
	}
	if err := m.Check(); err != nil {
		t.Fatal("restored from a checkpoint: ", err)
	}
	if has := summedUp(m); has != m.StateHash() {
		t.Fatalf("the entries of the checkpoint sum up to %x, at the cut they did to %x", has, m.StateHash())
	}
	for _, f := range p.log[was.logFrom:] {
		f(m)
	}
	if err := m.Check(); err != nil {
		t.Fatal("restored from a checkpoint and a log: ", err)
	}
	p.compare(t, m, sink)
}

// saved drops the copies that no checkpoint has any longer once that of version is complete.
func (s *shelf) saved(version uint32) {
	for by, ids := range s.gone {
		if by <= version {
			for _, id := range ids {
				delete(s.pages, id)
			}
			delete(s.gone, by)
		}
	}
	for by, ids := range s.goneDeltas {
		if by <= version {
			for _, id := range ids {
				delete(s.deltas, id)
			}
			delete(s.goneDeltas, by)
		}
	}
}

// asOf is what a restart finds of the checkpoint of version.
func (s *shelf) asOf(version uint32) *shelf {
	was := newShelf()
	for id, p := range s.pages {
		if id.Version <= version {
			was.pages[id] = p
		}
	}
	for id, delta := range s.deltas {
		if id.Version <= version {
			was.deltas[id] = delta
		}
	}
	for v, meta := range s.metas {
		if v <= version {
			was.metas[v] = meta
		}
	}
	return was
}

// restore gives a new machine the pages of the checkpoint of version. The shelf then has only these.
func (s *shelf) restore(m *Machine, version uint32) error {
	m.SetCold(s)
	m.pages.Begin(version + 1)
	if len(s.metas) > 0 {
		if err := m.RestoreMeta(s.metas[slices.Max(slices.Collect(maps.Keys(s.metas)))]); err != nil {
			return fmt.Errorf("what the queue has beside its pages: %w", err)
		}
	}
	ids := slices.SortedFunc(maps.Keys(s.pages), func(a, b index.PageID) int {
		return cmp.Or(cmp.Compare(a.Lane, b.Lane), cmp.Compare(a.Number, b.Number), cmp.Compare(a.Version, b.Version))
	})
	for i, id := range ids {
		if i > 0 && ids[i-1].Lane == id.Lane && ids[i-1].Number == id.Number {
			return fmt.Errorf("page %+v is there as %+v too", id, ids[i-1])
		}
		v, err := s.deltaFor(id)
		switch {
		case err != nil:
		case v > 0:
			err = m.RestoreSplit(id, v, s.deltas[index.PageID{Lane: id.Lane, Number: id.Number, Version: v}], func(uint64, int64) {})
		default:
			err = m.RestorePage(id, s.pages[id].summary, func(uint64, int64) {})
		}
		if err != nil {
			return fmt.Errorf("page %+v with delta %d: %w", id, v, err)
		}
	}
	return nil
}

// deltaFor is the version of the delta that belongs to a copy; 0: there is none.
func (s *shelf) deltaFor(copy index.PageID) (found uint32, err error) {
	for id, delta := range s.deltas {
		if id.Lane != copy.Lane || id.Number != copy.Number {
			continue
		}
		of, err := index.DeltaOf(delta)
		if err != nil {
			return 0, err
		}
		if of == copy.Version {
			found = max(found, id.Version)
		}
	}
	return found, nil
}

// summedUp is what StateHash must be.
func summedUp(m *Machine) uint64 {
	sum := New(m.config, m.settings, &Pages{Hash: m.pages.Hash}, &nobody{}, 1)
	m.Browse(Cursor{}, math.MaxInt, func(v View) bool {
		if v.Logged {
			sum.Enter(v.ID.Lane(), v.ID.Seq(), &Content{Size: v.Size, History: v.History, Logged: true}, 0)
		}
		return true
	})
	return sum.StateHash()
}
