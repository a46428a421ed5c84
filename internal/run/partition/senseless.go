package partition

import (
	"log/slog"
	"sync"

	"bartleby.mq/internal/disk/journal"
)

// Senseless is a frame of the journal, or a command of a group, that is as it was written
// and cannot have been meant: an earlier release wrote it, or a fault of this one. Nothing
// can come of that part of it but that it is passed over, the same at each start and on
// each replica; it is kept, so that somebody can see what was in it.
type Senseless struct {
	Pos          journal.Pos // of the frame, or where the command begins; 0 if that is not known
	Group, Index uint64      // of a command; 0: it is a frame
	Frame        []byte      // all of it
	From, To     int         // what was passed over
	Why          string
}

// senseless is what a node has set aside since it started.
type senseless struct {
	mu   sync.Mutex
	list []Senseless // without their bytes
	n    int
}

// mostSenseless is how many of them are told one by one.
const mostSenseless = 100

// passOver keeps what was passed over, and tells of it.
func (n *Node) passOver(s Senseless) error {
	n.senseless.mu.Lock()
	n.senseless.n++
	if len(n.senseless.list) < mostSenseless {
		told := s
		told.Frame = nil
		n.senseless.list = append(n.senseless.list, told)
	}
	n.senseless.mu.Unlock()
	n.Logger.Error("the journal holds what makes no sense; it is passed over and set aside",
		slog.String("what", s.Why), slog.String("position", s.Pos.String()), slog.Int("from", s.From), slog.Int("to", s.To))
	if n.KeepSenseless == nil {
		return nil
	}
	return n.KeepSenseless(s)
}

// Senseless is what was set aside since the start: the first of them, without their
// bytes, and how many there are.
func (n *Node) Senseless() (list []Senseless, total int) {
	n.senseless.mu.Lock()
	defer n.senseless.mu.Unlock()
	return append(list, n.senseless.list...), n.senseless.n
}
