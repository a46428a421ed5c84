package crash

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// replay sends rejected messages back to where they came from, again and again
// (DL-19.6). A replay is a move as a death is: the message is in one place, and
// it has died once more in the source than it was replayed, or not at all.
func replay() *scenario {
	return &scenario{
		name: "replay", covers: oneLine,
		queues: []declared{{name: "source", args: to("", "dead")}, {name: "dead"}},
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
