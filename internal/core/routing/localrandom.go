package routing

import (
	"errors"
	"fmt"
)

// localRandom sends each message to one of its queues, drawn by Message.Chance (BR-6.12).
type localRandom struct {
	all set
}

// Check wants the empty key and a classic queue.
func (t *localRandom) Check(b *Binding) error {
	switch {
	case b.Key != "":
		return fmt.Errorf("Non empty binding '%s' key not permitted", b.Key) //nolint:staticcheck // RabbitMQ's text
	case b.QueueType == "":
		return errors.New("Destination not found") //nolint:staticcheck // RabbitMQ's text
	case b.QueueType != "rabbit_classic_queue":
		return fmt.Errorf("Queue type %s not valid for this exchange type", b.QueueType) //nolint:staticcheck // RabbitMQ's text
	}
	return nil
}

func (t *localRandom) Add(b *Binding) { t.all.add(b) }

func (t *localRandom) Remove(b *Binding) { t.all.remove(b) }

func (t *localRandom) Route(dst []Destination, m *Message) []Destination {
	if t.all.empty() {
		return dst
	}
	return append(dst, t.all.list[m.Chance%uint64(len(t.all.list))].Destination)
}
