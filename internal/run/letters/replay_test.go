package letters

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/admission"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/deathstore"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
)

func replay(t *testing.T, c *broker.Connection, name string, r ReplayRequest) ReplayResult {
	t.Helper()
	result, err := As(c).Replay(context.Background(), message.QueueName(name), r)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

var toDLQ = []amqp091.Field{{Key: "x-dead-letter-exchange", Value: ""}, {Key: "x-dead-letter-routing-key", Value: "dlq"}}

// A replay moves each message back to the exchange and key it came from, without its death headers. A dry run moves
// none.
func TestDL_19_6_BackToTheOrigin(t *testing.T) {
	c := open(t, broker.Options{})
	mustDeclare(t, c, "dlq")
	mustDeclare(t, c, "work", toDLQ...)
	if _, err := c.DeclareExchange(topology.ExchangeDecl{Name: "orders", Type: "topic", Durable: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Bind(topology.BindingDecl{Source: "orders", DestinationKind: topology.QueueResource, Destination: "work", Key: "order.*"}); err != nil {
		t.Fatal(err)
	}
	expiration := "60000"
	publish(t, c, "orders", "order.new", "m1", amqp091.PropertyList{Expiration: &expiration})
	publish(t, c, "", "work", "m2", amqp091.PropertyList{})
	reject(t, c, "work")
	reject(t, c, "work")
	dry := replay(t, c, "dlq", ReplayRequest{DryRun: true})
	if dry.Matched != 2 || dry.Replayed != 0 || ready(t, c, "dlq") != 2 || dry.To["exchange 'orders' key 'order.new' -> work"] != 1 {
		t.Errorf("dry run: %+v, %d left", dry, ready(t, c, "dlq"))
	}
	if r := replay(t, c, "dlq", ReplayRequest{}); r.Replayed != 2 {
		t.Errorf("replay: %+v", r)
	}
	g, ok, err := c.Get("work", true)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	rec, history := message.Record(c.Broker().Bodies().Bytes(g.Body)), deathstore.Bytes(c.Broker().Bodies(), g.History)
	props, exchange, key := broker.Rendered(rec, history, g.Counts, false)
	list, err := amqp091.DecodeProps(props)
	if err != nil {
		t.Fatal(err)
	}
	if exchange != "orders" || key != "order.new" || list.Expiration != nil || g.Redelivered {
		t.Errorf("exchange %q, key %q, expiration %v, redelivered %t", exchange, key, list.Expiration, g.Redelivered)
	}
	if v, _ := list.Headers.Get("x-replayed-from"); v != "dlq" || len(list.Headers) != 1 {
		t.Errorf("headers %v", list.Headers)
	}
	reject(t, c, "work") // m2 dies again: its history begins anew
	if r := replay(t, c, "dlq", ReplayRequest{}); r.Replayed != 1 || ready(t, c, "work") != 1 {
		t.Errorf("second replay: %+v", r)
	}
}

// A result names a limited number of places, and of queues of each place. The rest is counted.
func TestAReplaysResultIsBounded(t *testing.T) {
	c := open(t, broker.Options{})
	mustDeclare(t, c, "dlq")
	mustDeclare(t, c, "work", toDLQ...)
	if _, err := c.DeclareExchange(topology.ExchangeDecl{Name: "orders", Type: "topic", Durable: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Bind(topology.BindingDecl{Source: "orders", DestinationKind: topology.QueueResource, Destination: "work", Key: "#"}); err != nil {
		t.Fatal(err)
	}
	const more = 7
	for i := range MaxReplayPlaces + more {
		publish(t, c, "orders", fmt.Sprint(i), "m", amqp091.PropertyList{})
		reject(t, c, "work")
	}
	for _, dry := range []bool{true, false} {
		r := replay(t, c, "dlq", ReplayRequest{DryRun: dry})
		if r.Matched != MaxReplayPlaces+more || len(r.To) != MaxReplayPlaces || r.ToOthers != more {
			t.Errorf("%d messages to %d places are told as %d places and %d others", r.Matched, MaxReplayPlaces+more, len(r.To), r.ToOthers)
		}
	}
	var targets []*partition.Queue
	for i := range 12 {
		targets = append(targets, &partition.Queue{Name: fmt.Sprint("q", i)})
	}
	place := Place{Exchange: "x", Key: "k"}
	place.name(targets)
	if got, want := place.String(), "exchange 'x' key 'k' -> q0, q1, q2, q3, q4, q5, q6, q7, q8, q9, 2 more"; got != want {
		t.Errorf("twelve queues are %q, want %q", got, want)
	}
}

// Filters select by reason, queue and age. A limit is respected.
func TestDL_19_6_Filters(t *testing.T) {
	c := open(t, broker.Options{})
	mustDeclare(t, c, "dlq")
	mustDeclare(t, c, "a", toDLQ...)
	mustDeclare(t, c, "b", append([]amqp091.Field{{Key: "x-max-length", Value: int64(1)}}, toDLQ...)...)
	for _, q := range []string{"a", "a", "b", "b"} {
		publish(t, c, "", q, "m", amqp091.PropertyList{})
	}
	reject(t, c, "a")
	reject(t, c, "a")
	if n := ready(t, c, "dlq"); n != 3 {
		t.Fatalf("%d dead letters", n)
	}
	for _, tc := range []struct {
		name string
		r    ReplayRequest
		want int
	}{
		{"reason", ReplayRequest{Reason: deadletter.MaxLen}, 1},
		{"queue", ReplayRequest{Queue: "a"}, 2},
		{"both of one death", ReplayRequest{Queue: "a", Reason: deadletter.MaxLen}, 0},
		{"older", ReplayRequest{OlderThan: time.Hour}, 0},
		{"newer", ReplayRequest{NewerThan: time.Hour}, 3},
		{"limit", ReplayRequest{Limit: 2}, 2},
	} {
		tc.r.DryRun = true
		if r := replay(t, c, "dlq", tc.r); r.Matched != tc.want {
			t.Errorf("%s: matched %d, want %d", tc.name, r.Matched, tc.want)
		}
	}
	if _, err := As(c).Replay(context.Background(), "dlq", ReplayRequest{Limit: -1}); err == nil {
		t.Error("a negative limit was taken")
	}
	for _, same := range []time.Duration{0, time.Minute} {
		_, err := As(c).Replay(context.Background(), "dlq", ReplayRequest{OlderThan: time.Hour + same, NewerThan: time.Hour})
		if err == nil || !strings.Contains(err.Error(), "no message died both more than") {
			t.Errorf("ages between which there is nothing: %v", err)
		}
	}
	if _, err := As(c).Replay(context.Background(), "nope", ReplayRequest{}); err == nil {
		t.Error("a missing queue was taken")
	}
}

// Messages that cannot go back stay where they are: no route, a full target, no origin.
func TestDL_19_6_NothingIsLost(t *testing.T) {
	c := open(t, broker.Options{})
	mustDeclare(t, c, "dlq")
	mustDeclare(t, c, "gone", toDLQ...)
	mustDeclare(t, c, "full", append([]amqp091.Field{{Key: "x-max-length", Value: int64(1)}, {Key: "x-overflow", Value: "reject-publish"}}, toDLQ...)...)
	publish(t, c, "", "gone", "m1", amqp091.PropertyList{})
	publish(t, c, "", "full", "m2", amqp091.PropertyList{})
	publish(t, c, "", "dlq", "m3", amqp091.PropertyList{})
	reject(t, c, "gone")
	reject(t, c, "full")
	publish(t, c, "", "full", "m4", amqp091.PropertyList{})
	if _, err := c.DeleteQueue("gone", false, false); err != nil {
		t.Fatal(err)
	}
	r := replay(t, c, "dlq", ReplayRequest{})
	if r.Unroutable != 1 || r.Refused != 1 || r.NoOrigin != 1 || r.Replayed != 0 || ready(t, c, "dlq") != 3 {
		t.Errorf("%+v, %d left", r, ready(t, c, "dlq"))
	}
}

// A message that a consumer parked itself goes back by the headers it sent along.
func TestDL_19_6_CarriedHistory(t *testing.T) {
	c := open(t, broker.Options{})
	mustDeclare(t, c, "parking")
	mustDeclare(t, c, "work")
	death := amqp091.Table{
		{Key: "count", Value: int64(3)}, {Key: "reason", Value: "rejected"}, {Key: "queue", Value: "work"},
		{Key: "time", Value: amqp091.Timestamp(1)}, {Key: "exchange", Value: ""}, {Key: "routing-keys", Value: amqp091.Array{"work"}},
	}
	publish(t, c, "", "parking", "m1", amqp091.PropertyList{Headers: amqp091.Table{{Key: "x-death", Value: amqp091.Array{death}}, {Key: "keep", Value: "me"}}})
	publish(t, c, "", "parking", "m2", amqp091.PropertyList{Headers: amqp091.Table{
		{Key: "x-original-exchange", Value: ""}, {Key: "x-original-routingKey", Value: "work"},
	}})
	if r := replay(t, c, "parking", ReplayRequest{}); r.Replayed != 2 || ready(t, c, "work") != 2 {
		t.Errorf("%+v", r)
	}
	g, _, err := c.Get("work", true)
	if err != nil {
		t.Fatal(err)
	}
	props, _, _ := broker.Rendered(c.Broker().Bodies().Bytes(g.Body), deathstore.Bytes(c.Broker().Bodies(), g.History), g.Counts, false)
	list, err := amqp091.DecodeProps(props)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := list.Headers.Get("x-death"); ok || len(list.Headers) != 2 {
		t.Errorf("headers %v", list.Headers)
	}
}

// Messages that a replay moves into the same queue stay there in this and later replays: they have no origin until
// they die again, whatever their headers say.
func TestDL_19_6_WhatWasReplayedIsNotReplayedAgain(t *testing.T) {
	c := open(t, broker.Options{})
	mustDeclare(t, c, "dlq")
	mustDeclare(t, c, "parking", toDLQ...)
	mustDeclare(t, c, "other")
	if _, err := c.DeclareExchange(topology.ExchangeDecl{Name: "all", Type: "fanout", Durable: true}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"parking", "other"} {
		if _, err := c.Bind(topology.BindingDecl{Source: "all", DestinationKind: topology.QueueResource, Destination: name}); err != nil {
			t.Fatal(err)
		}
	}
	const messages = replaySlice + 10 // more than are looked at together
	death := amqp091.Table{
		{Key: "count", Value: int64(1)}, {Key: "reason", Value: "rejected"}, {Key: "queue", Value: "gone"},
		{Key: "time", Value: amqp091.Timestamp(1)}, {Key: "exchange", Value: "all"}, {Key: "routing-keys", Value: amqp091.Array{"k"}},
	}
	for i := range messages {
		headers := amqp091.Table{{Key: "x-original-exchange", Value: "all"}, {Key: "x-original-routingKey", Value: "k"}}
		if i%2 == 0 {
			headers = amqp091.Table{{Key: "x-death", Value: amqp091.Array{death}}}
		}
		publish(t, c, "", "parking", "m", amqp091.PropertyList{Headers: headers})
	}
	if r := replay(t, c, "parking", ReplayRequest{Limit: 3 * messages}); r.Examined != messages || r.Replayed != messages {
		t.Errorf("first: %+v", r)
	}
	for _, dry := range []bool{true, false} {
		if r := replay(t, c, "parking", ReplayRequest{Limit: 3 * messages, DryRun: dry}); r.Matched != 0 || r.NoOrigin != messages {
			t.Errorf("dry %t: %+v", dry, r)
		}
	}
	if in, other := ready(t, c, "parking"), ready(t, c, "other"); in != messages || other != messages {
		t.Errorf("%d and %d messages, want %d of each", in, other, messages)
	}
	reject(t, c, "parking")
	if r := replay(t, c, "dlq", ReplayRequest{}); r.Replayed != 1 || ready(t, c, "other") != messages+1 {
		t.Errorf("after a death: %+v", r)
	}
}

// A client may say anything about a message's past: the message still dies, is shown and is replayed, or stays where
// it is.
func TestDL_7_10_HostileHistories(t *testing.T) {
	long := strings.Repeat("k", 300)
	entry := func(change ...amqp091.Field) amqp091.Table {
		e := amqp091.Table{
			{Key: "count", Value: int64(3)}, {Key: "reason", Value: "rejected"}, {Key: "queue", Value: "elsewhere"},
			{Key: "time", Value: amqp091.Timestamp(1)}, {Key: "exchange", Value: ""}, {Key: "routing-keys", Value: amqp091.Array{"source"}},
		}
		for _, c := range change {
			for i := range e {
				if e[i].Key == c.Key {
					e[i].Value = c.Value
				}
			}
		}
		return e
	}
	pasts := map[string]any{
		"no table": amqp091.Array{"x", int64(1), nil}, "no array": "x", "nothing": amqp091.Array{}, "void": nil,
		"two of the same": amqp091.Array{entry(), entry()},
	}
	for key, values := range map[string][]any{
		"routing-keys": {amqp091.Array{}, "no array", nil, amqp091.Array{int64(7)}, amqp091.Array{""}, amqp091.Array{long}, amqp091.Array{"\xff"}, amqp091.Array{"source", long}},
		"exchange":     {long, "\xff", "nowhere", int64(7)},
		"queue":        {long, "\xff", "", "source"},
		"reason":       {"no reason", int64(7), "maxlen"},
		"count":        {int64(math.MaxInt64), int64(math.MinInt64), int64(0), "many", math.NaN()},
		"time":         {amqp091.Timestamp(math.MaxUint64), amqp091.Timestamp(1 << 62), "now", int64(-1)},
	} {
		for i, v := range values {
			pasts[fmt.Sprintf("%s %d", key, i)] = amqp091.Array{entry(amqp091.Field{Key: key, Value: v})}
		}
	}
	for _, trust := range []bool{true, false} {
		c := open(t, broker.Options{TrustClientDeath: trust})
		mustDeclare(t, c, "dlq")
		mustDeclare(t, c, "source", amqp091.Field{Key: "x-dead-letter-exchange", Value: ""}, amqp091.Field{Key: "x-dead-letter-routing-key", Value: "dlq"})
		for name, h := range pasts {
			for _, through := range []string{"source", "dlq"} {
				publish(t, c, "", through, name, amqp091.PropertyList{Headers: amqp091.Table{{Key: "x-death", Value: h}}})
				if through == "source" {
					reject(t, c, "source")
				}
				for waited := time.Now(); ready(t, c, "dlq") != 1; {
					if time.Since(waited) > 10*time.Second {
						t.Fatalf("%s: it did not die", name)
					}
				}
				if err := c.Peek("dlq", 0, func(*broker.Shown) bool { return true }); err != nil {
					t.Errorf("%s: peek: %v", name, err)
				}
				if r := replay(t, c, "dlq", ReplayRequest{}); r.Examined != 1 || r.Replayed+r.NoOrigin+r.Unroutable != 1 && !strings.HasPrefix(name, "time") {
					t.Errorf("trust %v, %s through %s: %+v", trust, name, through, r)
				}
				for _, queue := range []string{"source", "dlq"} {
					for {
						g, ok, err := c.Get(message.QueueName(queue), true)
						if err != nil {
							t.Fatal(err)
						}
						if !ok {
							break
						}
						broker.Rendered(c.Broker().Bodies().Bytes(g.Body), deathstore.Bytes(c.Broker().Bodies(), g.History), g.Counts, false)
						c.Broker().Bodies().Release(g.Body)
						c.Broker().Bodies().Release(g.History)
					}
				}
			}
		}
	}
}

// Messages that a full target in another log refuses stay where they are, in order. The answer says how many there
// are for each queue without room, and is true when it is given.
func TestDL_19_6_NothingIsLostBetweenLogs(t *testing.T) {
	for _, way := range []struct{ dlq, work string }{{"classic", "quorum"}, {"quorum", "classic"}, {"quorum", "quorum"}} {
		t.Run(way.dlq+" to "+way.work, func(t *testing.T) {
			c := open(t, broker.Options{})
			kind := func(k string) amqp091.Field { return amqp091.Field{Key: "x-queue-type", Value: k} }
			mustDeclare(t, c, "dlq", kind(way.dlq))
			// A queue is in the group that its dead letters go to, so a policy of these would join them: they are
			// parked by clients, who say where they came from.
			name := "work"
			for n := 0; way.work == way.dlq && c.Broker().Node().DefaultGroup("/", name) == c.Broker().Node().DefaultGroup("/", "dlq"); n++ {
				name = fmt.Sprint("work", n)
			}
			mustDeclare(t, c, name, kind(way.work), amqp091.Field{Key: "x-max-length", Value: int64(150)}, amqp091.Field{Key: "x-overflow", Value: "reject-publish"})
			for i := range 400 {
				publish(t, c, "", "dlq", fmt.Sprint(i), amqp091.PropertyList{Headers: amqp091.Table{{Key: "x-original-exchange", Value: ""}, {Key: "x-original-routingKey", Value: name}}})
			}
			r := replay(t, c, "dlq", ReplayRequest{})
			if r.Replayed != 150 || r.Refused != 250 || len(r.RefusedBy) != 1 || r.RefusedBy[fmt.Sprintf("queue '%s' is full", name)] != 250 {
				t.Errorf("%+v", r)
			}
			if n := c.Broker().Node().Stranded(); n != 0 {
				t.Errorf("%d messages are stranded", n)
			}
			for queue, first := range map[string]int{name: 0, "dlq": 150} {
				i := first
				if err := c.Peek(message.QueueName(queue), 0, func(s *broker.Shown) bool {
					if string(s.Body) != fmt.Sprint(i) {
						t.Errorf("in %s stands %s, want %d", queue, s.Body, i)
						return false
					}
					i++
					return true
				}); err != nil {
					t.Fatal(err)
				}
				if want := map[string]int{name: 150, "dlq": 250}[queue]; i-first != want || ready(t, c, queue) != want {
					t.Errorf("%s has %d messages, want %d", queue, i-first, want)
				}
			}
		})
	}
}

// BR-7.9: a queue whose messages are being replayed is not empty. Messages for which a full target has no room are
// still there.
func TestBR_7_9_AQueueOnReplayIsNotEmpty(t *testing.T) {
	goOn := make(chan struct{})
	c := open(t, broker.Options{Failpoint: func(name string) {
		if name == partition.FailMailSent {
			<-goOn
		}
	}})
	mustDeclare(t, c, "dlq")
	mustDeclare(t, c, "work", amqp091.Field{Key: "x-queue-type", Value: "quorum"},
		amqp091.Field{Key: "x-max-length", Value: int64(1)}, amqp091.Field{Key: "x-overflow", Value: "reject-publish"})
	publish(t, c, "", "dlq", "m", amqp091.PropertyList{Headers: amqp091.Table{{Key: "x-original-exchange", Value: ""}, {Key: "x-original-routingKey", Value: "work"}}})
	done := make(chan ReplayResult)
	go func() {
		r, err := As(c).Replay(t.Context(), "dlq", ReplayRequest{})
		if err != nil {
			t.Error(err)
		}
		done <- r
	}()
	eventually(t, "the message on its way", func() bool {
		list := c.Broker().Node().Outboxes()
		return len(list) == 1 && list[0].Waiting == 1
	})
	publish(t, c, "", "work", "first", amqp091.PropertyList{})
	var e *topology.Error
	if _, err := c.DeleteQueue("dlq", false, true); !errors.As(err, &e) || e.Kind != topology.PreconditionFailed {
		t.Errorf("its deletion if it is empty: %v", err)
	}
	close(goOn)
	if r := <-done; r.Refused != 1 {
		t.Errorf("%+v", r)
	}
	if n := ready(t, c, "dlq"); n != 1 {
		t.Errorf("%d messages are there, want 1", n)
	}
}

// BR-7.9: the count in the answer to a deletion includes messages that are being replayed: they are deleted like
// ready ones.
func TestBR_7_9_ADeletionCountsWhatIsOnReplay(t *testing.T) {
	for _, config := range []struct{ source, target string }{{"classic", "quorum"}, {"quorum", "classic"}} {
		goOn := make(chan struct{})
		c := open(t, broker.Options{Failpoint: func(name string) {
			if name == partition.FailMailSent {
				<-goOn
			}
		}})
		mustDeclare(t, c, "dlq", amqp091.Field{Key: "x-queue-type", Value: config.source})
		mustDeclare(t, c, "work", amqp091.Field{Key: "x-queue-type", Value: config.target})
		for range 2 {
			publish(t, c, "", "dlq", "m", amqp091.PropertyList{Headers: amqp091.Table{{Key: "x-original-exchange", Value: ""}, {Key: "x-original-routingKey", Value: "work"}}})
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			if _, err := As(c).Replay(t.Context(), "dlq", ReplayRequest{Limit: 1}); err != nil {
				t.Error(err)
			}
		}()
		eventually(t, "the message on its way", func() bool {
			list := c.Broker().Node().Outboxes()
			return len(list) == 1 && list[0].Waiting == 1
		})
		if n, err := c.DeleteQueue("dlq", false, false); n != 2 || err != nil {
			t.Errorf("a %s queue: %d messages were deleted, want 2: %v", config.source, n, err)
		}
		close(goOn)
		<-done
	}
}

// asking is a backend that knows everybody, permits everything and passes the questions on.
type asking struct{ questions chan admission.Question }

func (asking) Name() string { return "asking" }

func (asking) Login(context.Context, auth.Credentials) ([]auth.Tag, error) { return nil, nil }

func (a asking) Allow(_ context.Context, q admission.Question) error {
	a.questions <- q
	return nil
}

// slowStore is a disk that holds back syncs of declarations.
type slowStore struct {
	vfs.FS
	hold atomic.Pointer[chan struct{}] // closed when they go on; nil: they are not held
}

func newSlowStore() *slowStore {
	d := new(slowStore)
	d.FS = errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		sync := op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSyncTo
		if hold := d.hold.Load(); sync && hold != nil && strings.Contains(op.Path, "/state-log/") {
			<-*hold
		}
		return nil
	}))
	return d
}

// waiting waits until n goroutines wait for the store.
func waiting(t *testing.T, n int) {
	t.Helper()
	stacks := make([]byte, 8<<20)
	eventually(t, fmt.Sprintf("%d wait for the store", n), func() bool {
		return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "broker.(*Broker).AwaitStored(") >= n
	})
}

// If others declare all the time, waiting for the store means waiting for a sync. A replay does that once for each
// slice, not for each message.
func TestAReplayWaitsOnceForWhatItHasSeen(t *testing.T) {
	o := asking{make(chan admission.Question, 10)}
	d := newSlowStore()
	guest := open(t, broker.Options{FS: d, AuthBackends: []broker.AuthBackend{{Authn: o, Authz: o}}})
	id, err := guest.Broker().Authenticate(t.Context(), auth.Credentials{User: "ada", Password: "a"}, net.IPv4(127, 0, 0, 1))
	if err != nil {
		t.Fatal(err)
	}
	mustDeclare(t, guest, "dlq")
	const messages = 3
	for i := range messages {
		publish(t, guest, "", "dlq", "m", amqp091.PropertyList{Headers: amqp091.Table{
			{Key: "x-original-exchange", Value: fmt.Sprint("x", i)}, {Key: "x-original-routingKey", Value: "k"},
		}})
	}
	c := guest.Broker().For(id, "/")
	if _, err := c.Find("dlq", topology.Read); err != nil { // it may read the queue, and knows that
		t.Fatal(err)
	}
	held := make(chan struct{})
	d.hold.Store(&held)
	release := sync.OnceFunc(func() { d.hold.Store(nil); close(held) })
	defer release()
	var all sync.WaitGroup
	all.Go(func() {
		if _, err := guest.Broker().As("guest", "/").DeclareQueue(topology.QueueDecl{Name: "late", Durable: true}); err != nil {
			t.Error(err)
		}
	})
	waiting(t, 1)
	all.Go(func() {
		r, err := As(c).Replay(t.Context(), "dlq", ReplayRequest{DryRun: true})
		if err != nil || r.Unroutable != messages {
			t.Errorf("%+v: %v", r, err)
		}
	})
	waiting(t, 2)
	asked := 0
	for len(o.questions) > 0 {
		if q := <-o.questions; q.Access == topology.Write {
			asked++
		}
	}
	if asked != messages {
		t.Errorf("%d of %d messages were looked at when it waited", asked, messages)
	}
	release()
	all.Wait()
}
