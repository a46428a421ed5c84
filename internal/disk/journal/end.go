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

// endName is the file in which Close says how far the log is durable: a position, and its CRC-32C. What was
// durable once is so for ever, so it is never out of date; without it, or where it has rotted, the log is
// read as one that a crash has ended.
const endName = "end"

func endText(pos Pos) string {
	text := strconv.FormatUint(uint64(pos), 10)
	return fmt.Sprintf("%s %08x\n", text, crc32.Checksum([]byte(text), castagnoli))
}

// writeEnd notes that the log in dir is durable up to pos.
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

// short is the damage that the log ends at got, before what Close has noted; nil if it does not.
func (d *directory) short(fs vfs.FS, dir string, from, got Pos) *DamageError {
	if d.end <= from || d.end <= got {
		return nil
	}
	number, offset := d.end.Segment(), int64(headerBytes)
	if got.Segment() == number {
		offset = got.Offset()
	}
	return &DamageError{Segment: number, File: fs.PathJoin(dir, segmentName(number)), Offset: offset,
		Reason: fmt.Sprintf("the log ends at %s, and was durable up to %s when the node was stopped", got, d.end)}
}
