package topology

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/mutation"
)

// What goes with one deletion may be very many bindings. They mean nothing without their ends, so these are
// stored as gone at once, beside records that say which they are; the bindings are deleted from the store
// behind that, in slices for which nobody waits, and the records with the last of them. A start that finds one
// passes over bindings of its ends, and finishes the work.
//
// Invariant: nothing of the name of one of the ends is made while the records are there (mayMake).

// leavingRecord is under two numbers, of no meaning.
type leavingRecord struct {
	Version int      `json:"v"`
	Keys    []string `json:"keys"` // of the vhosts, exchanges and queues that are gone
}

// Ends are the keys of what goes by changes and can have had bindings.
func Ends(changes []mutation.Change) (ends []string) {
	for _, c := range changes {
		if c.Value == nil && isEnd(c.Key) {
			ends = append(ends, string(c.Key))
		}
	}
	return ends
}

// markBytes is about how much of keys a record has: one value of the store must fit into a frame of its log, and
// any number of ends may go at once.
const markBytes = 1 << 20

// Leaving are the changes that tell a start what bindings to pass over.
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

// Leave notes that bindings of ends are stored yet: until Left is called with the same, nothing of their names can be made.
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

// mayMake is ErrLeaving for what has the key of something that is leaving.
func (s *State) mayMake(key func() string) error {
	if len(s.leaving) > 0 && s.leaving[key()] > 0 {
		return ErrLeaving
	}
	return nil
}

// isEnd says whether the key is that of something a binding cannot be without.
func isEnd(key []byte) bool {
	for _, kind := range []string{vhostKind, exchangeKind, queueKind} {
		if rest, ok := bytes.CutPrefix(key, []byte(kind)); ok && strings.HasPrefix(string(rest), "/") {
			return true
		}
	}
	return false
}

// leftBehind says whether the binding of the record belongs to something that was deleted.
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
