package server

import (
	"strings"
	"testing"
	"time"
)

// The log says once that the queues' clock is ahead of the system's, with the way out, and once that it is not any more.
func TestTheLogTellsOfAClockThatIsAhead(t *testing.T) {
	o, log := options(t.TempDir())
	s := &Server{Options: o}
	lines := func(ahead time.Duration) (told, over int) {
		s.looking.Lock()
		defer s.looking.Unlock()
		s.compareClocks(ahead)
		return strings.Count(log.String(), "--reset-clock"), strings.Count(log.String(), "is the system's again")
	}
	for _, c := range []struct {
		ahead      time.Duration
		told, over int
	}{{10 * time.Second, 0, 0}, {2 * time.Hour, 1, 0}, {time.Hour, 1, 0}, {50 * time.Second, 1, 0}, {20 * time.Second, 1, 1}, {0, 1, 1}, {5 * time.Minute, 2, 1}} {
		if told, over := lines(c.ahead); told != c.told || over != c.over {
			t.Errorf("%v ahead: %d and %d lines, want %d and %d", c.ahead, told, over, c.told, c.over)
		}
	}
}
