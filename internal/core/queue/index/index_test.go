package index

import (
	"bytes"
	"slices"
	"testing"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
)

// The tests of rules and index together are queue's. Those here need to see a page from inside.

// shelf is a Cold in memory, for one index without histories.
type shelf struct {
	Cold
	pages  map[PageID][]byte
	deltas [][]byte
}

const diskBit message.Ref = 1 << 63

func (s *shelf) Locate(body message.Ref) uint64            { return uint64(body &^ diskBit) }
func (s *shelf) Cool(body message.Ref) message.Ref         { return body | diskBit }
func (s *shelf) At(location uint64) message.Ref            { return message.Ref(location) | diskBit }
func (s *shelf) Bytes(message.Ref) []byte                  { return nil }
func (s *shelf) Parts(h message.Ref) (message.Ref, []byte) { return 0, []byte{byte(h)} }
func (s *shelf) Keep(_, _ []byte) message.Ref              { return 1 }
func (s *shelf) Retain(message.Ref)                        {}
func (s *shelf) Release(message.Ref)                       {}
func (s *shelf) Write(id PageID, page, _ []byte)           { s.pages[id] = bytes.Clone(page) }
func (s *shelf) Read(id PageID) []byte                     { return s.pages[id] }
func (s *shelf) WriteDelta(_ PageID, delta []byte)         { s.deltas = append(s.deltas, bytes.Clone(delta)) }
func (s *shelf) WriteMeta(uint32, []byte)                  {}
func (s *shelf) Discard(PageID, uint32)                    {}
func (s *shelf) DiscardDelta(PageID, uint32)               {}
func (s *shelf) Fail(_ PageID, err error)                  { panic(err) }

// nobody is a Sink that forgets.
type nobody struct{}

func (nobody) Removed(ID, message.Ref, message.Ref, bool) {}
func (nobody) Ended(ID, deadletter.Reason, bool)          {}

// start is the moment at which tests begin.
const start = 1_700_000_000_000

// fill makes an index with n entries, each with the moment that due returns, which are saved.
func fill(n int, due func(i int) int64) (*Index, *shelf) {
	s := &shelf{pages: map[PageID][]byte{}}
	ix := New(&Pages{}, nobody{}, Terms{Levels: 5, Durable: true})
	ix.SetCold(s)
	ix.pages.Begin(1)
	for i := range n {
		c := Content{Body: message.Ref(1000 + 100*i), Size: uint32(i % 7), Logged: true}
		if i%10 == 0 {
			c.History, c.Counts.Deliveries = message.Ref(i/20+1), 3
		}
		ix.Enter(4, 0, &c, due(i))
	}
	save(&ix)
	return &ix, s
}

func save(ix *Index) {
	ix.pages.Cut()
	for c, done := (SaveCursor{}), false; !done; {
		c, done = ix.SaveSome(c, 10)
	}
	ix.pages.CutDone()
}

// expire removes what is due, and returns it.
func expire(ix *Index, now int64) (gone []ID) {
	if !ix.IsDue(now) {
		return nil
	}
	due := ix.Ripe(now)
	for id, at, ok := due.Next(); ok; id, at, ok = due.Next() {
		ix.Remove(id, at)
		gone = append(gone, id)
	}
	due.End()
	return gone
}

// The moments that a look at a page has found stay true whatever comes, changes and goes
// between them: what is due comes in the order of its moments.
func TestWhatComesNextIsLookedForOnce(t *testing.T) {
	ix, _ := fill(PageSize, func(i int) int64 { return start + 100 + 10*int64(i+1) })
	gone := expire(ix, start+115)
	p := ix.Find(MakeID(4, 200)).page
	if len(gone) != 1 || p.comes != mostComing {
		t.Fatalf("%d were due, %d come", len(gone), p.comes)
	}
	ix.Remove(MakeID(4, 3), ix.Find(MakeID(4, 3)))   // one of those that come
	ix.SetMoment(ix.Find(MakeID(4, 250)), start+127) // another comes before most of them
	want := []ID{MakeID(4, 2), MakeID(4, 250)}
	for seq := uint64(4); seq <= 20; seq++ {
		want = append(want, MakeID(4, seq))
	}
	for now := int64(start + 115); now <= start+300; now++ {
		gone = append(gone, expire(ix, now)...)
		if err := ix.Check(); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(gone[1:], want) {
		t.Errorf("%d came, want %d", gone[1:], want)
	}
}

// Nonsense in the place of a page is an error, whatever it is.
func FuzzDecodePage(f *testing.F) {
	_, s := fill(300, func(i int) int64 { return start + int64(i%3)*1000 })
	for id, page := range s.pages {
		ix, _ := fill(0, nil)
		d, err := ix.pages.parse(page)
		if err != nil {
			f.Fatalf("page %+v: %v", id, err)
		}
		f.Add(page, ix.pages.summarize(&d.plain, d.live).append(nil))
	}
	f.Fuzz(func(t *testing.T, page, summary []byte) {
		ix, s := fill(0, nil)
		if d, err := ix.pages.parse(page); err == nil {
			_ = ix.decode(ix.pages.get(4, 0, 0), d, d.live)
		}
		s.pages[PageID{4, 0, 1}] = page
		ix.Reserve(MakeID(4, 999))
		defer func() { _ = recover() }() // Fail does not return
		_ = ix.RestorePage(PageID{4, 0, 1}, summary, func(uint64, int64) {})
	})
}

// Nonsense in the place of a delta is an error, whatever it is.
func FuzzDecodeDelta(f *testing.F) {
	ix, s := fill(600, func(i int) int64 { return start + 30_000 + 40*int64(i) })
	ix.SweepAgain(true)
	for ix.PutAway(32, true) > 0 {
	}
	ix.ReadSome(ix.NextWake())
	expire(ix, start+31_000)
	save(ix)
	if len(s.deltas) == 0 {
		f.Fatal("no delta was written")
	}
	for _, b := range s.deltas {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, delta []byte) {
		ix, _ := fill(0, nil)
		ix.Reserve(MakeID(4, 999))
		of, err := DeltaOf(delta)
		if err != nil {
			return
		}
		defer func() { _ = recover() }() // the copy is not there, and Fail does not return
		_ = ix.RestoreSplit(PageID{4, 0, of}, 7, delta, func(uint64, int64) {})
	})
}
