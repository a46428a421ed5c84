package prometheus

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/test/node"
)

// alerted are the metrics that the alerts ask for which people have: those that RabbitMQ's Kubernetes operator installs, and those
// of the common collections. Left out is what they ask of Erlang's clustering and of Kubernetes.
var alerted = map[string][]string{
	"/metrics": {
		"rabbitmq_build_info", "rabbitmq_identity_info", "process_start_time_seconds", "rabbitmq_erlang_uptime_seconds",
		"rabbitmq_process_open_fds", "rabbitmq_process_max_fds", "rabbitmq_process_resident_memory_bytes", "rabbitmq_resident_memory_limit_bytes",
		"rabbitmq_disk_space_available_bytes", "rabbitmq_disk_space_available_limit_bytes",
		"rabbitmq_alarms_memory_used_watermark", "rabbitmq_alarms_free_disk_space_watermark", "rabbitmq_alarms_file_descriptor_limit",
		"rabbitmq_connections", "rabbitmq_connections_opened_total", "rabbitmq_connections_closed_total",
		"rabbitmq_channels", "rabbitmq_channels_opened_total", "rabbitmq_channels_closed_total",
		"rabbitmq_consumers", "rabbitmq_queues", "rabbitmq_queues_declared_total", "rabbitmq_queues_created_total", "rabbitmq_queues_deleted_total",
		"rabbitmq_queue_messages", "rabbitmq_queue_messages_ready", "rabbitmq_queue_messages_unacked", "rabbitmq_queue_consumers",
		"rabbitmq_queue_messages_published_total", "rabbitmq_unreachable_cluster_peers_count", "rabbitmq_auth_attempts_failed_total",
		"rabbitmq_global_messages_unroutable_dropped_total", "rabbitmq_global_messages_unroutable_returned_total",
		"rabbitmq_global_messages_received_total", "rabbitmq_global_messages_delivered_total", "rabbitmq_global_messages_acknowledged_total",
		"rabbitmq_global_messages_redelivered_total", "rabbitmq_global_messages_dead_lettered_rejected_total", "rabbitmq_global_messages_dead_lettered_expired_total",
		"rabbitmq_channel_messages_unroutable_dropped_total", "rabbitmq_channel_messages_unroutable_returned_total", "rabbitmq_channel_messages_published_total",
	},
	"/metrics/per-object": {
		`rabbitmq_queue_messages{queue="alerts",vhost="/"} 1`, `rabbitmq_queue_messages_ready{queue="alerts",vhost="/"} 0`, `rabbitmq_queue_messages_unacked{queue="alerts",vhost="/"} 1`,
		`rabbitmq_queue_consumers{queue="alerts",vhost="/"} 0`, `rabbitmq_queue_head_message_timestamp{queue="stamped",vhost="/"} 1.7e+09`,
		`rabbitmq_channel_messages_published_total{channel="C",exchange="",vhost="/"} 6`,
		`rabbitmq_channel_messages_published_total{channel="C",exchange="amq.topic",vhost="/"} 2`,
		`rabbitmq_channel_messages_confirmed_total{channel="C",exchange="amq.topic",vhost="/"} 2`,
		`rabbitmq_channel_messages_confirmed_total{channel="C",exchange="",vhost="/"} 6`,
		`rabbitmq_channel_messages_unroutable_returned_total{channel="C",exchange="",vhost="/"} 1`,
		`rabbitmq_channel_messages_unroutable_dropped_total{channel="C",exchange="",vhost="/"} 2`,
		`rabbitmq_channel_get_ack_total{channel="C",queue="alerts",vhost="/"} 3`, `rabbitmq_channel_get_total{channel="C",queue="alerts",vhost="/"} 2`,
		`rabbitmq_channel_get_empty_total{channel="C",queue="alerts",vhost="/"} 1`, `rabbitmq_channel_messages_acked_total{channel="C",queue="alerts",vhost="/"} 1`,
		`rabbitmq_channel_messages_redelivered_total{channel="C",queue="alerts",vhost="/"} 1`, `rabbitmq_channel_messages_delivered_total{channel="C",queue="alerts",vhost="/"} 0`,
		`rabbitmq_channel_messages_delivered_ack_total{channel="C",queue="alerts",vhost="/"} 0`,
		`rabbitmq_queue_messages_published_total{channel="C",exchange="",exchange_vhost="/",queue="alerts",queue_vhost="/"} 2`,
		`rabbitmq_queue_messages_published_total{channel="C",exchange="amq.topic",exchange_vhost="/",queue="alerts",queue_vhost="/"} 1`,
		`rabbitmq_queue_exchange_messages_published_total{exchange="",queue="alerts",vhost="/"} 3`, // with that of a channel that is closed
		`rabbitmq_queue_exchange_messages_published_total{exchange="amq.topic",queue="alerts",vhost="/"} 1`,
	},
	"/metrics/detailed?family=channel_queue_exchange_metrics&family=queue_exchange_metrics&family=channel_queue_metrics": {
		`rabbitmq_detailed_queue_messages_published_total{channel="C",exchange="amq.topic",exchange_vhost="/",queue="alerts",queue_vhost="/"} 1`,
		`rabbitmq_detailed_queue_exchange_messages_published_total{exchange="amq.topic",queue="stamped",vhost="/"} 1`,
		`rabbitmq_detailed_channel_get_ack_total{channel="C",queue="alerts",vhost="/"} 3`,
	},
	"/metrics/memory-breakdown": {"rabbitmq_memory_other_erlang_process_bytes", "rabbitmq_memory_binary_heap_bytes", "rabbitmq_memory_runtime_reserved_unallocated_bytes"},
}

// port is what differs in the names of a connection.
var port = regexp.MustCompile(`channel="127[^"]* \(1\)"`)

// What alerts ask for is there, with RabbitMQ's labels: by channel, queue and exchange, too.
func TestAlertsFindTheirMetrics(t *testing.T) {
	dir := t.TempDir()
	bin, err := node.Build(dir)
	if err != nil {
		t.Fatal(err)
	}
	n, err := node.Start(node.Options{Bin: bin, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
	})
	conn, err := amqp.Dial("amqp://guest:guest@" + n.AMQP + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	open := func() *amqp.Channel {
		ch, err := conn.Channel()
		if err != nil {
			t.Fatal(err)
		}
		if err := ch.Confirm(false); err != nil {
			t.Fatal(err)
		}
		return ch
	}
	ch, other := open(), open()
	publish := func(ch *amqp.Channel, exchange, key string, mandatory bool, p amqp.Publishing) {
		t.Helper()
		c, err := ch.PublishWithDeferredConfirmWithContext(context.Background(), exchange, key, mandatory, false, p)
		if err != nil {
			t.Fatal(err)
		}
		c.Wait()
	}
	get := func(noAck, want bool) amqp.Delivery {
		t.Helper()
		d, ok, err := ch.Get("alerts", noAck)
		if err != nil || ok != want {
			t.Fatalf("get: %t, %v, want %t", ok, err, want)
		}
		return d
	}
	for _, queue := range []string{"alerts", "stamped"} {
		if _, err := ch.QueueDeclare(queue, true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := ch.QueueBind("alerts", "a.#", "amq.topic", false, nil); err != nil {
		t.Fatal(err)
	}
	if err := ch.QueueBind("stamped", "s.#", "amq.topic", false, nil); err != nil {
		t.Fatal(err)
	}
	stamped := amqp.Publishing{Timestamp: time.Unix(1_700_000_000, 0)}
	publish(ch, "", "alerts", false, amqp.Publishing{})
	publish(ch, "amq.topic", "a.b", false, amqp.Publishing{})
	publish(ch, "", "alerts", false, amqp.Publishing{})
	publish(other, "", "alerts", false, amqp.Publishing{})
	publish(ch, "", "nowhere", true, amqp.Publishing{})
	publish(ch, "", "nowhere", false, amqp.Publishing{})
	publish(ch, "", "nowhere", false, amqp.Publishing{})
	publish(ch, "amq.topic", "s.t", false, stamped)
	publish(ch, "", "stamped", false, amqp.Publishing{})
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	_ = get(true, true)
	if err := get(false, true).Ack(false); err != nil {
		t.Fatal(err)
	}
	_ = get(false, true) // stays out
	d := get(false, true)
	if err := d.Nack(false, true); err != nil {
		t.Fatal(err)
	}
	_ = get(true, true)
	_ = get(false, false)
	for path, want := range alerted {
		resp, err := http.Get("http://" + n.Prometheus + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		text := "\n" + port.ReplaceAllString(string(body), `channel="C"`)
		for _, line := range want {
			if strings.Contains(line, "{") {
				line += "\n" // with its value
			}
			if !strings.Contains(text, "\n"+line) {
				name, _, _ := strings.Cut(line, "{")
				t.Errorf("%s: no %s, but %q", path, line, regexp.MustCompile(`(?m)^`+name+`[ {].*`).FindAllString(text, -1))
			}
		}
	}
}
