package serving

import "runtime"

// Halt keeps an output from sending anything until letGo is called: it takes the pen. Tests of sessions need it.
func (o *Output[T, P]) Halt() (letGo func()) {
	o.mu.Lock()
	for o.held { // whoever has sent the last answer
		o.mu.Unlock()
		runtime.Gosched()
		o.mu.Lock()
	}
	o.held = true
	o.mu.Unlock()
	return o.layDown
}

// Waiting calls f for each item that waits, and returns the number of entries and the ready bytes among them, for tests.
func (o *Output[T, P]) Waiting(f func(it *T)) (entries int, ready []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for k := range o.waiting.Chunks() {
		chunk := o.waiting.Chunk(k)
		for i := range chunk {
			if chunk[i].ready == 0 && f != nil {
				f(&chunk[i].item)
			}
		}
	}
	return o.waiting.Len(), append([]byte{}, o.ready...)
}
