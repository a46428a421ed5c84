package api_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
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

// Whoever has gone before the answer has seen nothing: nothing is taken.
func TestMessagesStayForWhomNobodyWaits(t *testing.T) {
	n := start(t)
	gone, leave := context.WithCancel(context.Background())
	leave()
	for _, kind := range []string{"classic", "quorum"} {
		queue := "/queues/%2F/" + kind
		n.must("PUT", queue, `{"durable":true,"arguments":{"x-queue-type":"`+kind+`"}}`)
		n.must("POST", "/exchanges/%2F/amq.default/publish", `{"routing_key":"`+kind+`","properties":{},"payload_encoding":"string","payload":"m"}`)
		for _, mode := range []string{"ack_requeue_false", "ack_requeue_true", "reject_requeue_false", "reject_requeue_true", "peek"} {
			body := strings.NewReader(`{"ackmode":"` + mode + `","count":1,"encoding":"auto"}`)
			if a := n.send(httptest.NewRequestWithContext(gone, "POST", "/api"+queue+"/get", body)); a.status != 503 {
				t.Errorf("%s of a %s queue: %d %s", mode, kind, a.status, a.body)
			}
			same(t, kind+" after "+mode, n.must("GET", queue, "").object(t)["messages_ready"], 1)
		}
		if got := n.must("POST", queue+"/get", `{"ackmode":"ack_requeue_false","count":1,"encoding":"auto"}`).list(t); len(got) != 1 {
			t.Errorf("%d messages of the %s queue, want one", len(got), kind)
		}
		same(t, kind+" is empty", n.must("GET", queue, "").object(t)["messages"], 0)
	}
}

// DL-11.5: what is looked at and given back has not failed; nack_requeue_true gives it back as a consumer does whose listener failed.
func TestDL_11_5_OnlyTheAckmodesThatFailCountTowardsTheDeliveryLimit(t *testing.T) {
	for mode, left := range map[string]int{"peek": 1, "ack_requeue_true": 1, "nack_requeue_true": 0, "reject_requeue_true": 0} {
		n := start(t)
		n.must("PUT", "/queues/%2F/q", `{"durable":true,"arguments":{"x-queue-type":"quorum","x-delivery-limit":0,"x-dead-letter-exchange":"","x-dead-letter-routing-key":"none"}}`)
		n.must("POST", "/exchanges/%2F/amq.default/publish", `{"routing_key":"q","properties":{},"payload_encoding":"string","payload":"m"}`)
		if got := n.must("POST", "/queues/%2F/q/get", `{"ackmode":"`+mode+`","count":1,"encoding":"auto"}`).list(t); len(got) != 1 {
			t.Errorf("%s shows %d messages, want one", mode, len(got))
		}
		same(t, "messages after "+mode, n.must("GET", "/queues/%2F/q", "").object(t)["messages_ready"], left)
	}
}

// The refusal of a get from another connection's exclusive queue has code and name, as only this one has in RabbitMQ.
func TestGetFromAnExclusiveQueue(t *testing.T) {
	n := start(t)
	link, err := n.b.Connect(broker.Login{User: "guest"}, broker.Peer{Name: "owner"}, "/", &client{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(link.Disconnect)
	if _, err := link.DeclareQueue(topology.QueueDecl{Name: "mine", Exclusive: true}); err != nil {
		t.Fatal(err)
	}
	a := n.do("POST", "/queues/%2F/mine/get", `{"ackmode":"ack_requeue_true","count":1,"encoding":"auto"}`)
	if want := "405 RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'mine' in vhost '/'"; a.status != 400 || !strings.Contains(a.body, want) {
		t.Errorf("%d %s, want %s", a.status, a.body, want)
	}
}
