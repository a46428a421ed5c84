package office

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/mutation"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/datadir"
	"bartleby.mq/internal/run/letters"
	"bartleby.mq/internal/safety/bug"
)

// Bounds of the ledger of drops, for each virtual host.
const (
	MaxDrops  = 10_000              // entries; the oldest go first
	dropsKept = 7 * 24 * time.Hour  // an entry, since it was last added to
	hoursKept = 90 * 24 * time.Hour // counts by hour
	dropsRun  = time.Minute         // drops that are alike are one entry for as long
	dropPause = time.Second         // between two writes
)

// The keys of its records, after datadir.RecordPrefix. A virtual host is written as its length (two bytes) and its name,
// so that no name is the beginning of another; numbers are big endian.
//
//	drop/ | virtual host | number u64    a DropEntry
//	hour/ | virtual host | hour u64      a DropHour
const (
	dropKey = "drop/"
	hourKey = "hour/"
)

// DropEntry is messages that were dropped alike: by one queue or exchange, for the same reason, within a minute. The JSON
// is its form in the store and, with the virtual host and an id, in the API.
type DropEntry struct {
	VHost  string `json:"vhost"`
	ID     uint64 `json:"id"`
	Queue  string `json:"queue,omitempty"` // "" if no queue has taken them
	Reason string `json:"reason,omitempty"`
	Why    string `json:"why"` // a deadletter.Outcome, or letters.DropUnroutable
	First  int64  `json:"first_ms"`
	Last   int64  `json:"last_ms"`
	Count  uint64 `json:"count"`
	// The first of them of which something is known.
	Exchange  string   `json:"exchange"`
	Keys      []string `json:"routing_keys,omitempty"`
	MessageID string   `json:"message_id,omitempty"`
	Type      string   `json:"type,omitempty"`
	Bytes     int      `json:"bytes,omitempty"`
	Example   bool     `json:"example"` // whether Bytes and the fields before are known
}

// DropHour counts the drops of an hour by why.
type DropHour struct {
	Hour   int64             `json:"hour_ms"` // when it began
	Counts map[string]uint64 `json:"counts"`
}

// Drops is the ledger of drops. What it was told is in the store a second later; a crash loses what was dropped in that
// second from the ledger, as the counters of queues lose it.
type Drops struct {
	b      *broker.Broker
	watch  *letters.DropWatch
	logger *slog.Logger
	now    func() time.Time
	end    context.CancelFunc
	ended  chan struct{}
	lists  chan struct{} // one List at a time: each may read a lot

	taking sync.Mutex // held by who takes drops from the broker; taken before mu

	mu     sync.Mutex // guards what follows
	vhosts map[string]*dropLedger
}

// dropLedger is the part of a virtual host.
type dropLedger struct {
	first, next uint64                // numbers of entries that are stored: first ≤ number < next
	open        map[string]*DropEntry // that drops of now are added to, by what they have in common
	hour        DropHour
}

// openDrops reads the ledger and begins to keep it.
func openDrops(b *broker.Broker, logger *slog.Logger, now func() time.Time) (*Drops, error) {
	d := &Drops{b: b, logger: logger, now: now, ended: make(chan struct{}), lists: make(chan struct{}, 1), vhosts: map[string]*dropLedger{}}
	for _, kind := range []string{dropKey, hourKey} {
		if err := endStrays(b, kind); err != nil {
			return nil, err
		}
	}
	err := b.RangeRecords(dropKey, func(key, _ []byte) error {
		vhost, n, ok := splitKey(key, dropKey)
		if !ok {
			return nil
		}
		l := d.of(vhost)
		if l.next == 0 {
			l.first = n
		}
		l.next = n + 1
		return nil
	})
	if err != nil {
		return nil, err
	}
	b.OnVHostEnd(d.endVHost)
	ctx, end := context.WithCancel(context.Background())
	d.end = end
	d.watch = letters.WatchDrops(b)
	go bug.Guarded(logger, "the ledger of drops", func() { d.run(ctx) })()
	return d, nil
}

// Close writes what is not stored and ends.
func (d *Drops) Close() {
	d.end()
	<-d.ended
}

func (d *Drops) run(ctx context.Context) {
	defer close(d.ended)
	for {
		select {
		case <-d.watch.Wake():
		case <-ctx.Done():
			d.watch.End()
			d.take()
			return
		}
		d.take()
		select {
		case <-time.After(dropPause):
		case <-ctx.Done():
		}
	}
}

// of returns the part of a virtual host. REQUIRES: d.mu is held, or nobody else has d.
func (d *Drops) of(vhost string) *dropLedger {
	l := d.vhosts[vhost]
	if l == nil {
		l = &dropLedger{open: map[string]*DropEntry{}}
		d.vhosts[vhost] = l
	}
	return l
}

// take adds what was dropped to the ledger, and stores it.
func (d *Drops) take() {
	d.taking.Lock()
	defer d.taking.Unlock()
	if list := d.watch.Take(); len(list) > 0 { // it may wait for declarations, and so for endVHost
		d.mu.Lock()
		d.add(list)
		d.mu.Unlock()
	}
}

// endVHost forgets the drops of a virtual host that is deleted.
func (d *Drops) endVHost(name message.VHost, _ broker.Doer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.vhosts, string(name))
	endRecords(d.b, dropKey, name)
	endRecords(d.b, hourKey, name)
}

// add adds drops to the ledger, and stores it. REQUIRES: d.mu is held.
func (d *Drops) add(list []letters.Drop) {
	now := d.now()
	w := dropWriter{drops: d, now: now.UnixMilli(), touched: map[*dropLedger]string{}, changed: map[*DropEntry]bool{}}
	for i := range list {
		if d.b.HasVHost(list[i].VHost, list[i].Incarnation) {
			w.add(&list[i])
		}
	}
	w.finish()
	// A failure has ended the node.
	_ = d.b.PutRecords(mutation.All(w.changes), true)
	for _, e := range w.begun {
		d.b.Notify("drop.recorded", e.facts)
	}
}

// dropWriter collects the changes of one write.
type dropWriter struct {
	drops   *Drops
	now     int64
	changes []mutation.Change
	touched map[*dropLedger]string // the virtual hosts
	changed map[*DropEntry]bool
	begun   []*DropEntry // new ones: each tells of itself, so once a minute for drops that are alike
}

func (w *dropWriter) add(drop *letters.Drop) {
	vhost := string(drop.VHost)
	l := w.drops.of(vhost)
	if _, seen := w.touched[l]; !seen {
		w.touched[l] = vhost
		w.startHour(vhost, l)
		for alike, e := range l.open {
			if w.now-e.First >= dropsRun.Milliseconds() || w.now < e.First {
				delete(l.open, alike)
			}
		}
	}
	reason := ""
	if drop.Reason != 0 {
		reason = drop.Reason.String()
	}
	alike := strings.Join([]string{string(drop.Queue), reason, drop.Why}, "\x00")
	if drop.Queue == "" {
		alike += "\x00" + drop.Exchange
	}
	e := l.open[alike]
	if e == nil {
		e = &DropEntry{VHost: vhost, ID: l.next, Queue: string(drop.Queue), Reason: reason, Why: drop.Why, First: w.now, Exchange: drop.Exchange}
		l.open[alike] = e
		l.next++
		w.begun = append(w.begun, e)
	}
	e.Last = w.now
	e.Count += drop.Count
	if drop.HasExample && !e.Example {
		e.Exchange, e.Keys, e.MessageID, e.Type, e.Bytes, e.Example = drop.Exchange, drop.Keys, drop.MessageID, drop.Type, drop.Size, true
	}
	l.hour.Counts[drop.Why] += drop.Count
	w.changed[e] = true
}

// startHour begins the counts of an hour, or goes on with those of the store.
func (w *dropWriter) startHour(vhost string, l *dropLedger) {
	hour := w.now - w.now%time.Hour.Milliseconds()
	if l.hour.Counts != nil && l.hour.Hour == hour {
		return
	}
	l.hour = DropHour{Hour: hour}
	_ = w.drops.b.RangeRecords(string(appendKey(nil, hourKey, vhost, uint64(hour))), func(_, value []byte) error {
		return json.Unmarshal(value, &l.hour)
	})
	if l.hour.Counts == nil {
		l.hour.Counts = map[string]uint64{}
	}
	w.deleteBefore(hourKey, vhost, uint64(max(0, hour-hoursKept.Milliseconds())))
}

// finish writes what has changed, and deletes what is beyond the bounds.
func (w *dropWriter) finish() {
	for l := range w.touched { // of very many queues only the last entries stay
		maps.DeleteFunc(l.open, func(_ string, e *DropEntry) bool { return l.next-e.ID > MaxDrops })
	}
	for e := range w.changed {
		if w.drops.of(e.VHost).next-e.ID <= MaxDrops {
			w.put(appendKey(nil, dropKey, e.VHost, e.ID), e)
		}
	}
	for l, vhost := range w.touched {
		w.put(appendKey(nil, hourKey, vhost, uint64(l.hour.Hour)), &l.hour)
		w.forget(vhost, l)
	}
}

func (w *dropWriter) put(key []byte, record any) {
	value, err := json.Marshal(record)
	if err != nil {
		w.drops.logger.Error("a record of drops cannot be written", "error", err) // impossible: it has only texts and numbers
		return
	}
	w.changes = append(w.changes, mutation.Change{Key: append([]byte(datadir.RecordPrefix), key...), Value: value})
}

func (w *dropWriter) delete(key []byte) {
	w.changes = append(w.changes, mutation.Change{Key: append([]byte(datadir.RecordPrefix), key...)})
}

// forget deletes the entries that are too many or too old. It looks at the oldest only, and stops at the first to stay.
func (w *dropWriter) forget(vhost string, l *dropLedger) {
	for ; l.next-l.first > MaxDrops; l.first++ {
		w.delete(appendKey(nil, dropKey, vhost, l.first))
	}
	old := w.now - dropsKept.Milliseconds()
	_ = w.drops.b.RangeRecords(string(appendName([]byte(dropKey), vhost)), func(key, value []byte) error {
		_, n, ok := splitKey(key, dropKey)
		var e DropEntry
		if err := json.Unmarshal(value, &e); !ok || err == nil && e.Last >= old {
			return errStop
		}
		w.delete(slices.Clone(key))
		l.first = max(l.first, n+1)
		return nil
	})
}

// deleteBefore deletes records of a kind whose number is below n.
func (w *dropWriter) deleteBefore(kind, vhost string, n uint64) {
	_ = w.drops.b.RangeRecords(string(appendName([]byte(kind), vhost)), func(key, _ []byte) error {
		if _, is, ok := splitKey(key, kind); !ok || is >= n {
			return errStop
		}
		w.delete(slices.Clone(key))
		return nil
	})
}

// errStop ends a look at records.
var errStop = fmt.Errorf("enough")

// DropQuery chooses entries of the ledger. What is not set chooses all.
type DropQuery struct {
	VHost  *string           // nil: all
	VHosts func(string) bool // which of these; nil: all
	Queue  string
	Why    string
	Reason string
	Limit  int // entries; 0: all
	Before DropPlace
}

// DropPlace is a place in the list of drops: behind the entry that Last and ID name. The zero value is its begin.
type DropPlace struct {
	Last  int64
	VHost string
	ID    uint64
}

func (p DropPlace) compare(o DropPlace) int {
	return cmp.Or(cmp.Compare(o.Last, p.Last), strings.Compare(p.VHost, o.VHost), cmp.Compare(o.ID, p.ID))
}

func (e *DropEntry) place() DropPlace { return DropPlace{e.Last, e.VHost, e.ID} }

// DropList is a part of the ledger.
type DropList struct {
	Entries []DropEntry // the latest first
	Total   int         // entries that the query chooses, those before Before too
	Dropped uint64      // messages of these
	Next    DropPlace   // where the next part begins; the zero value if there is none
	Hours   []DropHour  // of the virtual hosts, by hour, the earliest first; of all queues
}

// List returns the entries that the query chooses. It reads all of these for their number, one List at a time, and keeps only those that it
// returns.
func (d *Drops) List(ctx context.Context, q DropQuery) (list DropList, err error) {
	d.take() // what was dropped before the question is in the answer
	select {
	case d.lists <- struct{}{}:
		defer func() { <-d.lists }()
	case <-ctx.Done():
		return list, ctx.Err()
	}
	drops, ofHours := q.prefix(dropKey), q.prefix(hourKey)
	err = d.b.RangeRecords(drops, func(key, value []byte) error {
		vhost, _, ok := splitKey(key, dropKey)
		if !ok || q.VHosts != nil && !q.VHosts(vhost) {
			return ctx.Err()
		}
		var e DropEntry
		if json.Unmarshal(value, &e) != nil || !q.chooses(&e) {
			return ctx.Err()
		}
		list.Total++
		list.Dropped += e.Count
		if q.Before == (DropPlace{}) || e.place().compare(q.Before) > 0 {
			list.Entries = append(list.Entries, e)
			if q.Limit > 0 && len(list.Entries) > 2*q.Limit+1 {
				list.Entries = firstDrops(list.Entries, q.Limit+1)
			}
		}
		return ctx.Err()
	})
	if err != nil {
		return list, err
	}
	list.Entries = firstDrops(list.Entries, len(list.Entries))
	if q.Limit > 0 && len(list.Entries) > q.Limit {
		list.Entries = list.Entries[:q.Limit]
		list.Next = list.Entries[q.Limit-1].place()
	}
	hours := map[int64]*DropHour{}
	err = d.b.RangeRecords(ofHours, func(key, value []byte) error {
		vhost, _, ok := splitKey(key, hourKey)
		var h DropHour
		if !ok || q.VHosts != nil && !q.VHosts(vhost) || json.Unmarshal(value, &h) != nil {
			return nil
		}
		if hours[h.Hour] == nil {
			hours[h.Hour] = &DropHour{Hour: h.Hour, Counts: map[string]uint64{}}
		}
		for why, n := range h.Counts {
			hours[h.Hour].Counts[why] += n
		}
		return nil
	})
	for _, h := range hours {
		list.Hours = append(list.Hours, *h)
	}
	slices.SortFunc(list.Hours, func(a, b DropHour) int { return cmp.Compare(a.Hour, b.Hour) })
	return list, err
}

// firstDrops sorts entries, and returns the first n.
func firstDrops(list []DropEntry, n int) []DropEntry {
	slices.SortFunc(list, func(a, b DropEntry) int { return a.place().compare(b.place()) })
	clear(list[n:])
	return list[:n]
}

// prefix begins the keys of the records of a kind that the query is about.
func (q *DropQuery) prefix(kind string) string {
	if q.VHost == nil {
		return kind
	}
	return string(appendName([]byte(kind), *q.VHost))
}

func (q *DropQuery) chooses(e *DropEntry) bool {
	return (q.Queue == "" || q.Queue == e.Queue) && (q.Why == "" || q.Why == e.Why) && (q.Reason == "" || q.Reason == e.Reason)
}

func appendName(b []byte, vhost string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(vhost))), vhost...)
}

func appendKey(b []byte, kind, vhost string, n uint64) []byte {
	return binary.BigEndian.AppendUint64(appendName(append(b, kind...), vhost), n)
}

// splitKey is the reverse of appendKey.
func splitKey(key []byte, kind string) (vhost string, n uint64, ok bool) {
	key, ok = bytes.CutPrefix(key, []byte(kind))
	if !ok || len(key) < 2 {
		return "", 0, false
	}
	size := int(binary.BigEndian.Uint16(key))
	if len(key) != 2+size+8 {
		return "", 0, false
	}
	return string(key[2 : 2+size]), binary.BigEndian.Uint64(key[2+size:]), true
}
