package routing

import (
	"fmt"
	"slices"
	"testing"

	"bartleby.mq/internal/wire/amqp091"
	"pgregory.net/rapid"
)

// A queue may have 100,000 bindings, which go with it under one lock: each of them moves one other.
func TestRemovalMovesOneBinding(t *testing.T) {
	const bindings = 1000
	names := map[Kind]func(table Table) []string{
		Headers: func(table Table) (list []string) {
			for _, r := range table.(*headers).rules {
				list = append(list, r.wanted[0].key)
			}
			return list
		},
		ConsistentHash: func(table Table) (list []string) {
			for _, to := range table.(*consistentHash).list {
				list = append(list, to.name)
			}
			return list
		},
		Fanout: func(table Table) (list []string) {
			for _, b := range table.(*fanout).all.list {
				list = append(list, b.Name)
			}
			return list
		},
	}
	for kind, list := range names {
		f := newFixture(t, kind)
		var bound []*Binding
		for i := range bindings {
			name := fmt.Sprint("q", i)
			bound = append(bound, f.bind(name, "1", arg(name, "")))
		}
		before := list(f.table)
		f.table.Remove(bound[0])
		after := list(f.table)
		moved := 0
		for i, name := range after {
			if name != before[i] {
				moved++
			}
		}
		if len(after) != bindings-1 || moved > 1 || slices.Contains(after, "q0") {
			t.Errorf("%s: a removal leaves %d of %d bindings and moves %d", kind, len(after), bindings, moved)
		}
	}
}

// BR-6.12: the order of what a modulus hash chooses from costs a change little.
func TestBR_6_12_ChangesOfAModulusHashMoveLittle(t *testing.T) {
	const bindings = 20_000
	table := &modulusHash{}
	var bound []*Binding
	for i := range bindings {
		bound = append(bound, &Binding{Name: "q", Key: fmt.Sprint(i * 7919 % bindings)})
	}
	const limit = bindings * (2*pieceSize + bindings/pieceSize)
	for _, b := range bound {
		table.Add(b)
	}
	slices.SortFunc(bound, compareBindings)
	if got := slices.Concat(table.list...); !slices.Equal(got, bound) {
		t.Error("the bindings are not in the order of their names and keys")
	}
	if table.moved > limit {
		t.Errorf("%d bindings moved %d others, want %d at most", bindings, table.moved, limit)
	}
	table.moved = 0
	for _, b := range bound { // from the beginning, as when their queue goes
		table.Remove(b)
	}
	if table.count != 0 || len(table.list) != 0 {
		t.Errorf("%d bindings in %d pieces are left", table.count, len(table.list))
	}
	if table.moved > limit {
		t.Errorf("%d removals moved %d others, want %d at most", bindings, table.moved, limit)
	}
}

// TestChangesComeToWhatIsLeft compares tables whose bindings came and went with those that never had others.
func TestChangesComeToWhatIsLeft(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]Kind{Direct, Fanout, Topic, Headers, ConsistentHash, ModulusHash}).Draw(t, "kind")
		table, err := New(kind, nil)
		if err != nil {
			t.Fatal(err)
		}
		oneEach := kind == ConsistentHash // a second binding of a destination is none
		var bound []*Binding
		for range rapid.IntRange(0, 3*pieceSize).Draw(t, "changes") {
			if len(bound) > 0 && rapid.IntRange(0, 3).Draw(t, "what") == 0 {
				i := rapid.IntRange(0, len(bound)-1).Draw(t, "i")
				table.Remove(bound[i])
				bound = slices.Delete(bound, i, i+1)
				continue
			}
			n := rapid.IntRange(0, 999).Draw(t, "n")
			name := fmt.Sprint("q", n)
			if oneEach && slices.ContainsFunc(bound, func(b *Binding) bool { return b.Name == name }) {
				continue
			}
			b := &Binding{Destination: name, Name: name, Key: fmt.Sprint(1 + n%5), Arguments: amqp091.Table{arg("h", int32(n%5))}}
			table.Add(b)
			bound = append(bound, b)
		}
		fresh, err := New(kind, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range bound {
			fresh.Add(b)
		}
		for n := range int32(10) {
			names := func(table Table) []string {
				m := withHeaders(arg("h", n))
				m.Key = fmt.Append(nil, n)
				return (&fixture{table: table}).route(m)
			}
			if got, want := names(table), names(fresh); !slices.Equal(got, want) {
				t.Fatalf("a message goes to %q, want %q", got, want)
			}
		}
	})
}
