package cluster

import (
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"bartleby.mq/internal/disk/journal"
)

// log is the part of a group's log that is in memory: what is not applied, and
// a tail of what is, for followers. It is guarded by the group's lock.
type log struct {
	base, baseTerm uint64 // of the entry before the first
	entries        []*raftpb.Entry
	at             []journal.Pos // of each entry's data
	bytes          int           // of all entries' data
}

func (l *log) first() uint64 { return l.base + 1 }
func (l *log) last() uint64  { return l.base + uint64(len(l.entries)) }

func (l *log) reset(index, term uint64) { *l = log{base: index, baseTerm: term} }

// term is the term of the entry at index, which is in [base, last].
func (l *log) term(index uint64) (uint64, error) {
	switch {
	case index < l.base:
		return 0, raft.ErrCompacted
	case index == l.base:
		return l.baseTerm, nil
	case index > l.last():
		return 0, raft.ErrUnavailable
	}
	return l.entries[index-l.first()].GetTerm(), nil
}

// append puts entries, whose data begin one after the other at the position given,
// in the place of all from the first one's index on. REQUIRES: base < that index
// <= last()+1.
func (l *log) append(entries []*raftpb.Entry, at journal.Pos) {
	l.truncate(entries[0].GetIndex())
	for _, e := range entries {
		l.entries = append(l.entries, e)
		l.at = append(l.at, at)
		at += journal.Pos(len(e.GetData()))
		l.bytes += len(e.GetData())
	}
}

// truncate drops all entries from index on. What was handed out stays as it is.
func (l *log) truncate(index uint64) {
	n := int(index - l.first())
	if n >= len(l.entries) {
		return
	}
	for _, e := range l.entries[n:] {
		l.bytes -= len(e.GetData())
	}
	l.entries, l.at = slices.Clone(l.entries[:n]), l.at[:n]
}

// drop forgets all entries up to index, which is there.
func (l *log) drop(index uint64) {
	if index <= l.base {
		return
	}
	n := int(index - l.base)
	term := l.entries[n-1].GetTerm()
	for _, e := range l.entries[:n] {
		l.bytes -= len(e.GetData())
	}
	l.base, l.baseTerm = index, term
	if n == len(l.entries) {
		l.entries, l.at = nil, l.at[:0]
		return
	}
	l.entries, l.at = l.entries[n:], l.at[n:]
	if len(l.entries) < cap(l.entries)/4 {
		l.entries, l.at = slices.Clone(l.entries), slices.Clone(l.at)
	}
}

// entry is the entry at index, which is there.
func (l *log) entry(index uint64) Entry {
	i := index - l.first()
	e := l.entries[i]
	return Entry{Index: index, Term: e.GetTerm(), Data: e.GetData(), At: l.at[i], kind: kindOf(e)}
}

// raftEntry is the reverse of entry.
func raftEntry(e *Entry) *raftpb.Entry {
	r := &raftpb.Entry{Index: new(e.Index), Term: new(e.Term), Type: raftpb.EntryNormal.Enum(), Data: e.Data}
	if e.kind == kindMembers {
		r.Type = raftpb.EntryConfChangeV2.Enum()
	}
	return r
}
