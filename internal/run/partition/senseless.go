package partition

import (
	"log/slog"
	"sync"

	"bartleby.mq/internal/disk/journal"
)

// Senseless is an intact frame of the journal, or command of a group, that makes no sense: an earlier release wrote
// it, or a fault of this one. That part of it is skipped, the same at each start and on each replica. It is stored,
// so that somebody can look at it.
type Senseless struct {
	Pos          journal.Pos // of the frame or the command; 0 if unknown
	Group, Index uint64      // of a command; 0: it is a frame
	Frame        []byte      // the whole frame or command
	From, To     int         // the bytes that were skipped
	Why          string
}

// senseless lists what the node has skipped since it started.
type senseless struct {
	mu   sync.Mutex
	list []Senseless // without their bytes
	n    int
}

// mostSenseless is how many of them are listed one by one.
const mostSenseless = 100

// passOver stores what was skipped, and logs it.
func (n *Node) passOver(s Senseless) error {
	n.senseless.mu.Lock()
	n.senseless.n++
	if len(n.senseless.list) < mostSenseless {
		told := s
		told.Frame = nil
		n.senseless.list = append(n.senseless.list, told)
	}
	n.senseless.mu.Unlock()
	n.Logger.Error("the journal has a frame or command that makes no sense; it is skipped and set aside",
		slog.String("what", s.Why), slog.String("position", s.Pos.String()), slog.Int("from", s.From), slog.Int("to", s.To))
	if n.KeepSenseless == nil {
		return nil
	}
	return n.KeepSenseless(s)
}

// Senseless returns what was skipped since the start: the first ones, without their bytes, and how many there are.
func (n *Node) Senseless() (list []Senseless, total int) {
	n.senseless.mu.Lock()
	defer n.senseless.mu.Unlock()
	return append(list, n.senseless.list...), n.senseless.n
}
