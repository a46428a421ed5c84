package index

// In a long queue every entry lies where the processor has nothing in its caches, not even
// the address of the memory page. Waiting for that is most of what a death by deadline
// costs, three times over: when it is due, when it is picked and when it has moved. To wait
// for many at a time takes hardly longer than for one, as long as none depends on the one
// before. So who is about to handle many entries Glances at them first: it reads a little of
// each, a step of the way for all of them before the next step, and does nothing with it.

// Glances is at how many entries or pages one look is.
const Glances = 32

// glance looks at the pages whose alarms come next.
func (ix *Index) glance(l *lane, now int64) {
	var pages [Glances]*page
	n := 0
	for _, a := range l.dues[:min(len(l.dues), Glances)] { // a heap: most of the first are here
		if a.at > now {
			continue
		}
		if p := l.loaded(a.number); p != nil {
			pages[n] = p
			n++
		}
	}
	sum := uint64(0)
	for _, p := range pages[:n] {
		sum += p.live[0] + uint64(p.mask)
	}
	for _, p := range pages[:n] {
		first := 0
		if p.comes > 0 {
			first = int(p.coming[0] & p.mask)
			if p.dues != nil {
				sum += uint64(p.dues[first])
			}
		} else {
			for j := 0; j < len(p.dues); j += cacheLine / 4 {
				sum += uint64(p.dues[j])
			}
		}
		sum += uint64(p.marks[first]) + uint64(p.sizes[first])
		if p.rows != nil {
			sum += uint64(p.rows[first])
		}
	}
	ix.pages.glanced += sum
}

// cacheLine is what the processor reads at once, in bytes.
const cacheLine = 64

// GlanceAt looks at entries, at most so many.
func (ix *Index) GlanceAt(ids []ID) {
	type place struct {
		p *page
		i uint
	}
	var places [Glances]place
	n := 0
	for _, id := range ids[:min(len(ids), Glances)] {
		l := ix.lanes[id.Lane()]
		if l == nil {
			continue
		}
		if p := l.loaded(id.Seq() / PageSize); p != nil {
			places[n] = place{p, uint(id.Seq() % PageSize)}
			n++
		}
	}
	sum := uint64(0)
	for _, x := range places[:n] {
		sum += x.p.live[0] + uint64(x.p.mask)
	}
	for _, x := range places[:n] {
		j := x.i & uint(x.p.mask) // or thereabouts, if the page is ranked
		sum += uint64(x.p.marks[j]) + uint64(x.p.sizes[j]) + uint64(x.p.refs[j])
		if x.p.rows != nil {
			sum += uint64(x.p.rows[j])
		}
	}
	ix.pages.glanced += sum
}
