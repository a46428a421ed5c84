package partition

import (
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/wire/amqp091"
)

// DL-7.10: a history that a client has sent along belongs to this message only, whatever died right before it.
func TestCarriedHistoryBesideOneWithout(t *testing.T) {
	w := newWorld(t, vfs.NewMem(), []definition{
		{"q", classic, settings(func(s *queue.Settings) { s.DeadLetter = true }), DeadLetter{Exchange: "dlx"}},
		{"dead", classic, queue.Unlimited(), DeadLetter{}},
	}, table{"dlx": {"dead"}}, 1000, nil)
	w.n.DeadLettering.TrustHistories = true
	if err := w.n.Recover(); err != nil {
		t.Fatal(err)
	}
	var before deadletter.History
	before.Record(&deadletter.Event{Queue: "elsewhere", Reason: deadletter.Rejected, Time: 1, Expiration: -1, Exchange: "x", Keys: []string{"k"}, NextKeys: []string{"k"}})
	props := amqp091.AppendProps(nil, []byte{0, 0}, &amqp091.Props{}, &amqp091.PropsEdit{Set: before.Headers()})
	for serial := range message.Serial(4) {
		body := w.record(serial, true, 10)
		if serial%2 == 1 {
			e := message.Envelope{Serial: serial, Key: []byte("k"), Properties: props, BodySize: 10, Persistent: true, HasHeaders: true}
			ref, b := w.n.bodies.Alloc(e.Size())
			e.Put(b)
			message.Record(b).Seal()
			w.n.bodies.Release(body)
			body = ref
		}
		w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{w.queues["q"]}, Body: body, TTL: 5, Priority: -1}})
		w.now++ // each dies at its own moment
	}
	w.now += 10
	w.settle()
	var deaths []int
	if _, _, err := w.n.Browse(w.queues["dead"], queue.Cursor{}, 10, func(_ queue.View, _ message.Record, history []byte) bool {
		h, err := deadletter.Parse(history)
		if err != nil {
			t.Error(err)
		}
		deaths = append(deaths, len(h.Deaths))
		if h.Imported != (len(h.Deaths) == 2) {
			t.Errorf("of %+v Imported is %v", h.Deaths, h.Imported)
		}
		return true
	}); err != nil {
		t.Fatal(err)
	}
	if want := []int{1, 2, 1, 2}; !slices.Equal(deaths, want) {
		t.Errorf("the messages have died in so many ways: %v, want %v", deaths, want)
	}
	w.check(4)
}
