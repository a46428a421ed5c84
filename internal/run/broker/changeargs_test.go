package broker

import (
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/declare"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/wire/amqp091"
)

// Arguments of a queue change under the messages that it has: a lower limit takes effect at once, and what dies from then on
// goes where the new arguments say. It is so after a restart.
func TestArgumentsOfAQueueChangeLive(t *testing.T) {
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			d := newDisk()
			c := startWith(t, d, Options{})
			mustDeclare(t, c, "dead")
			mustDeclare(t, c, "q", with("x-queue-type", kind), with("x-max-length", int64(100)))
			for i := range 10 {
				offer(t, c, "q", fmt.Sprint(i))
			}
			set := amqp091.Table{with("x-max-length", int64(4)), with("x-dead-letter-exchange", ""), with("x-dead-letter-routing-key", "dead")}
			now, declared, err := c.ChangeArguments("q", set, nil)
			if err != nil {
				t.Fatal(err)
			}
			if v, _ := now.Get("x-max-length"); v != int64(4) {
				t.Errorf("they are %v", now)
			}
			if v, _ := declared.Get("x-max-length"); v != int64(100) {
				t.Errorf("it was declared with %v", declared)
			}
			eventually(t, "the oldest are dead", func() bool { return holds(t, c, "q") == 4 && holds(t, c, "dead") == 6 })
			if err := c.b.Close(); err != nil {
				t.Fatal(err)
			}
			c = startWith(t, d, Options{})
			offer(t, c, "q", "10")
			eventually(t, "another one is dead", func() bool { return holds(t, c, "q") == 4 && holds(t, c, "dead") == 7 })
			if _, _, err := c.ChangeArguments("q", nil, []string{"x-dead-letter-exchange", "x-dead-letter-routing-key", "x-max-length"}); err != nil {
				t.Fatal(err)
			}
			for range 10 {
				offer(t, c, "q", "more")
			}
			kill(t, c, "q")
			eventually(t, "it has no limit and no exchange", func() bool {
				return holds(t, c, "q") == 13 && deaths(c, "q")[deadletter.NoExchange] == 1
			})
		})
	}
}

// Clients that declare a queue with its first arguments are refused, as ever, or accepted where the virtual host is lenient:
// then nothing changes, and the log says so once.
func TestClientsWithTheFirstArguments(t *testing.T) {
	var logged lockedBuffer
	c := startWith(t, newDisk(), Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	first := topology.QueueDecl{Name: "q", Durable: true, Arguments: amqp091.Table{with("x-max-length", int64(5))}}
	if _, err := c.DeclareQueue(first); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.ChangeArguments("q", amqp091.Table{with("x-max-length", int64(6))}, nil); err != nil {
		t.Fatal(err)
	}
	_, err := c.DeclareQueue(first)
	if e, ok := err.(*topology.Error); !ok || e.Kind != topology.PreconditionFailed || !strings.Contains(e.Text, "received '5' but current is '6'") {
		t.Errorf("the declaration: %v", err)
	}
	setMetadata(t, c, declare.VHostChange{Lenient: new(true)})
	for range 3 {
		if _, err := c.DeclareQueue(first); err != nil {
			t.Error(err)
		}
	}
	if n := strings.Count(logged.String(), "arguments that were changed since"); n != 1 {
		t.Errorf("the log says it %d times", n)
	}
	var length int64
	c.b.Read(func(s *topology.State, _ *auth.Users) {
		v, _ := s.VHost("/")
		q, _ := v.Queue("q")
		length = *q.Effective.MaxLength
	})
	if length != 6 {
		t.Errorf("the limit is %d", length)
	}
}

// A node dies at some step of a change. Then the queue has the old arguments or the new ones, and lives by those.
func TestACrashWhileArgumentsChange(t *testing.T) {
	for _, point := range Failpoints {
		for _, kind := range []string{"classic", "quorum"} {
			t.Run(point+" "+kind, func(t *testing.T) {
				d := newDisk()
				var armed atomic.Bool
				var crashed atomic.Pointer[disk]
				c := start(t, d, func(name string) {
					if name == point && armed.CompareAndSwap(true, false) {
						crashed.Store(d.crash())
					}
				})
				mustDeclare(t, c, "q", with("x-queue-type", kind), with("x-max-length", int64(3)))
				armed.Store(true)
				if _, _, err := c.ChangeArguments("q", amqp091.Table{with("x-max-length", int64(2))}, nil); err != nil {
					t.Fatal(err)
				}
				again := start(t, crashed.Load(), nil)
				decl, err := again.find("q", again.readable)
				if err != nil {
					t.Fatal(err)
				}
				var limit int64
				again.b.Read(func(*topology.State, *auth.Users) { limit = *decl.Effective.MaxLength })
				if stored := point == FailDeclareStored || point == FailDeclareOpened; stored && limit != 2 || !stored && limit != 3 {
					t.Errorf("the limit is %d", limit)
				}
				for i := range 5 {
					offer(t, again, "q", fmt.Sprint(i))
				}
				eventually(t, "it has as many as it may", func() bool { return holds(t, again, "q") == int(limit) })
			})
		}
	}
}
