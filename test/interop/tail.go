package main

import (
	"fmt"
	"slices"
)

// tailBytes is how much of a program's output is kept.
const tailBytes = 64 << 10

// tail keeps the last bytes written to it, at most max.
type tail struct {
	max     int
	text    []byte
	dropped int
}

// Write never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if extra := len(t.text) - t.max; extra > 0 {
		t.dropped += extra
		t.text = slices.Delete(t.text, 0, extra)
	}
	return len(p), nil
}

// String says how much is missing before what was kept.
func (t *tail) String() string {
	if t.dropped > 0 {
		return fmt.Sprintf("[%d bytes left out]\n%s", t.dropped, t.text)
	}
	return string(t.text)
}
