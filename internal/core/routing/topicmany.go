package routing

import (
	"bytes"
	"cmp"
	"slices"
	"sort"
	"strings"
)

// manyKeys is beyond how many keys a message walks the patterns with all of them at once.
const manyKeys = fewKeys

// keyWords are the keys of a message, made ready for a walk with all of them at once: each node is looked at once, however
// many keys come to it. Where they stand is a set: of each key, how many of its words are taken. Keys are numbered by their
// lengths, the longest first, so that those which have a word left are the first ones, and a set has one bit for each key that
// is long enough.
type keyWords struct {
	longest int
	count   []int // how many keys have so many words or more
	begin   []int // where in a set the bits of so many taken words begin, in words of 64
	words   map[string][]occurrence
}

// occurrence is the keys that have a word behind so many others.
type occurrence struct {
	behind int
	keys   []int32  // or
	bits   []uint64 // if they are many
}

// place is a set of keys and how many of their words are taken: from lo to hi.
type place struct {
	lo, hi int
	bits   []uint64
}

func newKeyWords(first []byte, more [][]byte) *keyWords {
	keys := append([][]byte{first}, more...)
	lengths := make([]int, len(keys))
	order := make([]int, len(keys))
	size := 0
	for i, key := range keys {
		if order[i] = i; len(key) > 0 {
			lengths[i] = 1 + bytes.Count(key, []byte("."))
		}
		size += len(key)
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(lengths[b]-lengths[a], a-b) })
	k := &keyWords{longest: lengths[order[0]], words: map[string][]occurrence{}}
	k.count = make([]int, k.longest+2)
	for n, i := 0, len(order); n <= k.longest; n++ {
		for i > 0 && lengths[order[i-1]] < n {
			i--
		}
		k.count[n] = i
	}
	k.begin = make([]int, k.longest+2)
	for n := range k.longest + 1 {
		k.begin[n+1] = k.begin[n] + k.width(n)
	}
	text := string(bytes.Join(keys, nil)) // the map's strings are parts of it: one allocation for all
	rest := make([]string, len(keys))
	for i, key := range keys {
		rest[i], text = text[:len(key)], text[len(key):]
	}
	for n := range k.longest {
		for number, i := range order[:k.count[n+1]] {
			word := rest[i]
			if dot := strings.IndexByte(word, '.'); dot >= 0 {
				word, rest[i] = word[:dot], word[dot+1:]
			}
			list := k.words[word]
			if len(list) == 0 || list[len(list)-1].behind != n {
				list = append(list, occurrence{behind: n})
				k.words[word] = list
			}
			last := &list[len(list)-1]
			last.keys = append(last.keys, int32(number))
		}
	}
	for _, list := range k.words {
		for i := range list {
			list[i].settle(k)
		}
	}
	return k
}

// settle makes bits of the keys if that is less to look at.
func (o *occurrence) settle(k *keyWords) {
	width := k.width(o.behind + 1)
	if len(o.keys) <= 2*width {
		return
	}
	o.bits = make([]uint64, width)
	for _, key := range o.keys {
		o.bits[key/64] |= 1 << (key % 64)
	}
	o.keys = nil
}

func (k *keyWords) width(n int) int { return (k.count[n] + 63) / 64 }

// of are the bits of a place for n taken words.
func (k *keyWords) of(p place, n int) []uint64 {
	from := k.begin[n] - k.begin[p.lo]
	return p.bits[from : from+k.width(n)]
}

// longer joins to `to`, of n+1 taken words, the keys of `from`, of n, that have a word left, and says whether there are any.
func (k *keyWords) longer(to, from []uint64, n int) (some bool) {
	any := uint64(0)
	for i := range to {
		b := from[i]
		if i == len(to)-1 {
			if over := k.count[n+1] % 64; over > 0 {
				b &= 1<<over - 1
			}
		}
		to[i] |= b
		any |= b
	}
	return any != 0
}

// ended says whether a key of the place has no word left.
func (k *keyWords) ended(p place) bool {
	for n := p.lo; n <= p.hi; n++ {
		left := k.count[n+1] // those before have words left
		if left == k.count[n] {
			continue
		}
		for i, b := range k.of(p, n)[left/64:] {
			if i == 0 {
				b = b >> (left % 64)
			}
			if b != 0 {
				return true
			}
		}
	}
	return false
}

// manyWalk is the way of many keys through the trie.
type manyWalk struct {
	k     *keyWords
	m     *Message
	dst   []Destination
	room  []uint64 // of the places on the way to where it is
	steps int
}

func (w *manyWalk) place(lo, hi int) place {
	begin := len(w.room)
	w.room = slices.Grow(w.room, w.k.begin[hi+1]-w.k.begin[lo])[:begin+w.k.begin[hi+1]-w.k.begin[lo]]
	bits := w.room[begin:]
	clear(bits)
	return place{lo, hi, bits}
}

func (t *topic) routeMany(dst []Destination, m *Message) []Destination {
	if m.words == nil {
		m.words = newKeyWords(m.Key, m.distinct())
	}
	w := manyWalk{k: m.words, m: m, dst: dst}
	all := w.place(0, 0)
	for i := range all.bits {
		all.bits[i] = ^uint64(0)
	}
	if over := w.k.count[0] % 64; over > 0 {
		all.bits[len(all.bits)-1] = 1<<over - 1
	}
	w.match(&t.root, all)
	m.Rest(w.steps)
	return w.dst
}

// match takes what matches a key of the place below n.
func (w *manyWalk) match(n *node, p place) {
	begin := len(w.room)
	if w.steps += 1 + len(p.bits)/32; w.steps >= restAfter {
		w.m.Rest(w.steps)
		w.steps = 0
	}
	if n.hash != nil {
		w.match(n.hash, w.onward(p))
		w.room = w.room[:begin]
	}
	if !n.here.empty() && w.k.ended(p) {
		w.dst = n.here.appendTo(w.dst)
	}
	if p.lo == w.k.longest {
		return
	}
	if n.star != nil {
		if next, ok := w.star(p); ok {
			w.match(n.star, next)
		}
		w.room = w.room[:begin]
	}
	w.steps += min(len(n.words), len(w.k.words)) / 8
	if len(n.words) <= len(w.k.words) {
		for word, child := range n.words {
			w.word(child, p, w.k.words[word])
		}
		return
	}
	for word, list := range w.k.words {
		if child := n.words[word]; child != nil {
			w.word(child, p, list)
		}
	}
}

// onward is the place after a '#', which has taken no word, one, and so on.
func (w *manyWalk) onward(p place) place {
	next := w.place(p.lo, w.k.longest)
	copy(next.bits, p.bits)
	for n := p.lo; n < w.k.longest; n++ {
		w.k.longer(w.k.of(next, n+1), w.k.of(next, n), n)
	}
	return next
}

// star is the place after a word of each key, if one has any left.
func (w *manyWalk) star(p place) (next place, some bool) {
	hi := min(p.hi, w.k.longest-1)
	next = w.place(p.lo+1, hi+1)
	for n := p.lo; n <= hi; n++ {
		some = w.k.longer(w.k.of(next, n+1), w.k.of(p, n), n) || some
	}
	return next, some
}

// word goes to the child of a word with the keys that have it next.
func (w *manyWalk) word(child *node, p place, list []occurrence) {
	list = list[sort.Search(len(list), func(i int) bool { return list[i].behind >= p.lo }):]
	end := sort.Search(len(list), func(i int) bool { return list[i].behind > p.hi })
	if list = list[:end]; end == 0 {
		return
	}
	begin := len(w.room)
	next := w.place(list[0].behind+1, list[end-1].behind+1)
	some := uint64(0)
	for i := range list {
		from, to := w.k.of(p, list[i].behind), w.k.of(next, list[i].behind+1)
		for j, b := range list[i].bits {
			to[j] = b & from[j]
			some |= to[j]
		}
		for _, key := range list[i].keys {
			b := from[key/64] & (1 << (key % 64))
			to[key/64] |= b
			some |= b
		}
	}
	if some != 0 {
		w.match(child, next)
	}
	w.room = w.room[:begin]
}
