package topology

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/mutation"
)

// One deletion may remove very many bindings. They mean nothing without their ends. So the store deletes the
// ends at once and gets a record that names them; it deletes the bindings later, in slices for which no client
// waits, and the record with the last slice. A start that finds a record ignores the bindings of its ends, and
// finishes the work:
//
//	first change    ends deleted | record "topology leaving" written
//	later slices    bindings deleted ...
//	last slice      bindings deleted | record deleted
//
// Invariant: while the record exists, no object with the name of one of its ends is made (mayMake).

// leavingRecord is stored under two arbitrary numbers.
type leavingRecord struct {
	Version int      `json:"v"`
	Keys    []string `json:"keys"` // keys of the deleted vhosts, exchanges and queues
}

// Ends returns the keys of objects that the changes delete and that may have had bindings.
func Ends(changes []mutation.Change) (ends []string) {
	for _, c := range changes {
		if c.Value == nil && isEnd(c.Key) {
			ends = append(ends, string(c.Key))
		}
	}
	return ends
}

// markBytes is the approximate size of the keys in a record: a value of the store must fit into a frame of its log, and
// any number of ends may be deleted at once.
const markBytes = 1 << 20

// Leaving returns the changes that tell a start which bindings to ignore.
func Leaving(number uint64, ends []string) (marks []mutation.Change) {
	for len(ends) > 0 {
		n, size := 0, 0
		for n < len(ends) && size < markBytes {
			size += len(ends[n])
			n++
		}
		text, err := json.Marshal(leavingRecord{recordVersion, ends[:n]})
		if err != nil {
			panic("topology: keys do not marshal: " + err.Error())
		}
		marks = append(marks, mutation.Change{Key: fmt.Appendf(nil, "%s/%d/%d", leavingKind, number, len(marks)), Value: text})
		ends = ends[n:]
	}
	return marks
}

// Leave notes that bindings of ends are still stored: until Left is called with the same ends, no object of their names can
// be made.
func (s *State) Leave(ends []string) {
	if s.leaving == nil {
		s.leaving = map[string]int{}
	}
	for _, end := range ends {
		s.leaving[end]++
	}
}

// Left ends a Leave.
func (s *State) Left(ends []string) {
	for _, end := range ends {
		if s.leaving[end]--; s.leaving[end] == 0 {
			delete(s.leaving, end)
		}
	}
}

// mayMake returns ErrLeaving for the key of an object that is leaving.
func (s *State) mayMake(key func() string) error {
	if len(s.leaving) > 0 && s.leaving[key()] > 0 {
		return ErrLeaving
	}
	return nil
}

// isEnd says whether the key is that of a vhost, an exchange or a queue, which a binding needs.
func isEnd(key []byte) bool {
	for _, kind := range []string{vhostKind, exchangeKind, queueKind} {
		if rest, ok := bytes.CutPrefix(key, []byte(kind)); ok && strings.HasPrefix(string(rest), "/") {
			return true
		}
	}
	return false
}

// leftBehind says whether the record's binding belongs to a deleted object.
func (l *loader) leftBehind(r *bindingRecord) bool {
	if len(l.leaving) == 0 {
		return false
	}
	v := l.state.vhosts[r.VHost]
	if v == nil {
		return l.leaving[vhostKey(r.VHost)]
	}
	if v.exchanges[r.Source] == nil && l.leaving[exchangeKey(r.VHost, r.Source)] {
		return true
	}
	if r.ToExchange {
		name := message.ExchangeName(r.Destination)
		return v.exchanges[name] == nil && l.leaving[exchangeKey(r.VHost, name)]
	}
	name := message.QueueName(r.Destination)
	return v.queues[name] == nil && l.leaving[queueKey(r.VHost, name)]
}
