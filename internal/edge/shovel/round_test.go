package shovel

import (
	"strings"
	"testing"

	"bartleby.mq/internal/wire/amqp091"
)

// A message that goes round between shovels can be sent to a consumer whatever it has passed: its headers go in one frame.
func TestWhatGoesRoundStaysDeliverable(t *testing.T) {
	w := &worker{clusterName: func() string { return "here" }, name: "s", vhost: "/"}
	status := status{from: address{shown: "amqp://from"}, to: address{shown: "amqp://to"}}
	l := amqp091.PropertyList{Headers: amqp091.Table{{Key: "own", Value: "x"}}}
	for range 2000 {
		w.tellOf(&l, &status)
	}
	if n := len(amqp091.AppendTable(nil, l.Headers)); n > maxHeaders {
		t.Errorf("%d bytes of headers, %d at most", n, maxHeaders)
	}
	by, _ := l.Headers.Get("x-shovelled")
	list, _ := by.(amqp091.Array)
	if own, _ := l.Headers.Get("own"); own != "x" || len(list) < 100 {
		t.Errorf("the message has its own header %v and tells of %d shovels", own, len(list))
	}
	about, _ := list[0].(amqp091.Table)
	if name, _ := about.Get("shovel-name"); name != "s" {
		t.Errorf("the first is %v, want the latest shovel", about)
	}
}

// Headers that have no room for more are left as they are.
func TestNothingIsToldInHeadersThatAreFull(t *testing.T) {
	w := &worker{clusterName: func() string { return "here" }}
	l := amqp091.PropertyList{Headers: amqp091.Table{{Key: "own", Value: strings.Repeat("x", maxHeaders)}}}
	w.tellOf(&l, &status{})
	if len(l.Headers) != 1 {
		t.Errorf("there are %d headers, want the one that was there", len(l.Headers))
	}
}
