package crash

import (
	"context"
	"fmt"
	"math/rand/v2"

	amqp "github.com/rabbitmq/amqp091-go"
)

// scenarios are all ways to die. Each call makes new ones, since they keep state.
func scenarios() []*scenario {
	return []*scenario{
		rejectSingle(), rejectMultiple(), expireQueue(), expireMessage(), expireMass(), overflow(), deliveryLimit(),
		fanOut(), retryLoop(), chain(), atLeastOnce(), publishFanout(), delayed(), transactions(), replay("replay"), replay("replay-full", "x-max-length", 25, "x-overflow", "reject-publish"), delayedRetry(), together(),
	}
}

// publish returns a worker with a publisher that goes on where it was.
func publish(p *publisher, message func(r *rand.Rand) publishing) worker {
	return func(ctx context.Context, c *clients) { p.run(ctx, c, message) }
}

func consume(k *consumer) worker {
	return func(ctx context.Context, c *clients) { k.run(ctx, c) }
}

func rejectSingle() *scenario {
	return &scenario{
		name: "reject-single", covers: oneLine, history: diedOnce("source", "rejected"),
		queues: []declared{{name: "source", args: to("", "dead")}, {name: "dead"}},
		work: func(l *life) []worker {
			message := func(*rand.Rand) publishing { return publishing{key: "source", lines: it} }
			return []worker{
				publish(&publisher{name: "p1", limit: 3000}, message), publish(&publisher{name: "p2", limit: 3000}, message),
				consume(&consumer{queue: "source", prefetch: 100, decide: func(r *rand.Rand, _ *amqp.Delivery) deed {
					return []deed{reject, reject, reject, reject, ack, hold, nackReturn}[r.IntN(7)]
				}}),
			}
		},
	}
}

func rejectMultiple() *scenario {
	return &scenario{
		name: "reject-multiple", covers: oneLine, history: diedOnce("source", "rejected"), ordered: []string{"dead"},
		queues: []declared{{name: "source", args: to("", "dead")}, {name: "dead"}},
		work: func(l *life) []worker {
			message := func(*rand.Rand) publishing { return publishing{key: "source", lines: it} }
			return []worker{
				publish(&publisher{name: "p1", limit: 5000, burst: 500}, message), publish(&publisher{name: "p2", limit: 3000}, message),
				consume(&consumer{queue: "source", prefetch: 700, decide: func(r *rand.Rand, _ *amqp.Delivery) deed {
					if r.IntN(200) == 0 {
						return nackSoFar
					}
					return hold
				}}),
			}
		},
	}
}

func expireQueue() *scenario {
	return &scenario{
		name: "expire-queue", covers: oneLine, history: diedOnce("source", "expired"), ordered: []string{"dead"},
		queues: []declared{{name: "source", args: to("", "dead", "x-message-ttl", 40)}, {name: "dead"}},
		work: func(l *life) []worker {
			message := func(*rand.Rand) publishing { return publishing{key: "source", lines: it} }
			return []worker{
				publish(&publisher{name: "p1", limit: 3000}, message), publish(&publisher{name: "p2", limit: 3000}, message),
			}
		},
	}
}

func expireMessage() *scenario {
	return &scenario{
		name: "expire-message", covers: oneLine, history: diedOnce("source", "expired"),
		queues: []declared{{name: "source", args: to("", "dead")}, {name: "dead"}},
		work: func(l *life) []worker {
			return []worker{
				publish(&publisher{name: "p1", limit: 3000}, func(r *rand.Rand) publishing {
					return publishing{key: "source", lines: it, expiration: millis(r.IntN(300))}
				}),
				consume(&consumer{queue: "source", prefetch: 5, decide: func(r *rand.Rand, _ *amqp.Delivery) deed {
					return []deed{slowly, hold, nackReturn}[r.IntN(3)]
				}}),
			}
		},
	}
}

// expireMass lets thousands of messages become due at the same moment.
func expireMass() *scenario {
	return &scenario{
		name: "expire-mass", covers: oneLine, history: diedOnce("source", "expired"), ordered: []string{"dead"},
		queues: []declared{{name: "source", args: to("", "dead", "x-message-ttl", 300)}, {name: "dead"}},
		work: func(l *life) []worker {
			message := func(*rand.Rand) publishing { return publishing{key: "source", lines: it} }
			return []worker{publish(&publisher{name: "p1", limit: 8000, burst: 8000}, message)}
		},
	}
}

func overflow() *scenario {
	return &scenario{
		name: "maxlen", covers: oneLine, history: diedOnce("source", "maxlen"), ordered: []string{"dead", "source"},
		queues: []declared{{name: "source", args: to("", "dead", "x-max-length", 10)}, {name: "dead"}},
		work: func(l *life) []worker {
			message := func(*rand.Rand) publishing { return publishing{key: "source", lines: it} }
			return []worker{
				publish(&publisher{name: "p1", limit: 4000, burst: 600}, message), publish(&publisher{name: "p2", limit: 3000}, message),
			}
		},
	}
}

func deliveryLimit() *scenario {
	const limit = 2
	return &scenario{
		name: "delivery-limit", covers: oneLine,
		queues: []declared{{name: "source", kind: "quorum", args: to("", "dead", "x-delivery-limit", limit)}, {name: "dead"}},
		history: func(m *known, c place, kills int) error {
			if c.queue == "source" {
				return died(c, nil, "")
			}
			// Each failure is a reject that was sent, or a delivery that a kill took back.
			if m.rejects+kills < limit+1 {
				return fmt.Errorf("it died of the delivery limit after %d rejects and %d kills", m.rejects, kills)
			}
			return died(c, map[string]int64{"source/delivery_limit": 1}, "source/delivery_limit")
		},
		work: func(l *life) []worker {
			message := func(*rand.Rand) publishing { return publishing{key: "source", lines: it} }
			return []worker{
				publish(&publisher{name: "p1", limit: 2000}, message),
				consume(&consumer{queue: "source", prefetch: 50, decide: func(r *rand.Rand, _ *amqp.Delivery) deed {
					return []deed{again, again, again, again, again, ack, hold}[r.IntN(7)]
				}}),
			}
		},
	}
}

// delayedRetry is a quorum queue whose failed messages wait before they come back
// (DL-12.2), and die in the end.
func delayedRetry() *scenario {
	s := deliveryLimit()
	s.name = "delayed-retry"
	for k, v := range map[string]any{"x-delayed-retry-type": "all", "x-delayed-retry-min": 20, "x-delayed-retry-max": 60} {
		s.queues[0].args[k] = v
	}
	return s
}

// together is every way to die at once, into the same two queues: deaths of
// different queues share partitions, frames and compactions.
func together() *scenario {
	graves := []string{"dead1", "dead2"}
	reasons := map[string]string{"s1": "rejected", "s2": "expired", "s3": "maxlen", "s4": "delivery_limit"}
	return &scenario{
		name: "together",
		covers: func(queue string) []string {
			if reasons[queue] != "" {
				return graves
			}
			return []string{queue}
		},
		queues: []declared{
			{name: "s1", args: to("dlx", "")}, {name: "s2", args: to("dlx", "", "x-message-ttl", 30)},
			{name: "s3", args: to("dlx", "", "x-max-length", 20)}, {name: "s4", kind: "quorum", args: to("dlx", "", "x-delivery-limit", 1)},
			{name: "dead1", kind: "classic", bound: "dlx"}, {name: "dead2", kind: "quorum", bound: "dlx"},
		},
		history: func(m *known, c place, _ int) error {
			if c.queue == m.publisher { // named after its source
				return died(c, nil, "")
			}
			cause := m.publisher + "/" + reasons[m.publisher]
			return died(c, map[string]int64{cause: 1}, cause)
		},
		work: func(*life) (workers []worker) {
			for source := range reasons {
				workers = append(workers, publish(&publisher{name: source, limit: 1000}, func(*rand.Rand) publishing {
					return publishing{key: source, lines: graves}
				}))
			}
			for source, does := range map[string]deed{"s1": reject, "s4": again} {
				workers = append(workers, consume(&consumer{queue: source, prefetch: 50, decide: func(r *rand.Rand, _ *amqp.Delivery) deed {
					return []deed{does, does, does, hold}[r.IntN(4)]
				}}))
			}
			return workers
		},
	}
}

// fanOut divides each dead letter into three.
func fanOut() *scenario {
	targets := []string{"dead1", "dead2", "dead3"}
	return &scenario{
		name: "fan-out", ordered: targets, history: diedOnce("source", "expired"),
		covers: func(queue string) []string {
			if queue == "source" {
				return targets
			}
			return []string{queue}
		},
		queues: []declared{
			{name: "source", args: to("dlx", "", "x-message-ttl", 30)},
			{name: "dead1", kind: "classic", bound: "dlx"}, {name: "dead2", kind: "quorum", bound: "dlx"}, {name: "dead3", bound: "dlx"},
		},
		work: func(l *life) []worker {
			message := func(*rand.Rand) publishing { return publishing{key: "source", lines: targets} }
			return []worker{
				publish(&publisher{name: "p1", limit: 3000}, message), publish(&publisher{name: "p2", limit: 1000}, message),
			}
		},
	}
}

// retryLoop is work -rejected-> wait -expired-> work (DL-19.1).
func retryLoop() *scenario {
	return &scenario{
		name: "retry", covers: oneLine,
		queues: []declared{
			{name: "work", args: to("", "wait")}, {name: "wait", args: to("", "work", "x-message-ttl", 30)},
		},
		history: func(m *known, c place, _ int) error {
			rejected := c.deaths["work/rejected"]
			if int(rejected) > m.rejects {
				return fmt.Errorf("it counts %d rejections after %d rejects", rejected, m.rejects)
			}
			if rejected == 0 {
				if c.queue == "wait" {
					return fmt.Errorf("it is in wait and was never rejected: %v", c.deaths)
				}
				return died(c, nil, "")
			}
			want, latest := map[string]int64{"work/rejected": rejected}, "work/rejected"
			expired := rejected
			if c.queue == "wait" {
				expired--
			} else {
				latest = "wait/expired"
			}
			if expired > 0 {
				want["wait/expired"] = expired
			}
			return died(c, want, latest)
		},
		work: func(l *life) []worker {
			message := func(*rand.Rand) publishing { return publishing{key: "work", lines: it} }
			return []worker{
				publish(&publisher{name: "p1", limit: 1500}, message),
				consume(&consumer{queue: "work", prefetch: 60, decide: func(r *rand.Rand, d *amqp.Delivery) deed {
					return []deed{reject, reject, reject, reject, reject, reject, ack, hold}[r.IntN(8)]
				}}),
			}
		},
	}
}

// chain is q1 -expired-> q2 -maxlen-> q3 -rejected-> q4.
func chain() *scenario {
	steps := []string{"q1/expired", "q2/maxlen", "q3/rejected"}
	return &scenario{
		name: "chain", covers: oneLine,
		queues: []declared{
			{name: "q1", args: to("", "q2", "x-message-ttl", 25)}, {name: "q2", args: to("", "q3", "x-max-length", 7)},
			{name: "q3", args: to("", "q4")}, {name: "q4"},
		},
		history: func(m *known, c place, _ int) error {
			want, latest := map[string]int64{}, ""
			for _, step := range steps[:c.queue[1]-'1'] {
				want[step], latest = 1, step
			}
			return died(c, want, latest)
		},
		work: func(l *life) []worker {
			message := func(*rand.Rand) publishing { return publishing{key: "q1", lines: it} }
			return []worker{
				publish(&publisher{name: "p1", limit: 3000}, message), publish(&publisher{name: "p2", limit: 1000}, message),
				consume(&consumer{queue: "q3", prefetch: 200, decide: func(r *rand.Rand, _ *amqp.Delivery) deed {
					return []deed{reject, nackSoFar, hold, hold}[r.IntN(4)]
				}}),
			}
		},
	}
}

// atLeastOnce has a target that is full most of the time, so that deaths are held
// in their source with one target answered and the other not (DL-13.5).
func atLeastOnce() *scenario {
	return &scenario{
		name: "at-least-once", history: diedOnce("source", "expired"),
		covers: func(queue string) []string {
			if queue == "source" {
				return []string{"full", "free"}
			}
			return []string{queue}
		},
		queues: []declared{
			{name: "source", kind: "quorum", args: to("dlx", "", "x-message-ttl", 20, "x-overflow", "reject-publish", "x-dead-letter-strategy", "at-least-once")},
			{name: "full", bound: "dlx", kind: "classic", args: amqp.Table{"x-max-length": 40, "x-overflow": "reject-publish"}}, {name: "free", bound: "dlx"},
		},
		work: func(l *life) []worker {
			message := func(*rand.Rand) publishing { return publishing{key: "source", lines: []string{"full", "free"}} }
			return []worker{
				publish(&publisher{name: "p1", limit: 400}, message),
				consume(&consumer{queue: "full", prefetch: 30, decide: func(r *rand.Rand, _ *amqp.Delivery) deed {
					return []deed{ack, ack, ack, slowly, hold}[r.IntN(5)]
				}}),
			}
		},
	}
}

// delayed publishes to an exchange that delays messages, to three queues of which one is full at times.
func delayed() *scenario {
	return &scenario{
		name: "delayed", covers: func(queue string) []string { return []string{queue} },
		queues: []declared{
			{name: "a", kind: "classic", bound: "later", later: true}, {name: "b", kind: "quorum", bound: "later", later: true},
			{name: "full", bound: "later", later: true, args: amqp.Table{"x-max-length": 40, "x-overflow": "reject-publish"}},
		},
		history: func(_ *known, c place, _ int) error { return died(c, nil, "") },
		work: func(l *life) []worker {
			message := func(r *rand.Rand) publishing {
				return publishing{exchange: "later", delay: []int{1, 30, 1 + r.IntN(400)}[r.IntN(3)], lines: []string{"a", "b", "full"}}
			}
			return []worker{
				publish(&publisher{name: "p1", limit: 400, delays: true}, message), publish(&publisher{name: "p2", limit: 400, delays: true}, message),
				consume(&consumer{queue: "full", prefetch: 30, decide: func(r *rand.Rand, _ *amqp.Delivery) deed {
					return []deed{ack, ack, ack, slowly, hold}[r.IntN(5)]
				}}),
			}
		},
	}
}

// publishFanout publishes to three queues at once; one lets its messages expire.
func publishFanout() *scenario {
	lines := []string{"a", "b", "c"}
	return &scenario{
		name: "publish-fanout", ordered: []string{"a", "b", "dead"},
		covers: func(queue string) []string {
			if queue == "dead" {
				return []string{"c"}
			}
			return []string{queue}
		},
		queues: []declared{
			{name: "a", kind: "classic", bound: "in"}, {name: "b", kind: "quorum", bound: "in"},
			{name: "c", bound: "in", args: to("", "dead", "x-message-ttl", 50)}, {name: "dead"},
		},
		history: func(m *known, c place, kills int) error {
			if c.queue == "dead" {
				return died(c, map[string]int64{"c/expired": 1}, "c/expired")
			}
			return died(c, nil, "")
		},
		work: func(l *life) []worker {
			message := func(*rand.Rand) publishing { return publishing{exchange: "in", lines: lines} }
			return []worker{
				publish(&publisher{name: "p1", limit: 2000}, message), publish(&publisher{name: "p2", limit: 1000}, message),
			}
		},
	}
}
