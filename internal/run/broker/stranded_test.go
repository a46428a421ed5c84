package broker

import (
	"errors"
	"testing"
	"time"

	"bartleby.mq/internal/core/declare"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
)

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in 10 s: %s", what)
		}
	}
}

// A dead letter whose target is deleted while it is on its way to another log is stranded. An operator sends it to
// another queue, or back to the one it left.
func TestRelocateStranded(t *testing.T) {
	sent := make(chan struct{})
	c := open(t, Options{Failpoint: func(name string) {
		if name == partition.FailMailSent {
			<-sent
		}
	}})
	mustDeclare(t, c, "dlq", amqp091.Field{Key: "x-dead-letter-exchange", Value: ""}, amqp091.Field{Key: "x-dead-letter-routing-key", Value: "gone"})
	mustDeclare(t, c, "gone", amqp091.Field{Key: "x-queue-type", Value: "quorum"})
	mustDeclare(t, c, "work")
	for _, body := range []string{"m1", "m2"} {
		publish(t, c, "", "dlq", body, amqp091.PropertyList{})
	}
	if err := c.Take("dlq", 2, RejectRemoves, func(*Shown) (bool, error) { return true, nil }); err != nil {
		t.Fatal(err)
	}
	eventually(t, "two dead letters on their way", func() bool {
		list := c.b.Node().Outboxes()
		return len(list) == 1 && list[0].Waiting == 2
	})
	if _, err := c.DeleteQueue("gone", false, false); err != nil {
		t.Fatal(err)
	}
	close(sent)
	eventually(t, "two stranded messages", func() bool { return c.b.Node().Stranded() == 2 })
	mustDeclare(t, c, "parking", amqp091.Field{Key: "x-queue-type", Value: "quorum"})
	for _, step := range []struct{ from, to message.QueueName }{{"none", ""}, {"", "none"}} {
		var refused *topology.Error
		if _, err := c.b.RelocateStranded(t.Context(), "/", step.from, step.to, 0); !errors.As(err, &refused) || refused.Kind != topology.NotFound {
			t.Errorf("from %q to %q: %v", step.from, step.to, err)
		}
	}
	if _, err := c.b.RelocateStranded(t.Context(), "other", "", "", 0); err == nil {
		t.Error("a virtual host that is not there was taken")
	}
	if moved, err := c.b.RelocateStranded(t.Context(), "/", "work", "parking", 0); moved != 0 || err != nil {
		t.Errorf("%d moved that had left another queue: %v", moved, err)
	}
	if moved, err := c.b.RelocateStranded(t.Context(), "/", "dlq", "parking", 1); moved != 1 || err != nil {
		t.Errorf("%d moved, want 1: %v", moved, err)
	}
	if moved, err := c.b.RelocateStranded(t.Context(), "/", "", "", 0); moved != 1 || err != nil {
		t.Errorf("%d moved back, want 1: %v", moved, err)
	}
	eventually(t, "each is where it was sent", func() bool { return ready(t, c, "parking") == 1 && ready(t, c, "dlq") == 1 })
	if n := c.b.Node().Relocated(); n != 2 {
		t.Errorf("%d are counted, want 2", n)
	}
}

// Messages on their way in a virtual host that is deleted end with it. That also holds for a message that is stranded
// only when there is another virtual host of the same name, and after a crash.
func TestNothingOfADeletedVHostComesIntoTheNext(t *testing.T) {
	for _, kinds := range [][2]string{{"quorum", "classic"}, {"classic", "quorum"}} {
		for _, end := range []string{"running", "killed"} {
			t.Run(kinds[0]+" to "+kinds[1]+", "+end, func(t *testing.T) {
				sent := make(chan struct{})
				d := newDisk()
				guest := start(t, d, func(name string) {
					if name == partition.FailMailSent {
						<-sent
					}
				})
				var c *Connection
				again := func() {
					t.Helper()
					if _, err := guest.b.By("guest").As(&Identity{Name: "guest"}).Do(declare.PutVHost{Name: "v", Change: declare.All(topology.Metadata{})}); err != nil {
						t.Fatal(err)
					}
					c = guest.b.As("guest", "v")
					mustDeclare(t, c, "new", amqp091.Field{Key: "x-queue-type", Value: kinds[1]})
					mustDeclare(t, c, "parking", amqp091.Field{Key: "x-queue-type", Value: kinds[1]})
				}
				again()
				mustDeclare(t, c, "work", amqp091.Field{Key: "x-queue-type", Value: kinds[0]},
					amqp091.Field{Key: "x-dead-letter-exchange", Value: ""}, amqp091.Field{Key: "x-dead-letter-routing-key", Value: "new"})
				const messages = 3
				for range messages {
					if !offer(t, c, "work", "m") {
						t.Fatal("not routed")
					}
				}
				if err := c.Take("work", messages, RejectRemoves, func(*Shown) (bool, error) { return true, nil }); err != nil {
					t.Fatal(err)
				}
				waiting := func() (n int) {
					for _, o := range guest.b.node.Outboxes() {
						n += o.Waiting
					}
					return n
				}
				eventually(t, "all are on their way", func() bool { return waiting() == messages })
				if _, err := guest.b.By("").Do(declare.DeleteVHost{Name: "v"}); err != nil {
					t.Fatal(err)
				}
				again()
				d = d.crash()
				close(sent)
				if end == "killed" {
					guest = start(t, d, nil)
					c = guest.b.As("guest", "v")
				}
				eventually(t, "none is on its way", func() bool { return waiting() == 0 })
				if moved, err := guest.b.RelocateStranded(t.Context(), "v", "", "parking", 0); moved != 0 || err != nil {
					t.Errorf("%d messages were sent to another queue: %v", moved, err)
				}
				guest.b.node.RetryStranded()
				eventually(t, "none is stranded", func() bool { return guest.b.node.Stranded() == 0 })
				for _, name := range []string{"new", "parking"} {
					if n := ready(t, c, name); n != 0 {
						t.Errorf("%s has %d messages of a virtual host that was deleted", name, n)
					}
				}
			})
		}
	}
}
