package sim

import (
	"fmt"
	"hash/fnv"

	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/run/cluster"
	"bartleby.mq/internal/safety/held"
)

// record is what was ever decided in a group, by index. A replica that applies
// anything else, at any time, has lost or invented something.
type record struct {
	entries []uint64          // hash of the entry's term and data; that of index i at i-first
	first   uint64            // the index of the first entry
	states  map[uint64]uint64 // hash of the state after an index, where one was taken
	leaders map[uint64]uint64 // by term
}

func newRecord() *record {
	return &record{first: 2, states: map[uint64]uint64{}, leaders: map[uint64]uint64{}}
}

// last is the highest index ever applied.
func (r *record) last() uint64 { return r.first + uint64(len(r.entries)) - 1 }

func entryHash(e *cluster.Entry) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(e.Data)
	return h.Sum64()*31 + e.Term
}

// witness is a replica's machine as the driver sees it: it looks at everything
// that is handed over.
type witness struct {
	Replica
	w     *World
	node  *node
	group uint64
}

// broken ends the run.
func (x *witness) broken(format string, args ...any) {
	x.w.fail("node %d group %d: %s", x.node.id, x.group, fmt.Sprintf(format, args...))
}

func (x *witness) Apply(entries []cluster.Entry) {
	if x.node.dead {
		return // what it takes for durable is not on the disk that is left
	}
	rec := x.w.records[x.group]
	for i := range entries {
		e := &entries[i]
		applied, _ := x.Hash()
		if from := max(applied, 1) + uint64(i); e.Index != from+1 {
			x.broken("entry %d is applied after %d", e.Index, from)
			return
		}
		at := e.Index - rec.first
		switch sum := entryHash(e); {
		case at < uint64(len(rec.entries)):
			if rec.entries[at] != sum {
				x.broken("entry %d of term %d is not what was decided before", e.Index, e.Term)
				return
			}
		case at == uint64(len(rec.entries)):
			rec.entries = append(rec.entries, sum)
		default:
			x.broken("entry %d is decided after %d", e.Index, rec.last())
			return
		}
		x.place(e)
	}
	x.w.logf("node %d group %d applies %d to %d", x.node.id, x.group, entries[0].Index, entries[len(entries)-1].Index)
	// The driver may cut its batches anywhere.
	if n := x.w.rng.IntN(len(entries) + 1); n > 0 && n < len(entries) {
		x.Replica.Apply(entries[:n])
		x.agree()
		entries = entries[n:]
	}
	x.Replica.Apply(entries)
	x.agree()
}

// place checks that the entry's data are where it says.
func (x *witness) place(e *cluster.Entry) {
	if e.At == 0 || len(e.Data) == 0 {
		return
	}
	if !x.stands(e.At, e.Data) {
		x.broken("the data of entry %d are not at %s", e.Index, e.At)
	}
}

// stands says whether the journal has the bytes there, if it has anything there that can be read.
func (x *witness) stands(at journal.Pos, want []byte) bool {
	var b []byte
	var err error
	// Recovery has everything locked, and nobody is there to wait.
	held.Apart(func() { b, err = x.node.journal.ReadAt(at, len(want), nil) })
	return err != nil || string(b) == string(want)
}

// agree compares the state with that of the others at the same index.
func (x *witness) agree() {
	applied, hash := x.Hash()
	rec := x.w.records[x.group]
	if other, known := rec.states[applied]; known && other != hash && hash != 0 {
		x.broken("the state at index %d is not that of the others", applied)
	}
	if hash != 0 {
		rec.states[applied] = hash
	}
	if err := x.Check(); err != nil {
		x.broken("at index %d: %v", applied, err)
	}
}

func (x *witness) Restore(snapshot []byte, at journal.Pos) error {
	if !x.stands(at, snapshot) {
		x.broken("a snapshot is not at %s", at)
	}
	err := x.Replica.Restore(snapshot, at)
	applied, _ := x.Hash()
	x.w.logf("node %d group %d restores index %d", x.node.id, x.group, applied)
	x.w.counts["snapshots restored"]++
	x.agree()
	return err
}

func (x *witness) Leading(term uint64) {
	x.w.logf("node %d group %d leads term %d", x.node.id, x.group, term)
	x.w.counts["leaders"]++
	leaders := x.w.records[x.group].leaders
	if other, known := leaders[term]; known && other != x.node.id {
		x.broken("term %d is led by node %d already", term, other)
	}
	leaders[term] = x.node.id
	x.Replica.Leading(term)
}

func (x *witness) Following(leader uint64) {
	x.w.logf("node %d group %d follows %d", x.node.id, x.group, leader)
	x.Replica.Following(leader)
}
