package partition

import (
	"testing"

	"bartleby.mq/internal/core/queue"
)

// A queue that is deleted before its group has created it is created all the same, and exists until the group has
// deleted it. It is no longer declared: meanwhile neither it nor its messages expire.
func TestNothingExpiresOfAQueueThatWasDeletedBeforeItWasMade(t *testing.T) {
	for _, tc := range []struct {
		name     string
		settings queue.Settings
		messages int
	}{
		{"itself", settings(func(s *queue.Settings) { s.Expires = 1 }), 0},
		{"its messages", settings(func(s *queue.Settings) { s.TTL = 1 }), 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFleet(t, nil, table{})
			q := &Queue{Incarnation: 1, VHost: "/", Name: "q", Durable: true}
			f.queues["q"] = q
			for _, l := range f.logs { // nothing is applied yet
				l.mu.Lock()
				l.working = true
				l.mu.Unlock()
			}
			f.leader.Create(q, quorum, tc.settings, DeadLetter{})
			for range tc.messages {
				f.publish("q", nil, -1)
			}
			if _, err := f.leader.Delete(q, nil); err != nil {
				t.Fatal(err)
			}
			for _, l := range f.logs {
				l.apply()
			}
			p := q.part
			if p.queues[1] == nil {
				t.Fatal("the group has not made it")
			}
			f.now.Add(10)
			before := p.group.applied
			p.tickReplicated()
			f.quiesce()
			if len(p.unused) > 0 {
				t.Error("it is to be removed, though nobody has declared it")
			}
			if p.group.applied != before {
				t.Error("something has happened in it")
			}
			f.leader.Deleted(q, Counts{})
			if len(p.queues) > 0 {
				t.Error("it is still there")
			}
			f.agree()
		})
	}
}
