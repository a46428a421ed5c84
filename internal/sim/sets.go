package sim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/run/cluster"
)

// Sets is a Model of numbered things in numbered sets: a thing enters, moves from
// set to set, and leaves. It must be in exactly one.
type Sets struct {
	next   uint64
	groups map[uint64]*ledger
}

// ledger is what the clients of a group were told.
type ledger struct {
	entered map[uint64]bool // confirmed to be in
	asked   map[uint64]bool // somebody asked for its leaving
}

// NewSets makes a Model.
func NewSets() *Sets { return &Sets{groups: map[uint64]*ledger{}} }

const setCount = 5

// A command is an opcode and uvarints: enter thing set, move thing from to, leave
// thing set; then any bytes. An entry is commands, each with its length before it.
const (
	opEnter = iota + 1
	opMove
	opLeave
)

type setsReplica struct {
	model  *Sets
	ledger *ledger
	group  *cluster.Group
	leads  bool

	applied uint64
	sets    [setCount]map[uint64]bool
	hash    uint64         // sum of the hashes of all places
	places  map[uint64]int // how many each thing is in
	twice   uint64         // one that was in two
}

// Open makes a replica.
func (m *Sets) Open(env Env, checkpoint []byte) (Replica, error) {
	l := m.groups[env.Group]
	if l == nil {
		l = &ledger{map[uint64]bool{}, map[uint64]bool{}}
		m.groups[env.Group] = l
	}
	r := &setsReplica{model: m, ledger: l}
	r.clear()
	if checkpoint == nil {
		return r, nil
	}
	return r, r.Restore(checkpoint, 0)
}

// Done says which confirmed things are lost, and which are back from the dead.
func (m *Sets) Done(group uint64, replicas []Replica) error {
	for _, replica := range replicas {
		r := replica.(*setsReplica)
		for thing := range r.ledger.entered {
			if r.where(thing) < 0 && !r.ledger.asked[thing] {
				return fmt.Errorf("group %d: thing %d was confirmed and is lost", group, thing)
			}
		}
	}
	return nil
}

func (r *setsReplica) clear() {
	r.applied, r.hash, r.places = 0, 0, map[uint64]int{}
	for i := range r.sets {
		r.sets[i] = map[uint64]bool{}
	}
}

// mix is splitmix64's.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func place(thing uint64, set int) uint64 { return mix(thing*setCount + uint64(set)) }

func (r *setsReplica) put(thing uint64, set int) {
	if r.places[thing]++; r.places[thing] > 1 {
		r.twice = thing
	}
	r.sets[set][thing] = true
	r.hash += place(thing, set)
}

func (r *setsReplica) take(thing uint64, set int) {
	if r.places[thing]--; r.places[thing] == 0 {
		delete(r.places, thing)
	}
	delete(r.sets[set], thing)
	r.hash -= place(thing, set)
}

// where is the first set the thing is in, or -1.
func (r *setsReplica) where(thing uint64) int {
	return slices.IndexFunc(r.sets[:], func(s map[uint64]bool) bool { return s[thing] })
}

func (r *setsReplica) Joined(g *cluster.Group) { r.group = g }

func (r *setsReplica) Leading(uint64)   { r.leads = true }
func (r *setsReplica) Following(uint64) { r.leads = false }

func (r *setsReplica) Hash() (applied, hash uint64) { return r.applied, r.hash }

// Act proposes up to eight commands.
func (r *setsReplica) Act(rng *rand.Rand) {
	if !r.leads {
		return
	}
	var entry []byte
	for range 1 + rng.IntN(8) {
		c := r.command(rng)
		if rng.IntN(4) == 0 {
			c = append(c, make([]byte, rng.IntN(2000))...)
		}
		entry = binary.AppendUvarint(entry, uint64(len(c)))
		entry = append(entry, c...)
	}
	err := r.group.Propose(entry)
	if err != nil && !errors.Is(err, cluster.ErrNotLeader) && !errors.Is(err, cluster.ErrBusy) && !errors.Is(err, cluster.ErrStopped) {
		panic(fmt.Sprintf("sim: propose: %v", err))
	}
}

// command decides something that is right as far as this leader knows. What comes
// of it is checked when it is applied.
func (r *setsReplica) command(rng *rand.Rand) []byte {
	set := rng.IntN(setCount)
	kind := rng.IntN(4)
	if kind == 0 || len(r.sets[set]) == 0 {
		r.model.next++
		return encode(opEnter, r.model.next, uint64(set))
	}
	thing := r.any(set, rng.Uint64())
	if kind == 1 {
		r.ledger.asked[thing] = true
		return encode(opLeave, thing, uint64(set))
	}
	return encode(opMove, thing, uint64(set), uint64(rng.IntN(setCount)))
}

// any is one of a set's things, by chance but the same whatever the map's order.
func (r *setsReplica) any(set int, salt uint64) (chosen uint64) {
	for thing := range r.sets[set] {
		if chosen == 0 || mix(thing^salt) < mix(chosen^salt) {
			chosen = thing
		}
	}
	return chosen
}

func encode(op byte, operands ...uint64) []byte {
	b := []byte{op}
	for _, v := range operands {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

func (r *setsReplica) Apply(entries []cluster.Entry) {
	for i := range entries {
		r.applied = entries[i].Index
		for b := entries[i].Data; len(b) > 0; {
			n, used := binary.Uvarint(b)
			r.do(b[used : used+int(n)])
			b = b[used+int(n):]
		}
	}
}

// do carries out a command if it still holds. A leader confirms what entered.
func (r *setsReplica) do(c []byte) {
	operand := func() uint64 {
		v, n := binary.Uvarint(c)
		c = c[n:]
		return v
	}
	op := c[0]
	c = c[1:]
	thing, set := operand(), int(operand())
	switch op {
	case opEnter:
		r.put(thing, set)
		if r.leads {
			r.ledger.entered[thing] = true
		}
	case opMove:
		if to := int(operand()); r.sets[set][thing] {
			r.take(thing, set)
			r.put(thing, to)
		}
	case opLeave:
		if r.sets[set][thing] {
			r.take(thing, set)
		}
	}
}

func (r *setsReplica) Check() error {
	if r.twice != 0 {
		return fmt.Errorf("thing %d was in two places", r.twice)
	}
	return nil
}

func (r *setsReplica) Snapshot() ([]byte, error) { return r.Checkpoint(), nil }

func (r *setsReplica) Checkpoint() []byte {
	b := binary.AppendUvarint(nil, r.applied)
	for i := range r.sets {
		things := make([]uint64, 0, len(r.sets[i]))
		for thing := range r.sets[i] {
			things = append(things, thing)
		}
		slices.Sort(things)
		b = binary.AppendUvarint(b, uint64(len(things)))
		for _, thing := range things {
			b = binary.AppendUvarint(b, thing)
		}
	}
	return b
}

func (r *setsReplica) Restore(snapshot []byte, _ journal.Pos) error {
	r.clear()
	b := snapshot
	operand := func() uint64 {
		v, n := binary.Uvarint(b)
		b = b[max(n, 0):]
		return v
	}
	applied := operand()
	for i := range r.sets {
		for range operand() {
			r.put(operand(), i)
		}
	}
	r.applied = applied
	return nil
}
