package session10

import (
	"testing"

	"bartleby.mq/internal/run/partition"
)

// A publisher that has sent much, and waits for nothing, keeps no large list: a connection may have thousands of them.
func TestIdlePublishersKeepNoLargeList(t *testing.T) {
	for _, grants := range []int{0, 1, busyGrants} {
		w := &confirms{grants: grants}
		for round := range uint64(3) {
			const sent = 3000
			for id := range uint32(sent) {
				if token := w.add(id, nil); token != round*sent+uint64(id) {
					t.Fatalf("token %d of message %d in round %d", token, id, round)
				}
				w.ran(round*sent+uint64(id), &partition.Op{})
			}
			if _, yes, _ := w.append(nil, 0); yes > 0 {
				t.Fatalf("%d are accepted before they are durable", yes)
			}
			w.durable()
			if _, yes, no := w.append(nil, 0); yes != sent || no != 0 {
				t.Fatalf("%d of %d are accepted, and %d rejected", yes, sent, no)
			}
			if n := cap(w.list); n > keptPending || w.waiting() != 0 {
				t.Fatalf("room for %d stays, %d wait", n, w.waiting())
			}
		}
	}
}
