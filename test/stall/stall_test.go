package stall

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/test/node"
)

var (
	bartleby = flag.String("bartleby", "", "the server (default: build one)")
	full     = flag.Bool("stall", false, "the full sizes, and a bound on the bystander's latency")
)

// bound is how long one in a thousand of the bystander's messages may take.
const bound = 50 * time.Millisecond

var server *node.Node

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "bartleby-stall-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if *bartleby == "" {
		if *bartleby, err = node.Build(dir); err != nil {
			return 0, err
		}
	}
	if server, err = node.Start(node.Options{Bin: *bartleby, Dir: dir}); err != nil {
		return 0, err
	}
	code = m.Run()
	return code, server.Stop()
}

func dial(t *testing.T) *amqp.Connection {
	t.Helper()
	conn, err := amqp.Dial("amqp://guest:guest@" + server.AMQP + "/")
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// client is whoever does what is large.
type client struct {
	t *testing.T
	*amqp.Channel
}

func newClient(t *testing.T) *client {
	t.Helper()
	conn := dial(t)
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return &client{t, ch}
}

func (c *client) declare(name string, args amqp.Table) {
	c.t.Helper()
	if _, err := c.QueueDeclare(name, true, false, false, false, args); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _, _ = c.QueueDelete(name, false, false, false) })
}

// fill publishes n small messages and returns when they are in the queue, or
// have been.
func (c *client) fill(queue string, n int) {
	c.t.Helper()
	for range n {
		if err := c.Publish("", queue, false, false, amqp.Publishing{Body: []byte("x")}); err != nil {
			c.t.Fatal(err)
		}
	}
	c.count(queue)
}

// count returns the number of ready messages, after all that the channel has sent.
func (c *client) count(queue string) int {
	c.t.Helper()
	q, err := c.QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	return q.Messages
}

// until waits for a number of ready messages.
func (c *client) until(queue string, want int) {
	c.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		n := c.count(queue)
		if n == want {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("%s has %d messages, want %d", queue, n, want)
		}
	}
}

// size is how many messages a test uses that wants n in the end.
func size(n int) int {
	if *full {
		return n
	}
	return n / 100
}

// One large deed on a queue, and what a bystander sees of it.
func TestLargeDeeds(t *testing.T) {
	tests := []struct {
		name string
		size int
		// prepare makes the queues "large" and "dead" hold what do needs.
		prepare func(c *client, n int)
		do      func(c *client, n int)
	}{
		{"one nack of so many deliveries", 200_000,
			func(c *client, n int) { c.declare("large", toDead(nil)); c.fill("large", n) },
			func(c *client, n int) {
				deliveries, err := c.Consume("large", "", false, false, false, false, nil)
				if err != nil {
					c.t.Fatal(err)
				}
				for k := 1; k <= n; k++ {
					d, ok := <-deliveries
					if !ok {
						c.t.Fatal("the deliveries end")
					}
					if k == n {
						err = d.Nack(true, false)
					}
				}
				if err != nil {
					c.t.Fatal(err)
				}
				c.until("dead", n)
			}},
		{"so many that expire at once", 1_000_000,
			func(c *client, n int) {
				// All become due when the last was published, or nearly.
				c.declare("large", toDead(amqp.Table{"x-message-ttl": n / 50}))
			},
			func(c *client, n int) { c.fill("large", n); c.until("dead", n) }},
		{"a policy that leaves one of so many", 2_000_000,
			func(c *client, n int) { c.declare("large", toDead(nil)); c.fill("large", n) },
			func(c *client, n int) {
				policy(c.t, http.MethodPut, `{"pattern":"^large$","apply-to":"queues","definition":{"max-length":1}}`)
				c.until("dead", n-1)
				policy(c.t, http.MethodDelete, "")
			}},
		{"a purge", 1_000_000,
			func(c *client, n int) { c.declare("large", nil); c.fill("large", n) },
			func(c *client, n int) {
				if purged, err := c.QueuePurge("large", false); err != nil || purged != n {
					c.t.Fatalf("purged %d (%v), want %d", purged, err, n)
				}
			}},
		{"a delete", 1_000_000,
			func(c *client, n int) { c.declare("large", nil); c.fill("large", n) },
			func(c *client, n int) {
				if deleted, err := c.QueueDelete("large", false, false, false); err != nil || deleted != n {
					c.t.Fatalf("deleted %d (%v), want %d", deleted, err, n)
				}
			}},
		{"a client that goes with so many unacked", 200_000,
			func(c *client, n int) { c.declare("large", nil); c.fill("large", n) },
			func(c *client, n int) {
				other := newClient(c.t)
				deliveries, err := other.Consume("large", "", false, false, false, false, nil)
				if err != nil {
					c.t.Fatal(err)
				}
				for range n {
					<-deliveries
				}
				_ = other.Close()
				c.until("large", n)
			}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := newClient(t)
			n := size(test.size)
			c.declare("dead", nil)
			test.prepare(c, n)
			b := watch(t)
			began := time.Now()
			test.do(c, n)
			took := time.Since(began)
			// What is left to do in the background disturbs too.
			time.Sleep(time.Duration(size(int(time.Second))))
			s := stop(t, b)
			t.Logf("%-42s %8d in %8s: %s", test.name, n, took.Round(time.Millisecond), s)
		})
	}
}

func toDead(more amqp.Table) amqp.Table {
	args := amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
	for k, v := range more {
		args[k] = v
	}
	return args
}

func policy(t *testing.T, method, body string) {
	t.Helper()
	q, err := http.NewRequest(method, "http://"+server.HTTP+"/api/policies/%2F/large", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	q.SetBasicAuth("guest", "guest")
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		t.Fatalf("%s policy: %s", method, answer.Status)
	}
}
