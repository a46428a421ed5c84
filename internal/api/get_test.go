package api_test

import (
	"fmt"
	"strings"
	"testing"
)

// One answer is made in memory: it holds 64 MiB of messages, however many were asked for. The others
// stay where they are.
func TestAnAnswerWithMessagesIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("reads hundreds of megabytes of JSON, which takes minutes under the race detector")
	}
	n := start(t)
	const size, count = 8 << 20, 10
	payload := strings.Repeat("x", size)
	n.must("PUT", "/queues/%2F/q", `{"durable":true}`)
	for range count {
		n.must("POST", "/exchanges/%2F/amq.default/publish", `{"routing_key":"q","properties":{},"payload_encoding":"string","payload":"`+payload+`"}`)
	}
	ready := count
	for _, mode := range []string{"peek", "ack_requeue_true", "ack_requeue_false"} {
		a := n.must("POST", "/queues/%2F/q/get", fmt.Sprintf(`{"ackmode":"%s","count":-1,"encoding":"auto"}`, mode))
		if len(a.body) > 65<<20 {
			t.Errorf("%s: an answer of %d bytes", mode, len(a.body))
		}
		got := len(a.list(t))
		if got != 8 {
			t.Errorf("%s: %d messages, want 8", mode, got)
		}
		if mode == "ack_requeue_false" {
			ready -= got
		}
		same(t, "messages left after "+mode, n.must("GET", "/queues/%2F/q", "").object(t)["messages_ready"], ready)
	}
	same(t, "short messages", len(n.must("POST", "/queues/%2F/q/get", `{"ackmode":"peek","count":5,"encoding":"auto","truncate":10}`).list(t)), 2)
}

// Headers of one byte each are many bytes of JSON: what is shown counts, not what is kept.
func TestAnAnswerWithMessagesCountsTheirHeaders(t *testing.T) {
	if testing.Short() {
		t.Skip("makes a hundred megabytes of JSON, which takes minutes under the race detector")
	}
	n := start(t)
	n.must("PUT", "/queues/%2F/q", `{"durable":true}`)
	const count = 60
	headers := `{"a":[null` + strings.Repeat(",null", 120_000) + `]}`
	for range count {
		n.must("POST", "/exchanges/%2F/amq.default/publish",
			`{"routing_key":"q","properties":{"headers":`+headers+`},"payload_encoding":"string","payload":""}`)
	}
	for _, mode := range []string{"peek", "ack_requeue_true"} {
		a := n.must("POST", "/queues/%2F/q/get", `{"ackmode":"`+mode+`","count":-1,"encoding":"auto","truncate":0}`)
		if len(a.body) > 68<<20 || !strings.HasPrefix(a.body, "[{") || !strings.HasSuffix(a.body, "}]") {
			t.Errorf("%s: an answer of %d bytes", mode, len(a.body))
		}
	}
}
