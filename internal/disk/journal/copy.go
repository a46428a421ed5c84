package journal

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// CopyTo copies the journal, up to a position that is committed, into a directory
// that exists, while it is appended to. What is there is what a crash at
// that moment would have left. REQUIRES: Retire is not called meanwhile.
func (j *Journal) CopyTo(ctx context.Context, dir string, upTo Pos) error {
	fs := j.opts.FS
	var end Pos // of what is copied
	for _, s := range j.Segments() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if s.Number > upTo.Segment() {
			break
		}
		bytes := s.Bytes
		if s.Number == upTo.Segment() {
			bytes = upTo.Offset()
		}
		name := segmentName(s.Number)
		if err := copyHead(fs, fs.PathJoin(j.opts.Dir, name), fs.PathJoin(dir, name), bytes); err != nil {
			return fmt.Errorf("journal: copy %s: %w", name, err)
		}
		end = MakePos(s.Number, bytes)
	}
	if end == 0 {
		return SyncDirectory(fs, dir)
	}
	return writeEnd(fs, dir, end)
}

// copyHead copies the first bytes of a file. A segment of the journal is used again
// when it is freed, so that a link to it would change.
func copyHead(fs vfs.FS, from, to string, bytes int64) (err error) {
	in, err := fs.Open(from, vfs.SequentialReadsOption)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	out, err := fs.Create(to, writeCategory)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if _, err := io.CopyN(out, in, bytes); err != nil {
		return err
	}
	return out.Sync()
}
