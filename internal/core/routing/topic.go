package routing

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// maxHashWildcards is how many '#' a topic binding key may have; each multiplies the ways a key can match (BR-6.7).
const maxHashWildcards = 2

// topic matches patterns over the words of the key: '*' is one word, '#' any number of them (BR-6.6).
//
// The patterns form a trie by word. A key walks it from the root; at each node it may go to the child of its next
// word, to '*', and to '#', which takes zero or more words.
type topic struct {
	root node
}

// node is where the patterns with one beginning end or go on.
type node struct {
	words map[string]*node
	star  *node
	hash  *node
	here  set // bindings whose pattern ends here
	// afterHash says that there is a '#' in the way to here.
	afterHash bool
}

// Check refuses a key with more than two '#' (BR-6.7).
func (t *topic) Check(b *Binding) error {
	n := 0
	for rest := words(b.Key); !rest.done; {
		if word := rest.next(); word == "#" {
			n++
		}
	}
	if n > maxHashWildcards {
		return fmt.Errorf("Topic binding key '%s' uses %d '#' wildcards, at most %d are allowed", //nolint:staticcheck // RabbitMQ's text
			b.Key, n, maxHashWildcards)
	}
	return nil
}

func (t *topic) Add(b *Binding) {
	n := &t.root
	for rest := words(b.Key); !rest.done; {
		n = n.grow(rest.next())
	}
	n.here.add(b)
}

func (t *topic) Remove(b *Binding) {
	t.root.remove(words(b.Key), b)
}

// remove takes b out below n and says whether n is left without use.
func (n *node) remove(rest pattern, b *Binding) (unused bool) {
	if rest.done {
		n.here.remove(b)
		return n.unused()
	}
	word := rest.next()
	child := n.child(word)
	if child == nil || !child.remove(rest, b) {
		return false
	}
	switch word {
	case "*":
		n.star = nil
	case "#":
		n.hash = nil
	default:
		delete(n.words, word)
	}
	return n.unused()
}

func (n *node) unused() bool {
	return n.here.empty() && n.star == nil && n.hash == nil && len(n.words) == 0
}

func (n *node) child(word string) *node {
	switch word {
	case "*":
		return n.star
	case "#":
		return n.hash
	}
	return n.words[word]
}

// grow returns the child for a word, made if it is missing.
func (n *node) grow(word string) *node {
	if c := n.child(word); c != nil {
		return c
	}
	c := &node{afterHash: n.afterHash || word == "#"}
	switch word {
	case "*":
		n.star = c
	case "#":
		n.hash = c
	default:
		if n.words == nil {
			n.words = map[string]*node{}
		}
		n.words[word] = c
	}
	return c
}

// pattern is the rest of a binding key. The empty key has no words at all; "a." has two, the second empty.
type pattern struct {
	text string
	done bool
}

func words(key string) pattern { return pattern{text: key, done: key == ""} }

func (p *pattern) next() (word string) {
	var found bool
	word, p.text, found = strings.Cut(p.text, ".")
	p.done = !found
	return word
}

func (t *topic) Route(dst []Destination, m *Message) []Destination {
	if len(m.distinct()) > manyKeys {
		return t.routeMany(dst, m)
	}
	w := walk{dst: dst, m: m}
	t.route(&w, m)
	return w.dst
}

// walk is the way of a message's keys through the trie.
type walk struct {
	dst []Destination
	// reached are those '#' behind another '#' that the present key has reached. It reaches each first with the most words
	// left, and finds all then that it could find with fewer.
	reached marks
	steps   int // how often a node was looked at
	m       *Message
}

// restAfter is after how many nodes a walk rests. A node that others take out meanwhile led to nothing but what they
// have unbound.
const restAfter = 1 << 10

// marks are nodes that are marked.
type marks struct {
	few  [8]*node
	n    int
	many map[*node]struct{} // those that few has no room for
}

// mark says whether the node was not marked before.
func (m *marks) mark(n *node) bool {
	if slices.Contains(m.few[:m.n], n) {
		return false
	}
	if m.n < len(m.few) {
		m.few[m.n] = n
		m.n++
		return true
	}
	if _, ok := m.many[n]; ok {
		return false
	}
	if m.many == nil {
		m.many = map[*node]struct{}{}
	}
	m.many[n] = struct{}{}
	return true
}

func (m *marks) clear() {
	m.n = 0
	clear(m.many)
}

func (t *topic) route(w *walk, m *Message) {
	t.root.match(w, m.Key, len(m.Key) == 0)
	for _, key := range m.distinct() {
		w.reached.clear()
		t.root.match(w, key, len(key) == 0)
	}
	m.Rest(w.steps % restAfter)
}

// match takes what matches key below n; done says that no word is left, which an empty key alone does not tell
// from one last empty word.
func (n *node) match(w *walk, key []byte, done bool) {
	if w.steps++; w.steps%restAfter == 0 {
		w.m.Rest(restAfter)
	}
	if n.hash != nil && (!n.afterHash || w.reached.mark(n.hash)) {
		n.hash.matchAfterHash(w, key, done)
	}
	if done {
		w.dst = n.here.appendTo(w.dst)
		return
	}
	if n.star == nil && n.words == nil {
		return
	}
	word, rest, last := cutWord(key)
	if n.star != nil {
		n.star.match(w, rest, last)
	}
	if c := n.words[string(word)]; c != nil {
		c.match(w, rest, last)
	}
}

// matchAfterHash lets the '#' that led to n take zero words, one word, and so on.
func (n *node) matchAfterHash(w *walk, key []byte, done bool) {
	if n.star == nil && n.hash == nil && n.words == nil {
		w.dst = n.here.appendTo(w.dst) // nothing follows the '#': it takes the rest
		return
	}
	for {
		n.match(w, key, done)
		if done {
			return
		}
		_, key, done = cutWord(key)
	}
}

func cutWord(key []byte) (word, rest []byte, last bool) {
	i := bytes.IndexByte(key, '.')
	if i < 0 {
		return key, nil, true
	}
	return key[:i], key[i+1:], false
}
