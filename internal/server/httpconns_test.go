package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"
)

// However many connections sit at an HTTP listener, saying nothing, half a request or the wrong password,
// whoever has the right one is served; of the others there are no more than may be.
func TestIdleHTTPConnectionsKeepNobodyOut(t *testing.T) {
	o, _ := options(t.TempDir())
	s := mustStart(t, o)
	defer mustStop(t, s)
	for name, tt := range map[string]struct {
		addr net.Addr
		path string
	}{
		"management": {s.Addresses().HTTP, "/api/overview"},
		"prometheus": {s.Addresses().Prometheus, "/metrics"},
	} {
		for what, sent := range map[string]string{
			"nothing":                "",
			"half a header":          "POST /api/login HTTP/1.1\r\nHost: x\r\nX: ",
			"a body that is awaited": "POST /api/login HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000\r\n\r\nusername",
			"a body of a stranger":   "PUT /api/queues/%2F/q HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{",
			"a request":              "GET /api/nothing HTTP/1.1\r\nHost: x\r\n\r\n",
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				var all []net.Conn
				defer func() {
					for _, nc := range all {
						_ = nc.Close()
					}
				}()
				for range maxHTTPConnections + 200 {
					nc, err := net.Dial("tcp", tt.addr.String())
					if err != nil {
						t.Fatal(err)
					}
					all = append(all, nc)
					_, _ = io.WriteString(nc, sent) // the first ones may be gone already
				}
				began := time.Now()
				if got := status(t, "http://"+tt.addr.String()+tt.path); got != http.StatusOK {
					t.Errorf("whoever has the right password is answered %d", got)
				}
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("after %v", took)
				}
				// The ones that came first have gone.
				_ = all[0].SetReadDeadline(time.Now().Add(5 * time.Second))
				if _, err := io.Copy(io.Discard, all[0]); err != nil && isTimeout(err) {
					t.Error("the first connection is still open")
				}
			})
		}
	}
}

func isTimeout(err error) bool {
	timeout, ok := err.(net.Error)
	return ok && timeout.Timeout()
}

// status asks as guest by a connection of its own.
func status(t *testing.T, url string) int {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	q.SetBasicAuth("guest", "guest")
	q.Close = true
	client := http.Client{Timeout: 30 * time.Second}
	a, err := client.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, a.Body)
	_ = a.Body.Close()
	return a.StatusCode
}

// crowded serves at a listener with room for most connections. Requests to /known are of somebody known, and
// wait until they may go on.
func crowded(t *testing.T, most int, secure *tls.Config) (c *crowd, addr string, arrived, goOn chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c = newCrowd(l, most, slog.New(slog.DiscardHandler))
	arrived, goOn = make(chan struct{}, most), make(chan struct{})
	h := &http.Server{ConnContext: withGuest, Handler: visiting(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/known" {
			user := r.URL.Query().Get("user")
			first := known(r.Context(), user)
			if again := known(r.Context(), user); !first || !again { // once more changes nothing
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			arrived <- struct{}{}
			<-goOn
		}
		_, _ = io.WriteString(w, "answer")
	}))}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var at net.Listener = c
		if secure != nil {
			at = tls.NewListener(c, secure)
		}
		_ = h.Serve(at)
	}()
	t.Cleanup(func() {
		_ = h.Close()
		<-ended
	})
	return c, l.Addr().String(), arrived, goOn
}

func dialHTTP(t *testing.T, addr, path string) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
	if path != "" {
		_, _ = fmt.Fprintf(nc, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
	}
	return nc
}

// Who is known and asks is not closed for strangers, nor for more of its own requests; what is idle afterwards may go again.
func TestKnownRequestsAreNotClosedForOthers(t *testing.T) {
	const most, places = 4, 3
	c, addr, arrived, goOn := crowded(t, most, nil)
	var asking []net.Conn
	for range places {
		asking = append(asking, dialHTTP(t, addr, "/known"))
		<-arrived
	}
	a, err := http.ReadResponse(bufio.NewReader(dialHTTP(t, addr, "/known")), nil)
	if err != nil || a.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a further request of the user: %v, %v; want it refused", a, err)
	} else {
		_ = a.Body.Close()
	}
	first := dialHTTP(t, addr, "")
	_ = dialHTTP(t, addr, "") // a stranger: for another
	if n, err := first.Read(make([]byte, 1)); n != 0 || err == nil || isTimeout(err) {
		t.Errorf("the first stranger read %d bytes, %v; want it closed", n, err)
	}
	close(goOn)
	for _, nc := range asking {
		a, err := http.ReadResponse(bufio.NewReader(nc), nil)
		if err != nil {
			t.Fatal("a known request was not answered: ", err)
		}
		_ = a.Body.Close()
	}
	for range 2 * most { // whenever the handlers have returned
		if a, err := http.ReadResponse(bufio.NewReader(dialHTTP(t, addr, "/other")), nil); err == nil {
			_ = a.Body.Close()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.guests) > most || c.idle.Len() > len(c.guests) {
		t.Errorf("%d connections, %d of them idle, where there may be %d", len(c.guests), c.idle.Len(), most)
	}
}

func await(t *testing.T, arrived <-chan struct{}) {
	t.Helper()
	select {
	case <-arrived:
	case <-time.After(30 * time.Second):
		t.Fatal("a request was refused")
	}
}

// Users share the connections with running requests: who comes and has none takes the last of who has most, whose others go on.
func TestKnownConnectionsAreSharedByUser(t *testing.T) {
	const most, places = 8, 7
	c, addr, arrived, goOn := crowded(t, most, nil)
	var flood []net.Conn
	for range places {
		flood = append(flood, dialHTTP(t, addr, "/known?user=flood"))
		await(t, arrived)
	}
	other := dialHTTP(t, addr, "/known?user=other")
	await(t, arrived)
	if n, err := flood[places-1].Read(make([]byte, 1)); n != 0 || err == nil || isTimeout(err) {
		t.Errorf("the last connection of the flood read %d bytes, %v; want it closed", n, err)
	}
	close(goOn)
	for _, nc := range append(flood[:places-1], other) {
		a, err := http.ReadResponse(bufio.NewReader(nc), nil)
		if err != nil || a.StatusCode != http.StatusOK {
			t.Fatal("a request that has a place was not answered: ", err)
		}
		_ = a.Body.Close()
		_ = nc.Close()
	}
	for left := 1; left > 0; runtime.Gosched() {
		c.mu.Lock()
		left = len(c.guests) + len(c.useful) + c.idle.Len()
		c.mu.Unlock()
	}
}

// One user who has logged in and sends bodies without an end has all the connections that there may be; an administrator is answered.
func TestAUserWithAllConnectionsKeepsNoAdministratorOut(t *testing.T) {
	o, _ := options(t.TempDir())
	o.Config.MaxHTTP.Management = 16
	s := mustStart(t, o)
	defer mustStop(t, s)
	addr := s.Addresses().HTTP.String()
	for _, c := range []struct{ path, body string }{
		{"users/low", `{"password": "low", "tags": "management"}`}, {"permissions/%2F/low", `{"configure": "^low", "write": "^low", "read": "^low"}`},
	} {
		if code, text, _ := asked(t, http.DefaultClient, "PUT", "http://"+addr+"/api/"+c.path, "guest:guest", c.body); code >= 300 {
			t.Fatal(c.path, code, text)
		}
	}
	for range 2 * o.Config.MaxHTTP.Management {
		nc := dialHTTP(t, addr, "")
		login := base64.StdEncoding.EncodeToString([]byte("low:low"))
		_, _ = fmt.Fprintf(nc, "PUT /api/queues/%%2F/low HTTP/1.1\r\nHost: x\r\nAuthorization: Basic %s\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n{", login)
		// The node reads the body, or refuses the request.
		if a, err := http.ReadResponse(bufio.NewReader(nc), nil); err != nil {
			t.Fatal(err)
		} else if a.StatusCode != http.StatusContinue && a.StatusCode != http.StatusServiceUnavailable {
			t.Fatal(a.Status)
		}
	}
	if got := status(t, "http://"+addr+"/api/overview"); got != http.StatusOK {
		t.Errorf("the administrator is answered %d", got)
	}
}

// Requests of HTTP/2 share a connection, which is of use as long as one of them is.
func TestSharedConnectionsAreKnownByAnyRequest(t *testing.T) {
	pair := httptest.NewUnstartedServer(nil)
	pair.EnableHTTP2 = true
	pair.StartTLS()
	defer pair.Close()
	secure := pair.TLS.Clone()
	secure.NextProtos = []string{"h2", "http/1.1"}
	_, addr, arrived, goOn := crowded(t, 2, secure)
	client := pair.Client()
	answers := make(chan error, 2)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for range 2 {
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+addr+"/known", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			a, err := client.Do(q)
			if err == nil {
				_ = a.Body.Close()
			}
			answers <- err
		}()
		<-arrived
	}
	goOn <- struct{}{} // one of them goes, the other stays
	if err := <-answers; err != nil {
		t.Fatal(err)
	}
	var others []net.Conn
	for range 5 {
		others = append(others, dialHTTP(t, addr, ""))
	}
	for _, nc := range others[:4] { // each has gone for the next, and not the one with a request
		if _, err := io.Copy(io.Discard, nc); err != nil && isTimeout(err) {
			t.Fatal("it is still open")
		}
	}
	goOn <- struct{}{}
	if err := <-answers; err != nil {
		t.Error("a known request was cut: ", err)
	}
	client.CloseIdleConnections()
}

// What an HTTP connection holds that says nothing is little, with TLS and without.
func TestSilentHTTPConnectionsCostLittle(t *testing.T) {
	const connections, most = 200, 64 << 10
	pair := httptest.NewTLSServer(nil)
	defer pair.Close()
	for name, secure := range map[string]*tls.Config{"plain": nil, "tls": pair.TLS} {
		t.Run(name, func(t *testing.T) {
			c, addr, _, _ := crowded(t, 2*connections, secure)
			measure := func() int64 {
				runtime.GC()
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				return int64(m.HeapAlloc + m.StackInuse)
			}
			before := measure()
			for range connections {
				nc := dialHTTP(t, addr, "")
				if secure != nil {
					client := tls.Client(nc, &tls.Config{InsecureSkipVerify: true})
					if err := client.Handshake(); err != nil {
						t.Fatal(err)
					}
				}
			}
			for open := 0; open < connections; runtime.Gosched() {
				c.mu.Lock()
				open = len(c.guests)
				c.mu.Unlock()
			}
			if each := (measure() - before) / connections; each > most {
				t.Errorf("%d bytes for each, want %d at most", each, most)
			} else {
				t.Logf("%d bytes for each, the client's end included", each)
			}
		})
	}
}
