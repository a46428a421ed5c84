package office

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"bartleby.mq/internal/core/declare"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/letters"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a broker with a ledger, whose clock the test sets.
type world struct {
	t     *testing.T
	fs    vfs.FS
	b     *broker.Broker
	drops *Drops
	now   time.Time
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, fs: vfs.NewMem(), now: time.UnixMilli(1_800_000_000_000)}
	w.open()
	t.Cleanup(w.close)
	return w
}

func (w *world) open() {
	w.t.Helper()
	var err error
	if w.b, err = broker.Open(broker.Options{Dir: "/data", FS: w.fs}); err != nil {
		w.t.Fatal(err)
	}
	for _, name := range []message.VHost{"/", "/x"} {
		if _, err := w.b.By("").Do(declare.PutVHost{Name: name, Change: declare.All(topology.Metadata{}), OnlyNew: true}); err != nil {
			w.t.Fatal(err)
		}
	}
	if w.drops, err = openDrops(w.b, slog.New(slog.DiscardHandler), func() time.Time { return w.now }); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) close() {
	w.t.Helper()
	w.drops.Close()
	if err := w.b.Close(); err != nil {
		w.t.Error(err)
	}
}

// add adds drops of one kind.
func (w *world) add(vhost, queue string, count uint64) {
	w.drops.mu.Lock()
	defer w.drops.mu.Unlock()
	d := letters.Drop{Why: "no_dlx", Reason: deadletter.Rejected, Count: count}
	d.VHost, d.Queue = message.VHost(vhost), message.QueueName(queue)
	w.drops.add([]letters.Drop{d})
}

func (w *world) list(q DropQuery) DropList {
	w.t.Helper()
	list, err := w.drops.List(w.t.Context(), q)
	if err != nil {
		w.t.Fatal(err)
	}
	return list
}

// shown is the ledger as text: queue:count, the latest first.
func shown(l DropList) (text string) {
	for _, e := range l.Entries {
		text += fmt.Sprintf("%s:%d ", e.Queue, e.Count)
	}
	return text
}

// Drops that are alike are one entry for a minute, and then another one. Both outlive a restart.
func TestDropsAlikeAreOneEntryForAMinute(t *testing.T) {
	w := newWorld(t)
	w.add("/", "a", 2)
	w.now = w.now.Add(59 * time.Second)
	w.add("/", "a", 3)
	w.add("/", "b", 1)
	w.now = w.now.Add(time.Second)
	w.add("/", "a", 4)
	const want = "a:4 b:1 a:5 "
	check := func(when string) {
		t.Helper()
		l := w.list(DropQuery{})
		if got := shown(l); got != want || l.Dropped != 10 {
			t.Errorf("%s: %q, %d messages, want %q and 10", when, got, l.Dropped, want)
		}
	}
	check("at first")
	w.close()
	w.open()
	check("after a restart")
	w.add("/", "a", 1) // what was open before the restart stays as it is
	if got, want := shown(w.list(DropQuery{Queue: "a"})), "a:1 a:4 a:5 "; got != want {
		t.Errorf("after another one: %q, want %q", got, want)
	}
}

// Entries are kept for seven days, hours for ninety.
func TestDropsEnd(t *testing.T) {
	w := newWorld(t)
	w.add("/", "old", 7)
	w.now = w.now.Add(dropsKept + time.Millisecond)
	w.add("/", "new", 1)
	l := w.list(DropQuery{})
	if got, want := shown(l), "new:1 "; got != want {
		t.Errorf("after a week: %q, want %q", got, want)
	}
	if len(l.Hours) != 2 || l.Hours[0].Counts["no_dlx"] != 7 || l.Hours[1].Counts["no_dlx"] != 1 {
		t.Errorf("the hours after a week: %v", l.Hours)
	}
	w.now = w.now.Add(hoursKept + time.Hour)
	w.add("/", "late", 1)
	if l = w.list(DropQuery{}); len(l.Hours) != 1 {
		t.Errorf("the hours after ninety days: %v", l.Hours)
	}
}

// Each virtual host has its own bound, and one's name may be the beginning of another's.
func TestDropsAreBounded(t *testing.T) {
	w := newWorld(t)
	w.add("/x", "other", 1)
	w.drops.mu.Lock()
	var list []letters.Drop
	for i := range MaxDrops + 5 {
		d := letters.Drop{Why: "no_dlx", Count: 1}
		d.VHost, d.Queue = message.VHost("/"), message.QueueName(fmt.Sprint("q", i))
		list = append(list, d)
	}
	w.drops.add(list)
	w.drops.mu.Unlock()
	inRoot := func(v string) bool { return v == "/" }
	if l := w.list(DropQuery{VHosts: inRoot, Limit: 1}); l.Total != MaxDrops {
		t.Errorf("%d entries, want %d", l.Total, MaxDrops)
	}
	if l := w.list(DropQuery{VHosts: inRoot, Queue: "q4"}); l.Total != 0 {
		t.Error("the oldest entries are still there")
	}
	if got, want := shown(w.list(DropQuery{Queue: "other"})), "other:1 "; got != want {
		t.Errorf("another virtual host has %q, want %q", got, want)
	}
	var before DropPlace
	seen := 0
	for {
		l := w.list(DropQuery{VHosts: inRoot, Limit: 999, Before: before})
		seen += len(l.Entries)
		if before = l.Next; before == (DropPlace{}) {
			break
		}
	}
	if seen != MaxDrops {
		t.Errorf("page by page there are %d, want %d", seen, MaxDrops)
	}
	w.close()
	w.open()
	w.add("/", "one more", 1)
	if l := w.list(DropQuery{VHosts: inRoot, Limit: 1}); l.Total != MaxDrops || l.Entries[0].Queue != "one more" {
		t.Errorf("after a restart: %d entries, the latest %q", l.Total, l.Entries[0].Queue)
	}
}

// A clock that was set back begins new entries.
func TestDropsAndAClockThatIsSetBack(t *testing.T) {
	w := newWorld(t)
	w.add("/", "a", 1)
	w.now = w.now.Add(-time.Hour)
	w.add("/", "a", 2)
	if got, want := shown(w.list(DropQuery{})), "a:1 a:2 "; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A page of a long ledger keeps little more than itself in memory, and pages of it are the whole, in order.
func TestPagesOfALongLedger(t *testing.T) {
	w := newWorld(t)
	for i := range 500 {
		w.add([]string{"/", "/x"}[i%2], fmt.Sprint("q", i), 1)
		if i%7 == 0 {
			w.now = w.now.Add(time.Second)
		}
	}
	whole := w.list(DropQuery{})
	for _, q := range []DropQuery{{Limit: 3}, {Limit: 64}, {Limit: 3, VHost: new("/")}, {Limit: 499}, {Limit: 500}} {
		var pages []DropEntry
		for {
			page := w.list(q)
			if len(page.Entries) > q.Limit || cap(page.Entries) > 8*q.Limit+8 {
				t.Fatalf("limit %d: %d entries, room for %d", q.Limit, len(page.Entries), cap(page.Entries))
			}
			if want := map[bool]int{true: 500, false: 250}[q.VHost == nil]; page.Total != want || page.Dropped != uint64(want) {
				t.Fatalf("%d entries, %d messages", page.Total, page.Dropped)
			}
			pages = append(pages, page.Entries...)
			if q.Before = page.Next; q.Before == (DropPlace{}) {
				break
			}
		}
		want := whole.Entries
		if q.VHost != nil {
			want = slices.DeleteFunc(slices.Clone(want), func(e DropEntry) bool { return e.VHost != "/" })
		}
		if shown(DropList{Entries: pages}) != shown(DropList{Entries: want}) {
			t.Errorf("limit %d: %s\nwant %s", q.Limit, shown(DropList{Entries: pages}), shown(DropList{Entries: want}))
		}
	}
}
