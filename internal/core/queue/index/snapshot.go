package index

import (
	"encoding/binary"
	"errors"
	"math"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
)

// The entries of a snapshot, as queue's snapshot.go tells it.
//
//	entries   n | n × (id | flags byte | size | due | owner | side | record bytes)
//	side      what byte, as in a page | history bytes | deliveries and acquired | TTL's moment | reason and moment of death

var errSnapshot = errors.New("queue: malformed snapshot")

// Bit is 1 if set: flags are put together of it.
func Bit(set bool) byte {
	if set {
		return 1
	}
	return 0
}

// AppendEntries appends the entries; record and history find the bytes of either,
// valid until the next call.
func (ix *Index) AppendEntries(b []byte, record, history func(message.Ref) []byte) []byte {
	n := ix.Count.Ready + ix.Count.Out + ix.Count.Delayed + ix.Count.Dying + ix.Count.Held + ix.Count.Offered
	b = binary.AppendUvarint(b, uint64(n))
	ix.Each(false, func(id ID, at Place) {
		p, i := at.page, at.slot
		b = binary.AppendUvarint(b, uint64(id))
		b = append(b, p.mark(i))
		b = binary.AppendUvarint(b, uint64(p.size(i)))
		b = binary.AppendUvarint(b, uint64(ix.due(p, i)))
		owner := uint32(0)
		if p.state(i) == Out {
			owner = p.owner(i)
		}
		b = binary.AppendUvarint(b, uint64(owner))
		b = ix.appendSide(b, p, i, history)
		body := record(p.ref(i))
		b = binary.AppendUvarint(b, uint64(len(body)))
		b = append(b, body...)
	})
	return b
}

func (ix *Index) appendSide(b []byte, p *page, i uint, bytes func(message.Ref) []byte) []byte {
	var s Side
	if row := ix.peekSide(p, i); row != nil {
		s = *row
	}
	history, counts, state := p.history(i), p.countsOf(i), p.state(i)
	dead := state == Dying || state == Held
	b = append(b, Bit(history != 0)*sideHistory|Bit(counts != Counts{})*sideCounts|Bit(s.TTL != 0)*sideTTL|Bit(dead)*sideDeath)
	if history != 0 {
		h := bytes(history)
		b = binary.AppendUvarint(b, uint64(len(h)))
		b = append(b, h...)
	}
	if counts != (Counts{}) {
		b = binary.AppendUvarint(b, uint64(counts.Deliveries))
		b = binary.AppendUvarint(b, uint64(counts.Acquired))
	}
	if s.TTL != 0 {
		b = binary.AppendUvarint(b, uint64(s.TTL))
	}
	if dead {
		b = append(b, byte(s.Reason))
		b = binary.AppendUvarint(b, uint64(s.DiedAt))
	}
	return b
}

// RestoreEntries takes what AppendEntries wrote into a new machine. keep stores a
// record, or a history, and returns a reference for the machine: at is how far the
// bytes lie in front of the end of b. It returns what follows in b.
func (ix *Index) RestoreEntries(b []byte, keep func(bytes []byte, record bool, at int) (message.Ref, error)) (rest []byte, err error) {
	r := Reader{B: b}
	for range r.Count(6) {
		id, flags := ID(r.Uint()), r.Byte()
		c := Content{Size: r.Small(), Logged: flags&flagLogged != 0, Redelivered: flags&flagRedelivered != 0}
		due, owner := r.Moment(), r.Small()
		state := flags & stateMask
		if r.Bad || id.Seq() == 0 || id.Lane() >= len(ix.lanes) || state > Offered {
			return nil, errSnapshot
		}
		if ix.Find(id).There() {
			return nil, errSnapshot
		}
		s, err := readSide(&r, &c, keep)
		if err != nil {
			return nil, err
		}
		record := r.Bytes(r.Uint())
		if r.Bad {
			return nil, errSnapshot
		}
		if c.Body, err = keep(record, true, len(record)+len(r.B)); err != nil {
			return nil, err
		}
		_, at := ix.Enter(id.Lane(), id.Seq(), &c, due)
		if s != (Side{}) {
			row := ix.SideOf(at)
			row.TTL, row.Reason, row.DiedAt = s.TTL, s.Reason, s.DiedAt
		}
		if state == Out {
			ix.GiveTo(at, owner)
		}
		ix.SetState(id, at, state)
	}
	if r.Bad {
		return nil, errSnapshot
	}
	return r.B, nil
}

func readSide(r *Reader, c *Content, keep func([]byte, bool, int) (message.Ref, error)) (s Side, err error) {
	what := r.Byte()
	if what&sideHistory != 0 {
		h := r.Bytes(r.Uint())
		if r.Bad {
			return s, errSnapshot
		}
		if c.History, err = keep(h, false, len(h)+len(r.B)); err != nil {
			return s, err
		}
	}
	if what&sideCounts != 0 {
		c.Counts = Counts{r.Small(), r.Small()}
	}
	if what&sideTTL != 0 {
		s.TTL = r.Moment()
	}
	if what&sideDeath != 0 {
		reason := r.Byte()
		if !deadletter.Reason(reason).Valid() {
			r.Bad = true
		}
		s.Reason, s.DiedAt = deadletter.Reason(reason), r.Moment()
	}
	if r.Bad || s.DiedAt > math.MaxInt64-1 {
		return s, errSnapshot
	}
	return s, nil
}
