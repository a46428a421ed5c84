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

// Disk is where records lie that are not only in memory. What is nil is not there.
type Disk struct {
	Journal *journal.Journal
	Keep    *bodyfile.Keep
	Scratch *bodyfile.Scratch
}

// Attach tells the store where records lie. It is called once, before anything is
// read from disk or written to it.
func (s *Store) Attach(d Disk) { s.disk = d }

// DamageError reports a record on disk that is not what was written there.
type DamageError struct {
	At     message.Location
	Reason string // what is wrong with it
}

// Error names the file and the offset.
func (e *DamageError) Error() string {
	return fmt.Sprintf("the message record in %s segment %d at offset %d is damaged: %s",
		e.At.Space(), e.At.Segment(), e.At.Offset(), e.Reason)
}

// readAt reads what the file holds from a record on into dst, and says how much that
// is: all of the record, if dst is long enough. What a disk has failed to read it is asked
// for once more: a message is set aside for what stays, not for what passes.
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
			// It has been retired: then the file was moved before the journal forgot it.
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
