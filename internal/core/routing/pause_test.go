package routing

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"bartleby.mq/internal/wire/amqp091"
)

// BR-8.5: a message whose key nearly matches many patterns lets others in, and finds what it would find without. Thousands of
// keys look at as many patterns as one.
func TestBR_8_5_ManyKeysAtManyPatternsPause(t *testing.T) {
	f := newFixture(t, Topic)
	const length = 13
	for i := range 1 << length {
		words := make([]string, length)
		for k := range words {
			words[k] = string("*a"[i>>k&1])
		}
		f.bind(fmt.Sprint("never", i), strings.Join(words, ".")+".zz")
	}
	f.bind("last", strings.Repeat("*.", length)+"last")
	one := key(strings.Repeat("a.", length) + "last")
	many := key("none")
	for i := range 3000 {
		many.More = append(many.More, []byte(fmt.Sprint(strings.Repeat("a.", length), i)))
	}
	many.More = append(many.More, one.Key)
	for name, m := range map[string]*Message{"one key": one, "many keys": many} {
		f.expect(m, "last")
		pauses := 0
		m.Pause = func() { pauses++ }
		f.expect(m, "last")
		if nodes := 2 << length; pauses < nodes/2/pauseAfter || pauses > 10*nodes/pauseAfter {
			t.Errorf("%s: %d pauses at %d nodes", name, pauses, nodes)
		}
	}
	few := key("a.a.a", "a.b", "b")
	few.Pause = func() { t.Error("a pause for a few keys") }
	f.expect(few)
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
