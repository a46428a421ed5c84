package office

import (
	"context"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
)

// A curve has every moment, in the step that it belongs to, whatever the order.
func TestACurveOfRetriesHasAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Arrivals{From: 1_700_000_000_000, Step: dueStep, Counts: make([]int, curvePoints)}
		moments := rapid.SliceOfN(rapid.OneOf(rapid.Int64Range(-5000, 5000), rapid.Int64Range(0, 1<<41)), 1, 50).Draw(t, "moments")
		for i := range moments {
			moments[i] += c.From
			c.due(moments[i])
		}
		want := make([]int, curvePoints)
		for _, at := range moments {
			want[max(0, at-c.From)/c.Step]++
		}
		if !slices.Equal(c.Counts, want) {
			t.Fatalf("steps of %d: %v, want %v", c.Step, c.Counts, want)
		}
		if last := slices.Max(moments) - c.From; c.Step > dueStep && last < c.Step*curvePoints/2 {
			t.Fatalf("steps of %d for a last moment after %d", c.Step, last)
		}
	})
}

// What waits for a retry is counted by queue; what was published with a delay, or is out, is not.
func TestRetriesByQueue(t *testing.T) {
	d := openDesk(t, vfs.NewMem())
	defer d.close()
	for name, args := range map[message.QueueName]amqp091.Table{
		"classic": {{Key: "x-delayed-retry-type", Value: "all"}, {Key: "x-delayed-retry-min", Value: int64(30_000)}},
		"quorum":  {{Key: "x-queue-type", Value: "quorum"}, {Key: "x-delayed-retry-type", Value: "all"}, {Key: "x-delayed-retry-min", Value: int64(3_600_000)}},
		"plain":   nil,
	} {
		if _, err := d.c.DeclareQueue(topology.QueueDecl{Name: name, Durable: true, Arguments: args}); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := d.c.PublishOne(&broker.Publication{Key: []byte(name)}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 2 {
			g, ok, err := d.c.Get(name, false)
			for ; err == nil && !ok; g, ok, err = d.c.Get(name, false) {
			}
			if err != nil {
				t.Fatal(err)
			}
			op := partition.Op{Kind: partition.Return, Queue: g.Queue, ID: g.Delivery.ID, Consumer: g.Delivery.By, How: queue.ReturnReject}
			if name == "plain" {
				op.Wait = int64(1+i) * 1000
			}
			if err := d.c.RunWhole([]partition.Op{op}); err != nil {
				t.Fatal(err)
			}
		}
	}
	began := d.f.now()
	rows, err := d.f.Retries(context.Background(), Scope{})
	if err != nil || len(rows) != 3 {
		t.Fatalf("%+v, %v", rows, err)
	}
	for i, want := range []struct {
		name message.QueueName
		wait int64
	}{{"classic", 30_000}, {"plain", 1000}, {"quorum", 3_600_000}} {
		r, sum := rows[i], 0
		for _, n := range r.Due.Counts {
			sum += n
		}
		if r.VHost != "/" || r.Queue != want.name || r.Waiting != 2 || sum != 2 || r.Next > began+want.wait+1 || r.Late != 0 {
			t.Errorf("%+v, want %+v", r, want)
		}
	}
	vhost := message.VHost("/")
	may := func(q broker.QueueInfo) bool { return q.Decl.Name != "plain" }
	if rows, _ := d.f.Retries(context.Background(), Scope{VHost: &vhost, May: may}); len(rows) != 2 {
		t.Errorf("%+v", rows)
	}
	other := message.VHost("other")
	if rows, err := d.f.Retries(context.Background(), Scope{VHost: &other}); err != nil || len(rows) != 0 {
		t.Errorf("%+v, %v", rows, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := d.f.Retries(ctx, Scope{}); err == nil {
		t.Error("a request that nobody waits for is answered")
	}
}
