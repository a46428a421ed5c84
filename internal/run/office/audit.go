package office

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/mutation"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/datadir"
	"bartleby.mq/internal/run/share"
)

// Bounds of the audit. If there are too many entries, the oldest of who has most goes.
const (
	MaxActs   = 10_000
	maxObject = 1 << 10 // bytes of a text of an act; others have maxReason
	maxDetail = 4 << 10 // bytes

	// An act like one of the last actsRecent, within actsRun, is counted there: whoever repeats one act pushes no others out.
	actsRecent = 64
	actsRun    = time.Minute
)

// auditKey begins the keys of acts, after datadir.RecordPrefix. The number is big endian.
//
//	audit/ | number u64    an Entry
const auditKey = "audit/"

// Actor is who does something.
type Actor struct {
	Who  string `json:"who"`  // a user; "": the node itself
	Peer string `json:"peer"` // the address that the request came from; "local": the control socket
}

// Local is the name of whoever runs the node, and asks without a password through its control socket.
const Local = "local"

// Act is something that was done. Texts that are too long are cut.
type Act struct {
	Actor
	What   string `json:"what"` // the kind and the deed: job.made, letter.revealed
	VHost  string `json:"vhost"`
	Object string `json:"object"` // what it was done to: a queue, a job's number, a rule
	Why    string `json:"why"`    // in the words of who did it
	Count  uint64 `json:"count"`  // on how many letters, or other things
	Detail string `json:"detail"`
	// For is the user whose doing it is in the end, if the node does it: it takes that user's room in the audit.
	For string `json:"for,omitempty"`
}

// owner is whose room in the audit an act takes.
func (a *Act) owner() string { return cmp.Or(a.For, a.Who) }

// alike says whether two acts are one: the same was done, from the same machine. Each connection has another port.
func (a Act) alike(b Act) bool {
	a.Peer, b.Peer = machine(a.Peer), machine(b.Peer)
	return a == b
}

// machine is a peer's address without its port.
func machine(peer string) string {
	if host, _, err := net.SplitHostPort(peer); err == nil {
		return host
	}
	return peer
}

// Entry is an act in the audit. Its JSON is its form in the store and in the API.
type Entry struct {
	ID uint64 `json:"id"`
	At int64  `json:"time_ms"`
	Act
	Times int   `json:"times"`   // how often it was done, within a minute
	Last  int64 `json:"last_ms"` // the last time
}

// Audit tells who did what, and why: the last acts of people, and of the node where it decides. Any number of goroutines may use it.
type Audit struct {
	b   *broker.Broker
	log *slog.Logger
	now func() time.Time

	mu     sync.Mutex // guards what follows, and is held while an entry is written
	next   uint64     // the number of the next entry
	kept   []keptAct  // by number
	shelf  *share.Shelf[string, uint64]
	gone   []uint64          // pushed out of the shelf, and still in the store
	full   time.Time         // when it was last said that entries are pushed out
	recent []Entry           // the last few
	ended  map[string]uint64 // the last entry about the end of a virtual host: what is before it is about an earlier one of that name
}

// keptAct is what is known of an entry in the store.
type keptAct struct {
	id    uint64
	vhost string
}

// vhostEnded is what the audit calls it that a virtual host is deleted.
const vhostEnded = "vhost.deleted"

// openAudit reads where the audit of a broker is.
func openAudit(b *broker.Broker, logger *slog.Logger, now func() time.Time) (*Audit, error) {
	a := &Audit{b: b, log: logger, now: now, shelf: share.NewShelf[string, uint64](MaxActs), ended: map[string]uint64{}}
	err := b.RangeRecords(auditKey, func(key, value []byte) error {
		n, ok := actNumber(key)
		if !ok {
			return nil
		}
		a.next = n + 1
		var e Entry
		if err := json.Unmarshal(value, &e); err != nil { // List tells of one that cannot be read
			e = Entry{}
		}
		e.ID = n
		a.keep(&e)
		return nil
	})
	a.next = max(a.next, 1)
	return a, err
}

func appendActKey(b []byte, n uint64) []byte {
	return binary.BigEndian.AppendUint64(append(b, auditKey...), n)
}

// actNumber reads a key, which is without datadir.RecordPrefix.
func actNumber(key []byte) (n uint64, ok bool) {
	if len(key) != len(auditKey)+8 {
		return 0, false
	}
	return binary.BigEndian.Uint64(key[len(auditKey):]), true
}

// Record writes an act. It returns when it is on disk; a failure ends the node. REQUIRES: no lock of package held is held.
func (a *Audit) Record(act Act) { _ = a.With(act, nil) }

// With writes an act together with the records that it is about: all of that is on disk when it returns, or nothing. The keys begin with
// datadir.RecordPrefix. An error means that the node is stopping. REQUIRES: no lock of package held is held.
func (a *Audit) With(act Act, records []mutation.Change) error {
	act.bound()
	a.mu.Lock()
	defer a.mu.Unlock()
	at := a.now().UnixMilli()
	e, again := a.again(&act, at)
	if !again {
		e = Entry{ID: a.next, At: at, Act: act, Times: 1, Last: at}
	}
	value, err := json.Marshal(&e)
	if err != nil {
		return err // impossible: it has only texts and numbers
	}
	changes := append(records[:len(records):len(records)], mutation.Change{Key: appendActKey([]byte(datadir.RecordPrefix), e.ID), Value: value})
	if !again {
		a.keep(&e)
	}
	for _, n := range a.gone {
		changes = append(changes, mutation.Change{Key: appendActKey([]byte(datadir.RecordPrefix), n)})
	}
	if err := a.b.PutRecords(mutation.All(changes), true); err != nil {
		return err // the node is stopping
	}
	if len(a.gone) > 0 && a.now().Sub(a.full) >= actsRun {
		a.full = a.now()
		a.log.Info("The audit is full: of who has most entries the oldest go. This is logged once a minute", "entries", len(a.kept), "last_of", e.owner(), "pushed_out", a.pushedOut())
	}
	a.gone = a.gone[:0]
	a.remember(e)
	return nil
}

// keep puts a new entry on the shelf. REQUIRES: mu is held, or nobody else has a.
func (a *Audit) keep(e *Entry) {
	a.next = e.ID + 1
	a.kept = append(a.kept, keptAct{e.ID, e.VHost})
	if e.What == vhostEnded {
		a.ended[e.VHost] = e.ID
	}
	for _, n := range a.shelf.Put(e.owner(), e.ID, 1) {
		a.drop(n)
	}
}

// drop forgets an entry that is not on the shelf any more. With the last entry about the end of a virtual host goes what is
// about it, which would otherwise be taken for that of a later one. REQUIRES: mu is held.
func (a *Audit) drop(n uint64) {
	i, found := slices.BinarySearchFunc(a.kept, n, func(k keptAct, n uint64) int { return cmp.Compare(k.id, n) })
	if !found {
		return
	}
	vhost := a.kept[i].vhost
	a.kept = slices.Delete(a.kept, i, i+1)
	a.gone = append(a.gone, n)
	if a.ended[vhost] != n {
		return
	}
	delete(a.ended, vhost)
	a.kept = slices.DeleteFunc(a.kept, func(k keptAct) bool {
		if k.vhost != vhost || k.id > n {
			return false
		}
		a.shelf.Remove(k.id)
		a.gone = append(a.gone, k.id)
		return true
	})
}

// pushedOut is how many entries there ever were that are not kept. REQUIRES: mu is held.
func (a *Audit) pushedOut() uint64 { return a.next - 1 - uint64(len(a.kept)) }

// PushedOut is how many entries there ever were that are not kept.
func (a *Audit) PushedOut() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pushedOut()
}

// endVHost notes that a virtual host is deleted, and by whom.
func (a *Audit) endVHost(name message.VHost, by broker.Doer) {
	a.mu.Lock()
	a.recent = slices.DeleteFunc(a.recent, func(e Entry) bool { return e.VHost == string(name) }) // what is done in the next one is no repetition
	a.mu.Unlock()
	a.Record(Act{Actor: Actor(by), What: vhostEnded, VHost: string(name), Object: string(name)})
}

// Outlived says whether an entry is about a virtual host that was deleted, whether or not there is one of that name now.
func (a *Audit) Outlived(e *Entry) bool {
	if e.VHost == "" {
		return false
	}
	a.mu.Lock()
	ended := e.ID <= a.ended[e.VHost]
	a.mu.Unlock()
	return ended || !a.b.HasVHost(message.VHost(e.VHost), 0)
}

// again returns the entry that tells of such an act already. REQUIRES: mu is held.
func (a *Audit) again(act *Act, at int64) (Entry, bool) {
	for _, e := range a.recent {
		if !a.shelf.Has(e.ID) {
			continue
		}
		if e.Act.alike(*act) && at >= e.At && at-e.At < actsRun.Milliseconds() {
			e.Times++
			e.Last = at
			return e, true
		}
	}
	return Entry{}, false
}

// remember keeps an entry among the recent ones. REQUIRES: mu is held.
func (a *Audit) remember(e Entry) {
	for i := range a.recent {
		if a.recent[i].ID == e.ID {
			a.recent[i] = e
			return
		}
	}
	if len(a.recent) == actsRecent {
		a.recent = append(a.recent[:0], a.recent[1:]...)
	}
	a.recent = append(a.recent, e)
}

// bound cuts the texts.
func (a *Act) bound() {
	for _, t := range []struct {
		text *string
		most int
	}{{&a.Who, maxObject}, {&a.Peer, maxObject}, {&a.What, maxObject}, {&a.VHost, maxObject}, {&a.Object, maxObject}, {&a.Why, maxReason}, {&a.Detail, maxDetail}, {&a.For, maxObject}} {
		if len(*t.text) > t.most {
			*t.text = (*t.text)[:t.most-len("…")] + "…"
		}
		*t.text = strings.ToValidUTF8(*t.text, "")
	}
}

// ActQuery chooses entries. What is not set chooses all.
type ActQuery struct {
	VHost *string
	Who   *string
	What  string // of this kind and deed; with * at its end, all that begin so
	Limit int    // entries; 0: all
	// Before is the id of the last entry of the page before; 0: there is none.
	Before uint64
}

func (q *ActQuery) chooses(e *Entry) bool {
	if begin, ok := strings.CutSuffix(q.What, "*"); ok {
		if !strings.HasPrefix(e.What, begin) {
			return false
		}
	} else if q.What != "" && q.What != e.What {
		return false
	}
	return (q.VHost == nil || *q.VHost == e.VHost) && (q.Who == nil || *q.Who == e.Who)
}

// List returns entries that the query chooses, the latest first, and the Before of the next page, 0 if there is none.
func (a *Audit) List(q ActQuery) (list []Entry, next uint64, err error) {
	a.mu.Lock()
	end := a.next
	if q.Before != 0 {
		end = min(end, q.Before)
	}
	kept := map[uint64]bool{}
	var blocks []uint64
	for _, k := range a.kept {
		if k.id < end {
			kept[k.id] = true
			if block := k.id >> 8; len(blocks) == 0 || blocks[len(blocks)-1] != block {
				blocks = append(blocks, block)
			}
		}
	}
	a.mu.Unlock()
	// The numbers of a block begin with the same seven bytes; a block is read forwards, the blocks backwards.
	for _, block := range slices.Backward(blocks) {
		var found []Entry
		prefix := appendActKey(nil, block<<8)
		err = a.b.RangeRecords(string(prefix[:len(prefix)-1]), func(key, value []byte) error {
			n, ok := actNumber(key)
			if !ok || !kept[n] {
				return nil
			}
			var e Entry
			if err := json.Unmarshal(value, &e); err != nil {
				a.log.Warn("an entry of the audit cannot be read", "id", n, "error", err)
				return nil
			}
			if q.chooses(&e) {
				found = append(found, e)
			}
			return nil
		})
		if err != nil {
			return nil, 0, err
		}
		for i := len(found) - 1; i >= 0; i-- {
			if q.Limit > 0 && len(list) == q.Limit {
				return list, list[q.Limit-1].ID, nil
			}
			list = append(list, found[i])
		}
	}
	return list, 0, nil
}
