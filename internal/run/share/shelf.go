package share

import (
	"cmp"
	"container/heap"
	"container/list"
)

// Shelf knows what is kept, by owner and size. If there is no room, the oldest of the owner who has most goes, so whoever
// puts much there loses its own. It holds names of items, not the items. One goroutine at a time may use it.
//
//	Invariant: taken = Σ pile.size = Σ size of all items <= room; no pile is empty; most is a heap of all piles.
type Shelf[Owner, Item comparable] struct {
	room, taken int64
	put         uint64 // items that were ever put
	piles       map[Owner]*pile
	most        piles
	items       map[Item]*kept[Owner, Item]
}

// pile is what one owner has.
type pile struct {
	size  int64
	items list.List // of *kept, the oldest first
	first uint64    // the number of the oldest
	at    int       // in most
}

// kept is an item on a shelf.
type kept[Owner, Item comparable] struct {
	of     Owner
	item   Item
	size   int64
	number uint64
	place  *list.Element
}

// NewShelf returns a shelf with room for items of so many bytes, or whatever sizes are.
func NewShelf[Owner, Item comparable](room int64) *Shelf[Owner, Item] {
	return &Shelf[Owner, Item]{room: room, piles: map[Owner]*pile{}, items: map[Item]*kept[Owner, Item]{}}
}

// Put keeps an item of an owner, as its newest, and returns what is pushed out for it: the item itself if it is larger than
// what others may leave. An item that is there is put anew. REQUIRES: size is positive.
func (s *Shelf[Owner, Item]) Put(of Owner, item Item, size int64) (out []Item) {
	s.Remove(item)
	p := s.piles[of]
	if p == nil {
		p = &pile{first: s.put}
		s.piles[of] = p
		heap.Push(&s.most, p)
	}
	k := &kept[Owner, Item]{of: of, item: item, size: size, number: s.put}
	s.put++
	k.place = p.items.PushBack(k)
	s.items[item] = k
	s.taken += size
	p.size += size
	heap.Fix(&s.most, p.at)
	return s.pushOut()
}

// Resize gives the shelf another room, and returns what is pushed out.
func (s *Shelf[Owner, Item]) Resize(room int64) (out []Item) {
	s.room = room
	return s.pushOut()
}

// pushOut takes away what there is no room for.
func (s *Shelf[Owner, Item]) pushOut() (out []Item) {
	for s.taken > s.room {
		oldest := s.most[0].items.Front().Value.(*kept[Owner, Item])
		s.remove(oldest)
		out = append(out, oldest.item)
	}
	return out
}

// Remove takes an item away, if it is there.
func (s *Shelf[Owner, Item]) Remove(item Item) {
	if k, ok := s.items[item]; ok {
		s.remove(k)
	}
}

// Has says whether an item is there.
func (s *Shelf[Owner, Item]) Has(item Item) bool {
	_, ok := s.items[item]
	return ok
}

// Len is the number of items.
func (s *Shelf[Owner, Item]) Len() int { return len(s.items) }

func (s *Shelf[Owner, Item]) remove(k *kept[Owner, Item]) {
	delete(s.items, k.item)
	s.taken -= k.size
	p := s.piles[k.of]
	p.size -= k.size
	p.items.Remove(k.place)
	if p.items.Len() == 0 {
		heap.Remove(&s.most, p.at)
		delete(s.piles, k.of)
		return
	}
	p.first = p.items.Front().Value.(*kept[Owner, Item]).number
	heap.Fix(&s.most, p.at)
}

// piles is a heap: first who has most, and of those who have as much, whose oldest is older.
type piles []*pile

func (h piles) Len() int { return len(h) }
func (h piles) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[j].size, h[i].size), cmp.Compare(h[i].first, h[j].first)) < 0
}

func (h piles) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

// Push implements heap.Interface.
func (h *piles) Push(p any) {
	p.(*pile).at = len(*h)
	*h = append(*h, p.(*pile))
}

// Pop implements heap.Interface.
func (h *piles) Pop() any {
	last := (*h)[len(*h)-1]
	(*h)[len(*h)-1] = nil
	*h = (*h)[:len(*h)-1]
	return last
}
