package broker

import (
	"errors"
	"testing"
	"time"

	"bartleby.mq/internal/amqp091"
	"bartleby.mq/internal/message"
	"bartleby.mq/internal/partition"
	"bartleby.mq/internal/topology"
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

// A dead letter whose target is deleted while it is on its way to another log is stranded; it
// goes to the queue it is sent to, or back to where it was.
func TestRelocateStranded(t *testing.T) {
	sent := make(chan struct{})
	c := open(t, Options{Failpoint: func(name string) {
		if name == partition.FailMailSent {
			<-sent
		}
	}})
	declare(t, c, "dlq", amqp091.Field{Key: "x-dead-letter-exchange", Value: ""}, amqp091.Field{Key: "x-dead-letter-routing-key", Value: "gone"})
	declare(t, c, "gone", amqp091.Field{Key: "x-queue-type", Value: "quorum"})
	declare(t, c, "work")
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
	declare(t, c, "parking", amqp091.Field{Key: "x-queue-type", Value: "quorum"})
	for _, step := range []struct{ from, to message.QueueName }{{"none", ""}, {"", "none"}} {
		var refused *topology.Error
		if _, err := c.b.RelocateStranded("/", step.from, step.to, 0); !errors.As(err, &refused) || refused.Kind != topology.NotFound {
			t.Errorf("from %q to %q: %v", step.from, step.to, err)
		}
	}
	if _, err := c.b.RelocateStranded("other", "", "", 0); err == nil {
		t.Error("a virtual host that is not there was taken")
	}
	if moved, err := c.b.RelocateStranded("/", "work", "parking", 0); moved != 0 || err != nil {
		t.Errorf("%d moved that had left another queue: %v", moved, err)
	}
	if moved, err := c.b.RelocateStranded("/", "dlq", "parking", 1); moved != 1 || err != nil {
		t.Errorf("%d moved, want 1: %v", moved, err)
	}
	if moved, err := c.b.RelocateStranded("/", "", "", 0); moved != 1 || err != nil {
		t.Errorf("%d moved back, want 1: %v", moved, err)
	}
	eventually(t, "each is where it was sent", func() bool { return ready(t, c, "parking") == 1 && ready(t, c, "dlq") == 1 })
	if n := c.b.Node().Relocated(); n != 2 {
		t.Errorf("%d are counted, want 2", n)
	}
}
