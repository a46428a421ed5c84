package repair

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/declare"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
)

// The counter of queue numbers is lost, and a virtual host was made after the first queues. A queue that is declared
// after the repair gets a number that no other queue has: otherwise it would get another queue's messages, and its
// deletion would delete them.
func TestTheCounterOfNumbersIsLost(t *testing.T) {
	files := vfs.NewCrashableMem()
	b, c := start(t, files)
	if err := b.CreateDefault(broker.Default{VHost: "/", User: "guest", Password: "guest", Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
		t.Fatal(err)
	}
	queue := func(c *broker.Connection, q string) {
		t.Helper()
		if _, err := c.DeclareQueue(topology.QueueDecl{Name: message.QueueName(q), Durable: true}); err != nil {
			t.Fatal(err)
		}
	}
	queue(c, "first")
	queue(c, "second")
	if _, err := b.By("guest").As(&broker.Identity{Name: "guest"}).Do(declare.PutVHost{Name: "other", Change: declare.All(topology.Metadata{})}); err != nil {
		t.Fatal(err)
	}
	const queues = 5
	for i := range queues {
		q := fmt.Sprint("orders", i)
		queue(c, q)
		publish(t, c, q, body(q, i))
	}
	stop(t, b)
	path, offset := whereIs(t, files, `"incarnations_reserved":`)
	rot(t, files, path, offset)
	repaired(t, files, SkipFrame)

	b, c = start(t, files)
	for i := range queues {
		q := fmt.Sprint("late", i)
		queue(c, q)
		publish(t, c, q, body(q, i))
	}
	of := map[uint64]message.QueueName{}
	b.Read(func(s *topology.State, _ *auth.Users) {
		for _, v := range s.VHosts() {
			for _, q := range v.Queues() {
				if of[q.Incarnation] != "" {
					t.Errorf("%s has the number %d of %s", q.Name, q.Incarnation, of[q.Incarnation])
				}
				of[q.Incarnation] = q.Name
			}
		}
	})
	stop(t, b)
	b, c = start(t, files)
	for i := range queues {
		for _, kind := range []string{"orders", "late"} {
			q := fmt.Sprint(kind, i)
			var found []string
			err := c.Peek(message.QueueName(q), 0, func(s *broker.Shown) bool { found = append(found, string(s.Body)); return true })
			if err != nil || len(found) != 1 || found[0] != body(q, i) {
				t.Errorf("%s has %d messages, %v", q, len(found), err)
			}
		}
	}
	stop(t, b)
}
