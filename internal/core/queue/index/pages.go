package index

import (
	"bartleby.mq/internal/core/message"
)

// Pages lends pages to the indexes of one partition and takes them back. It
// knows how much is lent, where those go that have no room in memory, and which
// checkpoint is being written.
type Pages struct {
	// Log is what a recovery goes on with after a checkpoint.
	Log Log
	// Hot is how many pages at each end of a lane are not put away.
	Hot int
	// Horizon is how far ahead, in milliseconds, pages that were put away are read
	// for what will be due; 0 means 16 seconds.
	Horizon int64
	// Hash returns the bytes of a history; nil: no hash is kept of what the queues
	// are (statehash.go).
	Hash func(history message.Ref) []byte

	heads []*page // without columns
	spare [classes][]columns
	words [classes][][]uint32
	lent  int
	bytes int

	warm [hot + 1]indexList // by their warmth; those that are cold are in none

	version uint32 // that what changes now will be saved as, see checkpoint.go
	saving  bool   // what is to be saved as version-1 is still being written
	saves   int    // what was saved so far, by weight
	wrote   int64  // the same in bytes

	blob        []byte // of the page being encoded
	sum         []byte // its summary, and before that:
	summed      summary
	delta       []byte        // the one being encoded
	refs        []message.Ref // its histories
	commons     []message.Ref // what these have in common
	flat        *plain        // the page being saved, or summed up
	copy        *decoded      // the page being decoded
	kept        []keptHistory // its histories
	keptCommons [][]byte      // what these have in common
	ripe        []ripeEntry   // of the page being looked at
	glanced     uint64        // what glance has read, so that it is read
}

func (ps *Pages) horizon() int64 {
	if ps.Horizon > 0 {
		return ps.Horizon
	}
	return defaultHorizon
}

// Lent is the number of pages in use.
func (ps *Pages) Lent() int { return ps.lent }

// Bytes is the memory of the pages in use, and of what they point to in their queues.
func (ps *Pages) Bytes() int { return ps.bytes }

// What these take of memory, which TestSizes checks.
const (
	pageHead    = 376
	sideBytes   = 48
	countsBytes = 8
)

// PageBytes is about what a full page takes of memory.
const PageBytes = pageHead + (8+4+1+4)*PageSize

// keepPages is how many unused ones of a kind are kept.
const keepPages = 256

// get returns an empty page with columns of the class given.
func (ps *Pages) get(level int, number uint64, class int) *page {
	ps.lent++
	ps.bytes += pageHead
	var p *page
	if n := len(ps.heads); n > 0 {
		p = ps.heads[n-1]
		ps.heads = ps.heads[:n-1]
	} else {
		p = new(page)
	}
	*p = page{level: uint8(level), number: number, columns: ps.columns(class), mask: uint8(minRoom<<class - 1), min: never}
	return p
}

func (ps *Pages) put(p *page) {
	ps.lent--
	ps.bytes -= pageHead + cap(p.summary) + beforeBytes*cap(p.before)
	ps.reclaim(&p.columns)
	p.columns = columns{}
	if len(ps.heads) < keepPages {
		ps.heads = append(ps.heads, p)
	}
}

// told notes the summary of a page's rest.
func (ps *Pages) told(p *page, sum *summary) {
	ps.bytes -= cap(p.summary)
	if sum == nil {
		p.summary = nil
		return
	}
	ps.sum = sum.append(ps.sum[:0])
	p.summary = append(make([]byte, 0, len(ps.sum)), ps.sum...)
	ps.bytes += cap(p.summary)
}

// columns returns those that every page has.
func (ps *Pages) columns(class int) (c columns) {
	if list := ps.spare[class]; len(list) > 0 {
		c = list[len(list)-1]
		ps.spare[class] = list[:len(list)-1]
	} else {
		n := minRoom << class
		c = columns{refs: make([]message.Ref, n), sizes: make([]uint32, n), marks: make([]uint8, n)}
	}
	ps.bytes += c.bytes()
	return c
}

// reclaim takes columns back. Those for what few entries have are not kept.
func (ps *Pages) reclaim(c *columns) {
	ps.bytes -= c.bytes()
	class := classFor(len(c.marks))
	for _, w := range [...][]uint32{c.dues, c.owners, c.rows} {
		if w != nil && len(ps.words[class]) < keepPages {
			ps.words[class] = append(ps.words[class], w)
		}
	}
	if len(ps.spare[class]) < keepPages {
		ps.spare[class] = append(ps.spare[class], columns{refs: c.refs, sizes: c.sizes, marks: c.marks})
	}
}

// need makes a column of p if it is not there yet.
func (ps *Pages) need(p *page, column *[]uint32) {
	if *column == nil {
		ps.add(p, column)
	}
}

func (ps *Pages) add(p *page, column *[]uint32) {
	class := p.class()
	if list := ps.words[class]; len(list) > 0 {
		*column = list[len(list)-1]
		ps.words[class] = list[:len(list)-1]
		clear(*column)
	} else {
		*column = make([]uint32, p.room())
	}
	ps.bytes += 4 * p.room()
}

func (ps *Pages) needHistories(p *page) {
	if p.histories == nil {
		p.histories = make([]message.Ref, p.room())
		ps.bytes += 8 * p.room()
	}
}

func (ps *Pages) needCounts(p *page) {
	if p.counts == nil {
		p.counts = make([]Counts, p.room())
		ps.bytes += countsBytes * p.room()
	}
}
