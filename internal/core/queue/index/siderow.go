package index

import "bartleby.mq/internal/core/deadletter"

// Side is what few entries have, and none for long: those that wait, that are dead except what has expired
// (queue.Machine.die), or whose moment lies too far away.
type Side struct {
	TTL      int64 // the TTL's moment while the column tells the end of a wait; 0 = none
	DiedAt   int64
	By       any               // who rejected or returned it last, nil if nobody did; the index only keeps it
	Reason   deadletter.Reason // while dying or held
	Failed   bool              // while dying: the attempt it died of was counted as failed
	Told     bool              // while dying: the journal tells that it is dead
	Noted    bool              // while dying or held: its history has a note, which is of this death
	nextFree uint32
	far      int64 // the moment that was too far for the column
}

// sideChunk is how many rows are made at once.
const sideChunk = 64

// sides are a machine's side rows. They are numbered from 1 and stand in chunks:
// in one slice they would be copied under the queue's lock each time it grows.
type sides struct {
	pages  *Pages // counts their memory
	chunks []*[sideChunk]Side
	made   uint32
	free   uint32 // first row to be used again, 0 = none
	used   int
}

// at returns a row that was taken and not given back.
func (r *sides) at(row uint32) *Side { return &r.chunks[(row-1)/sideChunk][(row-1)%sideChunk] }

// take returns the number of an empty row.
func (r *sides) take() (row uint32) {
	r.used++
	if row = r.free; row != 0 {
		s := r.at(row)
		r.free = s.nextFree
		*s = Side{}
		return row
	}
	if int(r.made) == len(r.chunks)*sideChunk {
		r.chunks = append(r.chunks, new([sideChunk]Side))
		r.pages.bytes += chunkBytes
	}
	r.made++
	*r.at(r.made) = Side{}
	return r.made
}

const chunkBytes = sideChunk * sideBytes

// give takes a row back. With the last one all memory is given up but a chunk.
func (r *sides) give(row uint32) {
	*r.at(row) = Side{nextFree: r.free}
	r.free = row
	if r.used--; r.used == 0 {
		r.trim(1)
	}
}

// trim gives memory up if no row is in use, all but so many chunks.
func (r *sides) trim(keep int) {
	if r.used > 0 {
		return
	}
	r.made, r.free = 0, 0
	if len(r.chunks) > keep {
		r.pages.bytes -= (len(r.chunks) - keep) * chunkBytes
		clear(r.chunks[keep:])
		r.chunks = r.chunks[:keep]
	}
}
