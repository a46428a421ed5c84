package api

import "runtime"

// RoutesOf are the methods and patterns of a handler from New, for tests of each of them.
func RoutesOf(h Handler) (all []struct{ Method, Pattern string }) {
	for _, r := range h.(*server).routes() {
		all = append(all, struct{ Method, Pattern string }{r.method, r.pattern})
	}
	return all
}

// HoldReads takes all turns of what reads much, until done is called.
func HoldReads(h Handler) (done func()) {
	s := h.(*server)
	n := runtime.GOMAXPROCS(0)
	for range n {
		s.reads.Begin("another", nil, nil)
	}
	return func() {
		for range n {
			s.reads.End()
		}
	}
}
