package routing

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// naiveMatch is the definition of BR-6.6, word by word.
func naiveMatch(pattern, words []string) bool {
	switch {
	case len(pattern) == 0:
		return len(words) == 0
	case pattern[0] == "#":
		return naiveMatch(pattern[1:], words) || len(words) > 0 && naiveMatch(pattern, words[1:])
	case len(words) == 0:
		return false
	}
	return (pattern[0] == "*" || pattern[0] == words[0]) && naiveMatch(pattern[1:], words[1:])
}

func splitWords(key string) []string {
	if key == "" {
		return nil
	}
	return strings.Split(key, ".")
}

// TestBR_6_6_TopicModel compares the trie with the definition while bindings come and go.
func TestBR_6_6_TopicModel(t *testing.T) {
	word := rapid.SampledFrom([]string{"a", "b", "", "*", "#", "a*"})
	keyOf := rapid.Map(rapid.SliceOfN(word, 0, 7), func(w []string) string { return strings.Join(w, ".") })
	rapid.Check(t, func(t *rapid.T) {
		table := &topic{}
		var bound []*Binding
		t.Repeat(map[string]func(*rapid.T){
			"bind": func(t *rapid.T) {
				b := &Binding{Key: keyOf.Draw(t, "key")}
				b.Destination = b
				if table.Check(b) == nil {
					table.Add(b)
					bound = append(bound, b)
				}
			},
			"unbind": func(t *rapid.T) {
				if len(bound) == 0 {
					t.Skip("nothing bound")
				}
				i := rapid.IntRange(0, len(bound)-1).Draw(t, "i")
				table.Remove(bound[i])
				bound = slices.Delete(bound, i, i+1)
				if len(bound) == 0 && !table.root.unused() {
					t.Fatal("nodes are left though nothing is bound")
				}
			},
			"route many": func(t *rapid.T) {
				long := rapid.Map(rapid.SliceOfN(word, 0, 100), func(w []string) string { return strings.Join(w, ".") })
				keys := rapid.SliceOfN(rapid.OneOf(keyOf, long), 1, 100).Draw(t, "keys")
				m := &Message{Key: []byte(keys[0])}
				for _, k := range keys[1:] {
					m.More = append(m.More, []byte(k))
				}
				for i := range manyKeys + 170*rapid.IntRange(0, 1).Draw(t, "others") {
					m.More = append(m.More, []byte(fmt.Sprint("other", i)))
				}
				got := map[Destination]int{}
				for _, d := range table.Route(nil, m) {
					got[d]++
				}
				for _, b := range bound {
					want := slices.ContainsFunc(keys, func(k string) bool { return naiveMatch(splitWords(b.Key), splitWords(k)) })
					for _, k := range m.More {
						want = want || naiveMatch(splitWords(b.Key), splitWords(string(k)))
					}
					if got[b] > 1 && len(m.distinct()) > manyKeys || got[b] > 0 != want {
						t.Fatalf("binding %q matches one of the keys %q: %d times, want %v", b.Key, keys, got[b], want)
					}
				}
			},
			"route": func(t *rapid.T) {
				k := keyOf.Draw(t, "key")
				got := map[Destination]bool{}
				for _, d := range table.Route(nil, &Message{Key: []byte(k)}) {
					got[d] = true
				}
				for _, b := range bound {
					if want := naiveMatch(splitWords(b.Key), splitWords(k)); got[b] != want {
						t.Fatalf("binding %q matches key %q: %v, want %v", b.Key, k, got[b], want)
					}
				}
			},
		})
	})
}

// BR-6.7: a key takes as many steps as there are nodes and words at most, whatever is between two '#'.
func TestBR_6_7_TwoHashesTakeTheirStepsOnce(t *testing.T) {
	table := &topic{}
	nodes := 1
	for i := range 20 {
		middle := strings.Repeat("*.", i) + "a." + strings.Repeat("*.", 20-i)
		table.Add(&Binding{Key: "#." + middle + "#." + middle + "end"})
		nodes += 2*len(splitWords(middle)) + 3
	}
	const words = 128
	key := []byte(strings.Repeat("a.", words-1) + "a")
	w := walk{m: &Message{Key: key}}
	table.route(&w, w.m)
	if limit := nodes * (words + 1); w.steps > limit {
		t.Errorf("%d steps for %d words at %d nodes, want %d at most", w.steps, words, nodes, limit)
	}
}
