package broker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/wire/amqp091"
)

// The bytes of what a subscription shows at a time are limited, because it reads whole bodies into memory, however
// many messages are asked for. One message is shown however large it is.
func TestSubscriptionShowsABoundedPieceAtOnce(t *testing.T) {
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			c := open(t, Options{})
			mustDeclare(t, c, "q", amqp091.Field{Key: "x-queue-type", Value: kind})
			large := strings.Repeat("x", 3<<20)
			const count = 8
			for i := range count {
				publish(t, c, "", "q", fmt.Sprint(i, large), amqp091.PropertyList{})
			}
			publish(t, c, "", "q", fmt.Sprint(count, strings.Repeat("x", 10<<20)), amqp091.PropertyList{})
			sub, err := c.Subscribe("q", "tag", 1000)
			if err != nil {
				t.Fatal(err)
			}
			defer sub.Cancel()
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			for got := 0; got <= count; {
				taken, err := sub.Next(ctx, 512)
				if err != nil {
					t.Fatal(err)
				}
				bytes := 0
				for i := range taken {
					if want := fmt.Sprint(got, "x"); !strings.HasPrefix(string(taken[i].Body), want) {
						t.Fatalf("message %d begins with %q", got, taken[i].Body[:2])
					}
					got++
					bytes += len(taken[i].Body)
				}
				if bytes > 8<<20 && len(taken) > 1 {
					t.Errorf("%d bytes at once in %d messages, want 8 MiB at most", bytes, len(taken))
				}
				sub.Ack(taken)
			}
		})
	}
}

// They are also limited by what decoded headers take in memory.
func TestSubscriptionShowsFewLargeHeadersAtOnce(t *testing.T) {
	c := open(t, Options{})
	mustDeclare(t, c, "q")
	const count, bytes = 30, 100 << 10
	for i := range count {
		publish(t, c, "", "q", fmt.Sprint(i), amqp091.PropertyList{Headers: amqp091.Table{{Key: "h", Value: strings.Repeat("x", bytes)}}})
	}
	sub, err := c.Subscribe("q", "tag", 1000)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Cancel()
	for got := 0; got < count; {
		taken, err := sub.Next(t.Context(), 512)
		if err != nil {
			t.Fatal(err)
		}
		if len(taken)*bytes*DecodedTimes > shownBytes {
			t.Errorf("%d messages at once", len(taken))
		}
		for i := range taken {
			if string(taken[i].Body) != fmt.Sprint(got) {
				t.Fatalf("message %d is %q", got, taken[i].Body)
			}
			got++
		}
		sub.Ack(taken)
	}
}

// A message that exceeds the maximal size is not published by a shovel; those before it are.
func TestPublishAllTakesNothingTooLarge(t *testing.T) {
	c := open(t, Options{MaxMessageSize: 1000})
	mustDeclare(t, c, "q")
	list := make([]Publication, 3)
	for i := range list {
		list[i] = Publication{Key: []byte("q"), Raw: amqp091.AppendPropsFrom(nil, amqp091.PropertyList{}), Size: 1000}
		if i == 1 {
			list[i].Size++
		}
		list[i].Body = [][]byte{make([]byte, list[i].Size)}
	}
	refused, err := c.PublishAll(list, false)
	if len(refused) != 1 || refused[0] || err == nil || err.Error() != "message size 1001 is larger than configured max size 1000" {
		t.Errorf("refused %v, %v", refused, err)
	}
	if n := ready(t, c, "q"); n != 1 {
		t.Errorf("%d messages are in the queue, want 1", n)
	}
}

// Messages that a shovel moves are in all their queues after a crash right after PublishAll has returned: then the
// shovel acknowledges them at its source.
func TestWhatPublishAllHasTakenIsDurable(t *testing.T) {
	for name, kinds := range map[string][]string{"classic": {"classic"}, "quorum": {"quorum"}, "both": {"classic", "quorum"}} {
		t.Run(name, func(t *testing.T) {
			d := newDisk()
			c := start(t, d, nil)
			for _, kind := range kinds {
				mustDeclare(t, c, kind, amqp091.Field{Key: "x-queue-type", Value: kind})
				if _, err := c.Bind(topology.BindingDecl{Source: "amq.fanout", DestinationKind: topology.QueueResource, Destination: kind}); err != nil {
					t.Fatal(err)
				}
			}
			persistent := uint8(2)
			raw := amqp091.AppendPropsFrom(nil, amqp091.PropertyList{DeliveryMode: &persistent})
			props, err := amqp091.ParseProps(raw)
			if err != nil {
				t.Fatal(err)
			}
			list := make([]Publication, 100)
			for i := range list {
				list[i] = Publication{Exchange: []byte("amq.fanout"), Raw: raw, Props: props, Body: [][]byte{[]byte("m")}, Size: 1}
			}
			refused, err := c.PublishAll(list, true)
			if err != nil || len(refused) != len(list) || slices.Contains(refused, true) {
				t.Fatalf("refused %v, %v", refused, err)
			}
			after := start(t, d.crash(), nil)
			for _, kind := range kinds {
				if n := ready(t, after, kind); n != len(list) {
					t.Errorf("%s has %d messages after a crash, want %d", kind, n, len(list))
				}
			}
		})
	}
}
