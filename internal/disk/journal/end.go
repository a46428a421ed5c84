package journal

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	iofs "io/fs"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// endName is the file that proves how far the log goes: a position that it has reached, and the position's CRC-32C. A new
// segment is noted in it after its header is durable and before it has its first frame; Close notes where the log ends.
// The position was true once, so it is true for ever: a log that ends before it has lost files or bytes. A log with
// frames and without the file is damaged, too.
const endName = "end"

// Beginning is where the first of all frames is. A log that begins behind the position from which it is to be read has
// lost files: a caller that has no checkpoint recovers from Beginning.
const Beginning = Pos(1<<32 | headerBytes)

func endText(pos Pos) string {
	text := strconv.FormatUint(uint64(pos), 10)
	return fmt.Sprintf("%s %08x\n", text, crc32.Checksum([]byte(text), castagnoli))
}

// writeEnd notes that the log in dir has reached pos.
func writeEnd(fs vfs.FS, dir string, pos Pos) error {
	return Replace(fs, fs.PathJoin(dir, endName), []byte(endText(pos)))
}

// readEnd is what writeEnd has noted; 0 where nothing can be read.
func readEnd(fs vfs.FS, dir string) (Pos, error) {
	f, err := fs.Open(fs.PathJoin(dir, endName))
	if errors.Is(err, iofs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("journal: %w", err)
	}
	const enough = 64
	text, err := io.ReadAll(io.LimitReader(f, enough))
	if err = errors.Join(err, f.Close()); err != nil {
		return 0, fmt.Errorf("journal: read %s: %w", fs.PathJoin(dir, endName), err)
	}
	number, _, _ := strings.Cut(string(text), " ")
	pos, err := strconv.ParseUint(number, 10, 64)
	if err != nil || endText(Pos(pos)) != string(text) {
		return 0, nil
	}
	return Pos(pos), nil
}

// unproved says whether the file is lost. It is made when the first segment has a header, before there is a frame, or at
// the next start. got is where the log ends.
func (d *directory) unproved(segments []segmentFile, got Pos) bool {
	return d.end == 0 && (len(segments) > 1 || got.Offset() > headerBytes)
}

// lostProof is the reason of the damage that the file is lost.
const lostProof = "the file is missing or damaged, so nothing shows whether the end of the log is missing"

// short is the damage that the log ends at got, before the position that it has reached once; nil if it does not.
func (d *directory) short(fs vfs.FS, dir string, valid []segmentFile, got Pos) *DamageError {
	if d.unproved(valid, got) {
		return &DamageError{Segment: got.Segment(), File: fs.PathJoin(dir, endName), Reason: lostProof}
	}
	if d.end <= got {
		return nil
	}
	number, offset := d.end.Segment(), int64(headerBytes)
	if got.Segment() == number {
		offset = got.Offset()
	}
	return &DamageError{Segment: number, File: fs.PathJoin(dir, segmentName(number)), Offset: offset,
		Reason: fmt.Sprintf("the log ends at %s, and has reached %s before", got, d.end)}
}

// noteEnd notes the newest segment that a stopped node's log has, after a repair has made or removed segments.
func noteEnd(fs vfs.FS, dir string) error {
	d, err := readDirectory(fs, dir)
	if err != nil {
		return err
	}
	for i := len(d.segments) - 1; i >= 0; i-- {
		if s := &d.segments[i]; s.state == headerValid {
			return writeEnd(fs, dir, MakePos(s.number, headerBytes))
		}
	}
	if err := fs.Remove(fs.PathJoin(dir, endName)); err != nil && !errors.Is(err, iofs.ErrNotExist) {
		return err
	}
	return SyncDirectory(fs, dir)
}
