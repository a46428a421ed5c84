package broker

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"bartleby.mq/internal/core/declare"

	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
)

// The breaker of a queue tells when it opens and when it is closed, by an event and a warning. It delivers nothing in between.
func TestBreakerIsToldOf(t *testing.T) {
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			log := &lockedBuffer{}
			c := open(t, Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
			var mu sync.Mutex
			var heard []string
			c.b.Listen(&Ear{
				Wants: func(key string) bool { return strings.HasPrefix(key, "breaker.") },
				Hear: func(key string, _ time.Time, facts amqp091.Table) {
					mu.Lock()
					defer mu.Unlock()
					text := key
					for _, k := range []string{"vhost", "queue", "died", "ended", "why"} {
						if v, ok := facts.Get(k); ok {
							text += fmt.Sprint(" ", k, "=", v)
						}
					}
					heard = append(heard, text)
				},
				Bound: func() {},
			})
			mustDeclare(t, c, "q", amqp091.Field{Key: "x-queue-type", Value: kind})
			_, err := c.b.By("").Do(declare.PutPolicy{VHost: "/", Policy: topology.PolicyDecl{Name: "p", Pattern: "^q$", Definition: topology.Definition{
				"dead-letter-breaker": map[string]any{"deaths": int64(2), "percent": int64(40), "window": int64(3600_000)},
			}}})
			if err != nil {
				t.Fatal(err)
			}
			for i := range 6 {
				publish(t, c, "", "q", fmt.Sprint(i), amqp091.PropertyList{})
			}
			decl, err := c.find("q", c.readable)
			if err != nil {
				t.Fatal(err)
			}
			q := runtimeOf(decl)
			for k := range 4 { // one is acknowledged
				d, _, ok, err := c.b.node.Get(q, k == 0)
				if err != nil || ok != (k < 3) {
					t.Fatalf("get %d: %v, %v", k, ok, err)
				}
				if k == 1 || k == 2 {
					c.b.node.Run([]partition.Op{{Kind: partition.Reject, Queue: q, ID: d.ID, Consumer: d.By}})
				}
			}
			before, err := c.CloseBreaker("q")
			if err != nil || before.State != queue.BreakerOpen || WhyBroken(before) != "2 of 3 deliveries that ended within 1h0m0s died" {
				t.Errorf("%+v, %v", before, err)
			}
			if _, _, ok, _ := c.b.node.Get(q, true); !ok {
				t.Error("closed, it delivers nothing")
			}
			if _, err := c.CloseBreaker("none"); err == nil {
				t.Error("the breaker of a queue that is not there was closed")
			}
			mu.Lock()
			defer mu.Unlock()
			want := []string{
				"breaker.opened vhost=/ queue=q died=2 ended=3 why=2 of 3 deliveries that ended within 1h0m0s died",
				"breaker.closed vhost=/ queue=q why=somebody has closed it",
			}
			if fmt.Sprint(heard) != fmt.Sprint(want) {
				t.Errorf("heard\n%q, want\n%q", heard, want)
			}
			for _, line := range []string{`level=WARN msg="The breaker of a queue has opened`, `level=WARN msg="The breaker of a queue has closed`, `vhost=/ queue=q died=2 ended=3`} {
				if !strings.Contains(log.String(), line) {
					t.Errorf("no line %s in\n%s", line, log)
				}
			}
		})
	}
}
