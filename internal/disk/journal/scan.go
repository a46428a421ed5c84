package journal

import (
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// windowBytes is how much of a file is read at a time.
const windowBytes = 1 << 20

// window reads a file forwards through one buffer, which grows to the largest
// frame met and never beyond what the file holds.
type window struct {
	file vfs.File
	size int64
	buf  []byte
	off  int64 // of buf in the file
}

// at returns the n bytes at offset, fewer at the end of the file. They are valid until
// the next call.
func (w *window) at(offset, n int64) ([]byte, error) {
	n = min(n, w.size-offset)
	if n <= 0 {
		return nil, nil
	}
	if from := offset - w.off; from >= 0 && from+n <= int64(len(w.buf)) {
		return w.buf[from : from+n], nil
	}
	want := min(max(n, windowBytes), w.size-offset)
	if int64(cap(w.buf)) < want {
		w.buf = make([]byte, want)
	}
	w.buf, w.off = w.buf[:want], offset
	got, err := w.file.ReadAt(w.buf, offset)
	w.buf = w.buf[:got]
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return w.buf[:min(n, int64(got))], nil
}

// rest returns what the buffer holds from offset on, at least n bytes but at the
// end of the file. They are valid until the next call.
func (w *window) rest(offset, n int64) ([]byte, error) {
	b, err := w.at(offset, n)
	if err != nil || int64(len(b)) < n {
		return b, err
	}
	return w.buf[offset-w.off:], nil
}

// segmentScan reads the frames of one segment.
type segmentScan struct {
	segmentFile
	key    frameKey
	window window
	probe  window // for the search behind a bad frame

	frames       int64 // payload frames met
	payloadBytes int64
	syncedTo     Pos // the highest met
}

// openScan opens a segment for reading its frames. The caller closes it.
func openScan(fs vfs.FS, s segmentFile) (*segmentScan, error) {
	f, err := fs.Open(s.path, vfs.SequentialReadsOption)
	if err != nil {
		return nil, fmt.Errorf("journal: open %s: %w", s.path, err)
	}
	return &segmentScan{
		segmentFile: s,
		key:         s.key(),
		window:      window{file: f, size: s.size},
		probe:       window{file: f, size: s.size},
	}, nil
}

func (s *segmentScan) close() { _ = s.window.file.Close() }

// frameAt reads the frame at offset out of w. limit is where frames must end.
func (s *segmentScan) frameAt(w *window, offset, limit int64) (f frame, verdict frameVerdict, err error) {
	b, err := w.at(offset, frameHeaderBytes)
	if err != nil {
		return frame{}, frameNone, s.readError(offset, err)
	}
	f, verdict = s.key.parseHeader(b, offset, limit-offset)
	if verdict != frameGood {
		return f, verdict, nil
	}
	if b, err = w.at(offset, f.bytes); err != nil {
		return frame{}, frameNone, s.readError(offset, err)
	}
	return f, s.key.parse(b, offset, &f), nil
}

func (s *segmentScan) readError(offset int64, err error) error {
	return fmt.Errorf("journal: read %s at offset %d: %w", s.path, offset, err)
}

// begin says where replay is to start so that it hands over what lies at from and
// behind it. An intact frame proves its own place; where none begins, the frames
// before must be read to tell the end of the log from damage.
func (s *segmentScan) begin(from, limit int64) (int64, error) {
	if from <= headerBytes {
		return headerBytes, nil
	}
	limit = min(limit, s.size)
	switch _, verdict, err := s.frameAt(&s.window, from, limit); {
	case err != nil:
		return 0, err
	case verdict == frameGood:
		return from, nil
	}
	end, _, err := s.replay(headerBytes, min(from, limit), func(Pos, []byte) error { return nil })
	if err == nil && end < from {
		if f, verdict, _ := s.frameAt(&s.window, end, limit); verdict == frameGood && end+f.bytes > from {
			return 0, fmt.Errorf("journal: recovery from %s: no frame begins there", MakePos(s.number, from))
		}
		return 0, &DamageError{Segment: s.number, File: s.path, Offset: end,
			Reason: fmt.Sprintf("the frames end here, and were durable up to offset %d at least", from)}
	}
	s.frames, s.payloadBytes = 0, 0
	return end, err
}

// replay hands the payload frames from start up to limit to fn, in order, and
// stops at the first that is not intact: end is its offset and verdict what is
// there. An error is fn's or of the disk.
func (s *segmentScan) replay(start, limit int64, fn func(pos Pos, payload []byte) error) (end int64, verdict frameVerdict, err error) {
	limit = min(limit, s.size)
	for end = start; end < limit; {
		f, verdict, err := s.frameAt(&s.window, end, limit)
		if err != nil || verdict != frameGood {
			return end, verdict, err
		}
		s.syncedTo = max(s.syncedTo, f.syncedTo)
		if f.kind == kindPayload {
			s.frames++
			s.payloadBytes += int64(len(f.payload))
			if err := fn(MakePos(s.number, end), f.payload); err != nil {
				return end, frameGood, err
			}
		}
		end += f.bytes
	}
	return end, frameNone, nil
}

// tail judges what lies from the first bad frame on, in the newest segment. proof
// is the position of an intact later frame that knew the bad one to be durable:
// then this is damage. Otherwise torn is how many bytes show traces of frames
// that a crash cut short: 0 after a clean end.
func (s *segmentScan) tail(bad int64, verdict frameVerdict) (torn int64, proof Pos, err error) {
	end := bad // of the last trace
	if verdict == frameBroken {
		f, _, err := s.frameAt(&s.probe, bad, s.size)
		if err != nil {
			return 0, 0, err
		}
		end = min(bad+max(f.bytes, frameHeaderBytes), s.size)
	}
	for at := bad + 1; at+frameHeaderBytes <= s.size; {
		b, err := s.window.rest(at, frameHeaderBytes)
		if err != nil {
			return 0, 0, s.readError(at, err)
		}
		if len(b) < frameHeaderBytes {
			break // the file shrank under us
		}
		i := s.candidate(b, at)
		at += int64(i)
		if i > len(b)-frameHeaderBytes {
			continue // none in this window; the next begins with the bytes not looked at
		}
		f, verdict, err := s.frameAt(&s.probe, at, s.size)
		if err != nil {
			return 0, 0, err
		}
		if verdict != frameGood {
			at++
			continue
		}
		if f.syncedTo > MakePos(s.number, bad) {
			return 0, MakePos(s.number, at), nil
		}
		at += f.bytes
		end = max(end, at)
	}
	return end - bad, 0, nil
}

// candidate returns the index of the first place in b, which lies at offset, that
// may be a frame of this segment, or the first index too close to the end of b to
// tell.
func (s *segmentScan) candidate(b []byte, offset int64) int {
	i := 0
	for ; i+frameHeaderBytes <= len(b); i++ {
		if _, ours := s.key.syncedTo(b[i:], offset+int64(i)); ours && b[i+8] == frameVersion {
			return i
		}
	}
	return i
}
