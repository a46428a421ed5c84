package api_test

import (
	"testing"

	"bartleby.mq/internal/core/topology"
)

// A queue that the server has named, and that is not exclusive, is exported, and imported like any other: what comes
// behind it in the file as well.
func TestAQueueThatTheServerHasNamedIsImported(t *testing.T) {
	n := start(t)
	named, err := n.b.As("guest", "/").DeclareQueue(topology.QueueDecl{Durable: true})
	if err != nil {
		t.Fatal(err)
	}
	n.must("PUT", "/queues/%2F/q", `{"durable":true}`)
	n.must("POST", "/bindings/%2F/e/amq.fanout/q/"+string(named.Name), `{"routing_key":"a"}`)
	exported := n.must("GET", "/definitions", "").body
	other := start(t)
	if a := other.do("POST", "/definitions", exported); a.status != 204 {
		t.Errorf("import: %d %s", a.status, a.body)
	}
	if again := other.must("GET", "/definitions", "").body; again != exported {
		t.Errorf("exported\n%s\nafter import\n%s", exported, again)
	}
}
