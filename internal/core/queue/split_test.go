package queue

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue/index"
)

// The tuning of the index.
const (
	horizon    = 16_000 // how many milliseconds ahead a page is read
	readSlice  = 16     // pages that one Tick reads
	saveWeight = 24     // how many entries saving a page counts in a slice
	pageHead   = index.PageBytes - 17*index.PageSize
)

// attic is a Cold in memory that checks nothing.
type attic struct {
	pages         map[index.PageID][]byte
	reads, deltas int
	onDelta       func([]byte)
	onWrite       func()
	ever          map[index.PageID][]byte // everything that was written
	summaries     map[index.PageID][]byte
}

func (a *attic) Locate(body message.Ref) uint64            { return uint64(body &^ diskBit) }
func (a *attic) Cool(body message.Ref) message.Ref         { return body | diskBit }
func (a *attic) At(location uint64) message.Ref            { return message.Ref(location) | diskBit }
func (a *attic) Bytes(message.Ref) []byte                  { return nil }
func (a *attic) Parts(h message.Ref) (message.Ref, []byte) { return 0, nil }
func (a *attic) Keep(_, _ []byte) message.Ref              { return 0 }
func (a *attic) Retain(message.Ref)                        {}
func (a *attic) Release(message.Ref)                       {}
func (a *attic) Read(id index.PageID) []byte               { a.reads++; return a.pages[id] }
func (a *attic) WriteMeta(version uint32, _ []byte)        {}
func (a *attic) Discard(id index.PageID, by uint32)        { delete(a.pages, id) }
func (a *attic) Write(id index.PageID, page, summary []byte) {
	if a.ever == nil {
		a.ever, a.summaries = map[index.PageID][]byte{}, map[index.PageID][]byte{}
	}
	a.ever[id], a.summaries[id] = bytes.Clone(page), bytes.Clone(summary)
	a.pages[id] = a.ever[id]
	if a.onWrite != nil {
		a.onWrite()
	}
}
func (a *attic) WriteDelta(_ index.PageID, delta []byte) {
	a.deltas++
	if a.onDelta != nil {
		a.onDelta(delta)
	}
}
func (a *attic) DiscardDelta(index.PageID, uint32) {}
func (a *attic) Fail(id index.PageID, err error)   { panic(err) }

// away is a machine whose pages are put away, with the moments of its deaths.
type away struct {
	nobody
	*Machine
	pages *Pages
	cold  *attic
	now   int64
	died  []int64 // the moment of each removal
	ids   []ID

	counts Counts // of what fill enqueues
}

func newAway(settings Settings, hot int) *away {
	a := &away{pages: &Pages{Hot: hot}, cold: &attic{pages: map[index.PageID][]byte{}}, now: 1_700_000_000_000}
	a.Machine = New(Config{MaxPriority: -1, Durable: true}, settings, a.pages, a, a.now)
	a.SetCold(a.cold)
	a.pages.Begin(1)
	return a
}

func (a *away) Removed(id ID, _, _ message.Ref, _ bool) {
	a.died = append(a.died, a.now)
	a.ids = append(a.ids, id)
}

// fill enqueues n messages. ttl returns the TTL of each.
func (a *away) fill(n int, ttl func() int64) {
	for i := range n {
		a.Enqueue(a.now, &Entry{Content: Content{Body: message.Ref(1000 + 100*i), Size: 10, Logged: true, Counts: a.counts}, Priority: -1, TTL: ttl()})
	}
}

func (a *away) putAllAway() {
	a.SweepAgain(true)
	for a.PutAway(32, true) > 0 {
	}
}

// run lets time pass up to end, with a tick whenever NextDue says so.
func (a *away) run(t *testing.T, end int64) {
	t.Helper()
	for due := a.NextDue(); due <= end; due = a.NextDue() {
		a.now = max(a.now, due)
		for n := 0; a.Tick(a.now, sliceLimit); n++ {
			if n > 1_000_000 {
				t.Fatal("the machine has more to do for ever")
			}
		}
	}
	a.now = end
}

// Messages in pages that were put away die at their moments, one by one. Only what is due soon is in memory of each
// page.
func TestDeathsInColdPagesComeAtTheirMoment(t *testing.T) {
	const n, over = 100_000, 120_000
	a := newAway(Unlimited(), 1)
	chance := rand.New(rand.NewPCG(1, 2))
	var want []int64
	a.fill(n, func() int64 {
		ttl := 1 + chance.Int64N(over)
		want = append(want, ending(a.now, ttl))
		return ttl
	})
	begin := a.now
	full := a.pages.Bytes()
	a.putAllAway()
	if got := a.pages.Bytes(); got > full/3 {
		t.Errorf("the pages take %d bytes after they were put away, %d before", got, full)
	}
	most := 0
	for at := begin; at < begin+over; at += 10_000 {
		a.run(t, at)
		most = max(most, a.pages.Bytes())
		reads := a.cold.reads
		if err := a.Check(); err != nil {
			t.Fatal(err)
		}
		a.cold.reads = reads
	}
	a.run(t, begin+over+1)
	slices.Sort(want)
	if !slices.Equal(a.died, want) {
		t.Errorf("%d messages died; the first is %d late", len(a.died), a.died[0]-want[0])
	}
	if most > full/3 {
		t.Errorf("the pages took up to %d bytes while messages died, %d when all were in memory", most, full)
	}
	// Each page is read for what is due within the horizon.
	if pages, most := n/index.PageSize, over/(horizon/2); a.cold.reads > pages*most {
		t.Errorf("%d pages were read %d times, want at most %d times each", pages, a.cold.reads, most)
	}
}

// A page whose messages are all due at once is not read for each message: it is read once to find that too many are
// due, and once for all.
func TestWhatIsDueTogetherIsReadTogether(t *testing.T) {
	const n, ttl = 20 * index.PageSize, 60_000
	a := newAway(Unlimited(), 1)
	a.fill(n, func() int64 { return ttl })
	a.putAllAway()
	a.run(t, a.now+ttl+1)
	if len(a.died) != n || a.cold.reads > 2*20 {
		t.Errorf("%d of %d messages died, with %d reads of 20 pages", len(a.died), n, a.cold.reads)
	}
	if !slices.IsSorted(a.ids) {
		t.Error("messages with the same moment did not die in their order")
	}
}

// A page whose messages are due soon is not put away.
func TestWhatGoesSoonStays(t *testing.T) {
	a := newAway(Unlimited(), 1)
	a.fill(20*index.PageSize, func() int64 { return 500 })
	a.putAllAway()
	if len(a.cold.pages) > 0 {
		t.Errorf("%d pages were put away half a second before their end", len(a.cold.pages))
	}
}

// One Tick reads a limited number of pages, and does not say that everything is done.
func TestATickReadsSoManyPages(t *testing.T) {
	a := newAway(Unlimited(), 1)
	a.fill(10*readSlice*index.PageSize, func() int64 { return 60_000 })
	a.putAllAway()
	a.now += 70_000
	for more := true; more; {
		before := a.cold.reads
		more = a.Tick(a.now, sliceLimit)
		if n := a.cold.reads - before; n > readSlice {
			t.Fatalf("a tick read %d pages, want at most %d", n, readSlice)
		}
	}
	if n := a.Totals().Ready; n > 0 {
		t.Errorf("%d messages are left after their time", n)
	}
}

// If messages are taken from the head of a long queue while memory is short, each page is read once, and no page is
// put away that comes next.
func TestDrainingDoesNotReadTwice(t *testing.T) {
	const pages = 200
	a := newAway(Unlimited(), 4)
	a.fill(pages*index.PageSize, func() int64 { return -1 })
	a.putAllAway()
	for i := range pages * index.PageSize {
		if _, ok := a.Get(a.now, true); !ok {
			t.Fatal("the queue is empty too early")
		}
		if i%50 == 0 {
			a.putAllAway()
		}
	}
	if a.cold.reads > pages {
		t.Errorf("%d pages were read %d times", pages, a.cold.reads)
	}
}

// Pages furthest from the head are put away first.
func TestTheNextPagesArePutAwayLast(t *testing.T) {
	a := newAway(Unlimited(), 2)
	a.fill(20*index.PageSize, func() int64 { return -1 })
	a.PutAway(5, true)
	var gone []uint64
	for _, p := range a.Survey(0) {
		if p.Cold {
			gone = append(gone, p.Number)
		}
	}
	if want := []uint64{14, 15, 16, 17, 18}; !slices.Equal(gone, want) {
		t.Errorf("pages %d were put away, want %d", gone, want)
	}
	a.fill(3*index.PageSize, func() int64 { return -1 })
	a.PutAway(1, true)
	if !a.Survey(0)[19].Cold {
		t.Error("a page that is not at the tail any more was not put away first")
	}
}

// A split page that is purged, closed or restored is whole.
func TestPurgeAndCloseOfSplitPages(t *testing.T) {
	for _, purge := range []bool{true, false} {
		const n = 30 * index.PageSize
		a := newAway(Unlimited(), 1)
		chance := rand.New(rand.NewPCG(1, 2))
		a.fill(n, func() int64 { return 1 + chance.Int64N(120_000) })
		a.putAllAway()
		a.run(t, a.now+20_000)
		dead := len(a.died)
		if dead == 0 || !a.Survey(0)[10].Split {
			t.Fatal("no page is split")
		}
		if purge {
			if got := a.Purge(nil); got != n-dead {
				t.Errorf("purge took %d, want %d", got, n-dead)
			}
		} else {
			a.Close()
		}
		for a.BuryRest(100) {
		}
		if len(a.died) != n {
			t.Errorf("%d of %d references were given up", len(a.died), n)
		}
		if err := a.Check(); err != nil {
			t.Error(err)
		}
	}
}

// A queue with few messages takes little memory, and so does the rest of a long one.
func TestPagesTakeWhatTheyHold(t *testing.T) {
	pages := &Pages{}
	m := New(Config{MaxPriority: -1}, Unlimited(), pages, &nobody{}, 1)
	e := Entry{Content: Content{Body: 1, Size: 10, Logged: true}, Priority: -1, TTL: 60_000}
	for range 3 {
		m.Enqueue(1000, &e)
	}
	if got, most := pages.Bytes(), pageHead+4*(13+4); got > most {
		t.Errorf("three messages take %d bytes, want at most %d", got, most)
	}
	for range 100 * index.PageSize {
		m.Enqueue(1000, &e)
	}
	if got, most := pages.Bytes(), 101*index.PageBytes; got > most || got < most*9/10 {
		t.Errorf("101 full pages take %d bytes, want about %d", got, most)
	}
	for _, left := range []int{64, 32, 16, 4} {
		for id := range ID(100 * index.PageSize) {
			if int(id%index.PageSize)*left%index.PageSize != 0 { // keep `left` messages of every page
				m.Take(id)
			}
		}
		if got, most := pages.Bytes(), 101*(pageHead+left*(13+4))+2*index.PageBytes; got > most {
			t.Errorf("pages with %d messages each take %d bytes, want at most %d", left, got, most)
		}
		if err := m.Check(); err != nil {
			t.Fatal(err)
		}
	}
	m.Purge(nil)
	for m.BuryRest(1000) {
	}
	m.Close()
	for m.BuryRest(1000) {
	}
	if pages.Bytes() != 0 || pages.Lent() != 0 {
		t.Errorf("%d pages of %d bytes are in use after all", pages.Lent(), pages.Bytes())
	}
}

// While a checkpoint is being written, a Tick that changes many pages saves none of them if before-images have what
// dies. Otherwise it saves few, and leaves the rest to the next Tick.
func TestATickSavesSoManyPages(t *testing.T) {
	t.Run("told", func(t *testing.T) {
		if a := tickAfterCut(t, Counts{}); a.cold.deltas != 0 {
			t.Errorf("%d deltas were written", a.cold.deltas)
		}
	})
	t.Run("not told", func(t *testing.T) {
		if a := tickAfterCut(t, Counts{Deliveries: 1}); a.cold.deltas < 500 {
			t.Errorf("%d deltas were written", a.cold.deltas)
		}
	})
}

func tickAfterCut(t *testing.T, counts Counts) *away {
	const n = 1000 * index.PageSize
	a := newAway(Unlimited(), 1)
	chance := rand.New(rand.NewPCG(1, 2))
	a.counts = counts
	a.fill(n, func() int64 { return 1 + chance.Int64N(120_000) })
	a.putAllAway()
	a.run(t, a.now+20_000)
	a.pages.Cut()
	a.now += 1000
	reads := a.cold.reads
	for more := true; more; {
		before := a.pages.Saves()
		more = a.Tick(a.now, sliceLimit)
		if saves := a.pages.Saves() - before; saves > sliceLimit+saveWeight {
			t.Fatalf("a tick saved pages that weigh %d", saves)
		}
	}
	if most := 1000 / 8 * 3 / 2; a.cold.reads-reads > most {
		t.Errorf("%d pages were read in a second, when at most %d had to", a.cold.reads-reads, most)
	}
	if len(a.died) < n/6 {
		t.Errorf("%d messages died in 21 of 120 seconds", len(a.died))
	}
	return a
}

// At each moment the same entries die on a replica whose pages are in memory and on one that has put them away or has
// just started, for whatever command, not only a Tick. It found seed 9 of the simulation of quorum queues.
func TestReplicasExpireWhateverIsInMemory(t *testing.T) {
	const start = 1_700_000_000_000
	var left []Totals
	for _, away := range []bool{false, true} {
		pages := &Pages{Log: index.Commands}
		m := New(Config{Type: Quorum, Durable: true, MaxPriority: -1}, Unlimited(), pages, &nobody{}, 1)
		m.SetCold(&attic{pages: map[index.PageID][]byte{}})
		pages.Begin(1)
		for i := range 8 * index.PageSize {
			e := Entry{Content: Content{Body: message.Ref(1_000_000 + 140*i), Size: 10, Logged: true}, Priority: -1, TTL: int64(500_000 + i)}
			m.Enqueue(start, &e)
		}
		for m.SweepAgain(true); away && m.PutAway(32, true) > 0; {
		}
		m.Expire(start + 500_000 + 3*index.PageSize)
		left = append(left, m.Totals())
	}
	if left[0] != left[1] || left[0].Ready == 8*index.PageSize {
		t.Errorf("a replica has %+v, another, whose pages were away, %+v", left[0], left[1])
	}
}

// Messages that are long overdue, because the node did not run or stood still, die in the order of their moments,
// although a tick reads few of the pages that were put away.
func TestWhatIsLongOverdueDiesInItsOrder(t *testing.T) {
	const pages = 8 * readSlice
	a := newAway(Unlimited(), 1)
	for range pages * index.PageSize / 16 {
		a.now++
		a.fill(16, func() int64 { return 200_000 })
	}
	a.putAllAway()
	a.now += 1_000_000
	for a.Tick(a.now, sliceLimit) {
	}
	if len(a.ids) != pages*index.PageSize || !slices.IsSorted(a.ids) {
		t.Errorf("%d messages died, of %d, in order: %v", len(a.ids), pages*index.PageSize, slices.IsSorted(a.ids))
	}
}
