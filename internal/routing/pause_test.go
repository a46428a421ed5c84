package routing

import (
	"fmt"
	"strings"
	"testing"
)

// BR-8.5: a message with many keys that nearly match many patterns lets others in between its keys, and finds what it would
// find without.
func TestBR_8_5_ManyKeysAtManyPatternsPause(t *testing.T) {
	f := newFixture(t, Topic)
	for i := range 1 << 10 {
		words := make([]string, 10)
		for k := range words {
			words[k] = string("*a"[i>>k&1])
		}
		f.bind(fmt.Sprint("never", i), strings.Join(words, ".")+".zz")
	}
	f.bind("last", "*.*.*.*.*.*.*.*.*.*.last")
	m := &Message{Key: []byte("none")}
	for i := range 100 {
		m.More = append(m.More, []byte(fmt.Sprint(strings.Repeat("a.", 10), i)))
	}
	m.More = append(m.More, []byte(strings.Repeat("a.", 10)+"last"))
	f.expect(m, "last")
	pauses := 0
	m.Pause = func() { pauses++ }
	f.expect(m, "last")
	nodes := 1 << 11 // at least, and each key looks at all
	if least := len(m.More) * nodes / (pauseAfter + 2*nodes); pauses < least {
		t.Errorf("%d pauses, want %d at least", pauses, least)
	}
	pauses = 0
	m.More = m.More[:2]
	m.kept = nil
	f.expect(m)
	if pauses != 0 {
		t.Errorf("%d pauses for a few keys", pauses)
	}
}
