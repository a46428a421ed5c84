package routing

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"bartleby.mq/internal/amqp091"
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
	m.kept, m.looked = nil, 0
	f.expect(m)
	if pauses != 0 {
		t.Errorf("%d pauses for a few keys", pauses)
	}
}

// A message with many headers at many bindings lets others in between two of them. Whatever these unbind, what stays bound is
// found, though it may have moved; and so between two exchanges of one message.
func TestBR_6_8_ManyHeadersAtManyBindingsPause(t *testing.T) {
	const fields, bindings = 500, 400
	wanted := make(amqp091.Table, fields)
	for i := range wanted {
		wanted[i] = arg(fmt.Sprint("h", i), int32(i))
	}
	f := newFixture(t, Headers)
	bound := make([]*Binding, bindings)
	for i := range bound {
		bound[i] = f.bind(fmt.Sprint("q", i), "", wanted...)
	}
	random := rand.New(rand.NewPCG(1, 2))
	m := withHeaders(wanted...)
	pauses := 0
	m.Pause = func() {
		pauses++
		for range 5 {
			i := random.IntN(len(bound))
			f.table.Remove(bound[i])
			bound = slices.Delete(bound, i, i+1)
		}
		f.bind(fmt.Sprint("late", pauses), "", wanted...)
	}
	found := map[string]bool{}
	for _, d := range f.route(m) {
		found[d] = true
	}
	for _, b := range bound {
		if !found[b.Destination.(string)] {
			t.Errorf("%v is bound all the time and not found", b.Destination)
		}
	}
	if least := (bindings - 5*pauses) * fields / pauseAfter / 2; pauses < max(least, 5) {
		t.Errorf("%d pauses, want %d at least", pauses, max(least, 5))
	}
}
