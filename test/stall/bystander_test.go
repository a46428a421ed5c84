package stall

import (
	"testing"

	"bartleby.mq/test/bystander"
)

func watch(t *testing.T) *bystander.Bystander {
	t.Helper()
	b, err := bystander.Watch(server.AMQP)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// stop ends a bystander, and holds what it saw against the bound.
func stop(t *testing.T, b *bystander.Bystander) bystander.Latencies {
	t.Helper()
	saw, err := b.Stop()
	if err != nil {
		t.Fatal(err)
	}
	if late := saw.At(0.999); *full && late > bound {
		t.Errorf("one in a thousand of the bystander's messages took %v, want %v at most", late, bound)
	}
	return saw
}
