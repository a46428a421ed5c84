package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"bartleby.mq/internal/core/declare"

	"bartleby.mq/internal/core/auth"
)

// Descriptions and tags are in every list of what they are of: they are bounded wherever they come in.
func TestDescriptionsAndTagsAreBounded(t *testing.T) {
	n := start(t)
	const most = 64 << 10
	text := strings.Repeat("x", most)
	tags := `["` + strings.Repeat(`","`, most) + `"]`
	for _, c := range []struct{ method, path, body, want string }{
		{"PUT", "/vhosts/v", `{"description":"` + text + `x"}`, "description and tags of vhost 'v'"},
		{"PUT", "/vhosts/v", `{"description":"` + text[1:] + `","tags":"x"}`, "description and tags of vhost 'v'"},
		{"PUT", "/vhosts/v", `{"tags":` + tags + `}`, "description and tags of vhost 'v'"},
		{"PUT", "/users/u", `{"password":"","tags":"` + text + `"}`, "tags of user 'u'"},
		{"PUT", "/users/u", `{"password":"","tags":` + tags + `}`, "tags of user 'u'"},
		{"POST", "/definitions", `{"vhosts":[{"name":"v","metadata":{"description":"` + text + `x"}}]}`, "description and tags of vhost 'v'"},
		{"POST", "/definitions", `{"users":[{"name":"u","password_hash":"","tags":["` + text + `"]}]}`, "tags of user 'u'"},
	} {
		a := n.do(c.method, c.path, c.body)
		if a.status != http.StatusBadRequest || !strings.Contains(string(a.body), c.want+" should be at most 65536 bytes, actually were 65537") {
			t.Errorf("%s %s %.60s: %d %.200s", c.method, c.path, c.body, a.status, a.body)
		}
	}
	n.must("PUT", "/vhosts/v", `{"description":"`+text+`"}`)
	n.must("PUT", "/users/u", `{"password":"","tags":"`+text[1:]+`"}`)
}

// Whose permissions are missing is found in linear time.
func TestVeryManyUsersAreListedWithoutPermissions(t *testing.T) {
	n := start(t)
	const many = 3000
	for i := range many {
		name := fmt.Sprint("user", i)
		if _, err := n.b.By("").Do(declare.PutUser{Name: name, Password: auth.PasswordHash{}, Tags: nil}); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			continue
		}
		if _, err := n.b.By("").Do(declare.PutPermission{Permission: auth.Permission{VHost: "/", User: name}}); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	list := n.must("GET", "/users/without-permissions", "").list(t)
	if took := time.Since(began); len(list) != 1 || list[0]["name"] != "user0" || took > time.Second {
		t.Errorf("%d users of %d after %v", len(list), many, took)
	}
}
