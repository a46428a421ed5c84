package routing

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// BR-8.5: however many keys a message has, an exchange finds no more for it than is bound.
func TestBR_8_5_ManyKeysFindEachBindingOnce(t *testing.T) {
	const keys, bindings = 1000, 100
	for _, c := range []struct {
		name string
		kind Kind
		bind string
		key  func(i int) string
	}{
		{"equal", Direct, "", func(int) string { return "" }},
		{"equal", Topic, "", func(int) string { return "" }},
		{"equal", Topic, "#", func(int) string { return "a" }},
		{"distinct", Topic, "#", func(i int) string { return fmt.Sprint(i) }},
		{"distinct", Topic, "*.#.a.#", func(i int) string { return fmt.Sprint(i, ".a") }},
	} {
		f := newFixture(t, c.kind)
		var want []string
		for i := range bindings {
			want = append(want, fmt.Sprintf("q%02d", i))
			f.bind(want[i], c.bind)
		}
		m := &Message{Key: []byte(c.key(0))}
		for i := range keys {
			m.More = append(m.More, []byte(c.key(i)))
		}
		if n := len(f.table.Route(nil, m)); n > bindings {
			t.Errorf("%d %s keys find %d destinations in a %s exchange of %d bindings by %q", keys, c.name, n, c.kind, bindings, c.bind)
		}
		f.expect(m, want...)
	}
}

// What chooses by a hash of the keys looks at all that were given.
func TestBR_6_12_EqualKeysCountForHashes(t *testing.T) {
	twice, once := key("a", "b", "b"), key("a", "b")
	if hashKeys(twice) == hashKeys(once) {
		t.Error("a key given twice hashes like one given once")
	}
	newDirect().Route(nil, twice)
	if hashKeys(twice) == hashKeys(once) {
		t.Error("routing has taken a key away")
	}
}

func TestDistinctKeys(t *testing.T) {
	word := rapid.SampledFrom([]string{"", "a", "b", "ab", "a.b", "c"})
	many := rapid.Map(rapid.IntRange(0, 99), func(i int) string { return fmt.Sprint(i) })
	rapid.Check(t, func(t *rapid.T) {
		first := word.Draw(t, "first")
		given := rapid.SliceOfN(rapid.OneOf(word, many), 0, 3*fewKeys).Draw(t, "more")
		var want []string
		for _, k := range given {
			if k != first && !slices.Contains(want, k) {
				want = append(want, k)
			}
		}
		m := key(first, given...)
		var got []string
		for _, k := range DistinctKeys(m.Key, m.More) {
			got = append(got, string(k))
		}
		if !slices.Equal(got, want) {
			t.Fatalf("of %q and %q there remain %q, want %q", first, given, got, want)
		}
		if !slices.Equal(given, m.texts()) {
			t.Fatalf("%q has become %q", given, m.texts())
		}
	})
}

func (m *Message) texts() (list []string) {
	for _, k := range m.More {
		list = append(list, string(k))
	}
	return list
}

// A few keys that differ, as nearly all messages have, cost nothing.
func TestDistinctKeysDoNotAllocate(t *testing.T) {
	m := key("a", strings.Split("b c d e f g h", " ")...)
	if n := testing.AllocsPerRun(100, func() {
		m.kept = nil
		if len(m.distinct()) != 7 {
			t.Error("a key is gone")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
