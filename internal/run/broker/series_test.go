package broker

import (
	"fmt"
	"strings"
	"testing"

	"bartleby.mq/internal/core/message"
)

// passages shows what is counted, as "channel exchange>queue messages" by channel, and without a channel in all.
func passages(b *Broker) string {
	byChannel, all := b.Passages(func(message.VHost) bool { return true })
	var lines []string
	for _, p := range append(byChannel, all...) {
		lines = append(lines, fmt.Sprintf("%s %s>%s %d", p.Channel, p.Exchange, p.Queue, p.Messages))
	}
	return strings.Join(lines, ", ")
}

// What passed from an exchange into a queue is counted by channel while the channel is open, and in all for as long as both
// are there: whatever becomes of routes that are remembered.
func TestPassagesAreCounted(t *testing.T) {
	c := open(t, Options{})
	mustDeclare(t, c, "q")
	client, err := c.b.Connect(Login{User: "guest", Mechanism: "PLAIN"}, Peer{Name: "x"}, "/", &told{})
	if err != nil {
		t.Fatal(err)
	}
	publish := func(c *Connection, channel uint16, more ...[]byte) {
		t.Helper()
		if _, err := c.Route(&Publication{Exchange: nil, Key: []byte("q"), Channel: channel, cc: more}); err != nil {
			t.Fatal(err)
		}
	}
	is := func(want string) {
		t.Helper()
		if got := passages(c.b); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	for channel := range uint16(10) { // some share a tally
		publish(client, 5)
		publish(client, channel)
	}
	publish(client, 5, []byte("nowhere")) // its route is not kept
	mustDeclare(t, c, "other")            // which makes all routes be forgotten
	publish(client, 5)
	publish(c, 0) // by no client
	var want []string
	for channel := range uint16(10) {
		n := 1
		if channel == 5 {
			n = 13
		}
		want = append(want, fmt.Sprintf("x (%d) >q %d", channel, n))
	}
	is(strings.Join(want, ", ") + ",  >q 23")
	for channel := range uint16(10) {
		if channel != 5 {
			client.EndPairs(channel)
		}
	}
	is("x (5) >q 13,  >q 23")
	client.Disconnect()
	is(" >q 23")
	if _, err := c.DeleteQueue("q", false, false); err != nil {
		t.Fatal(err)
	}
	mustDeclare(t, c, "q")
	is("")
	if n := c.b.pairs.ofVHost["/"].n; n > 1 {
		t.Errorf("%d pairs are kept", n)
	}
}

// Whatever a client does, the number of pairs is bounded, and those of deleted queues make room.
func TestPassagesAreBounded(t *testing.T) {
	c := open(t, Options{})
	client, err := c.b.Connect(Login{User: "guest", Mechanism: "PLAIN"}, Peer{Name: "x"}, "/", &told{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Disconnect()
	for i := range 4 * fewPairs {
		name := fmt.Sprint(i)
		mustDeclare(t, c, name)
		if _, err := client.Route(&Publication{Key: []byte(name), Channel: 1}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.DeleteQueue(message.QueueName(name), false, false); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(client.pairs.of); n > 2*fewPairs {
		t.Errorf("%d pairs of deleted queues are kept", n)
	}
	mustDeclare(t, c, "q")
	v := client.pairs.vhost
	v.n, v.tallied = maxPairs, maxTallied
	for i := range 100 {
		if _, err := client.Route(&Publication{Key: []byte("q"), Channel: uint16(i)}); err != nil {
			t.Fatal(err)
		}
	}
	for range maxSeries {
		client.TakeSeries()
	}
	if client.TakeSeries() {
		t.Error("there is room for more than the most")
	}
	client.bringAll()
	if len(client.pairs.tallies) > 0 || v.n > maxPairs {
		t.Errorf("%d tallies, %d pairs", len(client.pairs.tallies), v.n)
	}
	v.n, v.tallied = len(client.pairs.of), 0
}
