package broker

import (
	"fmt"
	"testing"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/wire/amqp091"
)

// A queue that expires at once may be deleted while it is still being declared (DL-8.12): the deletion finds it
// complete. Otherwise the race detector sees it.
func TestDL_8_12_AQueueMayExpireWhileItIsDeclared(t *testing.T) {
	c := start(t, newDisk(), nil)
	for i := range 200 {
		kind := []string{"classic", "quorum"}[i%2]
		d := topology.QueueDecl{Name: message.QueueName(fmt.Sprint("short-", i)), Durable: true, Arguments: amqp091.Table{
			{Key: "x-queue-type", Value: kind}, {Key: "x-expires", Value: int64(1)}}}
		if _, err := c.DeclareQueue(d); err != nil {
			t.Fatal(err)
		}
	}
}
