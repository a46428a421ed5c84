package crash

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/test/node"
)

// replay sends rejected messages back to where they came from, again and again
// (DL-19.6). A replay is a move as a death is: the message is in one place, and
// it has died once more in the source than it was replayed, or not at all. If the source has
// a limit, most of what is replayed is refused, and stays what it was; then the two queues
// are often in two logs.
func replay(name string, limit ...any) *scenario {
	return &scenario{
		name: name, covers: oneLine,
		queues: []declared{{name: "source", args: to("", "dead", limit...)}, {name: "dead"}},
		history: func(m *known, c place, _ int) error {
			if c.queue == "source" {
				return died(c, nil, "") // a replay ends the history
			}
			return diedOnce("source", "rejected")(m, c, 0)
		},
		work: func(*life) []worker {
			message := func(*rand.Rand) publishing { return publishing{key: "source", lines: it} }
			return []worker{
				publish(&publisher{name: "p1", limit: 2000}, message),
				consume(&consumer{queue: "source", prefetch: 50, decide: func(r *rand.Rand, _ *amqp.Delivery) deed {
					return []deed{reject, reject, reject, hold}[r.IntN(4)]
				}}),
				func(ctx context.Context, c *clients) {
					for ctx.Err() == nil && c.replay(ctx, "dead") == nil {
						wait(ctx, 20*time.Millisecond)
					}
				},
			}
		},
	}
}

// replay asks the management API for a replay of a queue.
func (c *clients) replay(ctx context.Context, queue string) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.http+"/api/queues/%2F/"+queue+"/replay", strings.NewReader("{}"))
	if err != nil {
		return err
	}
	q.SetBasicAuth("guest", "guest")
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		return err // the server is dead
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		c.ledger.fault("replay of %s: %s", queue, answer.Status)
	}
	return nil
}

// replayed is what the management API answers to a replay.
type replayed struct {
	Matched, Replayed, Refused int
	RefusedBy                  map[string]int `json:"refused_by"`
}

// DL-19.6: what the answer to a replay says of each queue holds when the server is killed the
// moment after: each message is at its target or still in its source, in its place there. The
// targets are of both types, and quorum queues of all groups, so in other logs than the source.
func TestDL_19_6_KillAfterAReplayIsAnswered(t *testing.T) {
	if testing.Short() {
		t.Skip("kills servers for a while")
	}
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			o := node.Options{Bin: *binary, Dir: t.TempDir()}
			n, err := node.Start(o)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { n.Kill() }()
			const perTarget, limit = 90, 40
			want := map[string]int{"dead": 0}
			for i := range 6 {
				want[fmt.Sprint("target", i)] = 0
			}
			next := 0 // the number of the next message; those that are refused are the first of the next replay
			for range max(2, *kills/16) {
				next = park(t, n, kind, next, perTarget)
				for name := range want {
					if name != "dead" {
						purge(t, n, name)
						want[name] = 0
					}
				}
				before := want["dead"] + 6*perTarget
				var r replayed
				call(t, n, http.MethodPost, "/queues/%2F/dead/replay", "{}", &r)
				n.Kill()
				if r.Replayed+r.Refused != before || r.Matched != before || r.Replayed != 6*limit {
					t.Fatalf("%+v of %d", r, before)
				}
				want["dead"] = r.Refused
				for i := range 6 {
					name := fmt.Sprint("target", i)
					if by := r.RefusedBy["queue '"+name+"' is full"]; by != before/6-limit {
						t.Errorf("%s refused %d, want %d", name, by, before/6-limit)
					}
					want[name] = limit
				}
				if n, err = node.Start(o); err != nil {
					t.Fatal(err)
				}
				for name, messages := range want {
					var q struct {
						Messages int
						Ready    int `json:"messages_ready"`
						Transit  int `json:"messages_in_transit"`
						Stranded int `json:"messages_stranded"`
					}
					call(t, n, http.MethodGet, "/queues/%2F/"+name, "", &q)
					if q.Messages != messages || q.Ready != messages || q.Transit != 0 || q.Stranded != 0 {
						t.Errorf("after the kill %s has %d messages, the answer said %d: %+v", name, q.Ready, messages, q)
					}
				}
				if t.Failed() {
					return
				}
			}
		})
	}
}

// park declares the queues, publishes messages for six targets that a client has parked in
// "dead", in turn, and returns the number behind the last.
func park(t *testing.T, n *node.Node, kind string, next, perTarget int) int {
	t.Helper()
	conn, err := dial(n.AMQP)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare("dead", true, false, false, false, amqp.Table{"x-queue-type": kind}); err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		args := amqp.Table{"x-queue-type": []string{"classic", "quorum"}[i%2], "x-max-length": 40, "x-overflow": "reject-publish"}
		if _, err := ch.QueueDeclare(fmt.Sprint("target", i), true, false, false, false, args); err != nil {
			t.Fatal(err)
		}
	}
	var last *amqp.DeferredConfirmation
	for range 6 * perTarget {
		m := amqp.Publishing{
			DeliveryMode: amqp.Persistent, MessageId: fmt.Sprint(next),
			Headers: amqp.Table{"x-original-exchange": "", "x-original-routingKey": fmt.Sprint("target", next%6)},
		}
		if last, err = ch.PublishWithDeferredConfirm("", "dead", true, false, m); err != nil {
			t.Fatal(err)
		}
		next++
	}
	if ok, err := last.WaitContext(t.Context()); !ok || err != nil {
		t.Fatal(ok, err)
	}
	return next
}

func purge(t *testing.T, n *node.Node, name string) {
	t.Helper()
	call(t, n, http.MethodDelete, "/queues/%2F/"+name+"/contents", "", nil)
}

// call asks the management API, and reads its answer into the value given, if there is one.
func call(t *testing.T, n *node.Node, method, path, body string, into any) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, "http://"+n.HTTP+"/api"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	q.SetBasicAuth("guest", "guest")
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode >= http.StatusMultipleChoices {
		t.Fatalf("%s %s: %s", method, path, answer.Status)
	}
	if into == nil {
		return
	}
	if err := json.NewDecoder(answer.Body).Decode(into); err != nil {
		t.Fatal(err)
	}
}
