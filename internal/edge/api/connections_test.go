package api_test

import (
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// BR-4.10, BR-15.3, BR-15.4: connections are listed to whom they concern, and closed.
func TestConnections(t *testing.T) {
	n := start(t)
	n.must("PUT", "/users/m", `{"password":"m","tags":"management"}`)
	n.must("PUT", "/permissions/%2F/m", `{"configure":"","write":"","read":""}`)
	name := "10.0.0.1:1 -> 10.0.0.2:5672"
	ours, theirs := n.connect("guest", "/", name), n.connect("m", "/", "b")
	if l := n.must("GET", "/connections", "").list(t); len(l) != 2 || l[0]["name"] != name {
		t.Errorf("an administrator sees %v, want both", l)
	}
	if l := n.must("GET", "/vhosts/%2F/channels", "").list(t); len(l) != 2 {
		t.Errorf("channels: %v", l)
	}
	same(t, "connection", n.must("GET", "/connections/"+url.PathEscape(name), "").object(t)["name"], name)
	same(t, "channel", n.must("GET", "/channels/"+url.PathEscape(name+" (1)"), "").object(t)["number"], 1)
	same(t, "totals", n.must("GET", "/overview", "").object(t)["object_totals"].(map[string]any)["connections"], 2)

	n.user = "m:m"
	if l := n.must("GET", "/connections", "").list(t); len(l) != 1 || l[0]["name"] != "b" {
		t.Errorf("a user with the tag management sees %v, want its own connection", l)
	}
	if a := n.do("DELETE", "/connections/"+url.PathEscape(name), ""); a.status != 404 {
		t.Errorf("another's connection: %d, want 404", a.status)
	}
	n.user = "guest:guest"

	r := httptest.NewRequest("DELETE", "/api/connections/"+url.PathEscape(name), nil)
	r.Header.Set("X-Reason", "enough")
	if a := n.send(r); a.status != 204 {
		t.Fatalf("DELETE: %d %s", a.status, a.body)
	}
	same(t, "reason", ours.ended(), "320 enough")
	n.must("DELETE", "/connections/username/m", "")
	same(t, "reason", theirs.ended(), "320 Closed via management plugin")
}

// BR-15.15: what a session tells of itself is shown under RabbitMQ's names. What is void is
// "undefined", as there: tools read null as a mistake.
func TestStatusIsShown(t *testing.T) {
	n := start(t)
	peer := broker.Peer{Name: "c", Host: "10.0.0.2", Port: 5671, PeerHost: "10.0.0.1", PeerPort: 9, Protocol: "AMQP 0-9-1"}
	c := n.connect("guest", "/", "c")
	c.status = broker.ConnectionStatus{
		Peer: peer, User: "guest", Mechanism: "PLAIN", VHost: "/", Since: time.UnixMilli(7), Blocked: true, Channels: 3, ChannelMax: 11, FrameMax: 4096,
		Heartbeat: time.Minute, Properties: amqp091.Table{{Key: "connection_name", Value: "mine"}, {Key: "nothing"}},
		TLS:           &broker.TLS{Protocol: "TLSv1.3", Cipher: "C", Subject: "S", Issuer: "I", Validity: "V"},
		ReceivedBytes: 1, ReceivedFrames: 2, SentBytes: 3, Writes: 4,
	}
	c.channels = []broker.ChannelStatus{{
		Peer: peer, Name: "c (5)", Number: 5, User: "guest", VHost: "/", Consumers: 1, Unacked: 2, Prefetch: 3, Confirm: true, Unconfirmed: 4,
		Uncommitted: 6, UncommittedAcks: 7,
	}}
	shown := func(path string, drop ...string) map[string]any {
		o := n.must("GET", path, "").object(t)
		for _, key := range append(drop, "garbage_collection", "reductions", "reductions_details", "node") {
			if _, ok := o[key]; !ok {
				t.Errorf("%s has no %s", path, key)
			}
			delete(o, key)
		}
		return o
	}
	same(t, "connection", shown("/connections/c", "recv_oct_details", "send_oct_details"), map[string]any{
		"name": "c", "user": "guest", "user_who_performed_action": "guest", "vhost": "/", "user_provided_name": "mine",
		"host": "10.0.0.2", "port": 5671, "peer_host": "10.0.0.1", "peer_port": 9, "protocol": "AMQP 0-9-1", "state": "blocked", "type": "network",
		"channels": 3, "channel_max": 11, "frame_max": 4096, "timeout": 60, "auth_mechanism": "PLAIN", "connected_at": 7,
		"client_properties": map[string]any{"connection_name": "mine", "nothing": "undefined"},
		"recv_oct":          1, "recv_cnt": 2, "send_oct": 3, "send_cnt": 4, "send_pend": 0,
		"ssl": true, "ssl_protocol": "TLSv1.3", "ssl_cipher": "C", "ssl_key_exchange": "", "ssl_hash": "",
		"peer_cert_subject": "S", "peer_cert_issuer": "I", "peer_cert_validity": "V", "peer_cert_serial_number": "",
	})
	same(t, "channel", shown("/channels/c%20(5)", "idle_since", "consumer_details", "publishes", "deliveries"), map[string]any{
		"name": "c (5)", "number": 5, "user": "guest", "user_who_performed_action": "guest", "vhost": "/", "state": "running",
		"consumer_count": 1, "messages_unacknowledged": 2, "prefetch_count": 3, "confirm": true, "transactional": false,
		"messages_unconfirmed": 4, "messages_uncommitted": 6, "acks_uncommitted": 7, "pending_raft_commands": 0, "cached_segments": 0,
		"connection_details": map[string]any{"name": "c", "peer_host": "10.0.0.1", "peer_port": 9},
	})
}

// BR-2.8: deleting a user closes its connections; changing the password does not.
func TestDeletedUserIsDisconnected(t *testing.T) {
	n := start(t)
	n.must("PUT", "/users/m", `{"password":"m","tags":""}`)
	n.must("PUT", "/permissions/%2F/m", `{"configure":"","write":"","read":""}`)
	c, other := n.connect("m", "/", "a"), n.connect("guest", "/", "b")
	n.must("PUT", "/users/m", `{"password":"changed","tags":""}`)
	same(t, "after a change", c.ended(), "")
	n.must("DELETE", "/users/m", "")
	same(t, "after the deletion", c.ended(), "320 user 'm' is deleted")
	same(t, "another's", other.ended(), "")
	if a := n.do("GET", "/permissions/%2F/m", ""); a.status != 404 {
		t.Errorf("permissions of a deleted user: %d", a.status)
	}
}

// BR-3.8: deleting a virtual host closes its connections and ends what is in it.
func TestDeletedVHostIsDown(t *testing.T) {
	n := start(t)
	n.must("PUT", "/vhosts/v", "{}")
	n.must("PUT", "/queues/v/q", `{"durable":true}`)
	n.must("POST", "/exchanges/v/amq.default/publish", `{"properties":{"delivery_mode":2},"routing_key":"q","payload":"m","payload_encoding":"string"}`)
	n.must("PUT", "/policies/v/p", `{"pattern":"","definition":{"max-length":5}}`)
	c, other := n.connect("guest", "v", "a"), n.connect("guest", "/", "b")
	n.must("DELETE", "/vhosts/v", "")
	same(t, "reason", c.ended(), "320 vhost 'v' is down")
	same(t, "another's", other.ended(), "")
	n.must("PUT", "/vhosts/v", "{}")
	if l := n.must("GET", "/queues/v", "").list(t); len(l) != 0 {
		t.Errorf("a new virtual host of the name has queues: %v", l)
	}
	if l := n.must("GET", "/policies/v", "").list(t); len(l) != 0 {
		t.Errorf("a new virtual host of the name has policies: %v", l)
	}
}
