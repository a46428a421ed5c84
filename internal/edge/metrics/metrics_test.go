package metrics_test

import (
	"fmt"
	"maps"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"bartleby.mq/internal/core/declare"

	"github.com/cockroachdb/pebble/v2/vfs"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.uber.org/goleak"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/edge/metrics"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/office"
	"bartleby.mq/internal/wire/amqp091"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a broker in memory with what it shows to Prometheus.
type node struct {
	*testing.T
	b    *broker.Broker
	link *broker.Connection
	uses metrics.Node
	jobs *office.Jobs
	// perObject is prometheus.return_per_object_metrics.
	perObject bool
}

func start(t *testing.T) *node {
	t.Helper()
	b, err := broker.Open(broker.Options{Dir: "data", FS: vfs.NewMem(), NodeName: "rabbit@test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := b.CreateDefault(broker.Default{VHost: "/", User: "guest", Password: "guest", Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
		t.Fatal(err)
	}
	if err := b.EnsureClusterID(); err != nil {
		t.Fatal(err)
	}
	return &node{t, b, b.AsOperator("test", "/"), metrics.Node{Resident: 5, MemoryLimit: 6, DiskFree: 7, DiskLimit: 8, OpenFiles: 9, MaxFiles: 10}, nil, false}
}

func (n *node) declare(link *broker.Connection, name string, arguments ...amqp091.Field) {
	n.Helper()
	if _, err := link.DeclareQueue(topology.QueueDecl{Name: message.QueueName(name), Durable: true, Arguments: arguments}); err != nil {
		n.Fatal(err)
	}
}

func arg(key string, value any) amqp091.Field { return amqp091.Field{Key: key, Value: value} }

func (n *node) publish(exchange, key string, headers ...amqp091.Field) {
	n.Helper()
	p := broker.Publication{Exchange: []byte(exchange), Key: []byte(key), Raw: amqp091.AppendPropsFrom(nil, amqp091.PropertyList{DeliveryMode: new(uint8(2)), Headers: headers}), Body: [][]byte{[]byte("body")}, Size: 4}
	var err error
	if p.Props, err = amqp091.ParseProps(p.Raw); err != nil {
		n.Fatal(err)
	}
	if _, err := n.link.PublishOne(&p); err != nil {
		n.Fatal(err)
	}
}

// reject has one message of a queue die.
func (n *node) reject(queue string) {
	n.Helper()
	taken := 0
	err := n.link.Take(message.QueueName(queue), 1, broker.RejectRemoves, func(*broker.Shown) (bool, error) { taken++; return true, nil })
	if err != nil || taken != 1 {
		n.Fatalf("%d rejected, %v", taken, err)
	}
}

// exposition is what Prometheus has read of a scrape.
type exposition map[string]*dto.MetricFamily

// scrape reads an endpoint as Prometheus does.
func (n *node) scrape(path string) exposition {
	n.Helper()
	w := httptest.NewRecorder()
	metrics.Handler(metrics.Options{
		Broker: n.b, Jobs: n.jobs, PerObject: n.perObject, Version: "1", ProductVersion: "4.3.6", ClusterName: "test cluster", Node: func() metrics.Node { return n.uses },
	}).ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	if w.Code != 200 {
		n.Fatalf("GET %s: %d %s", path, w.Code, w.Body)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(w.Body)
	if err != nil {
		n.Fatalf("GET %s: Prometheus cannot read it: %v", path, err)
	}
	return families
}

// series are the values of a metric by its labels, written NAME=VALUE in the order of the
// names, with commas between.
func (e exposition) series(name string) map[string]float64 {
	values := map[string]float64{}
	for _, m := range e[name].GetMetric() {
		var labels []string
		for _, l := range m.GetLabel() {
			labels = append(labels, l.GetName()+"="+l.GetValue())
		}
		slices.Sort(labels)
		value := m.GetGauge().GetValue()
		switch e[name].GetType() {
		case dto.MetricType_COUNTER:
			value = m.GetCounter().GetValue()
		case dto.MetricType_UNTYPED:
			value = m.GetUntyped().GetValue()
		}
		values[strings.Join(labels, ",")] = value
	}
	return values
}

// has looks that the series of a metric are those wanted, and no others.
func (n *node) has(e exposition, name string, want map[string]float64) {
	n.Helper()
	if got := e.series(name); !maps.Equal(got, want) {
		n.Errorf("%s has %v, want %v", name, got, want)
	}
}

// BR-17.1: totals, one series for each object, or the families and virtual hosts that are
// asked for, by a prefix of their own.
func TestEndpoints(t *testing.T) {
	n := start(t)
	if _, err := n.b.By("").Do(declare.PutVHost{Name: "v", Change: declare.All(topology.Metadata{})}); err != nil {
		t.Fatal(err)
	}
	n.declare(n.link, "a")
	n.declare(n.link, "b")
	n.declare(n.b.AsOperator("test", "v"), "a")
	n.publish("", "a")
	n.publish("", "b")
	n.has(n.scrape("/metrics"), "rabbitmq_queue_messages_ready", map[string]float64{"": 2})
	each := n.scrape("/metrics/per-object")
	n.has(each, "rabbitmq_queue_messages_ready", map[string]float64{"queue=a,vhost=/": 1, "queue=b,vhost=/": 1, "queue=a,vhost=v": 0})
	n.has(each, "rabbitmq_queue_exchange_messages_published_total", map[string]float64{"exchange=,queue=a,vhost=/": 1, "exchange=,queue=b,vhost=/": 1})
	n.has(n.scrape("/metrics"), "rabbitmq_queue_exchange_messages_published_total", map[string]float64{"": 2})
	n.perObject = true
	n.has(n.scrape("/metrics"), "rabbitmq_queue_messages_ready", map[string]float64{"queue=a,vhost=/": 1, "queue=b,vhost=/": 1, "queue=a,vhost=v": 0})
	n.perObject = false
	some := n.scrape("/metrics/detailed?family=queue_coarse_metrics&family=vhost_status&vhost=v&family=nonsense")
	n.has(some, "rabbitmq_detailed_queue_messages_ready", map[string]float64{"queue=a,vhost=v": 0})
	n.has(some, "rabbitmq_cluster_vhost_status", map[string]float64{"vhost=v": 1})
	for name := range some {
		if !strings.HasPrefix(name, "rabbitmq_detailed_queue_") && !slices.Contains([]string{"rabbitmq_cluster_vhost_status", "rabbitmq_build_info", "rabbitmq_identity_info"}, name) {
			t.Errorf("%s is there and was not asked for", name)
		}
	}
	for _, family := range []string{
		"queue_coarse_metrics", "queue_metrics", "queue_consumer_count", "connection_coarse_metrics", "channel_metrics",
		"queue_delivery_metrics", "vhost_status", "exchange_bindings",
	} {
		if got := len(n.scrape("/metrics/detailed?family=" + family)); got < 2 {
			t.Errorf("family %s: %d metrics, want some beside who the node is", family, got)
		}
	}
}

// BR-17.2, BR-17.3, BR-17.4: names, types and labels that dashboards ask for.
func TestNames(t *testing.T) {
	n := start(t)
	e := n.scrape("/metrics")
	const gauge, counter, untyped = dto.MetricType_GAUGE, dto.MetricType_COUNTER, dto.MetricType_UNTYPED
	for name, kind := range map[string]dto.MetricType{
		"queue_messages": gauge, "queue_messages_ready": gauge, "queue_messages_unacked": gauge, "queue_consumers": gauge,
		"queues": gauge, "connections": gauge, "channels": gauge, "consumers": gauge,
		"connections_opened_total": counter, "connections_closed_total": counter, "channels_opened_total": counter, "channels_closed_total": counter,
		"queues_declared_total": counter, "queues_created_total": counter, "queues_deleted_total": counter,
		"build_info": untyped, "identity_info": untyped,
		"process_resident_memory_bytes": gauge, "resident_memory_limit_bytes": gauge, "process_open_fds": gauge, "process_max_fds": gauge,
		"disk_space_available_bytes": gauge, "disk_space_available_limit_bytes": gauge,
		"alarms_memory_used_watermark": untyped, "alarms_free_disk_space_watermark": untyped, "alarms_file_descriptor_limit": untyped,
		"message_size_bytes": dto.MetricType_HISTOGRAM,
	} {
		f := e["rabbitmq_"+name]
		if f == nil || f.GetType() != kind || len(f.GetMetric()) == 0 || f.GetHelp() == "" {
			t.Errorf("rabbitmq_%s is %v, want a %v with a help text", name, f, kind)
		}
	}
	for _, name := range []string{
		"messages_received", "messages_received_confirm", "messages_routed", "messages_confirmed", "messages_unroutable_dropped", "messages_unroutable_returned",
	} {
		n.has(e, "rabbitmq_global_"+name+"_total", map[string]float64{"protocol=amqp091": 0, "protocol=amqp10": 0})
	}
	for _, name := range []string{
		"delivered", "delivered_consume_auto_ack", "delivered_consume_manual_ack", "delivered_get_auto_ack", "delivered_get_manual_ack",
		"get_empty", "redelivered", "acknowledged",
	} {
		n.has(e, "rabbitmq_global_messages_"+name+"_total", map[string]float64{
			"protocol=amqp091,queue_type=rabbit_classic_queue": 0, "protocol=amqp091,queue_type=rabbit_quorum_queue": 0,
			"protocol=amqp10,queue_type=rabbit_classic_queue": 0, "protocol=amqp10,queue_type=rabbit_quorum_queue": 0,
		})
	}
	n.has(e, "rabbitmq_global_publishers", map[string]float64{"protocol=amqp091": 0, "protocol=amqp10": 0})
	n.has(e, "rabbitmq_global_consumers", map[string]float64{"protocol=amqp091": 0, "protocol=amqp10": 0})
	for name, want := range map[string]float64{
		"process_resident_memory_bytes": 5, "resident_memory_limit_bytes": 6, "disk_space_available_bytes": 7,
		"disk_space_available_limit_bytes": 8, "process_open_fds": 9, "process_max_fds": 10, "alarms_memory_used_watermark": 0,
	} {
		n.has(e, "rabbitmq_"+name, map[string]float64{"": want})
	}
	n.has(e, "rabbitmq_identity_info", map[string]float64{fmt.Sprintf(
		"rabbitmq_cluster=test cluster,rabbitmq_cluster_permanent_id=%s,rabbitmq_endpoint=aggregated,rabbitmq_node=rabbit@test", n.b.ClusterID()): 1})
	n.b.SetAlarm(broker.Memory, true)
	defer n.b.SetAlarm(broker.Memory, false)
	n.has(n.scrape("/metrics"), "rabbitmq_alarms_memory_used_watermark", map[string]float64{"": 1})
}

// BR-17.5: detailed series of a queue say which, and queue_info, in whatever families it
// is asked for, of what type it is, once.
func TestDetailedQueues(t *testing.T) {
	n := start(t)
	n.declare(n.link, "c")
	n.declare(n.link, "q", arg("x-queue-type", "quorum"))
	e := n.scrape("/metrics/detailed?family=queue_coarse_metrics&family=queue_metrics&family=queue_consumer_count")
	n.has(e, "rabbitmq_detailed_queue_messages", map[string]float64{"queue=c,vhost=/": 0, "queue=q,vhost=/": 0})
	n.has(e, "rabbitmq_detailed_queue_consumers", map[string]float64{"queue=c,vhost=/": 0, "queue=q,vhost=/": 0})
	n.has(e, "rabbitmq_detailed_queue_info", map[string]float64{
		"membership=leader,queue=c,queue_type=rabbit_classic_queue,vhost=/": 1, "membership=leader,queue=q,queue_type=rabbit_quorum_queue,vhost=/": 1,
	})
}

// Whatever is in a name, Prometheus reads it.
func TestNamesAreEscaped(t *testing.T) {
	n := start(t)
	want := map[string]float64{}
	for _, name := range []string{`quo"te`, `back\slash`, `end\`, "ünï 字", "{a=\"b\"} 1", "comma,equals="} {
		n.declare(n.link, name)
		want["queue="+name+",vhost=/"] = 0
	}
	n.has(n.scrape("/metrics/per-object"), "rabbitmq_queue_messages", want)
}

// DL-18.1, DL-18.2: the counters of deaths, there from the start, with their help texts.
func TestDeathCountersFromTheStart(t *testing.T) {
	n := start(t)
	e := n.scrape("/metrics")
	const disabled, once, least = "dead_letter_strategy=disabled,", "dead_letter_strategy=at_most_once,", "dead_letter_strategy=at_least_once,"
	const classic, quorum = "queue_type=rabbit_classic_queue", "queue_type=rabbit_quorum_queue"
	usual := map[string]float64{disabled + classic: 0, once + classic: 0, disabled + quorum: 0, once + quorum: 0}
	for name, c := range map[string]struct {
		why  string
		has  map[string]float64
		also []string
	}{
		"rejected":       {"due to basic.reject or basic.nack", usual, []string{least + quorum}},
		"expired":        {"due to message TTL exceeded", usual, []string{least + quorum}},
		"maxlen":         {"due to overflow drop-head or reject-publish-dlx", usual, []string{disabled + "queue_type=rabbit_volatile_queue"}},
		"delivery_limit": {"due to delivery-limit exceeded", nil, []string{disabled + quorum, once + quorum, least + quorum}},
		"confirmed":      {"and confirmed by target queues", nil, []string{least + quorum}},
	} {
		name = "rabbitmq_global_messages_dead_lettered_" + name + "_total"
		want := map[string]float64{}
		maps.Copy(want, c.has)
		for _, labels := range c.also {
			want[labels] = 0
		}
		n.has(e, name, want)
		if help := e[name].GetHelp(); help != "Total number of messages dead-lettered "+c.why {
			t.Errorf("%s: help is %q", name, help)
		}
	}
}

// DL-18.3: deaths without a dead letter exchange, and with one that is not there, count as
// disabled; those that no queue takes under their strategy. At least once counts when a
// message dies, and confirms it when it has left.
func TestDeathsByStrategy(t *testing.T) {
	n := start(t)
	n.declare(n.link, "target")
	n.declare(n.link, "full", arg("x-max-length", int64(0)), arg("x-overflow", "reject-publish"))
	n.declare(n.link, "none")
	n.declare(n.link, "missing", arg("x-dead-letter-exchange", "nowhere"))
	n.declare(n.link, "unroutable", arg("x-dead-letter-exchange", ""), arg("x-dead-letter-routing-key", "nobody"))
	least := []amqp091.Field{arg("x-queue-type", "quorum"), arg("x-dead-letter-exchange", ""), arg("x-dead-letter-strategy", "at-least-once"), arg("x-overflow", "reject-publish")}
	n.declare(n.link, "sure", append(least, arg("x-dead-letter-routing-key", "target"))...)
	n.declare(n.link, "held", append(least, arg("x-dead-letter-routing-key", "full"))...)
	for _, queue := range []string{"none", "missing", "unroutable", "sure", "held"} {
		n.publish("", queue)
		n.reject(queue)
	}
	const name = "rabbitmq_global_messages_dead_lettered_rejected_total"
	want := map[string]float64{
		"dead_letter_strategy=disabled,queue_type=rabbit_classic_queue": 2, "dead_letter_strategy=at_most_once,queue_type=rabbit_classic_queue": 1,
		"dead_letter_strategy=disabled,queue_type=rabbit_quorum_queue": 0, "dead_letter_strategy=at_most_once,queue_type=rabbit_quorum_queue": 0,
		"dead_letter_strategy=at_least_once,queue_type=rabbit_quorum_queue": 2,
	}
	confirmed := map[string]float64{"dead_letter_strategy=at_least_once,queue_type=rabbit_quorum_queue": 1}
	var e exposition
	for range 500 { // replicated queues answer later
		e = n.scrape("/metrics")
		if maps.Equal(e.series(name), want) && maps.Equal(e.series("rabbitmq_global_messages_dead_lettered_confirmed_total"), confirmed) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	n.has(e, name, want)
	n.has(e, "rabbitmq_global_messages_dead_lettered_confirmed_total", confirmed)
}

// What waits in exchanges that delay messages is shown by exchange and in total, and what was dropped of it.
func TestDelayedMessages(t *testing.T) {
	n := start(t)
	for _, name := range []message.ExchangeName{"a", "b"} {
		d := topology.ExchangeDecl{Name: name, Type: "x-delayed-message", Durable: true, Arguments: amqp091.Table{arg("x-delayed-type", "direct")}}
		if _, err := n.link.DeclareExchange(d); err != nil {
			t.Fatal(err)
		}
		n.publish(string(name), "k", arg("x-delay", int64(1e9)))
	}
	n.publish("b", "k", arg("x-delay", int64(1e9)))
	n.has(n.scrape("/metrics/per-object"), "bartleby_exchange_messages_delayed", map[string]float64{"exchange=a,vhost=/": 1, "exchange=b,vhost=/": 2})
	n.has(n.scrape("/metrics"), "bartleby_messages_delayed", map[string]float64{"": 3})
	if err := n.link.DeleteExchange("b", false); err != nil {
		t.Fatal(err)
	}
	n.has(n.scrape("/metrics"), "bartleby_messages_delayed", map[string]float64{"": 1})
	n.has(n.scrape("/metrics"), "bartleby_delayed_messages_dropped_total", map[string]float64{"": 2})
}

// DL-18.4: what became of a queue's dead, and how deep the queue is in which they are.
func TestDeadLettersOfAQueue(t *testing.T) {
	n := start(t)
	n.declare(n.link, "dlq")
	n.declare(n.link, "work", arg("x-dead-letter-exchange", ""), arg("x-dead-letter-routing-key", "dlq"))
	n.publish("", "work")
	n.reject("work")
	for range 500 {
		if n.scrape("/metrics/per-object").series("rabbitmq_queue_messages_ready")["queue=dlq,vhost=/"] == 1 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	e := n.scrape("/metrics/detailed?family=queue_coarse_metrics&family=dead_letters")
	n.has(e, "rabbitmq_detailed_queue_messages_ready", map[string]float64{"queue=dlq,vhost=/": 1, "queue=work,vhost=/": 0})
	n.has(e, "bartleby_queue_dead_lettered_total", map[string]float64{"outcome=routed,queue=work,reason=rejected,vhost=/": 1})
	n.has(e, "bartleby_queue_dead_letter_target", map[string]float64{"queue=dlq,vhost=/": 1})
	total := n.scrape("/metrics").series("bartleby_dead_lettered_total")
	if total["outcome=routed,reason=rejected"] != 1 || len(total) != 32 {
		t.Errorf("of all queues: %v, want one rejected and routed among 32", total)
	}
}

// A queue whose policy sets a breaker says whether it is open. Others have no such series.
func TestBreakersOfQueues(t *testing.T) {
	n := start(t)
	for name, kind := range map[string]string{"c": "classic", "q": "quorum", "plain": "classic"} {
		n.declare(n.link, name, arg("x-queue-type", kind))
	}
	definition := topology.Definition{"dead-letter-breaker": map[string]any{"deaths": int64(1), "percent": int64(1), "window": int64(3600_000)}}
	if _, err := n.b.By("").Do(declare.PutPolicy{VHost: "/", Policy: topology.PolicyDecl{Name: "p", Pattern: "^[cq]$", Definition: definition}}); err != nil {
		t.Fatal(err)
	}
	const name = "bartleby_queue_breaker_open"
	n.has(n.scrape("/metrics/per-object"), name, map[string]float64{"queue=c,vhost=/": 0, "queue=q,vhost=/": 0})
	for _, queue := range []string{"c", "q"} {
		n.publish("", queue)
		n.reject(queue)
	}
	n.has(n.scrape("/metrics/detailed?family=dead_letters"), name, map[string]float64{"queue=c,vhost=/": 1, "queue=q,vhost=/": 1})
	if _, err := n.link.CloseBreaker("q"); err != nil {
		t.Fatal(err)
	}
	n.has(n.scrape("/metrics/per-object"), name, map[string]float64{"queue=c,vhost=/": 1, "queue=q,vhost=/": 0})
}
