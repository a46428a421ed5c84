package sim

import (
	"fmt"
	"hash/fnv"
)

// traceLines is how much of a history a failure shows.
const traceLines = 80

// trace is the history of a run: a hash of all of it, and its last lines.
type trace struct {
	sum   uint64
	lines []string
	next  int
}

func (t *trace) add(line string) {
	h := fnv.New64a()
	var b [8]byte
	for i := range b {
		b[i] = byte(t.sum >> (8 * i))
	}
	_, _ = h.Write(b[:])
	_, _ = h.Write([]byte(line))
	t.sum = h.Sum64()
	if len(t.lines) < traceLines {
		t.lines = append(t.lines, line)
		return
	}
	t.lines[t.next] = line
	t.next = (t.next + 1) % traceLines
}

// tail is the last lines in order.
func (t *trace) tail() []string {
	return append(t.lines[t.next:len(t.lines):len(t.lines)], t.lines[:t.next]...)
}

// logf adds a line to the history.
func (w *World) logf(format string, args ...any) {
	w.trace.add(fmt.Sprintf("%9.3f ms  ", float64(w.now)/1000) + fmt.Sprintf(format, args...))
}
