package partition

import (
	"encoding/binary"

	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/disk/store"
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

// IsDeclared says whether a payload of the journal is such a note.
func IsDeclared(payload []byte) bool {
	return len(payload) == declaredBytes && payload[0] == declaredFirstByte
}

// ReadDeclared is what a note says. REQUIRES: IsDeclared(payload).
func ReadDeclared(payload []byte) store.Reach {
	return store.Reach{Log: binary.LittleEndian.Uint64(payload[1:]), Pos: journal.Pos(binary.LittleEndian.Uint64(payload[9:]))}
}

// Declared notes how far the log of declarations is on disk. It waits for nothing: what rests on the
// declarations is in the journal behind the note.
func (n *Node) Declared(at store.Reach) {
	n.noting.Lock()
	defer n.noting.Unlock()
	if at.Pos == 0 || at == n.declared {
		return
	}
	n.declared = at // first, so that a checkpoint which passes the frame has it
	b := binary.LittleEndian.AppendUint64([]byte{declaredFirstByte}, at.Log)
	n.Journal.Append(binary.LittleEndian.AppendUint64(b, uint64(at.Pos)))
}

// noted is what Declared was told last, or recovery has found.
func (n *Node) noted() *store.Reach {
	n.noting.Lock()
	defer n.noting.Unlock()
	if n.declared == (store.Reach{}) {
		return nil
	}
	at := n.declared
	return &at
}
