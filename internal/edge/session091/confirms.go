package session091

import (
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/safety/held"
	"bartleby.mq/internal/wire/amqp091"
)

// confirms is the publisher's side of a channel in confirm mode (BR-8.7). It knows what the
// confirm of each publish still waits for. Confirms leave in the order of the publishes;
// neighbours with the same answer leave as one with multiple set.
type confirms struct {
	listed bool // in conn.confirming; owned by the reader

	mu    held.Mutex // guards what follows: answers come from goroutines that apply commands
	list  []partition.Pending
	start int    // index of the first pending one
	first uint64 // its tag
	runs  []run  // of what is pending, by exchange
}

// run is a number of publishes in a row to the same exchange.
type run struct {
	to *publishing
	n  int
}

// add notes a publish and returns its tag.
func (w *confirms) add(to *publishing) (tag uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.start > 1024 && w.start > len(w.list)/2 {
		n := copy(w.list, w.list[w.start:])
		w.list, w.start = w.list[:n], 0
	}
	w.list = append(w.list, partition.Pending{})
	switch last := len(w.runs) - 1; {
	case last >= 0 && w.runs[last].to == to:
		w.runs[last].n++
	case last >= 0 && w.runs[last].n == 0:
		w.runs[last] = run{to, 1}
	default:
		w.runs = append(w.runs, run{to, 1})
	}
	return w.first + uint64(len(w.list)-w.start) - 1
}

// waiting is the number of publishes without an answer.
func (w *confirms) waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.list) - w.start
}

// confirmed counts the next n publishes as answered. REQUIRES: mu.
func (w *confirms) confirmed(n int) {
	for n > 0 && len(w.runs) > 0 {
		r := &w.runs[0]
		k := min(n, r.n)
		r.to.confirmed.Add(uint64(k))
		n -= k
		switch r.n -= k; {
		case len(w.runs) == 1: // it stays, also without publishes, for the next one
			return
		case r.n == 0:
			w.runs = w.runs[1:]
		}
	}
}

// ran notes that the publish was run.
func (w *confirms) ran(tag uint64, op *partition.Op) {
	w.mu.Lock()
	w.at(tag).Ran(op)
	w.mu.Unlock()
}

// at returns the publish with a tag. REQUIRES: it has no answer yet.
func (w *confirms) at(tag uint64) *partition.Pending { return &w.list[w.start+int(tag-w.first)] }

// durable notes that all publishes that were run are durable.
func (w *confirms) durable() {
	w.mu.Lock()
	for i := len(w.list) - 1; i >= w.start && !w.list[i].Durable(); i-- {
	}
	w.mu.Unlock()
}

// append removes the publishes at the front that have all their answers, writes acks and
// nacks for them (BR-8.8), and returns their number and the number of nacks.
func (w *confirms) append(b []byte, number uint16) (_ []byte, n, nacks int) {
	for w.start < len(w.list) {
		done, refused := w.list[w.start].Done()
		if !done {
			break
		}
		count := 1
		for ; w.start+count < len(w.list); count++ {
			if done, other := w.list[w.start+count].Done(); !done || other != refused {
				break
			}
		}
		last := w.first + uint64(count) - 1
		if refused {
			b = amqp091.AppendNack(b, number, last, count > 1)
			nacks += count
		} else {
			b = amqp091.AppendAck(b, number, last, count > 1)
		}
		w.start += count
		w.first += uint64(count)
		n += count
	}
	if w.start == len(w.list) {
		w.list, w.start = w.list[:0], 0
	}
	return b, n, nacks
}

// wait returns when no publish waits for replicated queues.
func (ch *channel) wait() {
	if ch.confirms == nil {
		return
	}
	if ch.confirms.waiting() > 0 {
		ch.c.link.Settle()
	}
}

// sendConfirms puts the possible confirms into the output, in order.
func (ch *channel) sendConfirms() {
	w := ch.confirms
	ch.mu.Lock() // no frame may follow the channel's close
	defer ch.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if ch.closed || w.start == len(w.list) {
		return
	}
	if done, _ := w.list[w.start].Done(); !done {
		return
	}
	ch.c.out.Put(func(b []byte) []byte {
		b, n, nacks := w.append(b, ch.number)
		ch.c.link.Traffic().Refused.Add(uint64(nacks))
		ch.c.link.Traffic().Confirmed.Add(uint64(n))
		w.confirmed(n)
		return b
	})
}

var _ partition.Owner = (*channel)(nil)

// Answered implements partition.Owner.
func (ch *channel) Answered(answers []partition.Answer) {
	w := ch.confirms
	w.mu.Lock()
	for _, a := range answers {
		w.at(a.Token).Answer(a.Refused)
	}
	w.mu.Unlock()
	ch.sendConfirms()
	ch.c.out.Flush(true)
}
