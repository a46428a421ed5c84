package api_test

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// browser asks with a cookie and no password, as the console does.
type browser struct {
	n      *node
	cookie string // NAME=SECRET
	peer   string
}

func (b *browser) ask(method, path, body string, change ...func(*http.Request)) answer {
	b.n.t.Helper()
	r := httptest.NewRequest(method, "http://localhost:15672/api"+path, strings.NewReader(body))
	r.Header.Set("X-Bartleby-Session", "1")
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if b.cookie != "" {
		r.Header.Set("Cookie", b.cookie)
	}
	r.RemoteAddr = "127.0.0.1:1234"
	if b.peer != "" {
		r.RemoteAddr = b.peer
	}
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	b.n.handler.ServeHTTP(w, r)
	a := answer{w.Code, w.Header(), strings.TrimSpace(w.Body.String())}
	if a.status == http.StatusUnauthorized && a.header.Get("WWW-Authenticate") != "" {
		b.n.t.Errorf("%s %s: the browser would ask for a password in a window of its own", method, path)
	}
	return a
}

// logIn logs a browser in.
func (n *node) logIn(user, password string) *browser {
	n.t.Helper()
	b := &browser{n: n}
	b.logIn(user, password)
	return b
}

func (b *browser) logIn(user, password string, change ...func(*http.Request)) *http.Cookie {
	b.n.t.Helper()
	a := b.ask("POST", "/session", fmt.Sprintf(`{"username":%q,"password":%q}`, user, password), change...)
	if a.status != http.StatusOK {
		b.n.t.Fatalf("login of %s: %d %s", user, a.status, a.body)
	}
	c, err := http.ParseSetCookie(a.header.Get("Set-Cookie"))
	if err != nil {
		b.n.t.Fatal(err)
	}
	b.cookie = c.Name + "=" + c.Value
	return c
}

func (b *browser) wants(status int, method, path string, change ...func(*http.Request)) {
	b.n.t.Helper()
	if a := b.ask(method, path, "", change...); a.status != status {
		b.n.t.Errorf("%s %s: %d %s, want %d", method, path, a.status, a.body, status)
	}
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

// A cookie is as good as the password it was made with, in a cookie that scripts and other sites do not get.
func TestASessionStandsForThePassword(t *testing.T) {
	n := start(t)
	b := &browser{n: n}
	b.wants(401, "GET", "/session")
	c := b.logIn("guest", "guest")
	if c.Name != "bartleby-session-15672" || !c.HttpOnly || c.Secure || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" || c.MaxAge != 0 {
		t.Errorf("the cookie is %v", c)
	}
	if len(c.Value) != 43 {
		t.Errorf("the secret %q has not 256 bits", c.Value)
	}
	s := b.ask("GET", "/session", "").object(t)
	if s["name"] != "guest" || fmt.Sprint(s["tags"], s["vhosts"]) != "[administrator] [/]" || s["node"] != "rabbit@test" || s["cluster_name"] != "peer" || s["strict"] != false {
		t.Errorf("the session says %v", s)
	}
	b.wants(200, "GET", "/overview")
	if a := b.ask("PUT", "/queues/%2F/q", `{"durable":true}`); a.status != 201 {
		t.Errorf("a queue: %d %s", a.status, a.body)
	}
	b.wants(204, "DELETE", "/session")
	b.wants(401, "GET", "/overview")
	b.wants(204, "DELETE", "/session") // there is none, and nothing to complain about
	secure := b.logIn("guest", "guest", func(r *http.Request) { r.TLS = &tls.ConnectionState{} })
	if !secure.Secure {
		t.Errorf("under TLS the cookie is %v", secure)
	}
}

// Wrong passwords and users that may not manage get no cookie; nor does a body that is no login.
func TestWhoGetsNoSession(t *testing.T) {
	n := start(t)
	n.must("PUT", "/users/app", `{"password":"secret","tags":""}`)
	for body, want := range map[string]int{
		`{"username":"guest","password":"wrong"}`: 401,
		`{"username":"nobody","password":"x"}`:    401,
		`{"username":"app","password":"secret"}`:  401,
		`{"username":"guest"}`:                    400,
		`{"username":1,"password":"x"}`:           400,
		`[]`:                                      400,
		`{"username":"","password":""}`:           401,
	} {
		a := (&browser{n: n}).ask("POST", "/session", body)
		if a.status != want || a.header.Get("Set-Cookie") != "" {
			t.Errorf("%s: %d %s, cookie %q, want %d and none", body, a.status, a.body, a.header.Get("Set-Cookie"), want)
		}
	}
}

// A secret that somebody planted in the browser is worth nothing after the login, and nothing before.
func TestASecretIsNeverTheClients(t *testing.T) {
	n := start(t)
	planted := n.logIn("guest", "guest")
	victim := &browser{n: n, cookie: planted.cookie}
	victim.logIn("guest", "guest")
	if victim.cookie == planted.cookie {
		t.Error("the login kept the secret that was there")
	}
	planted.wants(401, "GET", "/whoami")
	victim.wants(200, "GET", "/whoami")
	for _, secret := range []string{"", "x", strings.Repeat("A", 43), strings.Repeat("A", 8000)} {
		b := &browser{n: n, cookie: "bartleby-session-15672=" + secret}
		b.wants(401, "GET", "/whoami")
	}
	elsewhere := &browser{n: n, cookie: strings.Replace(victim.cookie, "15672", "15671", 1)}
	elsewhere.wants(401, "GET", "/whoami")
}

// A request that changes something needs the console's header, and must come from a page of the node.
func TestOtherSitesCannotUseASession(t *testing.T) {
	n := start(t)
	b := n.logIn("guest", "guest")
	without := func(r *http.Request) { r.Header.Del("X-Bartleby-Session") }
	b.wants(200, "GET", "/overview", without) // a download: it has no header
	for name, change := range map[string]func(*http.Request){
		"no header":        without,
		"another value":    header("X-Bartleby-Session", "yes"),
		"another site":     header("Sec-Fetch-Site", "cross-site"),
		"another port":     header("Sec-Fetch-Site", "same-site"),
		"another origin":   header("Origin", "http://localhost:8080"),
		"an opaque one":    header("Origin", "null"),
		"a page of a file": header("Origin", "file://"),
	} {
		for _, path := range []string{"/queues/%2F/q", "/session"} {
			if a := b.ask("DELETE", path, "", change); a.status != 403 || !strings.Contains(a.body, "X-Bartleby-Session") {
				t.Errorf("%s: DELETE %s: %d %s, want 403", name, path, a.status, a.body)
			}
		}
	}
	if a := b.ask("POST", "/session", `{"username":"guest","password":"guest"}`, header("Sec-Fetch-Site", "cross-site")); a.status != 403 {
		t.Errorf("a login on behalf of another site: %d %s, want 403", a.status, a.body)
	}
	b.wants(404, "DELETE", "/queues/%2F/q", header("Origin", "http://localhost:15672"), header("Sec-Fetch-Site", "same-origin"))
	b.wants(200, "GET", "/session") // it still is open
}

// The console's header chooses the cookie; without it a password goes first, as ever.
func TestCookieOrPassword(t *testing.T) {
	n := start(t)
	n.must("PUT", "/users/ada", `{"password":"a","tags":"management"}`)
	b := n.logIn("ada", "a")
	password := func(r *http.Request) { r.SetBasicAuth("guest", "guest") }
	if a := b.ask("GET", "/whoami", "", password); a.object(t)["name"] != "ada" {
		t.Errorf("with the header: %s", a.body)
	}
	plain := func(r *http.Request) { r.Header.Del("X-Bartleby-Session") }
	if a := b.ask("GET", "/whoami", "", password, plain); a.object(t)["name"] != "guest" {
		t.Errorf("without the header: %s", a.body)
	}
	if a := n.send(httptest.NewRequest("DELETE", "/api/queues/%2F/q", nil)); a.status != 404 {
		t.Errorf("a password needs no header: %d", a.status)
	}
	r := httptest.NewRequest("GET", "/api/whoami", nil)
	w := httptest.NewRecorder()
	n.handler.ServeHTTP(w, r)
	if w.Code != 401 || w.Header().Get("WWW-Authenticate") == "" {
		t.Errorf("without either: %d, WWW-Authenticate %q", w.Code, w.Header().Get("WWW-Authenticate"))
	}
}

// A session ends with what it was made with: the account, its password and its tags.
func TestASessionEndsWithItsAccount(t *testing.T) {
	const ada = `{"password":"a","tags":"administrator"}`
	for name, change := range map[string][3]string{
		"another password":              {"PUT", "/users/ada", `{"password":"b","tags":"administrator"}`},
		"the same password, set anew":   {"PUT", "/users/ada", ada},
		"other tags":                    {"PUT", "/users/ada", `{"password":"a","tags":"management"}`},
		"the account is deleted":        {"DELETE", "/users/ada", ""},
		"no password":                   {"PUT", "/users/ada", `{"password_hash":"","tags":"administrator"}`},
		"definitions with its password": {"POST", "/definitions", `{"users":[{"name":"ada","password_hash":"","tags":["administrator"]}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t)
			n.must("PUT", "/users/ada", ada)
			b := n.logIn("ada", "a")
			b.wants(200, "GET", "/users")
			n.must(change[0], change[1], change[2])
			b.wants(401, "GET", "/users")
			if change[0] == "DELETE" { // nor does it belong to a new account of this name
				n.must("PUT", "/users/ada", ada)
			}
			b.wants(401, "GET", "/session")
		})
	}
	n := start(t)
	n.must("PUT", "/users/ada", ada)
	b := n.logIn("ada", "a")
	n.must("PUT", "/permissions/%2F/ada", `{"configure":"","write":"","read":""}`)
	n.must("PUT", "/user-limits/ada/max-connections", `{"value":5}`)
	b.wants(200, "GET", "/users") // permissions are asked for anew with each request
	b.wants(200, "GET", "/session")
}

// An account that may log in from this machine only cannot take its session elsewhere.
func TestASessionStaysOnItsMachine(t *testing.T) {
	n := start(t)
	b := n.logIn("guest", "guest")
	b.peer = "192.0.2.1:5"
	b.wants(401, "GET", "/whoami")
	b.peer = ""
	b.wants(401, "GET", "/whoami") // it was stolen: nobody has it any more
}

// Logging out everywhere ends the user's other sessions and nobody else's.
func TestLogOutEverywhere(t *testing.T) {
	n := start(t)
	n.must("PUT", "/users/ada", `{"password":"a","tags":"management"}`)
	here, there, other := n.logIn("guest", "guest"), n.logIn("guest", "guest"), n.logIn("ada", "a")
	here.wants(204, "DELETE", "/session?everywhere=true")
	here.wants(401, "GET", "/whoami")
	there.wants(401, "GET", "/whoami")
	other.wants(200, "GET", "/whoami")
	here.wants(204, "DELETE", "/session?everywhere=true") // a session that is over ends no others
	other.wants(200, "GET", "/whoami")
}

// A user who logs in without end has the last 20 sessions, and ends nobody else's.
func TestManySessionsOfAUser(t *testing.T) {
	n := start(t)
	n.must("PUT", "/users/ada", `{"password":"a","tags":"management"}`)
	other, first := n.logIn("ada", "a"), n.logIn("guest", "guest")
	second := n.logIn("guest", "guest")
	first.wants(200, "GET", "/whoami") // so the second is the one that was not used for longest
	for range 19 {
		n.logIn("guest", "guest")
	}
	first.wants(200, "GET", "/whoami")
	second.wants(401, "GET", "/whoami")
	other.wants(200, "GET", "/whoami")
}
