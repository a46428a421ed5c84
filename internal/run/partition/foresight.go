package partition

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/queue/index"
	"bartleby.mq/internal/safety/bug"
)

// A message that waited long for its deadline or its retry is only on disk, and may not be in the page cache either.
// If many are due at once, a disk is too slow to read each of them then. So this goroutine reads ahead the records
// that are due in the next seconds, in their order on disk. For 10,000,000 small records due in random order, it
// reads each file once from end to end, not a block for each record.
//
// Mostly the records are in the page cache. A few samples show that, and the rest is not read.

const (
	// foreseeEvery is how often the node looks at what is due soon.
	foreseeEvery = time.Second
	// foreseeAhead is how far ahead it looks, in milliseconds.
	foreseeAhead = 4000
	// foreseeSamples records are read first. If foreseeCold of them take longer than Node.diskTakes, the rest is read
	// too.
	foreseeSamples = 32
	foreseeCold    = 4
	// foreseePages is how many pages one hold of the partition looks at.
	foreseePages = 32
	// foreseeEntries is for how many entries files are read at a time.
	foreseeEntries = 1 << 12
	// foreseeMost is how many bytes are read for one look at one queue. More might not stay in the page cache.
	foreseeMost = 1 << 30
	// foreseeExtra is the size of a record beside its body, unless it is very large.
	foreseeExtra = 512
	// foreseeGap is the largest gap between two records that is read rather than skipped: reading it takes a disk no
	// longer than seeking.
	foreseeGap = 16 << 10
	// foreseeRead is how much is read at once, and at most of one record. foreseeReaders is the number of readers.
	foreseeRead    = 128 << 10
	foreseeReaders = 4
)

// foresight is a goroutine that reads ahead what is due soon.
type foresight struct {
	n *Node
	// The queues in which something is due soon. A queue stays until nothing is, because a queue whose deaths come
	// faster than they are routed is not among the timers.
	coming map[*Queue]bool
}

func (f *foresight) run() {
	look := time.NewTicker(foreseeEvery)
	defer look.Stop()
	for {
		select {
		case <-f.n.stop:
			return
		case <-look.C:
			for _, p := range f.n.all {
				p.eachDue(f.n.Now()+foreseeAhead, func(q *Queue) { f.coming[q] = true })
			}
			for q := range f.coming {
				if !f.ahead(q) {
					delete(f.coming, q)
				}
			}
		}
	}
}

// eachDue calls f for the long queues in which something is due until then.
func (p *Partition) eachDue(until int64, f func(*Queue)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var look func(i int)
	look = func(i int) {
		if i >= len(p.timers) || p.timers[i].due > until {
			return // its children in the heap are later still
		}
		if p.timers[i].m.Long() {
			f(p.timers[i])
		}
		look(2*i + 1)
		look(2*i + 2)
	}
	look(0)
}

// ahead reads ahead what is due in a queue soon, or is overdue because the node was down. It says whether there is
// any.
func (f *foresight) ahead(q *Queue) bool {
	n := f.n
	until := n.Now() + foreseeAhead
	pages := q.comingPages(until)
	if len(pages) == 0 {
		return false
	}
	if !f.onDisk(q, pages, until) {
		return true
	}
	// In the order of the queue, which is mostly that of the files.
	slices.Sort(pages)
	pages = slices.Compact(pages)
	list := make([]index.Coming, 0, 2*foreseeEntries)
	buf := make([]byte, foreseeReaders*foreseeRead)
	left := int64(foreseeMost)
	for len(pages) > 0 && left > 0 && !n.stopped() {
		few := pages[:min(len(pages), foreseePages)]
		pages = pages[len(few):]
		began := time.Now()
		list = q.coming(few, until, true, list)
		n.pause(time.Since(began)) // only as long as it worked: if others are late, they need this reading all the more
		if len(pages) == 0 || len(list) >= foreseeEntries {
			left = f.read(stretches(list), buf, left)
			list = list[:0]
		}
	}
	return true
}

// comingPages is index.ComingPages for the whole queue.
func (q *Queue) comingPages(until int64) (pages []queue.ID) {
	var cursor index.ComingCursor
	for more := true; more; {
		q.part.mu.Lock()
		if more = !q.gone && q.m.NextDue() <= until; more {
			cursor, more, pages = q.m.ComingPages(cursor, until, pages)
		}
		q.part.mu.Unlock()
	}
	return pages
}

// coming is index.ComingBodies for some pages.
func (q *Queue) coming(pages []queue.ID, until int64, mark bool, list []index.Coming) []index.Coming {
	q.part.mu.Lock()
	defer q.part.mu.Unlock()
	if q.gone {
		return list
	}
	for _, page := range pages {
		list = q.m.ComingBodies(page, until, mark, list)
	}
	return list
}

// onDisk reads one record of some of the pages and says whether that took a disk.
func (f *foresight) onDisk(q *Queue, pages []queue.ID, until int64) bool {
	n := f.n
	list := spread(q.coming(spread(pages), until, false, nil))
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
	n  uint64 // in bytes, at most foreseeRead
}

// stretches returns the parts of files that have the records. Records that are near each other share one.
func stretches(entries []index.Coming) (list []stretch) {
	slices.SortFunc(entries, func(a, b index.Coming) int { return cmp.Compare(a.At, b.At) })
	for _, c := range entries {
		size := min(uint64(c.Size)+foreseeExtra, foreseeRead)
		if k := len(list) - 1; k >= 0 {
			last := &list[k]
			from := uint64(c.At) - uint64(last.at) // huge if it is in another file
			if from <= last.n+foreseeGap && from+size <= foreseeRead {
				last.n = max(last.n, from+size)
				continue
			}
		}
		list = append(list, stretch{c.At, size})
	}
	return list
}

// read reads parts of files, at most `most` bytes, and returns most less the bytes read: negative if the list has more.
// buf has foreseeRead bytes for each reader.
func (f *foresight) read(list []stretch, buf []byte, most int64) (left int64) {
	n := f.n
	next := make(chan stretch)
	var readers sync.WaitGroup
	for own := range slices.Chunk(buf, foreseeRead) {
		readers.Go(bug.Guarded(n.Logger, "foresight", func() {
			for s := range next {
				n.bodies.Preread(s.at, own[:s.n])
			}
		}))
	}
	for _, s := range list {
		if most -= int64(s.n); most < 0 || n.stopped() {
			break
		}
		next <- s
	}
	close(next)
	readers.Wait()
	return most
}
