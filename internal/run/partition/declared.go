package partition

import (
	"encoding/binary"
	"sync"

	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/disk/store"
	"bartleby.mq/internal/run/cluster"
)

// The declarations have a log of their own, and a lost end of that log leaves no trace in it. So the journal notes
// how far that log is on disk, before anything enters a declared queue. A checkpoint has the last note as well,
// because it makes earlier frames needless.
//
// The note is a frame: declaredFirstByte | the log's name u64 | position u64, little endian.
const (
	declaredFirstByte = 4
	declaredBytes     = 1 + 8 + 8
)

// The first byte of a frame tells notes, groups' logs and our formats apart. Equal constants would not compile here.
var _ = map[byte]bool{frameVersion: true, cluster.FrameFirstByte: true, declaredFirstByte: true}

// IsDeclared says whether a payload of the journal is a note.
func IsDeclared(payload []byte) bool {
	return len(payload) == declaredBytes && payload[0] == declaredFirstByte
}

// ReadDeclared decodes a note. REQUIRES: IsDeclared(payload).
func ReadDeclared(payload []byte) store.Reach {
	return store.Reach{Log: binary.LittleEndian.Uint64(payload[1:]), Pos: journal.Pos(binary.LittleEndian.Uint64(payload[9:]))}
}

// declaredNote is the last note, from Declared or from recovery.
type declaredNote struct {
	mu sync.Mutex // taken before the journal's locks
	at store.Reach
}

// Declared notes how far the log of declarations is on disk. It need not wait: whatever depends on these declarations
// comes later in the journal.
func (n *Node) Declared(at store.Reach) {
	d := &n.declared
	d.mu.Lock()
	defer d.mu.Unlock()
	if at.Pos == 0 || at == d.at {
		return
	}
	d.at = at // before Append: a checkpoint whose cut passes the frame must have the note
	b := binary.LittleEndian.AppendUint64([]byte{declaredFirstByte}, at.Log)
	n.Journal.Append(binary.LittleEndian.AppendUint64(b, uint64(at.Pos)))
}

// last returns the last note, nil if there is none.
func (d *declaredNote) last() *store.Reach {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at == (store.Reach{}) {
		return nil
	}
	at := d.at
	return &at
}
