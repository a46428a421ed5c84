package shovel

import (
	"context"
	"errors"
	"strings"
	"testing"

	client "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/run/broker"
)

// A source elsewhere gives nothing any more once its shovel is stopped, however much there is.
func TestRemoteNextEndsWithItsContext(t *testing.T) {
	deliveries := make(chan client.Delivery, 100)
	for range cap(deliveries) {
		deliveries <- client.Delivery{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	s := &remoteSource{deliveries: deliveries, intake: newIntake(1), noteSize: func(int) {}}
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

// taking is a peer that takes acknowledgements.
type taking struct{}

func (taking) Ack(uint64, bool) error        { return nil }
func (taking) Nack(uint64, bool, bool) error { return nil }
func (taking) Reject(uint64, bool) error     { return nil }

// A message makes as much room as it took, whatever the shovel has added to it, or taken off: else more and more is held,
// or the source is read no longer.
func TestAMessageMakesTheRoomThatItTook(t *testing.T) {
	for name, change := range map[string]func(*carried){
		"longer":  func(m *carried) { setHeader(&m.properties, "x-shovelled", string(make([]byte, 500))) },
		"shorter": func(m *carried) { m.exchange, m.key = "", "q" },
	} {
		deliveries := make(chan client.Delivery, 1)
		deliveries <- client.Delivery{Acknowledger: taking{}, DeliveryTag: 1, Exchange: string(make([]byte, 200)), RoutingKey: string(make([]byte, 200)), Body: []byte("m")}
		s := &remoteSource{deliveries: deliveries, intake: newIntake(1 << 20), noteSize: func(int) {}}
		list, err := s.next(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		const others = 1 << 19
		s.intake.add(wireSize(&list[0]) + others)
		change(&list[0])
		if err := s.ack(list); err != nil || s.intake.held != others {
			t.Errorf("%s: %d bytes are held, want %d: %v", name, s.intake.held, others, err)
		}
	}
}

// Messages of a source elsewhere are taken together by what their headers take in memory, too.
func TestFewLargeHeadersAreTakenAtOnce(t *testing.T) {
	const count, bytes = 30, 100 << 10
	deliveries := make(chan client.Delivery, count)
	for range count {
		deliveries <- client.Delivery{Headers: client.Table{"h": strings.Repeat("x", bytes)}}
	}
	largest := 0
	s := &remoteSource{deliveries: deliveries, intake: newIntake(1 << 30), noteSize: func(n int) { largest = max(largest, n) }}
	for got := 0; got < count; {
		list, err := s.next(t.Context(), count)
		if err != nil {
			t.Fatal(err)
		}
		if (len(list)-1)*bytes*broker.DecodedTimes > batchBytes {
			t.Errorf("%d messages at once", len(list))
		}
		got += len(list)
	}
	if largest < bytes {
		t.Errorf("the largest message is one of %d bytes", largest)
	}
}
