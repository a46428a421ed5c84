package topology

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"bartleby.mq/internal/wire/amqp091"
)

// Any changes of arguments leave the queue as if it had been declared with the result: its settings are those of such a queue,
// also after a restart. A declaration with the result is accepted; one with the first arguments only where the virtual host
// is lenient. A change that is refused changes nothing.
func TestAQueueWithChangedArgumentsIsAsDeclaredWithThem(t *testing.T) {
	values := map[string][]any{
		"x-dead-letter-exchange": {"dlx", "", int64(1)}, "x-dead-letter-routing-key": {"k", "l"}, "x-message-ttl": {int64(0), int64(60000), int64(-1)},
		"x-max-length": {int64(10), int64(20)}, "x-max-length-bytes": {int64(1000)}, "x-overflow": {"reject-publish", "drop-head", "odd"},
		"x-delivery-limit": {int64(3), int64(-1)}, "x-expires": {int64(1), int64(0)}, "x-delayed-retry-type": {"all"}, "x-delayed-retry-min": {int64(100)},
		"x-dead-letter-strategy": {"at-least-once"}, "x-max-priority": {int64(5)}, "x-queue-type": {"classic"},
	}
	keys := []string{
		"x-dead-letter-exchange", "x-dead-letter-routing-key", "x-message-ttl", "x-max-length", "x-max-length-bytes", "x-overflow", "x-delivery-limit", "x-expires",
		"x-delayed-retry-type", "x-delayed-retry-min", "x-dead-letter-strategy", "x-max-priority", "x-queue-type",
	}
	outer := t
	rapid.Check(t, func(t *rapid.T) {
		f := newFixture(outer, Options{})
		some := func(what string, most int) (list amqp091.Table) {
			for _, key := range rapid.SliceOfNDistinct(rapid.SampledFrom(keys), 0, most, rapid.ID).Draw(t, what) {
				list = append(list, amqp091.Field{Key: key, Value: rapid.SampledFrom(values[key]).Draw(t, key)})
			}
			return list
		}
		declare := durableQueue
		if rapid.Bool().Draw(t, "quorum") {
			declare = quorumQueue
		}
		first := some("declared", 4)
		if _, twice := first.Get("x-queue-type"); twice {
			t.Skip("the type comes from elsewhere")
		}
		d := declare("q", first...)
		q, _, err := f.DeclareQueue(d, nil)
		if err != nil {
			t.Skip("the declaration is refused")
		}
		changed, refused := 0, 0
		for range rapid.IntRange(1, 4).Draw(t, "changes") {
			set := some("set", 3)
			unset := rapid.SliceOfN(rapid.SampledFrom(keys), 0, 2).Draw(t, "unset")
			before := q.PresentArguments()
			if _, err := f.ChangeArguments(vh, "q", set, unset, "c1", nil); err != nil {
				if refused++; !cmp.Equal(before, q.PresentArguments()) {
					t.Fatalf("refused with %v, and yet changed", err)
				}
				continue
			}
			changed++
			for _, key := range unset {
				if _, ok := q.PresentArguments().Get(key); ok {
					t.Fatalf("%s is still there", key)
				}
			}
			for _, s := range set {
				if v, _ := q.PresentArguments().Get(s.Key); v != s.Value {
					t.Fatalf("%s is %v, want %v", s.Key, v, s.Value)
				}
			}
		}
		present := q.PresentArguments()
		twin := newFixture(outer, Options{}).queue(QueueDecl{VHost: vh, Name: "q", Durable: true, Arguments: present})
		same := func(name string, q *Queue) {
			t.Helper()
			want, got := *twin.Effective, *q.Effective
			want.Arguments, got.Arguments, want.Changed, got.Changed = nil, nil, false, false
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%s: the settings differ from those of a queue declared with %v (-want +got):\n%s", name, present, diff)
			}
		}
		same("changed", q)
		g := f.restart()
		again, _ := g.vhost().Queue("q")
		same("restarted", again)
		if !cmp.Equal(present, again.PresentArguments()) || !cmp.Equal(q.Arguments, again.Arguments) || again.Effective.Changed != q.Effective.Changed {
			t.Fatalf("after a restart the arguments are %v, declared %v", again.PresentArguments(), again.Arguments)
		}
		if _, err := g.CheckQueue(QueueDecl{VHost: vh, Name: "q", Durable: true, Arguments: present}, nil); err != nil {
			t.Fatalf("a declaration with what holds is refused: %v", err)
		}
		_, err = g.CheckQueue(d, nil)
		if differs := again.Effective.Changed; (err != nil) != differs {
			t.Fatalf("a declaration with the first arguments: %v; they differ: %v", err, differs)
		}
		if _, _, err := g.PutVHost(vh, Metadata{Lenient: true}); err != nil {
			t.Fatal(err)
		}
		if _, err := g.CheckQueue(d, nil); err != nil {
			t.Fatalf("where declarations are lenient, one with the first arguments is refused: %v", err)
		}
		if again.Outdated(d.Arguments) != again.Effective.Changed || again.Outdated(present) {
			t.Fatal("it is not known which declarations are outdated")
		}
	})
}

// Lenient declarations are lenient about what was changed, and only to what the queue was declared with.
func TestLenientDeclarationsAreNoBlindOnes(t *testing.T) {
	f := newFixture(t, Options{})
	f.queue(durableQueue("q", arg("x-max-length", int64(10)), arg("x-message-ttl", int64(5))))
	if _, _, err := f.PutVHost(vh, Metadata{Lenient: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.ChangeArguments(vh, "q", amqp091.Table{arg("x-max-length", int64(20))}, nil, "c1", nil); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		length, ttl int64
		ok          bool
	}{{10, 5, true}, {20, 5, true}, {15, 5, false}, {10, 6, false}} {
		_, err := f.CheckQueue(durableQueue("q", arg("x-max-length", c.length), arg("x-message-ttl", c.ttl)), nil)
		if (err == nil) != c.ok {
			t.Errorf("length %d and TTL %d: %v", c.length, c.ttl, err)
		}
	}
	if _, err := f.CheckQueue(durableQueue("q", arg("x-max-length", int64(10)), arg("x-message-ttl", int64(5)), arg("x-max-priority", int64(3))), nil); err == nil {
		t.Error("an argument that was never there is accepted")
	}
}

// Whoever changes arguments needs what a declaration needs: configure on the queue, and for a dead-letter exchange read there
// and write on the exchange.
func TestChangesOfArgumentsNeedPermissions(t *testing.T) {
	f := newFixture(t, Options{})
	f.queue(durableQueue("q"))
	for _, forbidden := range []string{"configure q", "read q", "write dlx"} {
		permit := func(a Access, r Resource) error {
			if fmt.Sprint(a, " ", r.Name) == forbidden {
				return Refuse(AccessRefused, "no")
			}
			return nil
		}
		if _, err := f.ChangeArguments(vh, "q", amqp091.Table{arg("x-dead-letter-exchange", "dlx")}, nil, "c1", permit); err == nil {
			t.Errorf("without the permission to %s it is accepted", forbidden)
		}
	}
	f.queue(durableQueue("bartleby.archive"))
	if _, err := f.ChangeArguments(vh, "bartleby.archive", amqp091.Table{arg("x-message-ttl", int64(1))}, nil, "c1", nil); err == nil {
		t.Error("a queue of the broker's own is changed")
	}
}
