package partition

import (
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/outbox"
)

// The index is lost a second time. The numbers of outboxes began anew with the first repair. Messages that were on
// their way then are brought back again, whatever was answered for their numbers since, and later entries with the
// same numbers are not taken for them.
func TestNumbersThatBeganAnewInASalvage(t *testing.T) {
	w := startQueues(t, vfs.NewMem(), 1, nil, nil, nil)
	defer w.stop()
	h := w.n.lock(w.n.parts...)
	defer w.n.unlock(h)
	s := &salvager{
		recovery: &recovery{node: w.n, hold: h},
		transit:  map[uint64][]outbox.Entry{}, refused: map[uint64][]outbox.Entry{}, highest: map[uint64]uint64{},
	}
	const to = 1
	at := func(serial message.Serial) message.Ref {
		return s.placed(uint64(message.MakeLocation(message.InJournal, 1, uint32(100*serial))))
	}
	send := func(number uint64, serial message.Serial) {
		s.sent(to, outbox.Entry{Number: number, Target: 2, Source: 3, Body: at(serial)})
	}
	left := func(what string, transit, refused []message.Serial) {
		t.Helper()
		for k, list := range [][]outbox.Entry{s.transit[to], s.refused[to]} {
			var got []message.Serial
			for _, e := range list {
				got = append(got, message.Serial(e.Body.Location().Offset()/100))
			}
			if want := [][]message.Serial{transit, refused}[k]; !slices.Equal(got, want) {
				t.Errorf("%s: in list %d are %d, want %d", what, k, got, want)
			}
		}
	}
	for n := range uint64(4) {
		send(n+1, message.Serial(n+1))
	}
	send(3, 3) // logged again
	s.acknowledged(to, 2, nil)
	left("before the first loss", []message.Serial{3, 4}, nil)
	for n := range uint64(4) {
		send(n+1, message.Serial(n+11))
	}
	left("after it", []message.Serial{11, 12, 13, 14}, []message.Serial{3, 4})
	s.acknowledged(to, 3, nil)
	left("at the second", []message.Serial{14}, []message.Serial{3, 4})
	for _, list := range [][]outbox.Entry{s.transit[to], s.refused[to]} {
		for _, e := range list {
			h.drop(e.Body, e.History)
		}
	}
}
