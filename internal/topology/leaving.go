package topology

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"bartleby.mq/internal/change"
	"bartleby.mq/internal/message"
)

// What goes with one deletion may be very many bindings. They mean nothing without their ends, so these are
// stored as gone at once, beside a record that says which they are; the bindings are deleted from the store
// behind that, in slices for which nobody waits, and the record with the last of them. A start that finds the record
// passes over bindings of these ends, and finishes the work.
//
// Invariant: nothing of the name of one of the ends is stored while the record is there.

// leavingRecord is under a number, of no meaning.
type leavingRecord struct {
	Version int      `json:"v"`
	Keys    []string `json:"keys"` // of the vhosts, exchanges and queues that are gone
}

// Leaving is the change that tells a start what goes by changes, and the keys that must not be stored anew before
// it is deleted.
func Leaving(number uint64, changes []change.Change) (mark change.Change, keys map[string]bool) {
	r := leavingRecord{Version: recordVersion}
	keys = map[string]bool{}
	for _, c := range changes {
		if c.Value == nil && isEnd(c.Key) {
			r.Keys = append(r.Keys, string(c.Key))
			keys[string(c.Key)] = true
		}
	}
	text, err := json.Marshal(r)
	if err != nil {
		panic("topology: keys do not marshal: " + err.Error())
	}
	return change.Change{Key: strconv.AppendUint([]byte(leavingKind+"/"), number, 10), Value: text}, keys
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
