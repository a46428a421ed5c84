package bodies

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/disk/bodyfile"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/safety/held"
)

// Disk are the places of records on disk. A nil field means that there is no such place.
type Disk struct {
	Journal *journal.Journal
	Keep    *bodyfile.Keep
	Scratch *bodyfile.Scratch

	// Unread, if it is not nil, is told why something that was put aside could not be read. Partitions may be held.
	Unread func(error)
}

// Attach sets the places of records on disk. It is called once, before any record is read
// from disk or written to it.
func (s *Store) Attach(d Disk) { s.disk = d }

// DamageError reports a record on disk that differs from what was written.
type DamageError struct {
	At     message.Location
	Reason string // what is wrong with it
}

// Error names the file and the offset.
func (e *DamageError) Error() string {
	return fmt.Sprintf("the message record in %s segment %d at offset %d is damaged: %s",
		e.At.Space(), e.At.Segment(), e.At.Offset(), e.Reason)
}

// readAt reads a file from the start of a record into dst and returns the number of bytes:
// the whole record if dst is long enough. After an I/O error it tries once more: a message
// is set aside only for a permanent fault.
func (s *Store) readAt(at message.Location, dst []byte) (n int, err error) {
	held.Nothing("bodies on disk")
	if n, err = s.readOnce(at, dst); errors.Is(err, syscall.EIO) {
		n, err = s.readOnce(at, dst)
	}
	return n, err
}

func (s *Store) readOnce(at message.Location, dst []byte) (n int, err error) {
	switch d := &s.disk; {
	case at.Space() == message.InJournal && d.Journal != nil:
		n, err = d.Journal.ReadSome(journal.Pos(at), dst)
		if errors.Is(err, journal.ErrNotHeld) && d.Keep != nil {
			// The segment is retired: the file was moved before the journal forgot it.
			n, err = d.Keep.ReadAt(bodyfile.Retired, at.Segment(), dst, int64(at.Offset()))
		}
	case at.Space() == message.InKeep && d.Keep != nil:
		n, err = d.Keep.ReadAt(bodyfile.Dense, at.Segment(), dst, int64(at.Offset()))
	case at.Space() == message.InScratch && d.Scratch != nil:
		n, err = d.Scratch.ReadAt(at.Segment(), dst, int64(at.Offset()))
	default:
		return 0, fmt.Errorf("message record at %s: no files of this kind: %w", at, fs.ErrNotExist)
	}
	if err != nil {
		return n, fmt.Errorf("message record at %s: %w", at, err)
	}
	return n, nil
}
