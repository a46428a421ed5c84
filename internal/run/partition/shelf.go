package partition

import (
	"encoding/binary"
	"fmt"
	"slices"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/moment"
	"bartleby.mq/internal/core/queue/index"
	"bartleby.mq/internal/run/deathstore"
)

// The keys of the index store (Options.Index). Numbers in keys are big endian, so that a queue's pages are sorted.
//
//	'c'                                           the last whole checkpoint, see checkpoint.go
//	'q' | incarnation u64 | version u32           the state of a queue beside its pages
//	'p' | incarnation u64 | lane u8 | number u64 | version u32    a page
//	's' | as 'p'                                  its summary
//	'd' | as 'p'                                  a delta of the page; the version is its own
//	'g' | id u64, 'l'                             groups, and the local partitions' outboxes, see checkpointlogs.go
//	't', 'u'                                      as 'p' and 's', of queues that are not durable
const (
	keyCheckpoint = 'c'
	keyMeta       = 'q'
	keyPage       = 'p'
	keySummary    = 's'
	keyDelta      = 'd'
	keyLoosePage  = 't'
	keyLooseSum   = 'u'
	keyGroup      = 'g'
	keyLocal      = 'l'
)

const (
	metaKeyBytes = 1 + 8 + 4
	pageKeyBytes = 1 + 8 + 1 + 8 + 4
)

func appendMetaKey(b []byte, incarnation uint64, version uint32) []byte {
	b = binary.BigEndian.AppendUint64(append(b, keyMeta), incarnation)
	return binary.BigEndian.AppendUint32(b, version)
}

func appendPageKey(b []byte, kind byte, incarnation uint64, id index.PageID) []byte {
	b = binary.BigEndian.AppendUint64(append(b, kind), incarnation)
	b = append(b, byte(id.Lane))
	b = binary.BigEndian.AppendUint64(b, id.Number)
	return binary.BigEndian.AppendUint32(b, id.Version)
}

// splitPageKey is the reverse of appendPageKey, except for the kind.
func splitPageKey(key []byte) (incarnation uint64, id index.PageID, ok bool) {
	if len(key) != pageKeyBytes {
		return 0, id, false
	}
	incarnation = binary.BigEndian.Uint64(key[1:])
	id.Lane, id.Number = int(key[9]), binary.BigEndian.Uint64(key[10:])
	id.Version = binary.BigEndian.Uint32(key[18:])
	return incarnation, id, true
}

// pageStore is a partition's part of the index store. The partition's mutex guards it.
type pageStore struct {
	needless []needlessCopy // copies that a later checkpoint makes needless
	written  int            // pages and deltas written since the start; a long one counts as several

	reads     int // pages read in this hold
	mostReads int // for a test: in the hold that read most

	key  []byte // buffer for a key
	page []byte // buffer for a page
}

// longPage is how many bytes of a page make it count as one more in a slice, and mostSpare the capacity above which a buffer of one
// is not kept.
const longPage, mostSpare = 64 << 10, 1 << 20

func (s *pageStore) wrote(b []byte) { s.written += 1 + len(b)/longPage }

// takeNeedless appends the copies that are needless once the checkpoint of this version is whole.
func (s *pageStore) takeNeedless(version uint32, pages, deltas []needlessCopy) (_, _ []needlessCopy) {
	s.needless = slices.DeleteFunc(s.needless, func(c needlessCopy) bool {
		switch {
		case c.by > version:
			return false
		case c.kind == keyDelta:
			deltas = append(deltas, c)
		default:
			pages = append(pages, c)
		}
		return true
	})
	return pages, deltas
}

// shelf stores the pages of a queue that leave memory. REQUIRES: the queue's partition is held.
type shelf struct{ q *Queue }

var _ index.Cold = shelf{}

func (s shelf) node() *Node { return s.q.part.node }

func (s shelf) kinds() (page, summary byte) {
	if s.q.Durable {
		return keyPage, keySummary
	}
	return keyLoosePage, keyLooseSum
}

// Locate implements index.Cold.
func (s shelf) Locate(body message.Ref) uint64 { return uint64(s.node().bodies.Location(body)) }

// Cool implements index.Cold. A body that cannot be written, as on a full disk, stays in memory.
func (s shelf) Cool(body message.Ref) message.Ref {
	n := s.node()
	if n.bodies.Location(body) == 0 {
		if n.Now() < n.memory.scratchAgain.Load() {
			return body
		}
		if err := n.bodies.ToScratch(body); err != nil {
			n.memory.scratchAgain.Store(moment.After(n.Now(), scratchPause))
			n.Logger.Warn("a message cannot be written to disk and stays in memory", "queue", s.q.Name, "vhost", s.q.VHost, "error", err)
			return body
		}
	}
	cold, _ := n.bodies.Cool(body)
	return cold
}

// At implements index.Cold.
func (s shelf) At(location uint64) message.Ref { return message.Location(location).Ref() }

// Parts implements index.Cold.
func (s shelf) Parts(history message.Ref) (common message.Ref, own []byte) {
	return deathstore.Parts(s.node().bodies, history)
}

// Bytes implements index.Cold.
func (s shelf) Bytes(common message.Ref) []byte { return deathstore.Shared(s.node().bodies, common) }

// Keep implements index.Cold.
func (s shelf) Keep(common, own []byte) message.Ref {
	return deathstore.KeepParts(s.node().bodies, common, own)
}

// Retain implements index.Cold.
func (s shelf) Retain(history message.Ref) { s.node().bodies.Retain(history, 1) }

// Release implements index.Cold.
func (s shelf) Release(history message.Ref) { s.node().bodies.Release(history) }

// Write implements index.Cold.
func (s shelf) Write(id index.PageID, page, summary []byte) {
	at := &s.q.part.store
	pages, summaries := s.kinds()
	at.key = appendPageKey(at.key[:0], pages, s.q.Incarnation, id)
	err := s.node().Index.Put(at.key, page)
	if err == nil {
		at.key[0] = summaries
		err = s.node().Index.Put(at.key, summary)
	}
	if err != nil {
		s.node().fail(fmt.Errorf("queue %q in vhost %q: a page cannot be written: %w", s.q.Name, s.q.VHost, err))
	}
	at.wrote(page)
}

// WriteDelta implements index.Cold.
func (s shelf) WriteDelta(id index.PageID, delta []byte) {
	at := &s.q.part.store
	at.key = appendPageKey(at.key[:0], keyDelta, s.q.Incarnation, id)
	if err := s.node().Index.Put(at.key, delta); err != nil {
		s.node().fail(fmt.Errorf("queue %q in vhost %q: a page cannot be saved: %w", s.q.Name, s.q.VHost, err))
	}
	at.wrote(delta)
}

// Read implements index.Cold.
func (s shelf) Read(id index.PageID) []byte {
	at := &s.q.part.store
	at.reads++
	if cap(at.page) > mostSpare {
		at.page = nil
	}
	kind, _ := s.kinds()
	at.key = appendPageKey(at.key[:0], kind, s.q.Incarnation, id)
	var ok bool
	var err error
	if at.page, ok, err = s.node().Index.Get(at.page[:0], at.key); err == nil && !ok {
		err = fmt.Errorf("it is not there")
	}
	if err != nil {
		s.Fail(id, err)
	}
	return at.page
}

// WriteMeta implements index.Cold.
func (s shelf) WriteMeta(version uint32, meta []byte) {
	if !s.q.Durable {
		return
	}
	at := &s.q.part.store
	at.key = appendMetaKey(at.key[:0], s.q.Incarnation, version)
	if err := s.node().Index.Put(at.key, meta); err != nil {
		s.node().fail(fmt.Errorf("queue %q in vhost %q: its state cannot be saved: %w", s.q.Name, s.q.VHost, err))
	}
	s.discardMeta(version)
	s.q.metaSaved = version
	if s.q.gone { // the queue was deleted while the checkpoint still needed it
		s.discardMeta(s.q.part.pages.Version())
	}
}

// discardMeta marks what WriteMeta wrote last as needless once the checkpoint of version by is whole.
func (s shelf) discardMeta(by uint32) {
	if was := s.q.metaSaved; was != 0 && was != by {
		p := s.q.part
		p.store.needless = append(p.store.needless, needlessCopy{by: by, incarnation: s.q.Incarnation, id: index.PageID{Version: was}, kind: keyMeta})
	}
}

// Discard implements index.Cold. A copy that no whole checkpoint has is deleted at once: the page may be written
// again in the same version, under the same key.
func (s shelf) Discard(id index.PageID, by uint32) {
	kind, _ := s.kinds()
	c := needlessCopy{by: by, incarnation: s.q.Incarnation, id: id, kind: kind}
	if id.Version < by {
		s.q.part.store.needless = append(s.q.part.store.needless, c)
		return
	}
	err := s.node().Index.Apply(func(yield func([]byte, []byte) bool) { eachKey([]needlessCopy{c}, yield) }, false)
	if err != nil {
		s.node().fail(fmt.Errorf("queue %q in vhost %q: a removed page cannot be deleted: %w", s.q.Name, s.q.VHost, err))
	}
}

// DiscardDelta implements index.Cold.
func (s shelf) DiscardDelta(id index.PageID, by uint32) {
	s.q.part.store.needless = append(s.q.part.store.needless, needlessCopy{by: by, incarnation: s.q.Incarnation, id: id, kind: keyDelta})
}

// Fail implements index.Cold.
func (s shelf) Fail(id index.PageID, err error) {
	s.node().fail(fmt.Errorf("queue %q in vhost %q: page %d of level %d, version %d, cannot be read back: %w",
		s.q.Name, s.q.VHost, id.Number, id.Lane, id.Version, err))
}

// needlessCopy is a copy that is needless once the checkpoint of version by is whole.
type needlessCopy struct {
	by          uint32
	kind        byte
	incarnation uint64
	id          index.PageID
}

// keys calls f for each key of the copy in the store. A key is valid only during the call.
func (c *needlessCopy) keys(b []byte, f func(key []byte)) []byte {
	if c.kind == keyMeta {
		b = appendMetaKey(b[:0], c.incarnation, c.id.Version)
		f(b)
		return b
	}
	b = appendPageKey(b[:0], c.kind, c.incarnation, c.id)
	f(b)
	switch c.kind {
	case keyPage:
		b[0] = keySummary
	case keyLoosePage:
		b[0] = keyLooseSum
	default:
		return b
	}
	f(b)
	return b
}

// fail is called when the disk fails in something that a queue needs. It does not return: a partition is locked, and
// its change is half done.
func (n *Node) fail(err error) {
	if n.OnFatal != nil {
		n.OnFatal(err)
	}
	panic(err)
}
