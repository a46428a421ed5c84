package broker

import (
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
)

// If a dead letter misses a target that is being deleted at that moment, the deletion is stored before the letter is
// dropped: otherwise a crash could bring back the target without the letter.
func TestADeadLetterWaitsForRemovalsThatItSees(t *testing.T) {
	d := newDisk()
	c := start(t, d, nil)
	mustDeclare(t, c, "q")
	mustDeclare(t, c, "work", amqp091.Field{Key: "x-dead-letter-exchange", Value: ""}, amqp091.Field{Key: "x-dead-letter-routing-key", Value: "q"})
	decl, err := c.find("work", c.readable)
	if err != nil {
		t.Fatal(err)
	}
	work := runtimeOf(decl)
	p := &Publication{Key: []byte("work")}
	if err := c.Check(p); err != nil {
		t.Fatal(err)
	}
	body := c.Store(p)
	defer c.b.bodies.Release(body)
	rec := message.Record(c.b.bodies.Bytes(body))
	release := d.holdSyncs()
	defer release()
	var all sync.WaitGroup
	c.b.topo.RLock() // so that the letter comes behind who takes the queue away, and nothing is away yet
	all.Go(func() {
		if _, err := c.b.As("guest", "/").DeleteQueue("q", false, false); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the queue is to be deleted", func() bool {
		if c.b.topo.TryRLock() {
			c.b.topo.RUnlock()
			return false
		}
		return true
	})
	all.Go(func() {
		targets, _, _ := deadRouter{c.b}.RouteDead(work, "", []string{"q"}, rec, &deadletter.History{}, nil)
		if len(targets) != 0 {
			t.Error("the queue is still there")
		}
	})
	eventually(t, "the letter waits for the topology", func() bool {
		stacks := make([]byte, 8<<20)
		return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "deadRouter.RouteDead(")
	})
	c.b.topo.RUnlock()
	blocked(t, 2)
	release()
	all.Wait()
}

// A dead-letter exchange that does not exist, most often a misspelt one, is no queue without a dead-letter exchange: its
// deaths have an outcome of their own, and the log names queue and exchange, once. RabbitMQ's own metrics count both alike.
// What must be taken at least once waits for the exchange.
func TestDL_18_4_ADeadLetterExchangeThatDoesNotExist(t *testing.T) {
	for _, kind := range []queue.Type{queue.Classic, queue.Quorum} {
		t.Run(kind.String(), func(t *testing.T) {
			var logged lockedBuffer
			c := startWith(t, newDisk(), Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
			typo := []amqp091.Field{{Key: "x-queue-type", Value: kind.String()}, {Key: "x-dead-letter-exchange", Value: "typo-dlx"}}
			mustDeclare(t, c, "plain", typo[0])
			mustDeclare(t, c, "misspelt", typo...)
			for _, name := range []string{"plain", "misspelt", "misspelt"} {
				if !offer(t, c, name, "m") {
					t.Fatal("not routed")
				}
				kill(t, c, message.QueueName(name))
			}
			outcomes := func(name string) (counts [deadletter.Outcomes]uint64) {
				for _, s := range c.b.CountQueues() {
					if s.Queue.Name == message.QueueName(name) {
						counts = s.Counts.Stats.Dead[deadletter.Rejected]
					}
				}
				return counts
			}
			eventually(t, "all have died", func() bool { return outcomes("misspelt")[deadletter.MissingExchange] == 2 })
			if got, want := outcomes("misspelt"), ([deadletter.Outcomes]uint64{deadletter.MissingExchange: 2}); got != want {
				t.Errorf("the outcomes are %v, want %v", got, want)
			}
			if got, want := outcomes("plain"), ([deadletter.Outcomes]uint64{deadletter.NoExchange: 1}); got != want {
				t.Errorf("without a dead-letter exchange the outcomes are %v, want %v", got, want)
			}
			if n := c.b.Node().Deaths(kind, partition.Disabled, deadletter.Rejected); n != 3 {
				t.Errorf("%d deaths count as those without a dead-letter exchange in RabbitMQ's metrics, want 3", n)
			}
			const line = `are dropped until somebody declares the exchange. This is logged once" vhost=/ queue=misspelt exchange=typo-dlx`
			if text := logged.String(); strings.Count(text, line) != 1 || strings.Contains(text, "queue=plain exchange") {
				t.Errorf("the log does not name queue and exchange once:\n%s", text)
			}
			if kind == queue.Classic {
				return
			}
			mustDeclare(t, c, "waits", append(typo, amqp091.Field{Key: "x-dead-letter-strategy", Value: "at-least-once"}, amqp091.Field{Key: "x-overflow", Value: "reject-publish"})...)
			if !offer(t, c, "waits", "m") {
				t.Fatal("not routed")
			}
			kill(t, c, "waits")
			eventually(t, "the log says that it waits", func() bool {
				return strings.Contains(logged.String(), `wait in the queue until somebody declares the exchange. This is logged once" vhost=/ queue=waits exchange=typo-dlx`)
			})
			if got := outcomes("waits"); got != [deadletter.Outcomes]uint64{} {
				t.Errorf("what is held has the outcomes %v", got)
			}
		})
	}
}

// lockedBuffer is what a logger writes to while a test reads.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
