package security

import (
	"bufio"
	"fmt"
	"io"
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
		answer := n.raw(t, "GET "+path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"+basicGuest+"\r\n")
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

// No name gets a line of its own into a response's header or into the log.
func TestHeaderInjection(t *testing.T) {
	t.Parallel()
	n := start(t, "")
	const evil = "a%0d%0aX-Evil:%20yes%0d%0a%0d%0abody"
	for _, request := range []string{
		"PUT /api/queues/%2F/" + evil + " HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nConnection: close\r\n" + basicGuest + "\r\n{}",
		"POST /api/bindings/%2F/e/amq.direct/q/" + evil + " HTTP/1.1\r\nHost: x\r\nContent-Length: 18\r\nConnection: close\r\n" + basicGuest + "\r\n{\"routing_key\":\"" + `k"}`,
		"GET /api/" + evil + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + basicGuest + "\r\n",
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
	answer = n.raw(t, fmt.Sprintf("PUT /api/queues/%%2F/q HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nConnection: close\r\n"+basicGuest+"\r\n{}", 1<<40))
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
