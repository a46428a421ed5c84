// Package mutation carries the changes that a machine of the core wants stored: pairs of key and value.
//
// The machines topology and auth append to a Log while they change. The broker takes the log and stores it in one
// batch before it answers the client. The package owns no state, does no I/O and never interprets a value.
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
	named Named  // its key is deleted, instead of Key
	late  bool   // it may be stored later than the others
}

// Named is an object whose key never changes.
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

// PutText records that key now stands for value, which is already encoded. The caller does not change it any more.
func (l *Log) PutText(key string, value []byte) {
	l.changes = append(l.changes, Change{Key: []byte(key), Value: value})
}

// Delete records that key is gone.
func (l *Log) Delete(key string) {
	l.changes = append(l.changes, Change{Key: []byte(key)})
}

// DeleteOf records that the key of n is gone. The key is built only when it is stored, because there may be very many.
func (l *Log) DeleteOf(n Named) { l.changes = append(l.changes, Change{named: n}) }

// DeleteLate is DeleteOf for an object that means nothing without another object deleted by the same changes: it may be
// stored after them (Split).
func (l *Log) DeleteLate(n Named) { l.changes = append(l.changes, Change{named: n, late: true}) }

// Split separates the changes that must be stored at once from the deletions that may be stored later.
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

// CountLate counts the changes that may be stored later.
func CountLate(changes []Change) (n int) {
	for i := range changes {
		if changes[i].late {
			n++
		}
	}
	return n
}

// Grow makes room for n more changes.
func (l *Log) Grow(n int) { l.changes = slices.Grow(l.changes, n) }

// Take returns the changes since the last Take, oldest first.
func (l *Log) Take() []Change {
	taken := l.changes
	l.changes = nil
	return taken
}

// All yields the changes as pairs for the store.
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

// Key joins a record's kind and the parts of its name into a key. Parts are percent-encoded, so that no name can reach
// into the range of another.
func Key(kind string, parts ...string) string {
	var b strings.Builder
	b.WriteString(kind)
	for _, p := range parts {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(p))
	}
	return b.String()
}

// Parts is the reverse of Key: it returns the parts after the kind. ok is false if the key has another kind.
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
