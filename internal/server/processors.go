package server

import (
	"os"
	"runtime"
)

// SpareThread lets Go run goroutines on one more thread than there are processors. It is for a
// process that is a node and nothing else. Whoever sets GOMAXPROCS knows better, and where a
// container may have less than the processors, Go's own number is let be: it follows the limit, and who
// comes to it earlier waits longer.
//
// Go looks for what has come from the network when a thread has nothing else to run, and
// else each 10 ms; and it lets a goroutine run for 10 ms before it takes another's turn. So on few
// processors, each busy with what is due or with a checkpoint, a client waits for 10 ms that the
// system, which gives turns of its own, would let it have at once. With a thread to spare
// one waits for the network most of the time.
func (s *Server) SpareThread() {
	if n := runtime.NumCPU(); os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) == n {
		runtime.GOMAXPROCS(n + 1)
	}
}
