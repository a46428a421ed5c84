package ctl_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// What RabbitMQ's tools can be asked is answered in their form; plugins that are built in can be enabled, also without a node.
func TestWhereVerbs(t *testing.T) {
	url, b := node(t)
	c := b.AsOperator("test", "/")
	if _, err := c.DeclareQueue(topology.QueueDecl{Name: "q", Durable: true}); err != nil {
		t.Fatal(err)
	}
	p := broker.Publication{Key: []byte("q"), Raw: amqp091.AppendPropsFrom(nil, amqp091.PropertyList{Headers: []amqp091.Field{{Key: "h", Value: "v"}}}), Body: [][]byte{[]byte("body")}, Size: 4}
	var err error
	if p.Props, err = amqp091.ParseProps(p.Raw); err != nil {
		t.Fatal(err)
	}
	if _, err := c.PublishOne(&p); err != nil {
		t.Fatal(err)
	}
	stream := filepath.Join(t.TempDir(), "d.json")
	if err := os.WriteFile(stream, []byte(`{"queues":[{"name":"s","vhost":"/","durable":true,"auto_delete":false,"arguments":{"x-queue-type":"stream"}},{"name":"made","vhost":"/","durable":true,"auto_delete":false,"arguments":{}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	online := []string{"--url", url, "--user", "guest", "--password", "guest"}
	for _, tt := range []struct {
		tool string
		line string
		code int
		want string
	}{
		{"rabbitmqctl", "log_location", 0, "Log file location(s) on node"},
		{"rabbitmqctl", "resolve_hostname 127.0.0.1", 0, "127.0.0.1"},
		{"rabbitmqctl", "resolve_hostname --address-family ipx localhost", 64, "ipv4, ipv6"},
		{"rabbitmqctl", "metadata_store_status", 0, "leader"},
		{"rabbitmqctl", "list_ciphers", 0, "TLS_AES_256_GCM_SHA384"},
		{"rabbitmqctl", "peek q 1", 0, "header.h"},
		{"rabbitmqctl", "peek q 2", 69, "does not have a message at that position"},
		{"rabbitmqctl", "peek none 1", 69, "Target queue was not found"},
		{"rabbitmqctl", "peek q 0", 64, "position value must be a positive integer"},
		{"rabbitmqctl", "import_definitions --format erlang " + stream, 65, "format erlang is not supported"},
		{"rabbitmqctl", "import_definitions --dry-run " + stream, 65, "queues: 's' in vhost '/'"},
		{"rabbitmqctl", "import_definitions " + stream, -1, "queue 's' in vhost '/'"},
		{"rabbitmqctl", "import_definitions --format json --skip-unsupported " + stream, 0, "queue 's' in vhost '/' is left out"},
		{"rabbitmqctl", "import_definitions --skip-if-unchanged " + stream, 0, "nothing was imported"},
		{"rabbitmqctl", "export_definitions --format json -", 0, "cluster_tags"},
		{"rabbitmq-plugins", "directories", 0, "Enabled plugins file: "},
		{"rabbitmq-plugins", "enable rabbitmq_event_exchange rabbitmq_management", 0, "Plugin configuration unchanged."},
		{"rabbitmq-plugins", "is_enabled rabbitmq_event_exchange", 0, "is enabled"},
		{"rabbitmq-plugins", "enable rabbitmq_mqtt rabbitmq_management", 65, "[:rabbitmq_mqtt]"},
		{"offline", "enable --offline rabbitmq_management rabbitmq_prometheus", 0, "Plugin configuration unchanged."},
		{"offline", "enable --offline rabbitmq_stream", 65, "[:rabbitmq_stream]"},
		{"offline", "directories --offline", 0, "Plugin archives directory: "},
	} {
		name, args := tt.tool, append(strings.Fields(tt.line), online...)
		if tt.tool == "offline" {
			name, args = "rabbitmq-plugins", append(strings.Fields(tt.line), "--url", "http://127.0.0.1:1")
		}
		code, out, errs := runAs(name, args...)
		if code != tt.code && (tt.code >= 0 || code == 0) || !strings.Contains(out+errs, tt.want) {
			t.Errorf("%s %s: exit %d, %s%s; want %d and %q", name, tt.line, code, out, errs, tt.code, tt.want)
		}
	}
}
