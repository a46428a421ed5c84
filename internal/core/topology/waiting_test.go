package topology

import (
	"math"
	"strings"
	"testing"

	"bartleby.mq/internal/core/routing"
	"bartleby.mq/internal/wire/amqp091"
)

// waits says whether a message with an x-delay waits in an exchange.
func (f *fixture) waits(x *Exchange, delay any, waited bool) bool {
	f.t.Helper()
	m := &routing.Message{Key: []byte("k"), Headers: amqp091.AppendTable(nil, amqp091.Table{arg("x-delay", delay)})[4:], Waited: waited}
	var r Router
	found := r.Route(f.vhost(), x, m, nil)
	waits := len(found) == 1 && found[0] == x.Waiting
	if waits != (r.Delaying == 1) {
		f.t.Errorf("x-delay %v: %d exchanges delay the message, and it goes to %v", delay, r.Delaying, found)
	}
	return waits
}

// An exchange that delays has a queue of its own, with the same number after a restart, and nothing else leads to it. It
// is in no list.
func TestAnExchangeThatDelaysHasAQueue(t *testing.T) {
	f := newFixture(t, Options{})
	x := f.exchange(durableExchange("x", routing.Delayed, arg("x-delayed-type", "direct")))
	if f.waits(x, int32(1), false) != true {
		t.Error("nothing waits")
	}
	f.queue(durableQueue("q"))
	f.bind(toQueue("x", "q", "k"))
	before := x.Waiting.Incarnation
	f = f.restart()
	x, _ = f.vhost().Exchange("x")
	if w := x.Waiting; w == nil || w.Incarnation != before || w.Delays != x || !w.Durable || w.Strict || x.Acts() != routing.Direct {
		t.Fatalf("came back as %+v", w)
	}
	if q := f.queue(durableQueue("next")); q.Incarnation <= before {
		t.Errorf("the number %d comes after %d", q.Incarnation, before)
	}
	if n := f.vhost().QueueCount(); n != 2 || f.route("", string(x.Waiting.Name)) != "" {
		t.Errorf("%d queues, want 2; the exchange's is reached by its name: %q", n, f.route("", string(x.Waiting.Name)))
	}
	for _, test := range []struct {
		delay  any
		waited bool
		want   bool
	}{{int32(1), false, true}, {int64(math.MaxInt64), false, true}, {int32(1), true, false}, {int32(0), false, false}, {int32(-1), false, false}, {true, false, false}} {
		if f.waits(x, test.delay, test.waited) != test.want {
			t.Errorf("x-delay %v, waited %v: waits %v", test.delay, test.waited, !test.want)
		}
	}
	if f.TakeEnded() != nil {
		t.Error("something has ended")
	}
	w := x.Waiting
	if _, err := f.DeleteExchange(vh, "x", false, nil); err != nil {
		t.Fatal(err)
	}
	if ended := f.TakeEnded(); len(ended) != 1 || ended[0] != w || f.TakeEnded() != nil {
		t.Errorf("ended: %v", ended)
	}
	if f = f.restart(); f.incarnation < before {
		t.Errorf("the number %d may be given again", before)
	}
}

// Nothing waits in an exchange that is not stored yet: after a crash there would be no such queue.
func TestNothingWaitsInAnExchangeThatIsNotStored(t *testing.T) {
	f := newFixture(t, Options{})
	x := f.exchange(durableExchange("x", routing.Delayed, arg("x-delayed-type", "direct")))
	f.queue(durableQueue("q"))
	f.Stored(f.TakeMade())
	x.Waiting.unstored = true
	f.bind(toQueue("x", "q", "k"))
	made := Made{queues: []*Queue{x.Waiting}}
	if f.waits(x, int32(1), false) {
		t.Error("a message waits before the exchange is stored")
	}
	m := &routing.Message{Key: []byte("k"), Headers: amqp091.AppendTable(nil, amqp091.Table{arg("x-delay", int32(1))})[4:]}
	if found := new(Router).Route(f.vhost(), x, m, nil); len(found) > 0 {
		t.Errorf("the message goes to %s at once", found[0].Name)
	}
	if f.Stored(made); !f.waits(x, int32(1), false) {
		t.Error("nothing waits once it is stored")
	}
	passing := durableExchange("passing", routing.Delayed, arg("x-delayed-type", "direct"))
	passing.Durable = false
	if x := f.exchange(passing); len(f.TakeMade().queues) != 0 || !f.waits(x, int32(1), false) || x.Waiting.Durable {
		t.Error("a transient exchange waits for the store")
	}
}

// A strict node knows no such exchanges, as RabbitMQ without its plugin. Those that are there go on.
func TestAStrictNodeDeclaresNoDelayingExchange(t *testing.T) {
	f := newFixture(t, Options{})
	f.exchange(durableExchange("x", routing.Delayed, arg("x-delayed-type", "direct")))
	f.options.Strict = true
	f = f.restart()
	x, _ := f.vhost().Exchange("x")
	if !f.waits(x, int32(1), false) {
		t.Error("the exchange that was there does not delay")
	}
	for _, name := range []string{"x", "y"} {
		d := durableExchange(name, routing.Delayed, arg("x-delayed-type", "direct"))
		if _, _, err := f.DeclareExchange(d, nil); err == nil || !strings.Contains(err.Error(), "unknown exchange type 'x-delayed-message'") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
