package queue

import (
	"bartleby.mq/internal/deadletter"
	"bartleby.mq/internal/message"
)

// side is what few entries have.
type side struct {
	history  message.Ref
	counts   Counts
	far      int64             // the moment that was too far for the column
	ttl      int64             // the TTL's moment while the column tells the end of a wait; 0 = none
	reason   deadletter.Reason // while dying or held
	diedAt   int64
	by       *Consumer // who rejected or returned it last, nil if nobody did
	nextFree uint32
}

// sideChunk is how many rows are made at once.
const sideChunk = 64

// sides are a machine's side rows. They are numbered from 1 and stand in chunks:
// in one slice a dead letter queue of millions would be copied under its lock
// each time it grows.
type sides struct {
	chunks []*[sideChunk]side
	made   uint32
	free   uint32 // first row to be used again, 0 = none
}

// at returns a row that was taken and not given back.
func (r *sides) at(row uint32) *side { return &r.chunks[(row-1)/sideChunk][(row-1)%sideChunk] }

// take returns the number of an empty row.
func (r *sides) take() (row uint32) {
	if row = r.free; row != 0 {
		s := r.at(row)
		r.free = s.nextFree
		*s = side{}
		return row
	}
	if r.made%sideChunk == 0 {
		r.chunks = append(r.chunks, new([sideChunk]side))
	}
	r.made++
	return r.made
}

// give takes a row back.
func (r *sides) give(row uint32) {
	*r.at(row) = side{nextFree: r.free}
	r.free = row
}
