// Package mutation carries what a machine of the core wants kept: pairs of key and value for the store.
//
// The machines (topology, auth) append to a Log while they change themselves; whoever runs them takes the log and
// applies it to the disk in one batch before it answers the client. The package does no I/O itself and knows
// nothing of what the values mean.
package mutation

import (
	"encoding/json"
	"iter"
	"net/url"
	"slices"
	"strings"
)

// Change is one pair to write, or one key to delete.
type Change struct {
	Key   []byte
	Value []byte // nil deletes the key
	named Named  // whose key is deleted, instead of Key
	late  bool   // it may be stored later than the others
}

// Named is what has a key that never changes.
type Named interface{ StoreKey() string }

// Log is a list of changes in the order they were made. The zero value is ready to use.
type Log struct {
	changes []Change
}

// Put records that key now stands for the JSON form of value.
// REQUIRES: value marshals; the records of this project do.
func (l *Log) Put(key string, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		panic("mutation: record does not marshal: " + err.Error())
	}
	l.changes = append(l.changes, Change{Key: []byte(key), Value: text})
}

// PutText records that key now stands for value, which is encoded already and not changed any more.
func (l *Log) PutText(key string, value []byte) {
	l.changes = append(l.changes, Change{Key: []byte(key), Value: value})
}

// Delete records that key is gone.
func (l *Log) Delete(key string) {
	l.changes = append(l.changes, Change{Key: []byte(key)})
}

// DeleteOf records that the key of n is gone. It is put together when it is stored, for there may be very many.
func (l *Log) DeleteOf(n Named) { l.changes = append(l.changes, Change{named: n}) }

// DeleteLate is DeleteOf of what means nothing without something else whose key is deleted by the same changes:
// it may be stored behind them (Split).
func (l *Log) DeleteLate(n Named) { l.changes = append(l.changes, Change{named: n, late: true}) }

// Split returns the changes that are to be stored at once, and those that may be stored later, which say
// that the keys of these are gone.
func Split(changes []Change) (now, late []Change) {
	for _, c := range changes {
		if c.late {
			late = append(late, c)
		} else {
			now = append(now, c)
		}
	}
	return now, late
}

// CountLate is how many of the changes may be stored later.
func CountLate(changes []Change) (n int) {
	for i := range changes {
		if changes[i].late {
			n++
		}
	}
	return n
}

// Grow makes room for n changes more.
func (l *Log) Grow(n int) { l.changes = slices.Grow(l.changes, n) }

// Take returns what was recorded since the last Take, oldest first.
func (l *Log) Take() []Change {
	taken := l.changes
	l.changes = nil
	return taken
}

// All yields the pairs of changes as the store wants them.
func All(changes []Change) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		for _, c := range changes {
			if c.named != nil {
				c.Key = []byte(c.named.StoreKey())
			}
			if !yield(c.Key, c.Value) {
				return
			}
		}
	}
}

// Key joins a record's kind and the parts of its name to a key. Parts are percent-encoded, so that no name can
// reach into another's range.
func Key(kind string, parts ...string) string {
	var b strings.Builder
	b.WriteString(kind)
	for _, p := range parts {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(p))
	}
	return b.String()
}

// Parts undoes Key: it returns the parts behind a key's kind. ok is false if the key is not of that kind.
func Parts(kind, key string) (parts []string, ok bool) {
	rest, ok := strings.CutPrefix(key, kind+"/")
	if !ok {
		return nil, false
	}
	for _, p := range strings.Split(rest, "/") {
		part, err := url.PathUnescape(p)
		if err != nil {
			return nil, false
		}
		parts = append(parts, part)
	}
	return parts, true
}
