package scale

import (
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// bystander publishes to a queue of its own every millisecond and notes how long
// each message takes to come back.
type bystander struct {
	stopc chan struct{}
	done  chan []time.Duration
}

func watch(t *testing.T, addr string) *bystander {
	t.Helper()
	ch := channel(t, addr)
	q, err := ch.QueueDeclare("", false, true, true, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	deliveries, err := ch.Consume(q.Name, "", true, true, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &bystander{make(chan struct{}), make(chan []time.Duration, 1)}
	go func() { // ends with stop, or with the connection
		var all []time.Duration
		defer func() { b.done <- all }()
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-b.stopc:
				return
			case <-tick.C:
			}
			began := time.Now()
			if ch.Publish("", q.Name, false, false, amqp.Publishing{Body: []byte("here")}) != nil {
				return
			}
			if _, ok := <-deliveries; !ok {
				return
			}
			all = append(all, time.Since(began))
		}
	}()
	return b
}

// stop ends it and returns its p99.9.
func (b *bystander) stop(t *testing.T) time.Duration {
	t.Helper()
	close(b.stopc)
	all := <-b.done
	if len(all) == 0 {
		t.Fatal("the bystander measured nothing")
	}
	slices.Sort(all)
	return all[len(all)*999/1000].Round(100 * time.Microsecond)
}

// mixed publishes n messages, keep of them to a queue nobody reads.
func mixed(t testing.TB, addr string, n, keep int, body []byte) {
	t.Helper()
	sent := 0
	publishTo(t, addr, n, func(i int, m *publication) string {
		m.body, m.persistent = append(m.body, body...), true
		if (i+1)*keep/n > sent {
			sent++
			return "kept"
		}
		return "passing"
	})
}
