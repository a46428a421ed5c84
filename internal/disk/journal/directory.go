package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Names in the directory: NNNNNNNNNN.seg is segment N, NNNNNNNNNN.free the file of a
// segment that was freed, waiting to become another. Nothing in a .free file
// counts. Other names are left alone.
const (
	segmentSuffix = ".seg"
	freeSuffix    = ".free"
	nameDigits    = 10
	// oldDigits is the length of the numbers in names of format 1.
	oldDigits = 8
)

func segmentName(number uint32) string {
	return fmt.Sprintf("%0*d%s", nameDigits, number, segmentSuffix)
}
func freeName(number uint32) string { return fmt.Sprintf("%0*d%s", nameDigits, number, freeSuffix) }

// parseName splits a file name into number and suffix. ok is false for names that
// are not the journal's.
func parseName(name string) (number uint32, suffix string, ok bool) {
	if len(name) < nameDigits {
		return 0, "", false
	}
	digits, suffix := name[:nameDigits], name[nameDigits:]
	if suffix != segmentSuffix && suffix != freeSuffix || !allDigits(digits) {
		return 0, "", false
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || n == 0 || n > maxSegment {
		return 0, "", false
	}
	return uint32(n), suffix, true
}

func allDigits(s string) bool { return strings.Trim(s, "0123456789") == "" }

// isOld says whether a file name is that of a segment of format 1.
func isOld(name string) bool {
	return len(name) == oldDigits+len(segmentSuffix) && allDigits(name[:oldDigits]) && name[oldDigits:] == segmentSuffix
}

// First is the lowest number of a segment among the names of a directory's files.
func First(names []string) (number uint32, ok bool) {
	for _, name := range names {
		if n, suffix, is := parseName(name); is && suffix == segmentSuffix && (!ok || n < number) {
			number, ok = n, true
		}
	}
	return number, ok
}

// segmentFile is a segment's file as found.
type segmentFile struct {
	header
	number uint32
	path   string
	size   int64 // of the file, in bytes
	state  headerState
	intact bool // both copies of the header are good
}

// directory is what a journal's directory holds: its headers are read, its frames
// are not.
type directory struct {
	segments []segmentFile // ascending by number
	free     []string      // names, ascending
	end      Pos           // see endName
}

// readDirectory lists dir and reads the header of every segment. It fails on I/O
// errors and on formats it does not know; damage is left for chain to find.
func readDirectory(fs vfs.FS, dir string) (directory, error) {
	names, err := fs.List(dir)
	if err != nil {
		return directory{}, fmt.Errorf("journal: list %s: %w", dir, err)
	}
	slices.Sort(names)
	var d directory
	if d.end, err = readEnd(fs, dir); err != nil {
		return directory{}, err
	}
	for _, name := range names {
		number, suffix, ok := parseName(name)
		switch {
		case isOld(name):
			return directory{}, fmt.Errorf("journal: %s: %w: it is of format 1, this release reads format %d",
				fs.PathJoin(dir, name), errFormat, formatVersion)
		case !ok:
		case suffix == freeSuffix:
			d.free = append(d.free, name)
		default:
			s, err := readSegmentFile(fs, fs.PathJoin(dir, name), number)
			if err != nil {
				return directory{}, err
			}
			d.segments = append(d.segments, s)
		}
	}
	return d, nil
}

func readSegmentFile(fs vfs.FS, path string, number uint32) (segmentFile, error) {
	f, err := fs.Open(path)
	if err != nil {
		return segmentFile{}, fmt.Errorf("journal: open %s: %w", path, err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return segmentFile{}, fmt.Errorf("journal: stat %s: %w", path, err)
	}
	b := make([]byte, min(headerBytes, info.Size()))
	if n, err := f.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return segmentFile{}, fmt.Errorf("journal: read header of %s: %w", path, err)
	} else {
		b = b[:n]
	}
	s := segmentFile{number: number, path: path, size: info.Size()}
	if s.header, s.state, s.intact, err = decodeHeader(b, number, s.size); err != nil {
		return segmentFile{}, fmt.Errorf("journal: %s: %w", path, err)
	}
	if s.state == headerBlank && allZero(b) {
		// A fresh file whose header was never written has nothing behind it either: a header is durable before the
		// first frame. A recycled one has the header of its former life.
		empty, err := zeroFrom(f, int64(len(b)), s.size)
		if err != nil {
			return segmentFile{}, fmt.Errorf("journal: read %s: %w", path, err)
		}
		if !empty {
			s.state = headerDamaged
		}
	}
	return s, nil
}

func allZero(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

// zeroFrom says whether a file has nothing but zeros between two offsets.
func zeroFrom(f vfs.File, from, to int64) (bool, error) {
	b := make([]byte, max(0, min(windowBytes, to-from)))
	for from < to {
		n, err := f.ReadAt(b[:min(int64(len(b)), to-from)], from)
		if err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		if n == 0 {
			break // it has shrunk
		}
		if !allZero(b[:n]) {
			return false, nil
		}
		from += int64(n)
	}
	return true, nil
}

// split divides the segments at a position that a caller's checkpoint names: the
// frames of old are not wanted any more, those of rest are, from on. A position at
// the very start of a segment that was never written to is the end of the one
// before, which then belongs to rest.
func (d *directory) split(from Pos) (old, rest []segmentFile) {
	first := from.Segment()
	n := sort.Search(len(d.segments), func(i int) bool { return d.segments[i].number >= first })
	old, rest = d.segments[:n], d.segments[n:]
	unwritten := len(rest) == 0 || len(rest) == 1 && rest[0].state == headerBlank
	if unwritten && from.Offset() <= headerBytes && n > 0 && d.segments[n-1].number == first-1 {
		return d.segments[:n-1], d.segments[n-1:]
	}
	return old, rest
}

// chain checks that segments follow each other without a gap. valid are those
// with a header; blank is the newest if a crash came before its header was
// written, else nil.
//
// What is missing before the first segment cannot be told from what was freed,
// and what is missing after the last one from what was never written: the
// callers' checkpoints know both, see replay.
func chain(segments []segmentFile) (valid []segmentFile, blank *segmentFile, damage *DamageError) {
	for i := range segments {
		s := &segments[i]
		last := i == len(segments)-1
		if i > 0 && s.number != segments[i-1].number+1 {
			return nil, nil, s.missing(segments[i-1].number + 1)
		}
		switch {
		case s.state == headerDamaged:
			return nil, nil, &DamageError{Segment: s.number, File: s.path, Reason: "no copy of the segment header is intact"}
		case s.state == headerBlank && last:
			return segments[:i], s, nil
		case s.state == headerBlank:
			return nil, nil, &DamageError{Segment: s.number, File: s.path, Reason: "the segment header is gone, though a later segment exists"}
		case i > 0 && (s.prevEnd.Segment() != s.number-1 || s.prevEnd.Offset() < headerBytes):
			return nil, nil, &DamageError{Segment: s.number, File: s.path, Reason: fmt.Sprintf("the header places the end of the preceding segment at %s", s.prevEnd)}
		}
	}
	return segments, nil, nil
}

// missing is the damage that the file of another segment is not there.
func (s *segmentFile) missing(number uint32) *DamageError {
	path := strings.TrimSuffix(s.path, segmentName(s.number)) + segmentName(number)
	return &DamageError{Segment: number, File: path, Reason: "the file is missing"}
}
