package office

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/mutation"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/datadir"
)

// States are those of a group.
var States = []string{"new", "triaged", "replaying", "resolved", "archived"}

// Note is what people say of a group. Its JSON is its form in the store and in the API.
type Note struct {
	State string `json:"state"`
	Owner string `json:"owner"`
	Note  string `json:"note"`
	By    string `json:"noted_by"`
	At    int64  `json:"noted_ms"` // 0: nobody has said anything
}

// Bounds of notes.
const (
	maxOwner = 255     // bytes
	maxNote  = 4 << 10 // bytes
	maxNotes = 100_000
)

// noteKey begins the keys of notes, after datadir.RecordPrefix. A virtual host is written as its length (two bytes) and its
// name; the number is big endian.
//
//	group/ | virtual host | number u64    a Note
const noteKey = "group/"

// notes are all of them; the store has the same.
type notes struct {
	mu sync.Mutex
	of map[groupKey]Note
}

func (k groupKey) record() []byte {
	return appendKey([]byte(datadir.RecordPrefix), noteKey, string(k.vhost), uint64(k.id))
}

var errNote = errors.New("a note on a group of dead letters is damaged")

// readNote reads a record; key is without datadir.RecordPrefix.
func readNote(key, value []byte) (k groupKey, n Note, err error) {
	vhost, id, ok := splitKey(key, noteKey)
	if !ok {
		return k, n, errNote
	}
	k = groupKey{message.VHost(vhost), letter.GroupID(id)}
	if json.Unmarshal(value, &n) != nil || !slices.Contains(States, n.State) {
		return k, n, errNote
	}
	return k, n, nil
}

// loadNotes reads what the store has. What cannot be read is left there and logged: a note must not stop a node.
func (f *Office) loadNotes() error {
	f.notes.of = map[groupKey]Note{}
	if err := endStrays(f.b, noteKey); err != nil {
		return err
	}
	f.b.OnVHostEnd(f.notes.endVHost(f.b))
	return f.b.RangeRecords(noteKey, func(key, value []byte) error {
		k, n, err := readNote(key, value)
		if err != nil {
			f.Logger.Warn("a note on a group of dead letters cannot be read", "error", err)
			return nil
		}
		f.notes.of[k] = n
		return nil
	})
}

// endVHost returns what forgets the notes of a virtual host that is deleted.
func (n *notes) endVHost(b *broker.Broker) func(message.VHost, broker.Doer) {
	return func(name message.VHost, _ broker.Doer) {
		n.mu.Lock()
		defer n.mu.Unlock()
		maps.DeleteFunc(n.of, func(k groupKey, _ Note) bool { return k.vhost == name })
		endRecords(b, noteKey, name)
	}
}

// describe adds to a group what people say of it. If letters have died after it was called resolved, it is new.
func (f *Office) describe(k groupKey, g *Group) {
	f.notes.mu.Lock()
	n, ok := f.notes.of[k]
	f.notes.mu.Unlock()
	if !ok {
		n.State = States[0]
	}
	if n.State == "resolved" && g.Last/1000 > n.At/1000 {
		n.State = States[0]
	}
	g.Note = n
}

// NoteRequest is what somebody says of a group; nil leaves it as it was.
type NoteRequest struct{ State, Owner, Note *string }

// SetNote says something of a group, which need not have letters now. It returns when it is on disk.
func (f *Office) SetNote(v message.VHost, id letter.GroupID, r NoteRequest, by Actor) (Note, error) {
	k := groupKey{v, id}
	f.notes.mu.Lock()
	defer f.notes.mu.Unlock()
	n, known := f.notes.of[k]
	if !f.b.HasVHost(v, 0) {
		return n, topology.Refuse(topology.NotFound, "there is no virtual host '%s'", v)
	}
	if !known {
		n.State = States[0]
	}
	for _, field := range []struct {
		name string
		from *string
		to   *string
		most int
	}{{"state", r.State, &n.State, maxOwner}, {"owner", r.Owner, &n.Owner, maxOwner}, {"note", r.Note, &n.Note, maxNote}} {
		switch {
		case field.from == nil:
			continue
		case len(*field.from) > field.most || !utf8.ValidString(*field.from):
			return n, topology.Refuse(topology.PreconditionFailed, "%s must be UTF-8 of at most %d bytes", field.name, field.most)
		}
		*field.to = *field.from
	}
	if !slices.Contains(States, n.State) {
		return n, topology.Refuse(topology.PreconditionFailed, "state '%s' is unknown; it must be one of %s", n.State, strings.Join(States, ", "))
	}
	if !known && len(f.notes.of) >= maxNotes {
		return n, topology.Refuse(topology.PreconditionFailed, "there are %d notes on groups, which is the limit; give others the state new, and no owner and note", maxNotes)
	}
	n.By, n.At = by.Who, f.deaths() // it is compared with when letters died
	var value []byte
	if empty := (Note{State: States[0], By: n.By, At: n.At}); n != empty {
		value, _ = json.Marshal(n) // text and numbers: never fails
	}
	act := Act{Actor: by, What: "group.noted", VHost: string(v), Object: id.String(), Why: n.Note, Detail: "state " + n.State + ", owner " + n.Owner}
	if err := f.audit.With(act, []mutation.Change{{Key: k.record(), Value: value}}); err != nil {
		return n, err
	}
	if value == nil {
		delete(f.notes.of, k)
	} else {
		f.notes.of[k] = n
	}
	return n, nil
}
