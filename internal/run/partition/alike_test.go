package partition

import (
	"reflect"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

// If histories differ only in their numbers, a frame of the journal has their shared part once, and recovery restores
// each history.
func TestHistoriesThatAreAlikeAreRedone(t *testing.T) {
	const messages = 200
	defs := []definition{
		{"in", classic, settings(func(s *queue.Settings) { s.DeadLetter = true }), DeadLetter{Exchange: "out"}},
		{"out", classic, queue.Unlimited(), DeadLetter{}},
	}
	routes := table{"out": {"out"}}
	fs := vfs.NewCrashableMem()
	w := open(t, fs, defs, routes, 1_700_000_000_000, nil)
	in := w.queues["in"]
	for i := range messages {
		w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{in}, Body: w.record(message.Serial(i+1), true, 10), TTL: int64(100 + i), Priority: -1}})
	}
	in.routing = true // so that the deaths wait for each other
	for range 100 + messages {
		w.now++
		in.part.tick()
	}
	if n := in.m.Waiting(); n != messages {
		t.Fatalf("%d deaths wait", n)
	}
	if err := w.j.Flush(); err != nil {
		t.Fatal(err)
	}
	w.n.moveDead([]*Queue{in})
	each := w.j.Buffered() / messages
	if err := w.j.Commit(w.j.Append([]byte{frameVersion})); err != nil {
		t.Fatal(err)
	}
	whole, want := 0, w.histories()
	for _, h := range want {
		whole += len(h.Append(nil))
	}
	if each >= whole/messages {
		t.Errorf("a death takes %d bytes of the journal, its history alone %d", each, whole/messages)
	}
	w.close()
	w = open(t, fs, defs, routes, w.now, nil)
	if got := w.histories(); len(got) != messages || !reflect.DeepEqual(got, want) {
		t.Errorf("%d messages were redone, with the histories %v, want %v", len(got), got, want)
	}
	w.check(0)
	w.close()
}

// histories returns the histories of all messages. Each message is in one place.
func (w *world) histories() map[message.Serial]deadletter.History {
	all := map[message.Serial]deadletter.History{}
	for serial, places := range w.find() {
		if len(places) != 1 || len(places[0].history.Deaths) == 0 {
			w.t.Fatalf("message %d is in %v", serial, places)
		}
		all[serial] = places[0].history
	}
	return all
}
