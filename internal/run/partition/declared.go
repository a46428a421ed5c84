package partition

import (
	"encoding/binary"
	"sync"

	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/disk/store"
	"bartleby.mq/internal/run/cluster"
)

// The declarations have a log of their own, whose end may be lost as if it had never been. So
// the journal notes how far that log was on disk, before anything enters a queue that was
// declared; and a checkpoint does, for the frames that it makes needless.
//
// The note is a frame: declaredFirstByte | the log's name u64 | position u64, little endian.
const (
	declaredFirstByte = 4
	declaredBytes     = 1 + 8 + 8
)

// The first byte of a frame tells a note, a group's log and the formats of ours apart. If two were equal this would not compile.
var _ = map[byte]bool{frameFirst: true, cluster.FrameFirstByte: true, frameBefore: true, declaredFirstByte: true, frameVersion: true}

// IsDeclared says whether a payload of the journal is such a note.
func IsDeclared(payload []byte) bool {
	return len(payload) == declaredBytes && payload[0] == declaredFirstByte
}

// ReadDeclared is what a note says. REQUIRES: IsDeclared(payload).
func ReadDeclared(payload []byte) store.Reach {
	return store.Reach{Log: binary.LittleEndian.Uint64(payload[1:]), Pos: journal.Pos(binary.LittleEndian.Uint64(payload[9:]))}
}

// declaredNote is what Declared was told last, or recovery has found.
type declaredNote struct {
	mu sync.Mutex // the journal's are taken under it
	at store.Reach
}

// Declared notes how far the log of declarations is on disk. It waits for nothing: what rests on the
// declarations is in the journal behind the note.
func (n *Node) Declared(at store.Reach) {
	d := &n.declared
	d.mu.Lock()
	defer d.mu.Unlock()
	if at.Pos == 0 || at == d.at {
		return
	}
	d.at = at // first, so that a checkpoint which passes the frame has it
	b := binary.LittleEndian.AppendUint64([]byte{declaredFirstByte}, at.Log)
	n.Journal.Append(binary.LittleEndian.AppendUint64(b, uint64(at.Pos)))
}

// last is what was noted last, nil if nothing was.
func (d *declaredNote) last() *store.Reach {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at == (store.Reach{}) {
		return nil
	}
	at := d.at
	return &at
}
