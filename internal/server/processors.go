package server

import (
	"os"
	"runtime"
)

// SpareThread lets Go run goroutines on one more thread than there are processors. It is for a
// process that is only a node. It does nothing if GOMAXPROCS is set, or if a container may use fewer
// processors: Go's own number follows that limit, and reaching the limit earlier means waiting longer.
//
// Go polls the network when a thread has nothing else to run, and otherwise every 10 ms; and a
// goroutine may run for 10 ms before another gets its turn. So on few processors, all busy with
// deadlines or a checkpoint, a client would wait 10 ms, although the system would schedule another
// thread at once. With a spare thread, one thread waits for the network most of the time.
func (s *Server) SpareThread() {
	if n := runtime.NumCPU(); os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) == n {
		runtime.GOMAXPROCS(n + 1)
	}
}
