package api_test

import (
	"strings"
	"testing"
)

// A user with the tag protected is neither changed nor deleted over HTTP; what RabbitMQ lets be changed is.
func TestProtectedUsers(t *testing.T) {
	n := start(t)
	n.must("PUT", "/users/p", `{"password":"x","tags":"protected"}`)
	before := n.must("GET", "/users/p", "").body
	for _, c := range [][2]string{{"PUT", `{"password":"y","tags":""}`}, {"DELETE", ""}} {
		if a := n.do(c[0], "/users/p", c[1]); a.status != 400 || !strings.Contains(a.body, "Protected users cannot be modified via the HTTP API") {
			t.Errorf("%s: %d %s", c[0], a.status, a.body)
		}
	}
	n.must("POST", "/users/bulk-delete", `{"users":["p"]}`)
	if after := n.must("GET", "/users/p", "").body; after != before {
		t.Errorf("now %s, before %s", after, before)
	}
	n.must("PUT", "/permissions/%2F/p", `{"configure":"","write":"","read":""}`)
	n.must("PUT", "/user-limits/p/max-channels", `{"value":5}`)
	n.must("POST", "/definitions", `{"users":[{"name":"p","password":"z","tags":"management"}]}`)
	n.must("DELETE", "/users/p", "")
}

// Refusals say what is wrong in a text that tools can show.
func TestRefusalsOfUsersAreTexts(t *testing.T) {
	n := start(t)
	for _, c := range [][3]string{
		{"/users/u", `{"password_hash":"!!","tags":""}`, `"reason":"not_base64: the password_hash '!!' is not base64"`},
		{"/permissions/nosuch/guest", `{"configure":"","write":"","read":""}`, `vhost_or_user_not_found: there is no virtual host 'nosuch'`},
		{"/permissions/%2F/nobody", `{"configure":"","write":"","read":""}`, `vhost_or_user_not_found: there is no user 'nobody'`},
		{"/topic-permissions/%2F/nobody", `{"exchange":"amq.topic","write":"","read":""}`, `vhost_or_user_not_found: there is no user 'nobody'`},
	} {
		if a := n.do("PUT", c[0], c[1]); a.status != 400 || !strings.Contains(a.body, c[2]) {
			t.Errorf("%s: %d %s, want 400 %s", c[0], a.status, a.body, c[2])
		}
	}
	if body := n.must("GET", "/definitions", "").body; !strings.Contains(body, `{"name":"cluster_tags","value":[]}`) {
		t.Errorf("no cluster_tags in %s", body)
	}
}
