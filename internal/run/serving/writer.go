package serving

import (
	"time"

	"bartleby.mq/internal/safety/bug"
)

// Start starts the writer. End ends it.
func (o *Output[T, P]) Start() {
	o.writing.Go(bug.Guarded(o.log, "the writer of a connection", o.write))
}

// Beat says how often the client wants to hear something; 0: never. The writer sends a beat twice as often while there is nothing else.
func (o *Output[T, P]) Beat(every time.Duration) {
	o.beat.Store(int64(every))
	o.Wake()
}

// write is the writer: it sends the items that Flush left to it, and beats.
func (o *Output[T, P]) write() {
	beat := time.NewTimer(time.Hour)
	defer beat.Stop()
	for {
		select {
		case <-o.wakec:
		case <-beat.C:
			if o.idle() {
				o.Put(o.session.AppendBeat)
			}
		case <-o.socket.ended:
			o.writeLast()
			return
		}
		o.writeAll()
		if h := time.Duration(o.beat.Load()); h > 0 {
			beat.Reset(h / 2)
		}
	}
}

// idle says whether there is nothing to send and nobody sends. It checks the pen first, because encoded bytes belong to its holder.
func (o *Output[T, P]) idle() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.held && o.waiting.Len() == 0 && len(o.Wire) == 0
}

// writeAll sends until the output is empty.
func (o *Output[T, P]) writeAll() {
	for {
		o.mu.Lock()
		if o.held {
			o.mu.Unlock()
			return
		}
		if !o.work() {
			o.Window.Free()
			o.mu.Unlock()
			return
		}
		o.held = true
		o.take()
		o.mu.Unlock()
		o.writeTaken()
		o.mu.Lock()
		o.held = false
		list := o.resume()
		o.mu.Unlock()
		for _, p := range list {
			o.session.Resume(p)
		}
	}
}

// writeTaken sends the taken items, and bytes that another goroutine has encoded before. REQUIRES: the pen.
func (o *Output[T, P]) writeTaken() {
	o.encode()
	o.send(o.Wire)
	o.Wire = o.Wire[:0]
	if cap(o.Wire) > 4*WriteSize {
		o.Wire = nil
	}
}

// writeLast sends the last frames, and keeps the pen for good, because the connection's output is dismantled after it.
func (o *Output[T, P]) writeLast() {
	for o.writeAll(); !o.keep(); o.writeAll() {
		<-o.wakec // another goroutine has the pen, and may be waiting for the disk
	}
	o.writeTaken() // others may have left items just then
}

// keep takes the pen for good, if it is free, and all items. If it is not free, its holder wakes the writer when it lays the pen down.
func (o *Output[T, P]) keep() (kept bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.shut = true
	if o.held {
		return false
	}
	o.held = true
	o.take()
	return true
}

// End is the reader's last word: the writer sends what there is, within LastWords, and ends. From then on only Drain and the
// caller use what the holder of the pen owns.
func (o *Output[T, P]) End() {
	o.socket.end()
	o.writing.Wait()
}

// Drain calls give for each item that was not sent: those that were kept, then those that came at the end. REQUIRES: End has
// returned, and no consumer is attached.
func (o *Output[T, P]) Drain(give func(it *T)) {
	o.mu.Lock()
	waiting, unsent := o.waiting, o.unsent
	o.waiting, o.unsent = List[entry[T]]{}, nil
	o.Window.Free()
	o.mu.Unlock()
	for i := range unsent {
		give(&unsent[i])
	}
	for k := range waiting.Chunks() {
		chunk := waiting.Chunk(k)
		for i := range chunk {
			if chunk[i].ready == 0 {
				give(&chunk[i].item)
			}
		}
	}
	o.settleSent()
}
