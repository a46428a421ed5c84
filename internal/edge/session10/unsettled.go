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
// The list is of chunks. A settled entry stays as a hole until its chunk has more holes than entries; those at the front of a chunk are cut
// off, and their memory stays until it is three quarters of the chunk's. A chunk without entries goes. So a range without entries lies in
// two chunks at most.
type unsettledList struct {
	chunks []*unsettledChunk
	n      int // entries that are not settled
}

type unsettledChunk struct {
	list  []unsettled // never empty
	n     int         // entries that are not settled
	front int         // how many entries went before list, whose memory may still be there
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
	k := l.chunkOf(first)
	for k < len(l.chunks) && most > 0 && l.chunks[k].list[0].number <= last {
		c := l.chunks[k]
		at := c.at(first)
		inOrder, before := at == 0, c.n
		for ; at < len(c.list) && c.list[at].number <= last && most > 0; at++ {
			if u := &c.list[at]; u.consumer != nil {
				dst = append(dst, *u)
				*u = unsettled{number: u.number}
				c.n--
				most--
			}
		}
		l.n -= before - c.n
		if inOrder {
			c.list, c.front = c.list[at:], c.front+at
		}
		if l.shrink(k) {
			k++
		}
	}
	return dst
}

// at is the index of the first entry that has a number or one behind it. Most clients settle in order: then it is near the begin.
func (c *unsettledChunk) at(number uint64) int {
	for i := range min(4, len(c.list)) {
		if c.list[i].number >= number {
			return i
		}
	}
	at, _ := slices.BinarySearchFunc(c.list, number, func(u unsettled, number uint64) int { return cmp.Compare(u.number, number) })
	return at
}

// find looks for a consumer's deliveries with these ids, in the slice from a number on, and appends their numbers to dst. They are taken
// back in the order of the deliveries, so it goes on behind a slice only if the last delivery of the consumer there was one of them, or
// there was none. The next search begins at next: so a search looks at a slice more than those before it have not looked at.
func (l *unsettledList) find(k *consumer, from uint64, ids map[queue.ID]bool, dst []uint64) (found []uint64, next uint64, more bool) {
	slice, end, more := l.slice(from)
	next, missed := end, false
	for _, c := range slice {
		for i := range c.list {
			switch u := &c.list[i]; {
			case u.consumer != k || u.number < from:
			case ids[u.id]:
				dst, next, missed = append(dst, u.number), end, false
			case !missed:
				next, missed = u.number, true
			}
		}
	}
	return dst, next, more && !missed
}

// takeOf removes a consumer's deliveries in the slice from a number on, and appends them to dst. It goes on at next if there is more.
func (l *unsettledList) takeOf(k *consumer, from uint64, dst []unsettled) (taken []unsettled, next uint64, more bool) {
	slice, next, more := l.slice(from)
	for _, c := range slice {
		for i := range c.list {
			if u := &c.list[i]; u.consumer == k {
				dst = append(dst, *u)
				*u = unsettled{number: u.number}
				c.n--
				l.n--
			}
		}
	}
	at := l.chunkOf(from)
	for range slice {
		if l.shrink(at) {
			at++
		}
	}
	return dst, next, more
}

// sliceChunks is how many chunks whoever looks at all of a list looks at while session.mu is held: 16,384 deliveries.
const sliceChunks = 16

// slice is some chunks from the one on that may have a number. next is a number behind all of theirs, and more says whether there are
// more chunks.
func (l *unsettledList) slice(from uint64) (chunks []*unsettledChunk, next uint64, more bool) {
	rest := l.chunks[l.chunkOf(from):]
	if len(rest) == 0 {
		return nil, from, false
	}
	chunks = rest[:min(sliceChunks, len(rest))]
	last := chunks[len(chunks)-1].list
	return chunks, last[len(last)-1].number + 1, len(chunks) < len(rest)
}

// chunkOf is the index of the first chunk that has a number or one behind it.
func (l *unsettledList) chunkOf(number uint64) int {
	if len(l.chunks) > 0 && l.chunks[0].last() >= number { // as in order
		return 0
	}
	k, _ := slices.BinarySearchFunc(l.chunks, number, func(c *unsettledChunk, number uint64) int { return cmp.Compare(c.last(), number) })
	return k
}

// last is the number of the last entry.
func (c *unsettledChunk) last() uint64 { return c.list[len(c.list)-1].number }

// shrink takes the holes out of a chunk if it has many, and drops it if it has nothing else. Then there is another in its place.
func (l *unsettledList) shrink(k int) (stays bool) {
	c := l.chunks[k]
	switch {
	case c.n == 0:
		l.chunks = slices.Delete(l.chunks, k, k+1)
		return false
	case c.n >= len(c.list)/2 && c.n >= (c.front+len(c.list))/4:
		return true
	}
	list := make([]unsettled, 0, c.n)
	for _, u := range c.list {
		if u.consumer != nil {
			list = append(list, u)
		}
	}
	c.list, c.front = list, 0
	return true
}
