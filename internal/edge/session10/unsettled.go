package session10

import (
	"cmp"
	"slices"

	"bartleby.mq/internal/core/queue"
)

// unsettled is a delivery that the client has not settled.
type unsettled struct {
	number   uint64    // its delivery-id, which has wrapped around that often
	consumer *consumer // nil: settled
	id       queue.ID
}

// unsettledList holds a session's unsettled deliveries in the order of their numbers. There may be millions of them, and a client
// may settle them in any order, by ranges that have few of them, or none: whatever it says costs as much as it settles.
//
// The list is of chunks. A settled entry stays as a hole until its chunk has more holes than entries. A chunk without entries goes. So
// a range without entries lies in two chunks at most.
type unsettledList struct {
	chunks []*unsettledChunk
	n      int // entries that are not settled
}

type unsettledChunk struct {
	list []unsettled // never empty
	n    int         // entries that are not settled
}

// chunkUnsettled is the size of a full chunk.
const chunkUnsettled = 1024

// push adds a delivery. REQUIRES: its number is larger than all earlier ones.
func (l *unsettledList) push(u unsettled) {
	k := len(l.chunks) - 1
	if k < 0 || len(l.chunks[k].list) >= chunkUnsettled {
		l.chunks = append(l.chunks, &unsettledChunk{})
		k++
	}
	c := l.chunks[k]
	c.list = append(c.list, u)
	c.n++
	l.n++
}

// take removes the first deliveries from the number first to last, at most most of them, and appends them to dst.
func (l *unsettledList) take(first, last uint64, most int, dst []unsettled) []unsettled {
	k, _ := slices.BinarySearchFunc(l.chunks, first, func(c *unsettledChunk, first uint64) int { return cmp.Compare(c.list[len(c.list)-1].number, first) })
	for k < len(l.chunks) && most > 0 && l.chunks[k].list[0].number <= last {
		c := l.chunks[k]
		at, _ := slices.BinarySearchFunc(c.list, first, func(u unsettled, first uint64) int { return cmp.Compare(u.number, first) })
		before := c.n
		for ; at < len(c.list) && c.list[at].number <= last && most > 0; at++ {
			if u := &c.list[at]; u.consumer != nil {
				dst = append(dst, *u)
				*u = unsettled{number: u.number}
				c.n--
				most--
			}
		}
		l.n -= before - c.n
		if l.shrink(k) {
			k++
		}
	}
	return dst
}

// find appends the numbers of a consumer's deliveries with these ids, from a number on, in order.
func (l *unsettledList) find(k *consumer, from uint64, ids map[queue.ID]bool, dst []uint64) []uint64 {
	left := len(ids)
	at, _ := slices.BinarySearchFunc(l.chunks, from, func(c *unsettledChunk, from uint64) int { return cmp.Compare(c.list[len(c.list)-1].number, from) })
	for _, c := range l.chunks[at:] {
		for i := range c.list {
			if u := &c.list[i]; u.consumer == k && u.number >= from && ids[u.id] {
				if dst, left = append(dst, u.number), left-1; left == 0 {
					return dst
				}
			}
		}
	}
	return dst
}

// takeOf removes all deliveries of a consumer and appends them to dst.
func (l *unsettledList) takeOf(k *consumer, dst []unsettled) []unsettled {
	for _, c := range l.chunks {
		for i := range c.list {
			if u := &c.list[i]; u.consumer == k {
				dst = append(dst, *u)
				*u = unsettled{number: u.number}
				c.n--
				l.n--
			}
		}
	}
	for k := 0; k < len(l.chunks); {
		if l.shrink(k) {
			k++
		}
	}
	return dst
}

// shrink takes the holes out of a chunk if it has many, and drops it if it has nothing else. Then there is another in its place.
func (l *unsettledList) shrink(k int) (stays bool) {
	c := l.chunks[k]
	switch {
	case c.n == 0:
		l.chunks = slices.Delete(l.chunks, k, k+1)
		return false
	case c.n >= len(c.list)/2:
		return true
	}
	list := make([]unsettled, 0, c.n)
	for _, u := range c.list {
		if u.consumer != nil {
			list = append(list, u)
		}
	}
	c.list = list
	return true
}
