package broker

import (
	"fmt"
	"strings"
	"testing"

	"bartleby.mq/internal/core/declare"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/wire/amqp091"
)

// traceInto turns tracing on, with a queue for all copies.
func traceInto(t *testing.T, c *Connection, queue string, args ...amqp091.Field) {
	t.Helper()
	mustDeclare(t, c, queue, args...)
	if _, err := c.Bind(topology.BindingDecl{Source: topology.TraceExchange, DestinationKind: topology.QueueResource, Destination: queue, Key: "#"}); err != nil {
		t.Fatal(err)
	}
	setTracing(t, c, true)
}

func setTracing(t *testing.T, c *Connection, on bool) {
	t.Helper()
	if _, err := c.b.By("").Do(declare.PutVHost{Name: c.VHost, Change: declare.VHostChange{Tracing: &on}}); err != nil {
		t.Fatal(err)
	}
}

// copied takes the copies from a queue, in order: "publish.x k1,k2 -> q1,q2".
func copied(t *testing.T, c *Connection, queue string) (list []string) {
	t.Helper()
	c.b.traces.flush()
	takeAll(t, c, message.QueueName(queue), func(rec message.Record, props amqp091.PropertyList, err error) {
		if err != nil {
			t.Fatal(err)
		}
		line := string(rec.Key()) + " " + join(props.Headers, "routing_keys")
		if _, ok := props.Headers.Get("routed_queues"); ok {
			line += " -> " + join(props.Headers, "routed_queues")
		}
		list = append(list, line)
	})
	return list
}

func join(headers amqp091.Table, key string) string {
	v, _ := headers.Get(key)
	list, _ := v.(amqp091.Array)
	var words []string
	for _, e := range list {
		words = append(words, fmt.Sprint(e))
	}
	return strings.Join(words, ",")
}

func want(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s: got\n\t%s\nwant\n\t%s", what, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// What is published and taken while tracing is on is copied, and nothing before or after; the copies are there when it is off.
// A look at messages is no delivery.
func TestTracingCopiesWhileItIsOn(t *testing.T) {
	c := open(t, Options{})
	mustDeclare(t, c, "q")
	publish(t, c, "", "q", "before", amqp091.PropertyList{})
	traceInto(t, c, "copies")
	publish(t, c, "", "q", "m", amqp091.PropertyList{})
	if err := c.Peek("q", 0, func(*Shown) bool { return true }); err != nil {
		t.Fatal(err)
	}
	if err := c.Take("q", 1, AckRemoves, func(*Shown) (bool, error) { return true, nil }); err != nil {
		t.Fatal(err)
	}
	setTracing(t, c, false)
	if n := ready(t, c, "copies"); n != 2 {
		t.Errorf("%d copies are there when tracing is off, want 2", n)
	}
	publish(t, c, "", "q", "after", amqp091.PropertyList{})
	want(t, "copies", copied(t, c, "copies"), "publish. q -> q", "deliver.q q")
}

// By default a copy names the queues that got the message; in strict mode, as in RabbitMQ, each key of the default exchange.
func TestTracingNamesTheRoutedQueues(t *testing.T) {
	for strict, routed := range map[bool]string{false: "q,r", true: "none,q,r"} {
		c := open(t, Options{Strict: strict})
		mustDeclare(t, c, "r")
		mustDeclare(t, c, "q")
		traceInto(t, c, "copies")
		publish(t, c, "", "r", "m", amqp091.PropertyList{Headers: amqp091.Table{{Key: "CC", Value: amqp091.Array{"q", "none"}}, {Key: "BCC", Value: amqp091.Array{"r"}}}})
		want(t, fmt.Sprint("strict ", strict), copied(t, c, "copies"), "publish. r,q,none,r -> "+routed)
	}
}

// A key is as long as a name may be, however long the name in it is, and is cut at a rune.
func TestTracingCutsLongKeys(t *testing.T) {
	c := open(t, Options{})
	name := strings.Repeat("é", 127)
	mustDeclare(t, c, name)
	traceInto(t, c, "copies")
	publish(t, c, "", name, "m", amqp091.PropertyList{})
	if err := c.Take(message.QueueName(name), 1, AckRemoves, func(*Shown) (bool, error) { return true, nil }); err != nil {
		t.Fatal(err)
	}
	want(t, "copies", copied(t, c, "copies"), "publish. "+name+" -> "+name, "deliver."+strings.Repeat("é", 123)+" "+name)
}

// Headers that are nested as deep as a message may have them do not fit into the copy, which comes without them.
func TestTracingLeavesOutHeadersThatAreTooDeep(t *testing.T) {
	c := open(t, Options{})
	mustDeclare(t, c, "q")
	traceInto(t, c, "copies")
	deep := amqp091.Table{{Key: "k", Value: "v"}}
	for deep.CheckDepth() == nil {
		deep = amqp091.Table{{Key: "k", Value: deep}}
	}
	publish(t, c, "", "q", "m", amqp091.PropertyList{Headers: deep[0].Value.(amqp091.Table)})
	want(t, "copies", copied(t, c, "copies"), "publish. q -> q")
}

// A queue for copies that is full and refuses, of either type, is nothing that a traced client learns of.
func TestTracedClientsDoNotLearnOfTheCopies(t *testing.T) {
	for _, kind := range []string{"classic", "quorum"} {
		c := open(t, Options{})
		mustDeclare(t, c, "q")
		traceInto(t, c, "copies", amqp091.Field{Key: "x-queue-type", Value: kind},
			amqp091.Field{Key: "x-max-length", Value: int64(1)}, amqp091.Field{Key: "x-overflow", Value: "reject-publish"})
		for range 10 {
			publish(t, c, "", "q", "m", amqp091.PropertyList{}) // fails the test if it is refused
		}
		c.b.traces.flush()
		if n := ready(t, c, "copies"); n < 1 || n > 2 { // a quorum queue of RabbitMQ takes one more
			t.Errorf("%s: %d copies, want 1", kind, n)
		}
		if n := ready(t, c, "q"); n != 10 {
			t.Errorf("%s: %d messages, want 10", kind, n)
		}
	}
}

// Copies are dropped while an alarm is in force, and once the node stops.
func TestTracingDropsCopiesDuringAnAlarm(t *testing.T) {
	c := open(t, Options{})
	mustDeclare(t, c, "q")
	traceInto(t, c, "copies")
	c.b.SetAlarm(Memory, true)
	publish(t, c, "", "q", "m1", amqp091.PropertyList{})
	c.b.SetAlarm(Memory, false)
	publish(t, c, "", "q", "m2", amqp091.PropertyList{})
	if n := c.b.traces.dropped.Load(); n != 1 {
		t.Errorf("%d copies are dropped, want 1", n)
	}
	want(t, "copies", copied(t, c, "copies"), "publish. q -> q")
	c.b.traces.stop()
	publish(t, c, "", "q", "m3", amqp091.PropertyList{})
	if n := c.b.traces.dropped.Load(); n != 2 {
		t.Errorf("%d copies are dropped, want 2", n)
	}
}

// What waits to be published has a limit. Beyond it messages are dropped and counted, and nothing keeps their memory.
func TestNoticesThatWaitAreBounded(t *testing.T) {
	c := open(t, Options{})
	before := c.b.bodies.Held()
	n := newNotices(c.b, "test", 10_000, false) // which does not run
	for range 100 {
		n.send(&notice{vhost: "/", exchange: topology.TraceExchange, key: "k", body: [][]byte{make([]byte, 1000)}, size: 1000})
	}
	if n.issued == 0 || n.issued > 10 || n.dropped.Load() != 100-n.issued {
		t.Errorf("%d messages of 1,000 bytes wait with a limit of 10,000, %d of 100 were dropped", n.issued, n.dropped.Load())
	}
	n.stop()
	if held := c.b.bodies.Held(); held != before {
		t.Errorf("%d bodies are left, want %d", held, before)
	}
}

// Tracing costs nothing as long as nothing is bound to its exchange, and ends with its virtual host.
func TestTracingWithoutAReader(t *testing.T) {
	c := open(t, Options{})
	setTracing(t, c, true)
	if c.Traced() {
		t.Error("traced, with nothing bound")
	}
	traceInto(t, c, "copies")
	if !c.Traced() || c.b.As("guest", "other").Traced() {
		t.Error("not traced, or another virtual host is")
	}
	if _, err := c.DeleteQueue("copies", false, false); err != nil {
		t.Fatal(err)
	}
	if c.Traced() {
		t.Error("traced, with nothing bound any more")
	}
	traceInto(t, c, "copies")
	if _, err := c.b.By("").Do(declare.DeleteVHost{Name: "/"}); err != nil {
		t.Fatal(err)
	}
	if c.Traced() {
		t.Error("traced, with the virtual host gone")
	}
}

// As in RabbitMQ, tracing is off when a node has started.
func TestTracingEndsWithTheNode(t *testing.T) {
	fs := vfs.NewMem()
	start := func() *Connection {
		b, err := Open(Options{FS: fs, Dir: "data"})
		if err != nil {
			t.Fatal(err)
		}
		return b.As("guest", "/")
	}
	c := start()
	if err := c.b.CreateDefault(Default{VHost: "/", User: "guest", Password: "guest", Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
		t.Fatal(err)
	}
	traceInto(t, c, "copies")
	if err := c.b.Close(); err != nil {
		t.Fatal(err)
	}
	c = start()
	defer func() { _ = c.b.Close() }()
	v, _ := c.b.state.VHost("/")
	if c.Traced() || v.Metadata.Tracing {
		t.Error("still traced")
	}
}

// A client's publish does not get dearer by tracing that is off.
func TestRoutingUntracedMessagesAllocatesNothing(t *testing.T) {
	c := open(t, Options{})
	mustDeclare(t, c, "q")
	client, err := c.b.Connect(Login{User: "guest", Mechanism: "PLAIN"}, Peer{Name: "x"}, "/", &told{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Disconnect()
	p := &Publication{Key: []byte("q"), Raw: []byte{0, 0}, Channel: 1}
	if _, err := client.Route(p); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = client.Route(p) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
