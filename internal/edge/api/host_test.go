package api_test

import (
	"log/slog"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"bartleby.mq/internal/edge/api"
)

// A page whose name leads to this machine (DNS rebinding) does not log in as guest, with a password or by a cookie. Other users may come
// by any name, as through a proxy.
func TestGuestByTheNameOfAnotherHost(t *testing.T) {
	var log strings.Builder
	n := start(t, func(o *api.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	n.must("PUT", "/users/ada", `{"password":"a","tags":"management"}`)
	machine, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	asks := func(host, user string) answer {
		r := httptest.NewRequest("GET", "/api/whoami", nil)
		r.Host = host
		r.SetBasicAuth(user, map[string]string{"guest": "guest", "ada": "a"}[user])
		return n.send(r)
	}
	for _, host := range []string{
		"127.0.0.1:15672", "127.0.0.1", "127.8.9.1:1", "[::1]:15672", "[::1]", "[::ffff:127.0.0.1]:1", "localhost", "LocalHost:15672", "localhost.:80", "web.localhost:15672",
		machine, machine + ":15672", strings.ToUpper(machine), "",
	} {
		if a := asks(host, "guest"); a.status != 200 {
			t.Errorf("Host %q: %d %s", host, a.status, a.body)
		}
	}
	for _, host := range []string{"evil.test", "evil.test:15672", "localhost.evil.test", "127.0.0.1.evil.test", "192.0.2.1:15672", "[2001:db8::1]:80", "notlocalhost", "evil.test.", "x:y:z"} {
		a := asks(host, "guest")
		if a.status != 401 || !strings.Contains(a.body, "Host '"+host+"'") || a.header.Get("WWW-Authenticate") != "" {
			t.Errorf("Host %q: %d %s", host, a.status, a.body)
		}
		if !strings.Contains(log.String(), "the Host of the request is no name of this machine") {
			t.Errorf("Host %q: the log does not name the cause:\n%s", host, log.String())
		}
		log.Reset()
		if a := asks(host, "ada"); a.status != 200 {
			t.Errorf("ada at the Host %q: %d %s", host, a.status, a.body)
		}
	}
	if a := asks("evil.test", "nobody"); a.status != 401 || a.header.Get("WWW-Authenticate") == "" {
		t.Errorf("nobody: %d %s", a.status, a.body)
	}

	b := n.logIn("guest", "guest")
	b.wants(200, "GET", "/whoami")
	evil := httptest.NewRequest("GET", "/api/whoami", nil)
	evil.Host = "evil.test"
	evil.Header.Set("Cookie", b.cookie)
	w := httptest.NewRecorder()
	evil.RemoteAddr = "127.0.0.1:1234"
	n.handler.ServeHTTP(w, evil)
	if w.Code != 401 {
		t.Errorf("a cookie of guest under another name: %d", w.Code)
	}
}
