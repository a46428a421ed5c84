//go:build linux

package container

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/test/certificate"
)

const started = "Server startup complete"

func dial(t *testing.T, url string) *amqp.Channel {
	t.Helper()
	c, err := amqp.DialConfig(url, amqp.Config{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	ch, err := c.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

// Java: the first user by variables, a configuration file by its name without .conf, the
// line that is waited for, and commands executed after it.
func TestJavaModule(t *testing.T) {
	p := ports(t, 3)
	c := run(t, []string{
		"RABBITMQ_DEFAULT_USER=ada", "RABBITMQ_DEFAULT_PASS=secret", "RABBITMQ_CONFIG_FILE=/etc/rabbitmq/rabbitmq-custom",
	}, map[string]string{
		"etc/rabbitmq/rabbitmq-custom.conf": fmt.Sprintf("listeners.tcp.default = %d\n", p[0]) + elsewhere(p[1], p[2]) +
			"load_definitions = /etc/rabbitmq/definitions.json\n",
		"etc/rabbitmq/definitions.json": `{"queues":[{"name":"defined","vhost":"/","durable":true,"auto_delete":false,"arguments":{}}],"vhosts":[{"name":"/"}]}`,
	}, started)
	for _, args := range [][]string{
		{"rabbitmq-plugins", "enable", "rabbitmq_shovel"},
		{"rabbitmqadmin", "declare", "vhost", "name=vhost1", "tracing=true"},
		{"rabbitmqadmin", "declare", "vhost_limit", "vhost=vhost1", "name=max-connections", "value=10"},
		{"rabbitmqadmin", "declare", "user", "name=user1", "password=password1", "tags=administrator,monitoring"},
		{"rabbitmqadmin", "declare", "permission", "vhost=vhost1", "user=user1", "configure=.*", "write=.*", "read=.*"},
		{"rabbitmqadmin", "declare", "exchange", "name=direct-exchange", "type=direct"},
		{"rabbitmqadmin", "--vhost=vhost1", "declare", "exchange", "name=x", "type=topic", "auto_delete=false", "internal=false", "durable=true", "arguments={}"},
		{"rabbitmqadmin", "declare", "queue", "name=queue1"},
		{"rabbitmqadmin", "declare", "queue", "name=queue2", "auto_delete=true", "durable=false", `arguments={"x-message-ttl":1000}`},
		{"rabbitmqadmin", "declare", "binding", "source=direct-exchange", "destination=queue1"},
		{"rabbitmqadmin", "declare", "binding", "source=direct-exchange", "destination=queue2", "routing_key=ss", "destination_type=queue", "arguments={}"},
		{"rabbitmqadmin", "declare", "policy", "name=max length policy", "pattern=^dog", `definition={"max-length":1}`, "priority=1", "apply-to=queues"},
		{"rabbitmqadmin", "declare", "policy", "--vhost=vhost1", "name=alternate", "pattern=^x", `definition={"alternate-exchange":"amq.direct"}`},
		{"rabbitmqadmin", "declare", "operator_policy", "name=operator policy 1", "pattern=^queue1", `definition={"message-ttl":1000}`, "priority=1", "apply-to=queues"},
		{"bartleby", "ping", "--quiet"}, // HEALTHCHECK
	} {
		c.exec(t, args...)
	}
	for of, want := range map[string][]string{
		"list_queues -q name policy operator_policy": {"defined", "queue1", "operator policy 1", "queue2"},
		"list_bindings -q":                           {"direct-exchange\texchange\tqueue2\tqueue\tss"},
		"list_users -q":                              {"ada\t[administrator]", "user1\t[administrator, monitoring]"},
		"list_policies -q -p vhost1":                 {"alternate"},
		"list_permissions -q -p vhost1":              {"user1\t.*"},
	} {
		out := c.exec(t, append([]string{"rabbitmqctl"}, strings.Fields(of)...)...)
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("%s: %q is not in\n%s", of, w, out)
			}
		}
	}
	if _, err := dial(t, fmt.Sprintf("amqp://user1:password1@127.0.0.1:%d/vhost1", p[0])).QueueDeclare("q", true, false, false, false, nil); err != nil {
		t.Error(err)
	}
	answer, err := http.Get(fmt.Sprintf("http://ada:secret@127.0.0.1:%d/api/whoami", p[1]))
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Errorf("management API: %s", answer.Status)
	}
}

// Go: a configuration of the module's own, and with TLS the line about its listener.
func TestGoModuleWithTLS(t *testing.T) {
	p := ports(t, 3)
	dir := t.TempDir()
	ca := certificate.NewAuthority(t, "ca")
	cert, key := ca.Issue(t, "server", time.Hour, nil).Write(t, dir)
	read := func(name string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	run(t, []string{
		"RABBITMQ_DEFAULT_USER=guest", "RABBITMQ_DEFAULT_PASS=guest", "RABBITMQ_CONFIG_FILE=/etc/rabbitmq/rabbitmq-testcontainers.conf",
	}, map[string]string{
		"etc/rabbitmq/rabbitmq_cert.pem": read(cert), "etc/rabbitmq/rabbitmq_key.pem": read(key), "etc/rabbitmq/ca_cert.pem": read(cert),
		"etc/rabbitmq/rabbitmq-testcontainers.conf": "# Injected by testcontainers\ndefault_user = guest\ndefault_pass = guest\nlisteners.tcp = none\n" +
			fmt.Sprintf("listeners.ssl.default = %d\n", p[0]) +
			"ssl_options.cacertfile = /etc/rabbitmq/ca_cert.pem\nssl_options.certfile = /etc/rabbitmq/rabbitmq_cert.pem\nssl_options.keyfile = /etc/rabbitmq/rabbitmq_key.pem\n" +
			"ssl_options.depth = 1\nssl_options.verify = verify_none\nssl_options.fail_if_no_peer_cert = false\n" + elsewhere(p[1], p[2]),
	}, fmt.Sprintf("started TLS (SSL) listener on [::]:%d", p[0]), started)
	dial(t, fmt.Sprintf("amqps://guest:guest@127.0.0.1:%d/", p[0]))
}

// Python: everything by variables, and logins until one is let in.
func TestPythonModule(t *testing.T) {
	p := ports(t, 3)
	run(t, []string{
		fmt.Sprint("RABBITMQ_NODE_PORT=", p[0]), "RABBITMQ_DEFAULT_USER=guest", "RABBITMQ_DEFAULT_PASS=guest", "RABBITMQ_DEFAULT_VHOST=house",
	}, map[string]string{"etc/rabbitmq/conf.d/20-ports.conf": elsewhere(p[1], p[2])}, started)
	dial(t, fmt.Sprintf("amqp://guest:guest@127.0.0.1:%d/house", p[0]))
}
