package topology

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/routing"
	"bartleby.mq/internal/wire/amqp091"
)

func TestBR_5_1_Predeclared(t *testing.T) {
	f := newFixture(t, Options{})
	want := []struct {
		name     string
		kind     routing.Kind
		internal bool
	}{
		{"", "direct", false}, {"amq.direct", "direct", false}, {"amq.fanout", "fanout", false},
		{"amq.headers", "headers", false}, {"amq.match", "headers", false}, {"amq.rabbitmq.trace", "topic", true},
		{"amq.topic", "topic", false},
	}
	got := f.vhost().Exchanges()
	if len(got) != len(want) {
		t.Fatalf("%d exchanges, want %d", len(got), len(want))
	}
	for i, x := range got {
		if string(x.Name) != want[i].name || x.Type != want[i].kind || x.Internal != want[i].internal || !x.Durable {
			t.Errorf("exchange %d is %+v, want %+v", i, x.ExchangeDecl, want[i])
		}
	}
}

func TestBR_5_3_DefaultExchange(t *testing.T) {
	f := newFixture(t, Options{})
	f.queue(durableQueue("q"))
	const text = "operation not permitted on the default exchange"
	_, _, err := f.DeclareExchange(durableExchange("", routing.Direct), nil)
	expectRefusal(t, err, AccessRefused, text)
	_, err = f.PassiveExchange(vh, "")
	expectRefusal(t, err, AccessRefused, text)
	_, err = f.DeleteExchange(vh, "", false, nil)
	expectRefusal(t, err, AccessRefused, text)
	_, _, err = f.Bind(toQueue("", "q", "k"), nil)
	expectRefusal(t, err, AccessRefused, text)
	_, err = f.Unbind(toQueue("", "q", "q"), nil)
	expectRefusal(t, err, AccessRefused, text)
	f.expectRoute("q", "", "q")
	f.expectRoute("", "", "other")
}

func TestBR_5_4_ReservedNames(t *testing.T) {
	f := newFixture(t, Options{})
	_, _, err := f.DeclareExchange(durableExchange("amq.foo", routing.Direct), nil)
	expectRefusal(t, err, AccessRefused, "exchange name 'amq.foo' contains reserved prefix 'amq.*'")
	if _, created, err := f.DeclareExchange(durableExchange("amq.direct", routing.Direct), nil); created || err != nil {
		t.Errorf("redeclaring amq.direct: created %v, error %v", created, err)
	}
	_, err = f.PassiveExchange(vh, "amq.foo")
	expectRefusal(t, err, NotFound, "no exchange 'amq.foo' in vhost 'v'")
}

func TestBR_5_5_ExchangeTypes(t *testing.T) {
	f := newFixture(t, Options{})
	_, _, err := f.DeclareExchange(durableExchange("x", "bogus"), nil)
	expectRefusal(t, err, PreconditionFailed, "unknown exchange type 'bogus'")
	_, _, err = f.DeclareExchange(durableExchange("x", "classic"), nil)
	expectRefusal(t, err, PreconditionFailed, "invalid exchange type 'classic'")
	_, _, err = f.DeclareExchange(durableExchange("x", routing.ConsistentHash, arg("hash-property", "bogus")), nil)
	expectRefusal(t, err, PreconditionFailed, "Unsupported property: bogus")
}

func TestBR_5_7_RedeclareExchange(t *testing.T) {
	f := newFixture(t, Options{})
	f.exchange(durableExchange("x", routing.Direct))
	f.exchange(durableExchange("y", routing.Direct, arg("alternate-exchange", "ae"), arg("ignored", int32(1))))
	for _, c := range []struct {
		name   string
		change func(d *ExchangeDecl)
		want   string
	}{
		{"x", func(d *ExchangeDecl) { d.Type = routing.Topic }, "inequivalent arg 'type' for exchange 'x' in vhost 'v': received 'topic' but current is 'direct'"},
		{"x", func(d *ExchangeDecl) { d.Type = routing.ConsistentHash }, "inequivalent arg 'type' for exchange 'x' in vhost 'v': received ''x-consistent-hash'' but current is 'direct'"},
		{"x", func(d *ExchangeDecl) { d.Durable = false }, "inequivalent arg 'durable' for exchange 'x' in vhost 'v': received 'false' but current is 'true'"},
		{"x", func(d *ExchangeDecl) { d.AutoDelete = true }, "inequivalent arg 'auto_delete' for exchange 'x' in vhost 'v': received 'true' but current is 'false'"},
		{"x", func(d *ExchangeDecl) { d.Internal = true }, "inequivalent arg 'internal' for exchange 'x' in vhost 'v': received 'true' but current is 'false'"},
		{"x", func(d *ExchangeDecl) { d.Arguments = amqp091.Table{arg("alternate-exchange", "y")} }, "inequivalent arg 'alternate-exchange' for exchange 'x' in vhost 'v': received the value 'y' of type 'longstr' but current is none"},
		{"x", func(d *ExchangeDecl) { d.Arguments = amqp091.Table{arg("other", "y")} }, ""},
		{"y", func(d *ExchangeDecl) { d.Arguments = amqp091.Table{arg("alternate-exchange", "ae")} }, ""},
		{"y", func(d *ExchangeDecl) { d.Arguments = amqp091.Table{arg("alternate-exchange", "other")} }, "inequivalent arg 'alternate-exchange' for exchange 'y' in vhost 'v': received 'other' but current is 'ae'"},
	} {
		d := durableExchange(c.name, routing.Direct)
		c.change(&d)
		_, created, err := f.DeclareExchange(d, nil)
		if c.want != "" {
			expectRefusal(t, err, PreconditionFailed, c.want)
		} else if created || err != nil {
			t.Errorf("redeclaring %s as %+v: created %v, error %v", c.name, d, created, err)
		}
	}
}

func TestBR_5_8_AlternateExchangeType(t *testing.T) {
	f := newFixture(t, Options{})
	_, _, err := f.DeclareExchange(durableExchange("x", routing.Direct, arg("alternate-exchange", int64(5))), nil)
	expectRefusal(t, err, PreconditionFailed, "invalid type 'long' for arg 'alternate-exchange' in exchange 'x' in vhost 'v'")
}

func TestBR_5_9_DeleteExchange(t *testing.T) {
	f := newFixture(t, Options{})
	if removed, err := f.DeleteExchange(vh, "missing", false, nil); err != nil || removed.Exchanges != nil {
		t.Errorf("deleting a missing exchange: %+v, %v", removed, err)
	}
	_, err := f.DeleteExchange(vh, "amq.direct", false, nil)
	expectRefusal(t, err, AccessRefused, "deletion of system exchange 'amq.direct' in vhost 'v' not allowed")

	f.exchange(durableExchange("x", routing.Fanout))
	f.exchange(durableExchange("y", routing.Fanout))
	q := f.queue(durableQueue("q"))
	f.bind(toQueue("x", "q", ""))
	f.bind(toExchange("y", "x", ""))
	f.bind(toExchange("x", "x", ""))
	_, err = f.DeleteExchange(vh, "x", true, nil)
	expectRefusal(t, err, PreconditionFailed, "exchange 'x' in vhost 'v' in use")
	removed, err := f.DeleteExchange(vh, "x", false, nil)
	if err != nil || len(removed.Exchanges) != 1 || len(removed.Bindings) != 3 {
		t.Errorf("removed %d exchanges and %d bindings, error %v; want 1 and 3", len(removed.Exchanges), len(removed.Bindings), err)
	}
	y, _ := f.vhost().Exchange("y")
	if n := len(q.Bindings()) + len(y.BindingsFrom()); n != 1 {
		t.Errorf("%d bindings are left, want the implicit one only", n)
	}
}

func TestBR_5_10_AutoDeleteExchange(t *testing.T) {
	auto := func(name string) ExchangeDecl {
		d := durableExchange(name, routing.Fanout)
		d.AutoDelete = true
		return d
	}
	t.Run("never bound", func(t *testing.T) {
		f := newFixture(t, Options{})
		f.exchange(auto("a"))
		f.queue(durableQueue("q"))
		if _, err := f.Unbind(toQueue("a", "q", ""), nil); err != nil {
			t.Fatal(err)
		}
		if _, ok := f.vhost().Exchange("a"); !ok {
			t.Error("an exchange that never had a binding was deleted")
		}
	})
	t.Run("unbind, through a chain", func(t *testing.T) {
		f := newFixture(t, Options{})
		f.exchange(auto("a"))
		f.exchange(auto("b"))
		f.queue(durableQueue("q"))
		f.bind(toExchange("a", "b", ""))
		f.bind(toQueue("b", "q", ""))
		removed, err := f.Unbind(toQueue("b", "q", ""), nil)
		if err != nil || len(removed.Exchanges) != 2 || removed.Exchanges[0].Name != "b" || removed.Exchanges[1].Name != "a" {
			t.Errorf("removed %v, error %v; want b and then a", removed.Exchanges, err)
		}
	})
	t.Run("queue deletion, in a cycle", func(t *testing.T) {
		f := newFixture(t, Options{})
		f.exchange(auto("a"))
		f.exchange(auto("b"))
		q := f.queue(durableQueue("q"))
		f.bind(toExchange("b", "a", ""))
		f.bind(toExchange("a", "b", ""))
		f.bind(toQueue("a", "q", ""))
		if removed := f.DeleteQueue(q); len(removed.Exchanges) != 0 {
			t.Errorf("removed %v though a still has a binding", removed.Exchanges)
		}
		if removed, err := f.Unbind(toExchange("a", "b", ""), nil); err != nil || len(removed.Exchanges) != 2 {
			t.Errorf("removed %v, error %v; want both", removed.Exchanges, err)
		}
	})
}

// depths is a table that notes how deep the calls are in which it loses a binding.
type depths struct {
	routing.Table
	seen map[int]int
}

func (d depths) Remove(b *routing.Binding) {
	d.seen[runtime.Callers(0, make([]uintptr, 10_000))]++
	d.Table.Remove(b)
}

// A stack that grew with a chain of auto-delete exchanges would end the node with one that is long enough.
func TestBR_5_10_AutoDeletionsDoNotNest(t *testing.T) {
	const chain = 1000
	name := func(i int) string { return "x" + strconv.Itoa(i) }
	for how, end := range map[string]func(f *fixture, last string) (Removed, error){
		"unbound": func(f *fixture, last string) (Removed, error) { return f.Unbind(toQueue(last, "q", ""), nil) },
		"queue deleted": func(f *fixture, _ string) (Removed, error) {
			q, _ := f.vhost().Queue("q")
			return f.DeleteQueue(q), nil
		},
		"exchange deleted": func(f *fixture, last string) (Removed, error) {
			return f.DeleteExchange(vh, message.ExchangeName(last), false, nil)
		},
	} {
		f := newFixture(t, Options{})
		f.queue(durableQueue("q"))
		seen := map[int]int{}
		var want []string
		for i := range chain {
			d := durableExchange(name(i), routing.Fanout)
			d.AutoDelete = true
			x := f.exchange(d)
			x.table = depths{x.table, seen}
			want = append(want, name(i))
			if i > 0 {
				f.bind(toExchange(name(i-1), name(i), ""))
			}
		}
		f.bind(toQueue(name(chain-1), "q", ""))
		removed, err := end(f, name(chain-1))
		if err != nil {
			t.Fatal(err)
		}
		slices.Reverse(want) // from the end of the chain, as they lose their last binding
		if got := names(removed.Exchanges); !slices.Equal(got, want) || len(removed.Bindings) != chain {
			t.Errorf("%s: %d bindings and the exchanges %.5q went, want %d and %.5q", how, len(removed.Bindings), got, chain, want)
		}
		if len(seen) > 3 {
			t.Errorf("%s: the bindings of %d exchanges went at %d depths of the stack", how, chain, len(seen))
		}
	}
}

// What goes with an auto-deleted exchange goes before the next binding to what is deleted.
func TestBR_5_10_AutoDeletionsAreInOrder(t *testing.T) {
	f := newFixture(t, Options{})
	f.queue(durableQueue("q"))
	for _, name := range []string{"a", "b", "aa", "ab", "ba"} {
		d := durableExchange(name, routing.Fanout)
		d.AutoDelete = true
		f.exchange(d)
	}
	for _, b := range []BindingDecl{
		toExchange("ba", "b", ""), toExchange("ab", "a", ""), toExchange("aa", "a", ""), toQueue("b", "q", ""), toQueue("a", "q", ""),
		toExchange("aa", "ba", ""), // so that it stays longer than it would
	} {
		f.bind(b)
	}
	q, _ := f.vhost().Queue("q")
	f.save()
	removed := f.DeleteQueue(q)
	if got, want := names(removed.Exchanges), []string{"b", "ba", "a", "ab", "aa"}; !slices.Equal(got, want) {
		t.Errorf("the exchanges %q went, want %q", got, want)
	}
	var bindings []string
	for _, b := range removed.Bindings {
		bindings = append(bindings, string(b.SourceName())+">"+b.Destination().Name)
	}
	if want := []string{"b>q", "ba>b", "aa>ba", "a>q", "ab>a", "aa>a"}; !slices.Equal(bindings, want) {
		t.Errorf("the bindings %q went, want %q", bindings, want)
	}
}

func names(list []*Exchange) (names []string) {
	for _, x := range list {
		names = append(names, string(x.Name))
	}
	return names
}

func TestBR_5_12_LineEndsAreStripped(t *testing.T) {
	f := newFixture(t, Options{})
	if x := f.exchange(durableExchange("a\r\nb", routing.Direct)); x.Name != "ab" {
		t.Errorf("the exchange is named %q", x.Name)
	}
	if q := f.queue(durableQueue("\nq\r")); q.Name != "q" {
		t.Errorf("the queue is named %q", q.Name)
	}
}

// permissions allows what it lists, as "write exchange x", and remembers what it was asked.
type permissions struct {
	allow []string
	asked []string
}

var errRefused = errors.New("refused")

func (p *permissions) check(a Access, r Resource) error {
	kind := [...]string{"exchange", "queue", "topic"}[r.Kind]
	question := a.String() + " " + kind + " " + r.Name
	p.asked = append(p.asked, question)
	for _, allowed := range p.allow {
		if allowed == question {
			return nil
		}
	}
	return errRefused
}

func TestBR_3_3_PermissionsInOrder(t *testing.T) {
	f := newFixture(t, Options{})
	f.exchange(durableExchange("there", routing.Direct))
	f.exchange(durableExchange("topic", routing.Topic))
	f.queue(durableQueue("q"))
	for _, c := range []struct {
		what string
		do   func(p Permit) error
		want []string
	}{
		{"new exchange with AE", func(p Permit) error {
			_, _, err := f.DeclareExchange(durableExchange("new", routing.Direct, arg("alternate-exchange", "ae")), p)
			return err
		}, []string{"configure exchange new", "read exchange new", "write exchange ae"}},
		{"exchange again", func(p Permit) error {
			_, _, err := f.DeclareExchange(durableExchange("there", routing.Direct), p)
			return err
		}, []string{"configure exchange there"}},
		{"exchange.delete of a missing one", func(p Permit) error {
			_, err := f.DeleteExchange(vh, "missing", false, p)
			return err
		}, []string{"configure exchange missing"}},
		{"new queue with DLX", func(p Permit) error {
			_, _, err := f.DeclareQueue(durableQueue("newq", arg("x-dead-letter-exchange", "dlx")), p)
			return err
		}, []string{"configure queue newq", "read queue newq", "write exchange dlx"}},
		{"queue again", func(p Permit) error {
			_, _, err := f.DeclareQueue(durableQueue("q"), p)
			return err
		}, []string{"configure queue q"}},
		{"queue.bind", func(p Permit) error {
			_, _, err := f.Bind(toQueue("there", "q", "k"), p)
			return err
		}, []string{"write queue q", "read exchange there"}},
		{"queue.bind to a topic exchange", func(p Permit) error {
			_, _, err := f.Bind(toQueue("topic", "q", "k"), p)
			return err
		}, []string{"write queue q", "read exchange topic", "read topic topic"}},
		{"exchange.unbind", func(p Permit) error {
			_, err := f.Unbind(toExchange("there", "topic", "k"), p)
			return err
		}, []string{"write exchange topic", "read exchange there"}},
	} {
		for n := range c.want { // each permission missing in turn
			p := &permissions{allow: c.want[:n]}
			if err := c.do(p.check); err != errRefused {
				t.Errorf("%s without %q: %v, want a refusal", c.what, c.want[n], err)
			}
		}
		p := &permissions{allow: c.want}
		if err := c.do(p.check); err != nil {
			t.Errorf("%s with all permissions: %v", c.what, err)
		}
		if len(p.asked) != len(c.want) {
			t.Errorf("%s asked %q, want %q", c.what, p.asked, c.want)
		}
	}
}

// BR-6.14: what goes with very many bindings does so with everything locked. Nothing is put in order or together for each
// of them; what the store is told is made of them when it is.
func TestBR_6_14_ADeletionCostsLittleForEachBinding(t *testing.T) {
	const many = 5000
	for what, remove := range map[string]func(*fixture){
		"queue":    func(f *fixture) { q, _ := f.vhost().Queue("q"); f.DeleteQueue(q) },
		"exchange": func(f *fixture) { _, _ = f.DeleteExchange(vh, "x", false, nil) },
	} {
		f := newFixture(t, Options{})
		f.exchange(durableExchange("x", routing.Direct))
		f.queue(durableQueue("q"))
		for i := range many {
			f.bind(toQueue("x", "q", fmt.Sprint("key", i)))
		}
		f.save()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		remove(f)
		runtime.ReadMemStats(&after)
		if n := after.Mallocs - before.Mallocs; n > many/10 {
			t.Errorf("%s: %d allocations for %d bindings", what, n, many)
		}
		if n := f.save(); n != many+1 {
			t.Errorf("%s: %d changes, want %d", what, n, many+1)
		}
		f.restart()
	}
}
