package partition

import (
	"cmp"
	"errors"
	"fmt"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/queue/index"
	"bartleby.mq/internal/disk/store"
	"bartleby.mq/internal/run/bodies"
)

// Unreadable is an entry whose record cannot be read from disk.
type Unreadable struct {
	ID  queue.ID
	At  message.Location
	Err error
}

// Verify reads the record of every entry of the queue. It returns how many entries there are, and the unreadable
// ones. It changes nothing.
func (n *Node) Verify(q *Queue) (messages int, bad []Unreadable, err error) {
	var w bodies.Window
	defer w.Free()
	var cursor queue.Cursor
	for done := false; !done; {
		var views []queue.View
		err := n.with(q, func(*hold) {
			cursor, done = q.m.Browse(cursor, sliceLimit, func(v queue.View) bool {
				n.bodies.Retain(v.Body, 1)
				views = append(views, v)
				return true
			})
		})
		for i := range views {
			v := &views[i]
			if _, err := n.bodies.Read(v.Body, &w); err != nil {
				bad = append(bad, Unreadable{v.ID, n.bodies.Location(v.Body), err})
			}
			n.bodies.Release(v.Body)
		}
		messages += len(views)
		if err != nil {
			return messages, bad, err
		}
	}
	return messages, bad, nil
}

// DropUnreadable removes unreadable entries as if they were settled, and returns when that is on disk.
func (n *Node) DropUnreadable(q *Queue, entries []Unreadable) error {
	if q.part.group != nil {
		return n.dropReplicated(q, entries)
	}
	for len(entries) > 0 {
		some := entries[:min(len(entries), sliceLimit)]
		entries = entries[len(some):]
		h := n.lock(q.part)
		h.touch(q)
		for i := range some {
			if body, history, ok := q.m.RestoreRemoved(some[i].ID); ok {
				delete(q.waiting.taken, some[i].ID)
				h.frame.settle(q.Incarnation, some[i].ID)
				q.leaves(history, JobDropped, true)
				h.drop(body, history)
			}
		}
		if pos := n.unlock(h); pos != 0 {
			if err := n.Journal.Commit(pos); err != nil {
				return err
			}
		}
	}
	return nil
}

// dropReplicated is DropUnreadable in a group, in whatever state the entries are. Its log has the same commands as
// for messages that are set aside.
func (n *Node) dropReplicated(q *Queue, entries []Unreadable) error {
	for len(entries) > 0 {
		some := entries[:min(len(entries), sliceLimit)]
		entries = entries[len(some):]
		err := n.askQueue(q, new(ask), func(w *commandWriter) {
			for i := range some {
				w.aside(q.Incarnation, 0, some[i].ID)
			}
		})
		if err == nil {
			err = n.dropped(q, some)
		}
		if err != nil && !Gone(err) {
			return err
		}
	}
	return nil
}

// dropped says whether the entries are gone.
func (n *Node) dropped(q *Queue, entries []Unreadable) (err error) {
	gone := n.with(q, func(*hold) {
		for i := range entries {
			if _, ok := q.m.View(entries[i].ID); ok {
				err = fmt.Errorf("entry %d cannot be dropped: a consumer has it", entries[i].ID)
			}
		}
	})
	return cmp.Or(err, gone)
}

// LostPage is a page of a queue's index that cannot be read from disk, with up to 256 entries.
type LostPage struct {
	Incarnation uint64
	Lane        int
	Number      uint64
	Err         error

	key []byte // of its summary
}

// VerifyPages reads every page that the last whole checkpoint may need, and returns the unreadable ones.
func VerifyPages(pages *store.Store) (bad []LostPage, err error) {
	c, err := readCheckpoint(pages)
	if err != nil {
		return nil, err
	}
	var page []byte
	spoilt := map[string]error{} // unreadable deltas, by the key of their page without kind and version
	err = pages.Range([]byte{keyDelta}, func(key, value []byte) error {
		_, id, ok := splitPageKey(key)
		if !ok {
			return &DamageError{fmt.Errorf("key %x is malformed", key)}
		}
		if err := index.CheckDelta(value); err != nil && id.Version <= c.Version {
			spoilt[string(key[1:len(key)-4])] = err
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = pages.Range([]byte{keySummary}, func(key, _ []byte) error {
		incarnation, id, ok := splitPageKey(key)
		if !ok {
			return &DamageError{fmt.Errorf("key %x is malformed", key)}
		}
		if id.Version > c.Version {
			return nil
		}
		var err error
		k := appendPageKey(nil, keyPage, incarnation, id)
		if page, ok, err = pages.Get(page[:0], k); err == nil && !ok {
			err = errors.New("it is not there")
		}
		if err == nil {
			err = index.CheckPage(page)
		}
		if err == nil {
			err = spoilt[string(key[1:len(key)-4])]
		}
		if err != nil {
			bad = append(bad, LostPage{incarnation, id.Lane, id.Number, err, append([]byte(nil), key...)})
		}
		return nil
	})
	return bad, err
}

// DropPages removes pages that cannot be read, and with them their entries.
func DropPages(index *store.Store, pages []LostPage) error {
	var keys [][]byte
	for i := range pages {
		page := append([]byte(nil), pages[i].key...)
		page[0] = keyPage
		keys = append(keys, pages[i].key, page)
		err := index.Range(append([]byte{keyDelta}, page[1:len(page)-4]...), func(key, _ []byte) error {
			keys = append(keys, append([]byte(nil), key...))
			return nil
		})
		if err != nil {
			return err
		}
	}
	if err := index.Apply(deletions(keys), false); err != nil {
		return err
	}
	return index.Flush()
}
