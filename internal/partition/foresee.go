package partition

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"bartleby.mq/internal/message"
	"bartleby.mq/internal/queue"
)

// Messages that waited long for their deadline, or for their retry, are on disk only, and
// the system may have none of it in memory. To read each when it is due takes a disk
// longer than there is time for, if many are due. So the records of what is due in the
// next seconds are read ahead, in the order in which they lie there: of 10,000,000
// small ones that are due in any order, this reads each file once, from one end to the
// other, instead of a block for each.
//
// Mostly the system has them in memory: a few reads tell, and then the others are spared.

const (
	// foreseeEvery is how often the node looks at what is due soon.
	foreseeEvery = time.Second
	// foresight is how far ahead it looks, in milliseconds.
	foresight = 4000
	// foreseeSamples are read to learn whether the rest is to be; so it is if
	// foreseeCold of them took longer than Node.diskTakes.
	foreseeSamples = 32
	foreseeCold    = 4
	// foreseePages is how many pages one hold of the partition looks at.
	foreseePages = 32
	// foreseeEntries is for how many entries the files are read at a time.
	foreseeEntries = 1 << 14
	// foreseeMost is how many bytes of them are read for one look at a queue: to read more
	// than the system keeps would be in vain.
	foreseeMost = 1 << 30
	// foreseeExtra is what a record has beside its body, if that is not much.
	foreseeExtra = 512
	// foreseeGap is how many bytes that nobody wants are read rather than skipped: to read them
	// takes a disk no longer than to read elsewhere.
	foreseeGap = 16 << 10
	// foreseeRead is how much is read at once, and foreseeReaders how many do.
	foreseeRead    = 128 << 10
	foreseeReaders = 4
)

// keepForeseeing reads ahead what is due soon.
func (n *Node) keepForeseeing() {
	look := time.NewTicker(foreseeEvery)
	defer look.Stop()
	for {
		select {
		case <-n.stop:
			return
		case <-look.C:
			until := n.Now() + foresight
			for _, p := range n.all {
				for _, q := range p.dueBy(until) {
					n.foresee(q, until)
				}
			}
		}
	}
}

// dueBy returns the long queues some of whose entries are due by then.
func (p *Partition) dueBy(until int64) (list []*Queue) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var look func(i int)
	look = func(i int) {
		if i >= len(p.timers) || p.timers[i].due > until {
			return // what stands below it comes later still
		}
		if p.timers[i].m.Long() {
			list = append(list, p.timers[i])
		}
		look(2*i + 1)
		look(2*i + 2)
	}
	look(0)
	return list
}

// foresee reads ahead what is due in a queue by then, or has been since the node was down,
// but for what it has looked at before.
func (n *Node) foresee(q *Queue, until int64) {
	p := q.part
	p.mu.Lock()
	after := q.foreseen
	q.foreseen = until
	var pages []queue.ID
	if !q.gone {
		pages = q.m.ComingPages(until, nil)
	}
	p.mu.Unlock()
	if len(pages) == 0 || !n.coldAhead(q, pages, after, until) {
		return
	}
	// In the order of the queue, which mostly is that of the files.
	slices.Sort(pages)
	list := make([]queue.Coming, 0, 2*foreseeEntries)
	buf := make([]byte, foreseeReaders*foreseeRead)
	left := int64(foreseeMost)
	for len(pages) > 0 && left > 0 && !n.stopped() {
		few := pages[:min(len(pages), foreseePages)]
		pages = pages[len(few):]
		began := time.Now()
		list = q.coming(few, after, until, list)
		p.giveWay(began)
		if len(pages) == 0 || len(list) >= foreseeEntries {
			left -= n.preread(stretches(list), buf)
			list = list[:0]
		}
	}
}

// coming is ComingBodies for some pages.
func (q *Queue) coming(pages []queue.ID, after, until int64, list []queue.Coming) []queue.Coming {
	q.part.mu.Lock()
	defer q.part.mu.Unlock()
	if q.gone {
		return list
	}
	for _, page := range pages {
		list = q.m.ComingBodies(page, after, until, list)
	}
	return list
}

// coldAhead reads one record of some of the pages and says whether that took a disk.
func (n *Node) coldAhead(q *Queue, pages []queue.ID, after, until int64) bool {
	pages = spread(pages)
	list := spread(q.coming(pages, after, until, nil))
	cold := 0
	buf := make([]byte, 1)
	for _, c := range list {
		began := time.Now()
		n.bodies.Preread(c.At, buf)
		if time.Since(began) > n.diskTakes {
			cold++
		}
	}
	return cold > 0 && cold >= min(foreseeCold, len(list))
}

// spread picks samples from all over a list.
func spread[E any](list []E) []E {
	some := make([]E, min(len(list), foreseeSamples))
	for k := range some {
		some[k] = list[k*len(list)/len(some)]
	}
	return some
}

// stretch is a part of a file.
type stretch struct {
	at message.Location
	n  uint64 // in bytes, foreseeRead at most
}

// stretches are the parts of the files in which the records lie, joined where they are near.
func stretches(entries []queue.Coming) (list []stretch) {
	slices.SortFunc(entries, func(a, b queue.Coming) int { return cmp.Compare(a.At, b.At) })
	for _, c := range entries {
		size := min(uint64(c.Size)+foreseeExtra, foreseeRead)
		if k := len(list) - 1; k >= 0 {
			last := &list[k]
			from := uint64(c.At) - uint64(last.at) // in another file it is far
			if from <= last.n+foreseeGap && from+size <= foreseeRead {
				last.n = max(last.n, from+size)
				continue
			}
		}
		list = append(list, stretch{c.At, size})
	}
	return list
}

// preread reads parts of files, and returns how much that was. buf has foreseeRead bytes
// for each reader.
func (n *Node) preread(list []stretch, buf []byte) (bytes int64) {
	next := make(chan stretch)
	var readers sync.WaitGroup
	for own := range slices.Chunk(buf, foreseeRead) {
		readers.Go(func() {
			for s := range next {
				n.bodies.Preread(s.at, own[:s.n])
			}
		})
	}
	for _, s := range list {
		bytes += int64(s.n)
		next <- s
	}
	close(next)
	readers.Wait()
	return bytes
}
