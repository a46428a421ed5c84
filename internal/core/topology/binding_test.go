package topology

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"bartleby.mq/internal/core/routing"
	"bartleby.mq/internal/wire/amqp091"
)

func TestBR_6_1_MissingEnds(t *testing.T) {
	f := newFixture(t, Options{})
	f.queue(durableQueue("q"))
	_, _, err := f.Bind(toQueue("amq.direct", "nope", "k"), nil)
	expectRefusal(t, err, NotFound, "no queue 'nope' in vhost 'v'")
	_, _, err = f.Bind(toQueue("nope", "q", "k"), nil)
	expectRefusal(t, err, NotFound, "no exchange 'nope' in vhost 'v'")
	_, _, err = f.Bind(toExchange("amq.direct", "nope", "k"), nil)
	expectRefusal(t, err, NotFound, "no exchange 'nope' in vhost 'v'")
}

func TestBR_6_2_Identity(t *testing.T) {
	f := newFixture(t, Options{})
	f.exchange(durableExchange("x", routing.Fanout))
	q := f.queue(durableQueue("q"))
	first := f.bind(toQueue("x", "q", "k"))
	revision := f.Revision()
	if again, created, err := f.Bind(toQueue("x", "q", "k"), nil); again != first || created || err != nil {
		t.Errorf("binding again: created %v, error %v", created, err)
	}
	if f.Revision() != revision {
		t.Error("binding again raised the revision")
	}
	f.bind(toQueue("x", "q", "k", arg("a", int32(1))))
	f.bind(toQueue("x", "q", "k", arg("b", "2"), arg("a", int32(1))))
	f.bind(toQueue("x", "q", "k", arg("a", int32(1)), arg("b", "2"))) // the same as the one before
	if n := len(q.Bindings()); n != 4 {
		t.Errorf("%d bindings, want 3 and the implicit one", n)
	}
	for _, d := range []BindingDecl{toQueue("x", "q", "other"), toQueue("nope", "q", "k"), toQueue("x", "nope", "k"), toExchange("x", "nope", "k")} {
		if removed, err := f.Unbind(d, nil); err != nil || len(removed.Bindings) > 0 {
			t.Errorf("unbinding %+v, which is not there: %+v, %v", d, removed, err)
		}
	}
	if removed, err := f.Unbind(toQueue("x", "q", "k"), nil); err != nil || len(removed.Bindings) != 1 {
		t.Errorf("unbinding: %+v, %v", removed, err)
	}
}

func TestBR_6_7_BindChecksTheType(t *testing.T) {
	f := newFixture(t, Options{})
	f.queue(quorumQueue("qq"))
	f.exchange(durableExchange("random", routing.LocalRandom))
	_, _, err := f.Bind(toQueue("amq.topic", "qq", "#.a.#.b.#"), nil)
	expectRefusal(t, err, PreconditionFailed, "Topic binding key '#.a.#.b.#' uses 3 '#' wildcards, at most 2 are allowed")
	_, _, err = f.Bind(toQueue("random", "qq", ""), nil)
	expectRefusal(t, err, PreconditionFailed, "Queue type rabbit_quorum_queue not valid for this exchange type")
}

func TestBR_6_3_ExchangeToExchange(t *testing.T) {
	f := newFixture(t, Options{})
	for _, x := range []string{"a", "b", "c"} {
		f.exchange(durableExchange(x, routing.Fanout))
	}
	f.queue(durableQueue("q"))
	f.bind(toExchange("a", "b", ""))
	f.bind(toExchange("b", "c", ""))
	f.bind(toExchange("c", "a", ""))
	f.bind(toExchange("c", "c", ""))
	f.bind(toQueue("a", "q", ""))
	f.bind(toQueue("c", "q", ""))
	f.expectRoute("q", "a", "k")
	f.expectRoute("q", "b", "k")
}

func TestBR_6_4_OneCopyPerQueue(t *testing.T) {
	f := newFixture(t, Options{})
	f.exchange(durableExchange("x", routing.Direct))
	const queues = 3 * scanUpTo // some are found by scanning, some by the map
	var want []string
	for i := range queues {
		name := fmt.Sprintf("q%03d", i)
		want = append(want, name)
		f.queue(durableQueue(name))
		f.bind(toQueue("x", name, "a"))
		f.bind(toQueue("x", name, "b"))
	}
	f.expectRoute(strings.Join(want, " "), "x", "a", "b", "a")
	f.expectRoute("q000 q001", "", "q000", "q001", "q000", "missing")
}

// BR-6.3: what a message costs that reaches many exchanges grows with their number, not with its square: all
// others wait for the topology meanwhile.
func TestBR_6_3_ManyExchangesAreVisitedInLinearTime(t *testing.T) {
	const exchanges = 2000
	f := newFixture(t, Options{})
	f.exchange(durableExchange("from", routing.Fanout))
	f.queue(durableQueue("q"))
	for i := range exchanges {
		name := fmt.Sprintf("x%d", i)
		f.exchange(durableExchange(name, routing.Fanout))
		f.bind(toExchange("from", name, ""))
		f.bind(toExchange(name, "from", ""))
		f.bind(toQueue(name, "q", ""))
	}
	x, _ := f.vhost().Exchange("from")
	var router Router
	for range 2 { // the second time with what the first has left
		router.seenExchanges.compared = 0
		if got := router.Route(f.vhost(), x, &routing.Message{}, nil); len(got) != 1 {
			t.Fatalf("%d queues, want 1", len(got))
		}
		if n := router.seenExchanges.compared; n > 2*exchanges+scanUpTo*scanUpTo {
			t.Errorf("%d comparisons for %d exchanges", n, exchanges)
		}
	}
}

func TestBR_6_13_AlternateExchange(t *testing.T) {
	f := newFixture(t, Options{})
	f.exchange(durableExchange("first", routing.Direct, arg("alternate-exchange", "second")))
	f.exchange(durableExchange("second", routing.Direct, arg("alternate-exchange", "third")))
	f.exchange(durableExchange("third", routing.Fanout, arg("alternate-exchange", "first")))
	f.exchange(durableExchange("dead-end", routing.Fanout))
	f.exchange(durableExchange("to-default", routing.Direct, arg("alternate-exchange", "")))
	f.exchange(durableExchange("to-nothing", routing.Direct, arg("alternate-exchange", "missing")))
	f.queue(durableQueue("matched"))
	f.queue(durableQueue("second-q"))
	f.bind(toQueue("first", "matched", "k"))
	f.bind(toExchange("first", "dead-end", "lost"))
	f.bind(toQueue("second", "second-q", "other"))
	f.expectRoute("matched", "first", "k")
	f.expectRoute("second-q", "first", "other")
	f.expectRoute("", "first", "nowhere") // the cycle of alternates ends
	f.expectRoute("", "first", "lost")    // a bound exchange that routes nowhere is a match
	f.expectRoute("matched", "to-default", "matched")
	f.expectRoute("", "to-nothing", "k")
	f.queue(durableQueue("third-q"))
	f.bind(toQueue("third", "third-q", ""))
	f.expectRoute("third-q", "first", "nowhere")
}

// A message follows a chain of alternate exchanges of any length in linear time, and lets others in on the way, whatever they
// bind.
func TestBR_6_13_AChainOfAlternateExchangesIsFollowedInLinearTime(t *testing.T) {
	const exchanges = 20_000
	f := newFixture(t, Options{})
	for i := range exchanges {
		f.exchange(durableExchange(fmt.Sprint("x", i), routing.Direct, arg("alternate-exchange", fmt.Sprint("x", i+1))))
	}
	f.queue(durableQueue("q"))
	f.bind(toQueue(fmt.Sprint("x", exchanges-1), "q", "k"))
	x, _ := f.vhost().Exchange("x0")
	var router Router
	pauses := 0
	for _, busy := range []bool{false, true} {
		before := pauses
		m := &routing.Message{Key: []byte("k"), Pause: func() {
			if pauses++; busy {
				f.bind(toQueue(fmt.Sprint("x", pauses), "q", fmt.Sprint("other", pauses)))
			}
		}}
		if got := router.Route(f.vhost(), x, m, nil); len(got) != 1 {
			t.Errorf("%d queues, want 1", len(got))
		}
		if n := pauses - before; n == 0 || n > 2*mostRounds*exchanges/(1<<14) {
			t.Errorf("%d pauses", n)
		}
	}
}

func TestRouteDoesNotAllocate(t *testing.T) {
	f := newFixture(t, Options{})
	f.exchange(durableExchange("x", routing.Direct))
	f.queue(durableQueue("q"))
	f.bind(toQueue("x", "q", "k"))
	v := f.vhost()
	var router Router
	out := make([]*Queue, 0, 8)
	name, m := []byte("x"), &routing.Message{Key: []byte("k")}
	if n := testing.AllocsPerRun(100, func() {
		x, _ := v.ExchangeByKey(name)
		out = router.Route(v, x, m, out[:0])
	}); n != 0 || len(out) != 1 {
		t.Errorf("routing allocates %v times and reaches %d queues", n, len(out))
	}
	d, _ := v.Exchange("")
	m.Key = []byte("q")
	if n := testing.AllocsPerRun(100, func() { out = router.Route(v, d, m, out[:0]) }); n != 0 || len(out) != 1 {
		t.Errorf("routing by the default exchange allocates %v times and reaches %d queues", n, len(out))
	}
}

func TestBR_15_6_PropertiesKey(t *testing.T) {
	f := newFixture(t, Options{})
	f.exchange(durableExchange("x", routing.Direct))
	f.queue(durableQueue("q"))
	for key, want := range map[string]string{"": "~", "a": "a", "a/b c~*": "a%2Fb+c%7E%2A"} {
		b := f.bind(toQueue("x", "q", key))
		if got := b.PropertiesKey(); got != want {
			t.Errorf("the key %q becomes %q, want %q", key, got, want)
		}
		if found, ok := FindBinding(f.vhost().BindingsLike("x", QueueResource, "q", want), want); !ok || found != b {
			t.Errorf("the binding with key %q is not found as %q", key, want)
		}
	}
	with := f.bind(toQueue("x", "q", "a", arg("n", int64(1)))).PropertiesKey()
	other := f.bind(toQueue("x", "q", "a", arg("n", int64(2)))).PropertiesKey()
	if !strings.HasPrefix(with, "a~") || with == other {
		t.Errorf("bindings with arguments are named %q and %q", with, other)
	}
	if _, ok := FindBinding(f.vhost().BindingsLike("", QueueResource, "q", "q"), "q"); !ok {
		t.Error("the implicit binding is not found")
	}
	if _, ok := FindBinding(f.vhost().BindingsLike("x", ExchangeResource, "q", "a"), "a"); ok {
		t.Error("a queue's binding was found for an exchange of the same name")
	}
}

func TestBR_5_3_ImplicitBindingsAreListed(t *testing.T) {
	f := newFixture(t, Options{})
	f.queue(durableQueue("q"))
	f.bind(toQueue("amq.direct", "q", "k"))
	list := f.vhost().Bindings()
	if len(list) != 2 || list[0].SourceName() != "" || list[0].Key != "q" || list[0].Destination().Name != "q" || list[1].SourceName() != "amq.direct" {
		t.Errorf("bindings are %+v", list)
	}
}

// BR-6.3: a message whose keys are many lets others in between two exchanges. What they move from one of these to the other
// is found by the one or the other; an exchange that chooses one of those bound chooses once.
func TestBR_6_3_WhatMovesWhileAMessagePausesIsFound(t *testing.T) {
	for _, kind := range []routing.Kind{routing.Fanout, routing.Random} {
		f := newFixture(t, Options{})
		for _, name := range []string{"x", "a", "b"} {
			f.exchange(durableExchange(name, routing.Fanout))
		}
		f.exchange(durableExchange("choice", kind))
		for _, d := range []BindingDecl{toExchange("x", "choice", ""), toExchange("x", "a", ""), toExchange("x", "b", "")} {
			f.bind(d)
		}
		for _, name := range []string{"q", "one", "two"} {
			f.queue(durableQueue(name))
		}
		f.bind(toQueue("b", "q", ""))
		f.bind(toQueue("choice", "one", ""))
		m := &routing.Message{More: make([][]byte, 1<<15)}
		pauses := 0
		m.Pause = func() {
			switch pauses++; pauses {
			case 3: // x, choice and a have been looked at
				f.bind(toQueue("a", "q", ""))
				if _, err := f.Unbind(toQueue("b", "q", ""), nil); err != nil {
					t.Fatal(err)
				}
				f.bind(toQueue("choice", "two", ""))
			}
		}
		x, _ := f.vhost().Exchange("x")
		var router Router
		var got []string
		for _, q := range router.Route(f.vhost(), x, m, nil) {
			got = append(got, string(q.Name))
		}
		want := []string{"one", "two", "q"}
		if kind == routing.Random {
			want = []string{"one", "q"}
		}
		if !slices.Equal(got, want) || pauses < 4 {
			t.Errorf("%s: %d pauses, and the message reaches %q, want %q", kind, pauses, got, want)
		}
	}
}

// BR-6.13: an alternate exchange gets what leads nowhere. A message whose binding is replaced while it pauses, so that there
// always is one, does not lead nowhere.
func TestBR_6_13_WhatMovesWhileAMessagePausesLeadsSomewhere(t *testing.T) {
	f := newFixture(t, Options{})
	f.exchange(durableExchange("unrouted", routing.Fanout))
	d := durableExchange("x", routing.Topic)
	d.Arguments = amqp091.Table{{Key: "alternate-exchange", Value: "unrouted"}}
	f.exchange(d)
	for _, name := range []string{"q", "nowhere"} {
		f.queue(durableQueue(name))
	}
	f.bind(toQueue("unrouted", "nowhere", ""))
	const length = 14
	for i := range 1 << length { // which nearly match
		words := make([]string, length)
		for k := range words {
			words[k] = string("*a"[i>>k&1])
		}
		f.bind(toQueue("x", "q", strings.Join(words, ".")+".zz"))
	}
	key := strings.Repeat("a.", length) + "last"
	f.bind(toQueue("x", "q", key))
	m := &routing.Message{Key: []byte(key)}
	pauses := 0
	m.Pause = func() {
		if pauses++; pauses == 1 {
			f.bind(toQueue("x", "q", "#.last"))
			if _, err := f.Unbind(toQueue("x", "q", key), nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	x, _ := f.vhost().Exchange("x")
	var router Router
	var got []string
	for _, q := range router.Route(f.vhost(), x, m, nil) {
		got = append(got, string(q.Name))
	}
	if !slices.Equal(got, []string{"q"}) || pauses == 0 {
		t.Errorf("%d pauses, and the message reaches %q", pauses, got)
	}
}
