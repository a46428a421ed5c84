package topology

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/routing"
	"bartleby.mq/internal/wire/amqp091"
)

func TestBR_7_2_Names(t *testing.T) {
	f := newFixture(t, Options{})
	_, _, err := f.DeclareQueue(durableQueue("amq.foo"), nil)
	expectRefusal(t, err, AccessRefused, "queue name 'amq.foo' contains reserved prefix 'amq.*'")
	d := durableQueue("amq.gen-0123456789012345678901")
	d.ServerNamed = true
	f.queue(d)
	err = f.CheckServerNamed(amqp091.Table{arg("x-queue-type", "quorum")})
	expectRefusal(t, err, PreconditionFailed, "Cannot declare a server-named queue for type rabbit_quorum_queue")
	if err := f.CheckServerNamed(nil); err != nil {
		t.Error(err)
	}
}

func TestBR_7_3_DefaultQueueType(t *testing.T) {
	f := newFixture(t, Options{})
	if _, _, err := f.PutVHost(vh, Metadata{DefaultQueueType: Quorum}); err != nil {
		t.Fatal(err)
	}
	transient := durableQueue("transient")
	transient.Durable = false
	auto := durableQueue("auto")
	auto.AutoDelete = true
	exclusive := durableQueue("exclusive")
	exclusive.Exclusive = true
	for _, c := range []struct {
		d    QueueDecl
		want QueueType
	}{
		{durableQueue("plain"), Quorum},
		{durableQueue("empty", arg("x-queue-type", "")), Quorum},
		{durableQueue("named", arg("x-queue-type", "classic")), Classic},
		{transient, Classic}, {auto, Classic}, {exclusive, Classic},
	} {
		q := f.queue(c.d)
		shown, _ := q.Arguments.Get("x-queue-type")
		if q.Type != c.want || shown != string(c.want) {
			t.Errorf("queue %q is %s and shows %v, want %s", q.Name, q.Type, shown, c.want)
		}
	}
	f.queue(durableQueue("plain"))
	_, _, err := f.PutVHost("other", Metadata{DefaultQueueType: "bogus"})
	expectRefusal(t, err, Invalid, "bogus is not a valid queue type")
}

func TestBR_7_4_RedeclareQueue(t *testing.T) {
	f := newFixture(t, Options{})
	f.queue(durableQueue("q", arg("x-max-length", int32(5)), arg("x-unknown", int32(1))))
	f.queue(quorumQueue("qq", arg("x-delivery-limit", int32(-2))))
	f.queue(durableQueue("plain"))
	const inQ = "inequivalent arg '"
	for _, c := range []struct {
		d    QueueDecl
		want string
	}{
		{durableQueue("q", arg("x-max-length", int64(5)), arg("x-unknown", int32(2))), ""},
		{durableQueue("q", arg("x-max-length", int32(5)), arg("x-queue-type", "classic")), ""},
		{durableQueue("q", arg("x-max-length", int32(5)), arg("x-queue-type", "quorum")), inQ + "x-queue-type' for queue 'q' in vhost 'v': received 'quorum' but current is 'classic'"},
		{durableQueue("q", arg("x-max-length", int32(6))), inQ + "x-max-length' for queue 'q' in vhost 'v': received '6' but current is '5'"},
		{durableQueue("q", arg("x-max-length", "5")), inQ + "x-max-length' for queue 'q' in vhost 'v': received '5' but current is '5'"},
		{durableQueue("q"), inQ + "x-max-length' for queue 'q' in vhost 'v': received none but current is the value '5' of type 'signedint'"},
		{QueueDecl{VHost: vh, Name: "q", Owner: "c1"}, inQ + "durable' for queue 'q' in vhost 'v': received 'false' but current is 'true'"},
		{QueueDecl{VHost: vh, Name: "q", Owner: "c1", Durable: true, AutoDelete: true}, inQ + "auto_delete' for queue 'q' in vhost 'v': received 'true' but current is 'false'"},
		{durableQueue("qq"), inQ + "x-queue-type' for queue 'qq' in vhost 'v': received 'classic' but current is 'quorum'"},
		{quorumQueue("qq", arg("x-delivery-limit", int32(-1))), inQ + "x-delivery-limit' for queue 'qq' in vhost 'v': received '-1' but current is '-2'"},
		{durableQueue("plain", arg("x-dead-letter-exchange", "dlx")), inQ + "x-dead-letter-exchange' for queue 'plain' in vhost 'v': received the value 'dlx' of type 'longstr' but current is none"},
	} {
		_, created, err := f.DeclareQueue(c.d, nil)
		if c.want != "" {
			expectRefusal(t, err, PreconditionFailed, c.want)
		} else if created || err != nil {
			t.Errorf("declaring %+v: created %v, error %v", c.d, created, err)
		}
	}
}

func TestBR_7_5_Exclusive(t *testing.T) {
	f := newFixture(t, Options{})
	shared := durableQueue("shared")
	f.queue(shared)
	d := durableQueue("q")
	d.Exclusive = true
	q := f.queue(d)
	if q.Durable || q.Owner != "c1" {
		t.Errorf("the exclusive queue is durable: %v, owned by %q", q.Durable, q.Owner)
	}
	f.queue(d)
	locked := func(name string) string {
		return "cannot obtain exclusive access to locked queue '" + name + "' in vhost 'v'. It could be originally declared on " +
			"another connection or the exclusive property value does not match that of the original declaration."
	}
	d.Owner = "c2"
	_, _, err := f.DeclareQueue(d, nil)
	expectRefusal(t, err, ResourceLocked, locked("q"))
	_, err = f.PassiveQueue(vh, "q", "c2")
	expectRefusal(t, err, ResourceLocked, locked("q"))
	f.exchange(durableExchange("x", routing.Fanout))
	b := toQueue("x", "q", "")
	b.Owner = "c2"
	_, _, err = f.Bind(b, nil)
	expectRefusal(t, err, ResourceLocked, locked("q"))
	if _, err = f.Unbind(b, nil); err != nil {
		t.Errorf("unbind of what is not bound: %v", err)
	}
	b.Owner = "c1"
	if _, _, err = f.Bind(b, nil); err != nil {
		t.Fatal(err)
	}
	b.Owner = "c2"
	_, err = f.Unbind(b, nil)
	expectRefusal(t, err, ResourceLocked, locked("q"))
	shared.Exclusive = true
	_, _, err = f.DeclareQueue(shared, nil)
	expectRefusal(t, err, ResourceLocked, locked("shared"))
	if _, err := f.PassiveQueue(vh, "q", "c1"); err != nil {
		t.Error(err)
	}
	_, err = f.PassiveQueue(vh, "missing", "c1")
	expectRefusal(t, err, NotFound, "no queue 'missing' in vhost 'v'")
}

func TestBR_7_7_FeaturesThatCanBeDenied(t *testing.T) {
	transient := QueueDecl{VHost: vh, Name: "t"}
	locator := durableQueue("l", arg("x-queue-master-locator", "min-masters"))
	f := newFixture(t, Options{})
	f.queue(transient)
	f.queue(locator)
	f = newFixture(t, Options{DenyTransientNonExclusive: true, DenyQueueMasterLocator: true})
	for _, d := range []QueueDecl{transient, locator} {
		_, _, err := f.DeclareQueue(d, nil)
		if e, ok := err.(*Error); !ok || e.Kind != Internal || !strings.HasPrefix(e.Text, "Feature `") {
			t.Errorf("declaring %q: %v, want an internal error that names the feature", d.Name, err)
		}
	}
}

func TestBR_7_11_FlagsOfQuorumQueues(t *testing.T) {
	f := newFixture(t, Options{})
	for _, c := range []struct {
		property string
		change   func(d *QueueDecl)
	}{
		{"non-durable", func(d *QueueDecl) { d.Durable = false }},
		{"exclusive-owner", func(d *QueueDecl) { d.Exclusive = true }},
		{"auto-delete", func(d *QueueDecl) { d.AutoDelete = true }},
	} {
		d := quorumQueue("q")
		c.change(&d)
		_, _, err := f.DeclareQueue(d, nil)
		expectRefusal(t, err, PreconditionFailed, "invalid property '"+c.property+"' for queue 'q' in vhost 'v'")
	}
}

// TestDL_3_4_ArgumentErrors is also BR-7.12 and BR-7.13.
func TestDL_3_4_ArgumentErrors(t *testing.T) {
	f := newFixture(t, Options{})
	const inQ = " for queue 'q' in vhost 'v'"
	for _, c := range []struct {
		d    QueueDecl
		want string
	}{
		{durableQueue("q", arg("x-dead-letter-exchange", int64(1))), "invalid type 'long' for arg 'x-dead-letter-exchange' in queue 'q' in vhost 'v'"},
		{durableQueue("q", arg("x-dead-letter-exchange", nil)), "invalid type 'void' for arg 'x-dead-letter-exchange' in queue 'q' in vhost 'v'"},
		{durableQueue("q", arg("x-dead-letter-routing-key", "k")), "invalid arg 'x-dead-letter-routing-key'" + inQ + ": routing_key_but_no_dlx_defined"},
		{durableQueue("q", arg("x-dead-letter-routing-key", int64(1))), "invalid arg 'x-dead-letter-routing-key'" + inQ + ": {unacceptable_type,long}"},
		{quorumQueue("q", arg("x-dead-letter-strategy", "x")), "invalid arg 'x-dead-letter-strategy'" + inQ + ": invalid_dlx_strategy"},
		{quorumQueue("q", arg("x-dead-letter-strategy", int64(1))), "invalid arg 'x-dead-letter-strategy'" + inQ + ": {unacceptable_type,long}"},
		{durableQueue("q", arg("x-dead-letter-strategy", "at-least-once")), "invalid arg 'x-dead-letter-strategy'" + inQ + " of queue type rabbit_classic_queue"},
		{durableQueue("q", arg("x-message-ttl", "100")), "invalid arg 'x-message-ttl'" + inQ + `: "expected integer, got longstr"`},
		{durableQueue("q", arg("x-message-ttl", true)), "invalid arg 'x-message-ttl'" + inQ + `: "expected integer, got bool"`},
		{durableQueue("q", arg("x-message-ttl", 1.5)), "invalid arg 'x-message-ttl'" + inQ + `: "expected integer, got double"`},
		{durableQueue("q", arg("x-message-ttl", nil)), "invalid arg 'x-message-ttl'" + inQ + `: "expected integer, got void"`},
		{durableQueue("q", arg("x-expires", amqp091.Timestamp(1))), "invalid arg 'x-expires'" + inQ + `: "expected integer, got timestamp"`},
		{durableQueue("q", arg("x-max-length", amqp091.Decimal{})), "invalid arg 'x-max-length'" + inQ + `: "expected integer, got decimal"`},
		{durableQueue("q", arg("x-max-length-bytes", int64(-1))), "invalid arg 'x-max-length-bytes'" + inQ + ": {value_negative,-1}"},
		{durableQueue("q", arg("x-message-ttl", int64(315360000001))), "invalid arg 'x-message-ttl'" + inQ + ": {value_too_large,315360000001}"},
		{durableQueue("q", arg("x-expires", int64(315360000001))), "invalid arg 'x-expires'" + inQ + ": {value_too_large,315360000001}"},
		{durableQueue("q", arg("x-expires", int32(0))), "invalid arg 'x-expires'" + inQ + ": {value_zero,0}"},
		{durableQueue("q", arg("x-overflow", "drop-tail")), "invalid arg 'x-overflow'" + inQ + ": invalid_overflow"},
		{durableQueue("q", arg("x-overflow", int32(1))), "invalid arg 'x-overflow'" + inQ + ": {unacceptable_type,signedint}"},
		{durableQueue("q", arg("x-max-priority", int32(256))), "invalid arg 'x-max-priority'" + inQ + ": {max_value_exceeded,256}"},
		{durableQueue("q", arg("x-max-priority", int32(-1))), "invalid arg 'x-max-priority'" + inQ + ": {value_negative,-1}"},
		{durableQueue("q", arg("x-max-priority", "high")), "invalid arg 'x-max-priority'" + inQ + `: "expected integer, got longstr"`},
		{quorumQueue("q", arg("x-max-priority", int32(5))), "invalid arg 'x-max-priority'" + inQ + " of queue type rabbit_quorum_queue"},
		{durableQueue("q", arg("x-delivery-limit", int32(5))), "invalid arg 'x-delivery-limit'" + inQ + " of queue type rabbit_classic_queue"},
		{durableQueue("q", arg("x-consumer-timeout", int32(-1))), "invalid arg 'x-consumer-timeout'" + inQ + " of queue type rabbit_classic_queue"},
		{durableQueue("q", arg("x-consumer-timeout", int32(-1)), arg("x-overflow", "bogus")), "invalid arg 'x-overflow'" + inQ + ": invalid_overflow"},
		{durableQueue("q", arg("x-queue-type", int32(5))), "invalid arg 'x-queue-type'" + inQ + ": {unacceptable_type,signedint}"},
		{durableQueue("q", arg("x-queue-type", "bogus")), "invalid arg 'x-queue-type'" + inQ + `: "unsupported queue type 'bogus'"`},
		{durableQueue("q", arg("x-queue-version", int32(1))), "invalid arg 'x-queue-version'" + inQ + `: "unsupported queue version '1'"`},
		{durableQueue("q", arg("x-single-active-consumer", "true")), "invalid arg 'x-single-active-consumer'" + inQ + ": {unacceptable_type,longstr}"},
		{durableQueue("q", arg("x-queue-leader-locator", "here")), "invalid arg 'x-queue-leader-locator'" + inQ + ": invalid_queue_locator_arg"},
		{quorumQueue("q", arg("x-quorum-initial-group-size", int32(0))), "invalid arg 'x-quorum-initial-group-size'" + inQ + ": {value_zero,0}"},
		{durableQueue("q", arg("x-queue-type", "stream"), arg("x-max-age", "soon")), "invalid arg 'x-max-age'" + inQ + ": invalid_max_age"},
		{durableQueue("q", arg("x-queue-type", "stream"), arg("x-stream-filter-size-bytes", int32(1))), "Invalid value for x-stream-filter-size-bytes"},
		{durableQueue("q", arg("x-queue-type", "stream"), arg("x-message-ttl", int32(1))), "invalid arg 'x-message-ttl'" + inQ + " of queue type rabbit_stream_queue"},
		{durableQueue("q", arg("x-delayed-retry-multiplier", 0.5)), "invalid arg 'x-delayed-retry-multiplier'" + inQ + `: "expected a number of at least 1, got 0.5"`},
		{quorumQueue("q", arg("x-delayed-retry-jitter", int32(2))), "invalid arg 'x-delayed-retry-jitter'" + inQ + `: "expected a number from 0 to 1, got 2"`},
	} {
		_, _, err := f.DeclareQueue(c.d, nil)
		expectRefusal(t, err, PreconditionFailed, c.want)
	}
	_, _, err := f.DeclareQueue(durableQueue("q", arg("x-queue-type", "stream"), arg("x-max-age", "7D")), nil)
	expectRefusal(t, err, NotImplemented, "queue type stream is not implemented")
}

func TestDL_3_5_ArgumentsAccepted(t *testing.T) {
	f := newFixture(t, Options{})
	for i, d := range []QueueDecl{
		durableQueue("", arg("x-message-ttl", uint8(0)), arg("x-max-length", int16(0)), arg("x-max-priority", int8(0))),
		durableQueue("", arg("x-expires", uint32(1)), arg("x-queue-mode", "bogus"), arg("x-unknown", nil)),
		quorumQueue("", arg("x-delivery-limit", "many"), arg("x-delayed-retry-min", "soon")),
		quorumQueue("", arg("x-overflow", "reject-publish-dlx"), arg("x-max-in-memory-length", int64(1))),
	} {
		d.Name = message.QueueName(fmt.Sprint("q", i))
		f.queue(d)
	}
}

func TestDL_3_6_IneffectiveArguments(t *testing.T) {
	f := newFixture(t, Options{})
	q := f.queue(quorumQueue("q", arg("x-delivery-limit", "many"), arg("x-delayed-retry-type", "some"), arg("x-delayed-retry-min", int32(1))))
	if got := q.IneffectiveArguments(); !slices.Equal(got, []string{"x-delivery-limit", "x-delayed-retry-type"}) {
		t.Errorf("got %q", got)
	}
}

func TestDL_3_3_ChecksInOrder(t *testing.T) {
	f := newFixture(t, Options{})
	f.queue(durableQueue("there"))
	p := &permissions{allow: []string{"configure queue q", "configure queue there"}}
	bad := []amqp091.Field{arg("x-dead-letter-exchange", "dlx"), arg("x-message-ttl", "bad")}
	if _, err := f.CheckQueue(durableQueue("q", bad...), p.check); err != errRefused {
		t.Errorf("got %v, want the missing read permission before the bad value", err)
	}
	_, err := f.CheckQueue(durableQueue("there", bad...), p.check)
	expectRefusal(t, err, PreconditionFailed, "inequivalent arg 'x-message-ttl' for queue 'there' in vhost 'v': "+
		"received the value 'bad' of type 'longstr' but current is none")
	d := quorumQueue("q", arg("x-max-priority", int32(1)))
	d.Durable = false
	_, err = f.CheckQueue(d, nil)
	expectRefusal(t, err, PreconditionFailed, "invalid arg 'x-max-priority' for queue 'q' in vhost 'v' of queue type rabbit_quorum_queue")
}

func TestBR_3_7_QueueLimit(t *testing.T) {
	f := newFixture(t, Options{})
	if err := f.SetVHostLimits(vh, map[Limit]any{MaxQueues: int64(1)}, false); err != nil {
		t.Fatal(err)
	}
	f.queue(durableQueue("one"))
	f.queue(durableQueue("one"))
	_, _, err := f.DeclareQueue(durableQueue("two"), nil)
	expectRefusal(t, err, PreconditionFailed, "cannot declare queue 'two': queue limit in vhost 'v' (1) is reached")
	if err := f.SetVHostLimits(vh, map[Limit]any{MaxQueues: int64(-1)}, false); err != nil {
		t.Fatal(err)
	}
	f.queue(durableQueue("two"))
}

func TestStrictQueuesKnowNoExtensions(t *testing.T) {
	extensions := []amqp091.Field{arg("x-delayed-retry-type", "all"), arg("x-delayed-retry-min", int32(10))}
	curve := []amqp091.Field{arg("x-delayed-retry-multiplier", 2.0), arg("x-delayed-retry-jitter", 0.5)}

	f := newFixture(t, Options{})
	q := f.queue(durableQueue("q", append(extensions, curve...)...))
	want := queue.Retry{Type: queue.RetryAll, Min: 10, Max: 10, Multiplier: 2, Jitter: 0.5}
	if q.Strict || q.Effective.DelayedRetry != want {
		t.Errorf("strict %v, delayed retry %+v; want %+v", q.Strict, q.Effective.DelayedRetry, want)
	}

	f = newFixture(t, Options{Strict: true})
	_, _, err := f.DeclareQueue(durableQueue("q", extensions...), nil)
	expectRefusal(t, err, PreconditionFailed, "invalid arg 'x-delayed-retry-type' for queue 'q' in vhost 'v' of queue type rabbit_classic_queue")
	qq := f.queue(quorumQueue("qq", append(append(extensions, arg("x-delayed-retry-jitter", "bad")), curve[0])...))
	if got := qq.Effective.DelayedRetry; !qq.Strict || got != (queue.Retry{Type: queue.RetryAll, Min: 10, Max: 10}) {
		t.Errorf("strict %v, delayed retry %+v", qq.Strict, got)
	}
}

func TestDL_21_5_ClassicAtLeastOnce(t *testing.T) {
	f := newFixture(t, Options{ClassicAtLeastOnce: true})
	q := f.queue(durableQueue("q", arg("x-dead-letter-exchange", ""), arg("x-dead-letter-strategy", "at-least-once"), arg("x-overflow", "reject-publish")))
	if q.Effective.Strategy != AtLeastOnce {
		t.Errorf("the strategy is %v", q.Effective.Strategy)
	}
}

func TestBR_6_14_DeletingAQueueRemovesItsBindings(t *testing.T) {
	f := newFixture(t, Options{})
	f.exchange(durableExchange("x", routing.Fanout))
	q := f.queue(durableQueue("q"))
	f.bind(toQueue("x", "q", "a"))
	f.bind(toQueue("x", "q", "b"))
	f.save()
	removed := f.DeleteQueue(q)
	if len(removed.Bindings) != 2 || removed.Queue != q {
		t.Errorf("removed %+v", removed)
	}
	if n := f.save(); n != 3 {
		t.Errorf("%d durable changes, want 3", n)
	}
	f.expectRoute("", "x", "a")
	next := f.queue(durableQueue("q"))
	if next.Incarnation <= q.Incarnation {
		t.Errorf("incarnation %d after %d", next.Incarnation, q.Incarnation)
	}
	if f.DeleteQueue(q); len(f.vhost().Queues()) != 1 {
		t.Error("deleting the old incarnation took the new one")
	}
}

// Nothing leads to a queue that is not stored yet, and its name is taken.
func TestAQueueThatIsNotStored(t *testing.T) {
	s := New(Options{})
	if _, _, err := s.PutVHost("v", Metadata{}); err != nil {
		t.Fatal(err)
	}
	s.Reserve()
	s.TakeMade()
	if s.Numbered() {
		t.Error("a number may be used that is reserved nowhere")
	}
	s.Stored(s.TakeMade())
	if !s.Numbered() {
		t.Error("no number may be used")
	}
	if _, created, err := s.DeclareQueue(QueueDecl{VHost: "v", Name: "q", Durable: true}, nil); err != nil || !created {
		t.Fatal(created, err)
	}
	made := s.TakeMade()
	v, _ := s.VHost("v")
	route := func() int {
		x, _ := v.Exchange("")
		return len(new(Router).Route(v, x, &routing.Message{Key: []byte("q"), More: [][]byte{[]byte("q")}}, nil))
	}
	bind := func() error {
		_, _, err := s.Bind(BindingDecl{VHost: "v", Source: "amq.fanout", DestinationKind: QueueResource, Destination: "q"}, nil)
		return err
	}
	if n := route(); n != 0 {
		t.Errorf("a key leads to %d queues", n)
	}
	if err := bind(); !errors.Is(err, ErrUnstored) {
		t.Errorf("bound: %v", err)
	}
	if _, created, err := s.DeclareQueue(QueueDecl{VHost: "v", Name: "q", Durable: true}, nil); err != nil || created {
		t.Errorf("declared again: created %t, %v", created, err)
	}
	if !s.Stored(made) {
		t.Error("nothing was opened")
	}
	if n := route(); n != 1 {
		t.Errorf("the key leads to %d queues", n)
	}
	if err := bind(); err != nil {
		t.Error(err)
	}
}
