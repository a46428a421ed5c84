package api_test

import (
	"net/http/httptest"
	"net/url"
	"testing"
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
