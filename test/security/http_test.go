package security

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// raw sends bytes to the management listener and returns all that is answered.
func (n *node) raw(t *testing.T, text string) string {
	t.Helper()
	nc, err := net.Dial("tcp", n.s.Addresses().HTTP.String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = nc.Close() }()
	_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = io.WriteString(nc, text)
	answer, _ := io.ReadAll(nc)
	return string(answer)
}

const basicGuest = "Authorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n"

// No path leads out of the API, however it is written.
func TestPathTraversal(t *testing.T) {
	t.Parallel()
	n := start(t, "")
	const secret = "what is in the data directory is nobody's business"
	if err := os.WriteFile(n.s.DataDir+"/secret", []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		"/api/../secret", "/api/..%2fsecret", "/api/%2e%2e/%2e%2e/etc/passwd", "/api/queues/%2F/..%2f..%2f..%2fetc%2fpasswd", "/../../../../etc/passwd",
		"//etc/passwd", "/api/definitions/..%2f..", "/api/nodes/..", "/api/queues/../users", "/api/vhosts/..%5c..%5cetc", "/api/overview/../users", "/secret",
		"/api/queues/%00", "/api/./users", "/api//users", "/api/%75sers/../../x",
	} {
		answer := n.raw(t, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"+basicGuest+"\r\n")
		if strings.Contains(answer, "root:") || strings.Contains(answer, secret) {
			t.Errorf("%s leads out: %s", path, answer)
		}
		if status := strings.SplitN(answer, " ", 3); len(status) < 2 || status[1][0] != '4' && status[1] != "301" {
			t.Errorf("%s is answered %.60q", path, answer)
		}
	}
	// Names that look like paths are names.
	n.must("PUT", "/queues/%2F/..%2f..%2fetc", object{"durable": true})
	if list := n.must("GET", "/queues/%2F", nil); !strings.Contains(list, `"name":"../../etc"`) {
		t.Errorf("queues are %s", list)
	}
}

// What a page of another site has a browser ask for changes nothing, whatever it calls the body,
// on the API and on ApsaraMQ's. The browser's own site may, by JSON or a form's file; so may
// programs, which say nothing of sites.
func TestCrossSiteRequests(t *testing.T) {
	t.Parallel()
	n := start(t, "apsaramq.access_key.a.id = AK\napsaramq.access_key.a.secret = 0123456789abcdef\napsaramq.access_key.a.user = guest\n")
	at := n.s.Addresses().HTTP.String()
	const definitions = `{"users":[{"name":"mallory","password_hash":"","tags":"administrator"}]}`
	var form bytes.Buffer
	upload := multipart.NewWriter(&form)
	file, err := upload.CreateFormFile("file", "d.json")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(file, definitions)
	_ = upload.Close()
	for name, c := range map[string]struct {
		method, path, kind, body string
		site, origin             string
		status                   int
	}{
		"definitions as text":           {"POST", "/api/definitions", "text/plain", definitions, "cross-site", "https://evil.example", 403},
		"definitions as a form's file":  {"POST", "/api/definitions", upload.FormDataContentType(), form.String(), "cross-site", "https://evil.example", 403},
		"from a site beside":            {"POST", "/api/definitions", "text/plain", definitions, "same-site", "http://other." + at, 403},
		"a browser without Sec-Fetch":   {"POST", "/api/definitions", "text/plain", definitions, "", "https://evil.example", 403},
		"a sandboxed frame":             {"POST", "/api/definitions", "text/plain", definitions, "", "null", 403},
		"a login":                       {"POST", "/api/login", "application/x-www-form-urlencoded", "username=guest&password=guest", "cross-site", "https://evil.example", 403},
		"a deletion":                    {"DELETE", "/api/users/guest", "", "", "cross-site", "https://evil.example", 403},
		"ApsaraMQ's":                    {"POST", "/?Action=CreateVirtualHost", "application/x-www-form-urlencoded", "VirtualHost=v", "cross-site", "https://evil.example", 403},
		"the same site, as text":        {"POST", "/api/definitions", "text/plain", `{"users":[]}`, "same-origin", "http://" + at, 415},
		"the same site, without a type": {"PUT", "/api/vhosts/a", "", `{"description":"a"}`, "same-origin", "http://" + at, 415},
		"the same site, as JSON":        {"PUT", "/api/vhosts/b", "application/json; charset=utf-8", `{"description":"b"}`, "same-origin", "http://" + at, 201},
		"the same site, a form's file":  {"POST", "/api/definitions", upload.FormDataContentType(), strings.ReplaceAll(form.String(), "mallory", "uploaded"), "same-origin", "http://" + at, 204},
		"the same site, a login":        {"POST", "/api/login", "application/x-www-form-urlencoded", "username=guest&password=guest", "same-origin", "http://" + at, 200},
		"typed into the address":        {"GET", "/api/overview", "", "", "none", "", 200},
		"a link of another site":        {"GET", "/api/overview", "", "", "cross-site", "", 200},
		"curl -d":                       {"PUT", "/api/vhosts/c", "application/x-www-form-urlencoded", `{"description":"c"}`, "", "", 201},
		"curl, without a type":          {"POST", "/api/definitions", "", `{"users":[]}`, "", "", 204},
	} {
		r, err := http.NewRequest(c.method, "http://"+at+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		r.SetBasicAuth("guest", "guest")
		for header, value := range map[string]string{"Content-Type": c.kind, "Sec-Fetch-Site": c.site, "Origin": c.origin} {
			if value != "" {
				r.Header.Set(header, value)
			}
		}
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != c.status {
			t.Errorf("%s: %d %s, want %d", name, answer.StatusCode, text, c.status)
		}
	}
	if users := n.must("GET", "/users", nil); strings.Contains(users, "mallory") || !strings.Contains(users, "uploaded") {
		t.Errorf("users are %s", users)
	}
}

// No name gets a line of its own into a response's header or into the log.
func TestHeaderInjection(t *testing.T) {
	t.Parallel()
	n := start(t, "")
	const evil = "a%0d%0aX-Evil:%20yes%0d%0a%0d%0abody"
	for _, request := range []string{
		"PUT /api/queues/%2F/" + evil + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nConnection: close\r\n" + basicGuest + "\r\n{}",
		"POST /api/bindings/%2F/e/amq.direct/q/" + evil + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 18\r\nConnection: close\r\n" + basicGuest + "\r\n{\"routing_key\":\"" + `k"}`,
		"GET /api/" + evil + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + basicGuest + "\r\n",
	} {
		answer, err := http.ReadResponse(bufio.NewReader(strings.NewReader(n.raw(t, request))), nil)
		if err != nil {
			t.Errorf("%.60q: %v", request, err)
			continue
		}
		_ = answer.Body.Close()
		if answer.Header.Get("X-Evil") != "" {
			t.Errorf("%.60q puts a header into the answer: %v", request, answer.Header)
		}
	}
	if c, err := n.dial("guest:guest", "a\nlevel=ERROR msg=forged"); err == nil {
		_ = c.Close()
	}
	_, _ = n.do("x\nlevel=ERROR msg=forged:p", "GET", "/overview", "")
	for line := range strings.Lines(n.log.String()) {
		if strings.HasPrefix(line, "level=ERROR msg=forged") || !strings.HasPrefix(line, "time=") {
			t.Errorf("the log has a line that is not its own: %s", line)
		}
	}
}

// Requests that are too large, or do not come to an end, are refused in time, and cost no
// memory before they have come.
func TestOversizedRequests(t *testing.T) {
	t.Parallel()
	n := start(t, "management.http.max_body_size = 1000")
	if status, answer := n.do("guest:guest", "PUT", "/queues/%2F/q", `{"arguments":{"x":"`+strings.Repeat("x", 2000)+`"}}`); status != http.StatusRequestEntityTooLarge {
		t.Errorf("a large body: %d %s", status, answer)
	}
	if status, _ := n.do("guest:guest", "POST", "/definitions", strings.Repeat(" ", 2000)); status != http.StatusRequestEntityTooLarge {
		t.Errorf("large definitions: %d", status)
	}
	if status, _ := n.do("guest:wrong", "PUT", "/queues/%2F/q", strings.Repeat("x", 2000)); status != http.StatusUnauthorized {
		t.Errorf("a large body of somebody unknown: %d", status)
	}
	answer := n.raw(t, "GET /api/overview HTTP/1.1\r\nHost: x\r\nX: "+strings.Repeat("x", 200_000)+"\r\n\r\n")
	if !strings.Contains(answer, "431") {
		t.Errorf("a large header: %.60q", answer)
	}
	answer = n.raw(t, fmt.Sprintf("PUT /api/queues/%%2F/q HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\nConnection: close\r\n"+basicGuest+"\r\n{}", 1<<40))
	if !strings.Contains(answer, "413") && answer != "" {
		t.Errorf("a body that is announced and large: %.60q", answer)
	}
	if status, _ := n.do("guest:guest", "PUT", "/queues/%2F/q", strings.Repeat("[", 900)); status != http.StatusBadRequest {
		t.Errorf("deep nesting: %d", status)
	}
}

// Requests that two readers could read differently are not read at all.
func TestRequestSmuggling(t *testing.T) {
	t.Parallel()
	n := start(t, "")
	for _, request := range []string{
		"POST /api/overview HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
		"GET /api/overview HTTP/1.1\r\nHost: x\r\nBad Header: y\r\n\r\n",
		"GET /api/overview HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
	} {
		if answer := n.raw(t, request); !strings.HasPrefix(answer, "HTTP/1.1 400") && !strings.HasPrefix(answer, "HTTP/1.1 501") {
			t.Errorf("%.70q is answered %.60q", request, answer)
		}
	}
}
