package prometheus

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/test/node"
)

const (
	rules     = "../../deploy/prometheus/bartleby.rules.yml"
	dashboard = "../../deploy/grafana/bartleby-dead-letters.json"
)

// tool is the path of a program, or skips the test.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrNotFound) && os.Getenv("CI") != "true" {
		t.Skipf("%s is not installed", name)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// The rules are well formed, and each alert fires after its time and not before.
func TestRules(t *testing.T) {
	promtool := tool(t, "promtool")
	for _, args := range [][]string{
		{"check", "config", "prometheus.yml"}, {"check", "rules", "bartleby.rules.yml"}, {"test", "rules", "bartleby.rules.test.yml"},
	} {
		c := exec.Command(promtool, args...)
		c.Dir = filepath.Dir(rules)
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// prometheus is a running Prometheus.
type prometheus struct {
	*testing.T
	url string
}

// waits strips what alerts wait for: their times are promtool's to check.
var waits = regexp.MustCompile(`(?m)^ +for: .*\n`)

// start runs a Prometheus that scrapes the node every second.
func start(t *testing.T, n *node.Node) *prometheus {
	t.Helper()
	bin := tool(t, "prometheus")
	dir := t.TempDir()
	text, err := os.ReadFile(rules)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "rules.yml"), waits.ReplaceAll(text, nil), 0o644); err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(`
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [rules.yml]
scrape_configs:
  - {job_name: bartleby, static_configs: [{targets: [%q]}]}
  - job_name: bartleby-queues
    metrics_path: /metrics/detailed
    params: {family: [queue_coarse_metrics, queue_consumer_count, dead_letters]}
    static_configs: [{targets: [%q]}]
`, n.Prometheus, n.Prometheus)
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	c := exec.Command(bin, "--config.file", filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", address)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	return &prometheus{t, "http://" + address}
}

// freePort is one that nobody listens at now.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

// get reads the data of an answer; it says whether there was one.
func (p *prometheus) get(path string, query url.Values, into any) bool {
	resp, err := http.Get(p.url + path + "?" + query.Encode())
	if err != nil {
		return false
	}
	defer func() { _ = resp.Body.Close() }()
	var reply struct {
		Status string
		Error  string
		Data   json.RawMessage
	}
	if err := json.NewDecoder(resp.Body).Decode(&reply); err != nil {
		return false
	}
	if reply.Status != "success" {
		p.Fatalf("%s %v: %s", path, query, reply.Error)
	}
	if err := json.Unmarshal(reply.Data, into); err != nil {
		p.Fatal(err)
	}
	return true
}

// wait waits until a condition holds; Prometheus takes some scrapes.
func (p *prometheus) wait(what func() string) {
	p.Helper()
	left := ""
	for range 120 {
		if left = what(); left == "" {
			return
		}
		time.Sleep(500 * time.Millisecond)
	}
	p.Fatal(left)
}

// firing are the names of the alerts that fire.
func (p *prometheus) firing() (names []string) {
	var data struct {
		Alerts []struct {
			Labels map[string]string
			State  string
		}
	}
	p.get("/api/v1/alerts", nil, &data)
	for _, a := range data.Alerts {
		if a.State == "firing" {
			names = append(names, a.Labels["alertname"])
		}
	}
	return names
}

// has says whether an expression has a result.
func (p *prometheus) has(expr string) bool {
	var data struct{ Result []any }
	return p.get("/api/v1/query", url.Values{"query": {expr}}, &data) && len(data.Result) > 0
}

// Messages die in every way; all panels have data and all alerts fire but those that
// need a day, a failure of the node or a late clock, and that of the lost and found: without it
// dead letters are lost.
func TestDashboardAndAlerts(t *testing.T) {
	tool(t, "prometheus")
	dir := t.TempDir()
	bin, err := node.Build(dir)
	if err != nil {
		t.Fatal(err)
	}
	n, err := node.Start(node.Options{Bin: bin, Dir: dir, Config: "lost_and_found.enabled = false\n"})
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
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, n)
	p.wait(func() string {
		if p.has(`up{job="bartleby-queues"} == 1`) && p.has("bartleby_dead_lettered_total") {
			return ""
		}
		return "nothing is scraped"
	})
	declareAll(t, ch)
	p.wait(func() string { // else there is nothing that grows
		if p.has("bartleby:dead_letter_queue_messages") {
			return ""
		}
		return "the depth of dead-letter queues is not recorded"
	})
	die(t, ch)
	p.wait(p.panelsWithoutData)
	want := []string{"BartlebyDeadLettersLost", "BartlebyDeadLetterExchangeMissing", "BartlebyDeadWithoutExchange", "BartlebyDeadLetterQueueDeep", "BartlebyDeadLetterQueueGrows", "BartlebyParkingLotNotEmpty", "BartlebyDeadLettersHeld"}
	p.wait(func() string {
		firing := p.firing()
		for _, name := range want {
			if !slices.Contains(firing, name) {
				return fmt.Sprintf("%s does not fire; these do: %v", name, firing)
			}
		}
		return ""
	})
	block(t, n)
	p.wait(func() string {
		if firing := p.firing(); !slices.Contains(firing, "BartlebyPublishersBlocked") {
			return fmt.Sprintf("an alarm of the node fires no alert; these do: %v", firing)
		}
		return ""
	})
}

// declareAll declares a queue for each way to die.
func declareAll(t *testing.T, ch *amqp.Channel) {
	t.Helper()
	declare := func(name string, arguments amqp.Table) {
		if _, err := ch.QueueDeclare(name, true, false, false, false, arguments); err != nil {
			t.Fatal(err)
		}
	}
	declare("dlq", nil)
	declare("parking-lot", nil)
	declare("orders", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dlq"})
	declare("unroutable", amqp.Table{"x-dead-letter-exchange": "amq.direct", "x-dead-letter-routing-key": "nobody"})
	declare("misspelt", amqp.Table{"x-dead-letter-exchange": "typo-dlx"})
	declare("plain", nil)
	declare("held", amqp.Table{"x-queue-type": "quorum", "x-dead-letter-exchange": "amq.direct", "x-dead-letter-routing-key": "nobody",
		"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"})
	declare("retry", amqp.Table{"x-queue-type": "quorum", "x-delayed-retry-type": "all", "x-delayed-retry-min": int64(600_000), "x-delayed-retry-max": int64(600_000)})
}

// die publishes and rejects: into a dead-letter queue, into nowhere, with an exchange that does not exist, without an
// exchange, held by at-least-once, and waiting for a retry.
func die(t *testing.T, ch *amqp.Channel) {
	t.Helper()
	send := func(queue string, n int) {
		for range n {
			if err := ch.Publish("", queue, false, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte("m")}); err != nil {
				t.Fatal(err)
			}
		}
	}
	reject := func(queue string, requeue bool, n int) {
		for range n {
			d, ok, err := ch.Get(queue, false)
			if err != nil || !ok {
				t.Fatal("nothing in ", queue, err)
			}
			if err := d.Reject(requeue); err != nil {
				t.Fatal(err)
			}
		}
	}
	send("dlq", 1100)
	send("parking-lot", 1)
	for _, queue := range []string{"orders", "unroutable", "misspelt", "plain", "held"} {
		send(queue, 3)
		reject(queue, false, 3)
	}
	send("retry", 1)
	reject("retry", true, 1)
	// Counters must move while they are looked at, for rates.
	send("orders", 3)
	reject("orders", false, 3)
}

// panelsWithoutData names the panels of the dashboard that have none.
func (p *prometheus) panelsWithoutData() string {
	text, err := os.ReadFile(dashboard)
	if err != nil {
		p.Fatal(err)
	}
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		p.Fatal(err)
	}
	if len(d.Panels) == 0 {
		p.Fatal("the dashboard has no panels")
	}
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			if !p.has(strings.ReplaceAll(target.Expr, "$instance", ".*")) {
				return fmt.Sprintf("panel %q has no data for %s", panel.Title, target.Expr)
			}
		}
	}
	return ""
}

// block sets a memory limit that the node is above.
func block(t *testing.T, n *node.Node) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPut, "http://"+n.HTTP+"/api/control/memory-watermark", strings.NewReader(`{"bytes":1}`))
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth("guest", "guest")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusNoContent {
		t.Fatal(resp.Status)
	}
}
