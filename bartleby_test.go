package bartleby_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"bartleby.mq"
)

// TestMain sees to it that no broker leaves a goroutine behind.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(int) { http.DefaultTransport.(*http.Transport).CloseIdleConnections() }))
}

func start(t testing.TB, o bartleby.Options) *bartleby.Broker {
	t.Helper()
	b, err := bartleby.Start(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, b) })
	return b
}

func stop(t testing.TB, b *bartleby.Broker) {
	t.Helper()
	if err := b.Stop(); err != nil {
		t.Error(err)
	}
}

func channel(t testing.TB, url string) *amqp.Channel {
	t.Helper()
	c, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // the broker may have been there first
	ch, err := c.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

// put publishes a persistent message into a durable queue and waits until it is safe.
func put(t testing.TB, ch *amqp.Channel, queue, body string) {
	t.Helper()
	if _, err := ch.QueueDeclare(queue, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	sent, err := ch.PublishWithDeferredConfirm("", queue, false, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte(body)})
	if err != nil || !sent.Wait() {
		t.Fatal("not confirmed: ", err)
	}
}

func take(t testing.TB, ch *amqp.Channel, queue string) string {
	t.Helper()
	d, ok, err := ch.Get(queue, true)
	if err != nil || !ok {
		t.Fatalf("get from %q: a message: %v, %v", queue, ok, err)
	}
	return string(d.Body)
}

func body(t testing.TB, url string) string {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", url, answer.Status, err)
	}
	return string(text)
}

// Several brokers in one process share nothing; each has its protocol, API and metrics.
func TestSeveralBrokersInMemory(t *testing.T) {
	var brokers []*bartleby.Broker
	for i := range 3 {
		b := start(t, bartleby.Options{})
		put(t, channel(t, b.URL()), "q", fmt.Sprint("of broker ", i))
		brokers = append(brokers, b)
	}
	for i, b := range brokers {
		var queues []struct{ Name string }
		api := strings.Replace(b.ManagementURL(), "//", "//guest:guest@", 1)
		if err := json.Unmarshal([]byte(body(t, api+"/api/queues?columns=name")), &queues); err != nil || len(queues) != 1 {
			t.Errorf("broker %d has %v, %v; want its one queue", i, queues, err)
		}
		if !strings.Contains(body(t, b.MetricsURL()), "rabbitmq_queues 1\n") {
			t.Errorf("the metrics of broker %d do not have its one queue", i)
		}
		if got := take(t, channel(t, b.URL()), "q"); got != fmt.Sprint("of broker ", i) {
			t.Errorf("broker %d delivers %q", i, got)
		}
	}
}

// What is durable in a directory is there for the next broker on it, and no two
// brokers use it at once.
func TestOnDisk(t *testing.T) {
	o := bartleby.Options{Dir: t.TempDir()}
	b := start(t, o)
	put(t, channel(t, b.URL()), "q", "kept")
	if second, err := bartleby.Start(t.Context(), o); err == nil {
		stop(t, second)
		t.Error("a second broker started on the same directory")
	} else if !strings.Contains(err.Error(), "in use") {
		t.Error(err)
	}
	stop(t, b)
	b = start(t, o)
	if got := take(t, channel(t, b.URL()), "q"); got != "kept" {
		t.Errorf("%q is in the queue after a restart", got)
	}
}

// The end of its context, and the management API, stop a broker as Stop does.
func TestStoppedByOthers(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	b, err := bartleby.Start(ctx, bartleby.Options{})
	if err != nil {
		t.Fatal(err)
	}
	closed := channel(t, b.URL()).NotifyClose(make(chan *amqp.Error, 1))
	cancel()
	if e := <-closed; e == nil || e.Code != amqp.ConnectionForced {
		t.Errorf("the client was told %v, want 320", e)
	}
	<-b.Done()
	stop(t, b)
	stop(t, b) // once more is no harm

	if _, err := bartleby.Start(ctx, bartleby.Options{}); err != context.Canceled {
		t.Errorf("a start in a context that has ended: %v", err)
	}
}

// Config, Definitions and addresses are what they are for a node; a broker that does
// not start says why and leaves nothing.
func TestOptions(t *testing.T) {
	b := start(t, bartleby.Options{
		Config:      "default_user = ada\ndefault_pass = a/b\ndefault_vhost = house/1\nmanagement.tcp.ip = 127.0.0.1\n",
		Definitions: []byte(`{"vhosts":[{"name":"house/1"}],"queues":[{"name":"defined","vhost":"house/1","durable":true,"auto_delete":false,"arguments":{}}]}`),
		Prometheus:  "none",
	})
	if b.Prometheus() != "" || b.MetricsURL() != "" || b.AMQPS() != "" {
		t.Errorf("metrics at %q, AMQP with TLS at %q, want nowhere", b.MetricsURL(), b.AMQPS())
	}
	if want := "amqp://ada:a%2Fb@" + b.AMQP() + "/house%2F1"; b.URL() != want {
		t.Errorf("URL %q, want %q", b.URL(), want)
	}
	if _, err := channel(t, b.URL()).QueueDeclarePassive("defined", true, false, false, false, nil); err != nil {
		t.Error(err)
	}
	for want, o := range map[string]bartleby.Options{
		"hearbeat: unknown key":  {Config: "hearbeat = 1"},
		"address already in use": {AMQP: b.AMQP()},
		"definitions options":    {Definitions: []byte("{")},
	} {
		if b, err := bartleby.Start(t.Context(), o); err == nil {
			stop(t, b)
			t.Errorf("started, want %q", want)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Start and stop of a broker in memory; a client's connection is not in it.
func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		broker, err := bartleby.Start(b.Context(), bartleby.Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		stop(b, broker)
		b.StartTimer()
	}
}
