package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	iofs "io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Hole is a run of bytes of a segment that were durable once and hold no intact
// frame: one damage, as far as it reaches.
type Hole struct {
	Segment uint32
	File    string
	// From is where the first frame that is not intact begins, To the next intact one
	// behind it, or where frames are known to end: offsets in the file. They are equal
	// where nobody knows of a frame.
	From, To int64
	Reason   string
	// Header says that the segment's header is lost, or all of its file: what it held
	// cannot be read for want of its key.
	Header bool
	// Before says that all of it lies before the position that recovery begins at: a start does
	// not read it, but for the records that queues still refer to.
	Before bool
	// Proof says that nothing of the log is known to be lost but the file that proves how far it goes. File is that file.
	Proof bool

	prevEnd Pos // where the frames of the preceding segment end, as far as they can be read
	key     frameKey
}

// Pos is where the hole begins.
func (h *Hole) Pos() Pos { return MakePos(h.Segment, h.From) }

// Inspection is what Inspect found.
type Inspection struct {
	Segments  []SegmentReport // those that have a header, oldest first
	Frames    int64           // with payload, in all of them
	End       Pos             // where the last intact frame ends; 0 in an empty journal
	TornBytes int64           // behind it, of frames that a crash cut short
	Recycled  int             // freed files waiting to be segments again
	Holes     []Hole          // all damage, oldest first
}

// SegmentReport is what Inspect found in one segment.
type SegmentReport struct {
	Number       uint32
	Bytes        int64 // used, header included
	Frames       int64 // with payload
	PayloadBytes int64
}

// inspector collects an Inspection.
type inspector struct {
	Inspection
	fs   vfs.FS
	dir  string
	from Pos
	fn   func(pos Pos, payload []byte) error
}

// Inspect reads every intact frame of a stopped node's journal into fn, those
// behind damage too, and changes nothing. from is where recovery would begin; 0 for
// segments that are no log, such as those that were retired: any may be the first, and
// nothing proves the last. The error is fn's or of the disk; damage is in the result.
func Inspect(fs vfs.FS, dir string, from Pos, fn func(pos Pos, payload []byte) error) (Inspection, error) {
	d, err := readDirectory(fs, dir)
	if err != nil && !errors.Is(err, iofs.ErrNotExist) { // one that is not there holds nothing
		return Inspection{}, err
	}
	in := inspector{Inspection: Inspection{Recycled: len(d.free)}, fs: fs, dir: dir, from: from, fn: fn}
	for i := range d.segments {
		var next *segmentFile
		if i+1 < len(d.segments) {
			next = &d.segments[i+1]
		}
		if i > 0 {
			in.missing(d.segments[i-1].number+1, &d.segments[i])
		} else if from != 0 {
			in.missing(from.Segment(), &d.segments[i])
		}
		if err := in.segment(&d.segments[i], next); err != nil {
			return in.Inspection, err
		}
	}
	for i := range in.Holes {
		h := &in.Holes[i]
		h.Before = MakePos(h.Segment, max(h.To, h.From+1)) <= from
	}
	holes := len(in.Holes)
	if !unwritten(from, in.End) { // no start does without what it finds
		in.reach(d.segments, from)
	}
	if in.reach(d.segments, d.end); len(in.Holes) > holes && d.end > from {
		in.TornBytes = 0 // they are damage
	}
	if from != 0 && d.unproved(d.segments, in.End) {
		in.Holes = append(in.Holes, Hole{Segment: in.End.Segment(), From: in.End.Offset(), To: in.End.Offset(), File: fs.PathJoin(dir, endName), Reason: lostProof, Proof: true})
	}
	return in.Inspection, nil
}

// unwritten says whether a position is that of a segment that was never begun, so that it is the end of the one before,
// where the log ends: see split.
func unwritten(to, end Pos) bool {
	return to <= Beginning && end == 0 || end.Segment() == to.Segment()-1 && to.Offset() <= headerBytes
}

// missing notes segments from number on up to s, whose files are not there.
func (in *inspector) missing(number uint32, s *segmentFile) {
	for ; number < s.number; number++ {
		h := Hole{Segment: number, From: headerBytes, To: headerBytes, Header: true, Reason: "the file is missing", prevEnd: in.End}
		if number == s.number-1 && s.state == headerValid {
			h.To = max(headerBytes, s.prevEnd.Offset())
		}
		in.hole(h)
	}
}

// hole notes a hole.
func (in *inspector) hole(h Hole) {
	h.File = in.fs.PathJoin(in.dir, segmentName(h.Segment))
	in.Holes = append(in.Holes, h)
	in.End = MakePos(h.Segment, h.To)
}

// segment reads one segment. next is the one behind it, if there is any.
func (in *inspector) segment(s, next *segmentFile) error {
	bound := next != nil && next.number == s.number+1 && next.state == headerValid && next.prevEnd.Segment() == s.number
	limit := s.size
	if bound {
		limit = next.prevEnd.Offset()
	}
	if s.state != headerValid {
		if s.state == headerBlank && next == nil {
			return nil // a crash came before the header was written
		}
		h := Hole{Segment: s.number, From: headerBytes, To: max(headerBytes, limit), Header: true, Reason: "no copy of the segment header is intact", prevEnd: in.End}
		in.hole(h)
		return nil
	}
	scan, err := openScan(in.fs, *s)
	if err != nil {
		return err
	}
	defer scan.close()
	at := int64(headerBytes)
	for {
		end, verdict, err := scan.replay(at, limit, in.fn)
		if err != nil {
			return err
		}
		in.End = MakePos(s.number, end)
		if bound && end == limit {
			break
		}
		h := Hole{Segment: s.number, From: end, To: limit, Reason: "no intact frame", prevEnd: in.End, key: scan.key}
		if bound {
			h.Reason = fmt.Sprintf("no intact frame, though the next segment says there are frames up to offset %d", limit)
		} else {
			torn, proof, err := scan.tail(end, verdict)
			if err != nil {
				return err
			}
			if proof == 0 {
				if next == nil {
					in.TornBytes = torn
				}
				break
			}
			h.Reason = fmt.Sprintf("no intact frame, though the frame at %s says it was synced", proof)
		}
		next, err := scan.nextGood(end, limit)
		if err != nil {
			return err
		}
		if next > 0 {
			h.To = next
		}
		in.hole(h)
		if next == 0 {
			break
		}
		at = next
	}
	in.Segments = append(in.Segments, SegmentReport{Number: s.number, Bytes: in.End.Offset(), Frames: scan.frames, PayloadBytes: scan.payloadBytes})
	in.Frames += scan.frames
	return nil
}

// reach notes what is missing between the end of the journal and a position that it
// had reached: that recovery is to begin at, or that was noted.
func (in *inspector) reach(segments []segmentFile, to Pos) {
	first, last := to.Segment(), in.End.Segment()
	switch {
	case in.End >= to:
		return
	case last == first:
		h := Hole{Segment: first, From: in.End.Offset(), To: to.Offset(), prevEnd: in.End, Reason: fmt.Sprintf("the frames end here, and were durable up to offset %d at least", to.Offset())}
		for i := range segments {
			if segments[i].number == first {
				h.key = segments[i].key()
			}
		}
		h.Header = h.key == frameKey{}
		in.hole(h)
		return
	}
	if last == 0 {
		last = max(1, min(first, in.from.Segment())) - 1
		if in.from == 0 {
			last = first - 1
		}
	}
	for number := last + 1; number <= first; number++ {
		h := Hole{Segment: number, From: headerBytes, To: headerBytes, Header: true, prevEnd: in.End,
			Reason: fmt.Sprintf("the file is missing, or empty, and the log was durable up to %s", to)}
		if number == first {
			h.To = max(headerBytes, to.Offset())
		}
		in.hole(h)
	}
}

// nextGood returns the offset of the first intact frame behind a bad one, that
// ends before limit; 0 if there is none.
func (s *segmentScan) nextGood(bad, limit int64) (int64, error) {
	for at := bad + 1; at+frameHeaderBytes <= limit; {
		b, err := s.window.rest(at, frameHeaderBytes)
		if err != nil {
			return 0, s.readError(at, err)
		}
		if len(b) < frameHeaderBytes {
			break
		}
		i := s.candidate(b, at)
		at += int64(i)
		if i > len(b)-frameHeaderBytes {
			continue
		}
		if at >= limit {
			break
		}
		_, verdict, err := s.frameAt(&s.probe, at, limit)
		if err != nil {
			return 0, err
		}
		if verdict == frameGood {
			return at, nil
		}
		at++
	}
	return 0, nil
}

// PayloadIn is the payload of the frame that b begins with, as far as its length can
// be believed, and for as much as b has of it. Nothing in it was checked: it is for
// guesses about a damaged frame.
func PayloadIn(b []byte) []byte {
	if len(b) < frameHeaderBytes {
		return nil
	}
	end := int64(binary.LittleEndian.Uint32(b)) + 8
	return b[frameHeaderBytes:max(frameHeaderBytes, min(end, int64(len(b))))]
}
