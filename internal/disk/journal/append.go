package journal

import (
	"fmt"
	"slices"
)

// tail is where the next frame goes.
type tail struct {
	key     frameKey
	offset  int64
	prevEnd Pos // for the header of the segment
}

// newTail is the start of a segment that nothing was written to.
func newTail(segment uint32, prevEnd Pos) tail {
	return tail{key: makeFrameKey(segment, newEpoch()), offset: headerBytes, prevEnd: prevEnd}
}

func (t *tail) pos() Pos { return MakePos(t.key.segment, t.offset) }

// maxKeptBuffer is the largest buffer kept for the next batch, in bytes. Two are kept.
const maxKeptBuffer = 2 << 20

// batch is a run of frames on their way to the files.
type batch struct {
	buf   []byte
	spans []span // at least one if buf is not empty
}

// span is the part of a batch that goes to one segment.
type span struct {
	tail     // as it was before the first frame of the span
	from int // index in the batch's buffer
}

// reset empties the batch and keeps its memory, within reason.
func (b *batch) reset() {
	b.spans = b.spans[:0]
	b.buf = b.buf[:0]
	if cap(b.buf) > maxKeptBuffer {
		b.buf = nil
	}
}

// part is the bytes of the i-th span.
func (b *batch) part(i int) []byte {
	if i+1 < len(b.spans) {
		return b.buf[b.spans[i].from:b.spans[i+1].from]
	}
	return b.buf[b.spans[i].from:]
}

// find returns the bytes of the batch from pos to the end of its segment's part, or nil
// if pos is not in the batch.
func (b *batch) find(pos Pos) []byte {
	for i := range b.spans {
		s := &b.spans[i]
		if s.key.segment != pos.Segment() || pos.Offset() < s.offset {
			continue
		}
		if part := b.part(i); pos.Offset()-s.offset < int64(len(part)) {
			return part[pos.Offset()-s.offset:]
		}
	}
	return nil
}

// Append copies payload as one frame into the buffer and returns the frame's
// position. It does no I/O, cannot fail and does not retain payload. The frame is
// durable only when Commit says so; on a journal that failed or is closed it goes
// nowhere, and Commit of the returned position says that.
//
// REQUIRES: Recover has returned nil; len(payload) <= MaxPayload.
func (j *Journal) Append(payload []byte) Pos { return j.AppendParts(payload) }

// AppendParts is Append of a payload that is the parts one after the other.
func (j *Journal) AppendParts(parts ...[]byte) Pos {
	n := 0
	for _, part := range parts {
		n += len(part)
	}
	if n > MaxPayload {
		panic(fmt.Sprintf("journal: payload of %d bytes: the maximum is %d", n, MaxPayload))
	}
	j.mu.Lock()
	if !j.open {
		return j.refuse()
	}
	if end := j.tail.offset + frameHeaderBytes + int64(n); (j.fresh || end > j.segmentBytes()) && j.tail.offset > headerBytes {
		if j.tail.key.segment == maxSegment {
			return j.exhausted()
		}
		j.tail = newTail(j.tail.key.segment+1, j.tail.pos())
	}
	j.fresh = false
	pos := j.put(kindPayload, n, parts...)
	j.mu.Unlock()
	return pos
}

// segmentBytes is how much goes into one segment.
func (j *Journal) segmentBytes() int64 {
	if j.short.Load() {
		return max(j.opts.SegmentBytes/shortSegments, minSegmentBytes)
	}
	return j.opts.SegmentBytes
}

// put frames a payload of n bytes at the tail. REQUIRES: mu.
func (j *Journal) put(kind frameKind, n int, parts ...[]byte) Pos {
	b := &j.active
	at := len(b.buf)
	if at == 0 || b.spans[len(b.spans)-1].key.segment != j.tail.key.segment {
		b.spans = append(b.spans, span{tail: j.tail, from: at})
	}
	if at == 0 {
		select {
		case j.filled <- struct{}{}:
		default: // nobody has taken the last one
		}
	}
	n += frameHeaderBytes
	b.buf = slices.Grow(b.buf, n)[:at+n]
	j.marked = Pos(j.durable.Load())
	j.tail.key.put(b.buf[at:], j.tail.offset, kind, j.marked, parts...)
	pos := j.tail.pos()
	j.tail.offset += int64(n)
	return pos
}

// mark appends a mark if no frame tells yet how far the log is durable. A crash
// that damages the last frames synced is told from a torn tail only if a later
// frame knows of that sync. A mark goes to the segment at hand, full or not.
// REQUIRES: mu, open.
func (j *Journal) mark() {
	if j.marked < Pos(j.durable.Load()) {
		j.put(kindMark, 0)
	}
}

// refuse releases mu and returns a position that is not durable and never will be.
func (j *Journal) refuse() Pos {
	recovered, end := j.recovered, j.tail.pos()
	j.mu.Unlock()
	if !recovered {
		panic("journal: Append before Recover")
	}
	return end
}

// exhausted stops the journal: there are no more segment numbers. With the default
// size that is after 32 PiB.
func (j *Journal) exhausted() Pos {
	end := j.tail.pos()
	j.mu.Unlock()
	j.fail(fmt.Errorf("journal: all %d segment numbers are used", maxSegment))
	return end
}

// PayloadPos is the position of the first payload byte of the frame at pos.
func (j *Journal) PayloadPos(pos Pos) Pos { return pos + frameHeaderBytes }

// Filled gets a value when the first frame enters an empty buffer. Who calls Flush needs no clock to know when: if there are
// frames in the buffer, a value is in the channel or was taken out of it after the last Flush.
func (j *Journal) Filled() <-chan struct{} { return j.filled }

// Buffered is the number of bytes appended and not yet written to a file, by
// which callers hold back.
func (j *Journal) Buffered() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.active.buf) + len(j.writing.buf)
}
