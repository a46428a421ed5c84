package shovel

import (
	"context"
	"errors"
	"testing"

	client "github.com/rabbitmq/amqp091-go"
)

// A source elsewhere gives nothing any more once its shovel is stopped, however much there is.
func TestRemoteNextEndsWithItsContext(t *testing.T) {
	deliveries := make(chan client.Delivery, 100)
	for range cap(deliveries) {
		deliveries <- client.Delivery{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	s := &remoteSource{deliveries: deliveries}
	if list, err := s.next(ctx, 1); len(list) != 1 || err != nil {
		t.Fatalf("got %d messages, %v", len(list), err)
	}
	cancel()
	for range 50 { // what the runtime chooses by chance it does not choose so often
		if list, err := s.next(ctx, 1); len(list) > 0 || !errors.Is(err, context.Canceled) {
			t.Fatalf("got %d messages and %v of a context that has ended", len(list), err)
		}
	}
}
