package broker

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/wire/amqp091"
)

// DL-8.12, DL-8.1: messages that expired while the node was down die and leave before their queue is deleted, whose
// x-expires ran out in the same time.
func TestDL_8_12_WhatExpiredWhileTheNodeWasDownLeavesItsQueue(t *testing.T) {
	const messages = 2000
	for _, kind := range []string{"classic", "quorum"} {
		for _, target := range []string{"classic", "quorum"} {
			for _, end := range []string{"stopped", "killed"} {
				t.Run(fmt.Sprintf("%s to %s, %s", kind, target, end), func(t *testing.T) {
					var ahead atomic.Int64
					o := Options{now: func() int64 { return time.Now().UnixMilli() + ahead.Load() }}
					d := newDisk()
					c := startWith(t, d, o)
					mustDeclare(t, c, "dlq", amqp091.Field{Key: "x-queue-type", Value: target})
					mustDeclare(t, c, "work", append([]amqp091.Field{
						{Key: "x-queue-type", Value: kind}, {Key: "x-message-ttl", Value: int64(time.Hour / time.Millisecond)},
						{Key: "x-expires", Value: int64(2 * time.Hour / time.Millisecond)},
					}, toDLQ...)...)
					for range messages {
						if !offer(t, c, "work", "m") {
							t.Fatal("not routed")
						}
					}
					if end == "stopped" {
						if err := c.b.Close(); err != nil {
							t.Fatal(err)
						}
					}
					d = d.crash()
					ahead.Add(int64(3 * time.Hour / time.Millisecond))
					c = startWith(t, d, o)
					eventually(t, "all dead letters are there", func() bool { return ready(t, c, "dlq") == messages })
					if kind == "quorum" { // a classic queue counts from the start of its node
						eventually(t, "the queue has expired", func() bool {
							_, err := c.find("work", func(topology.Resource) error { return nil })
							return err != nil
						})
					}
					if n := ready(t, c, "dlq"); n != messages {
						t.Errorf("%d dead letters, want %d", n, messages)
					}
				})
			}
		}
	}
}
