package main

import (
	"log/slog"
	"os"
	"sync/atomic"
)

// ending is how the process is asked to end, by signals or the API. It is there before the
// node starts: a start may take long, and a stop.
type ending struct {
	log   *slog.Logger
	asked atomic.Bool
	c     chan struct{} // closed when somebody has asked
}

func newEnding(log *slog.Logger) *ending { return &ending{log: log, c: make(chan struct{})} }

// ask asks for an end in order, once the node has started. It says whether nobody has before.
func (e *ending) ask(by string) (first bool) {
	if e.asked.Swap(true) {
		return false
	}
	e.log.Info("stopping", "asked_by", by)
	close(e.c)
	return true
}

// heed waits for signals. A signal after a stop was requested ends the process at once, as in
// a crash.
func (e *ending) heed(signals <-chan os.Signal) {
	for sig := range signals {
		if !e.ask(sig.String()) {
			e.log.Warn("stopping at once", "asked_by", sig.String())
			os.Exit(1)
		}
	}
}
