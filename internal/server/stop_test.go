package server

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/topology"
)

// Whoever asks over HTTP reads bodies, which a stop gives up: it waits for requests that it has cut, and begins no others.
func TestStopWaitsForRequestsThatItCut(t *testing.T) {
	o, _ := options("")
	o.FS = vfs.NewMem()
	s := mustStart(t, o)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	begun, late := make(chan struct{}), make(chan struct{})
	var ended atomic.Bool
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
		for range 10_000 { // an answer that is being made
			runtime.Gosched()
		}
		ended.Store(true)
	})
	s.serveHTTP(l, nil, new(net.Addr), 0, h)
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		if res, err := http.Get("http://" + l.Addr().String()); err == nil {
			_ = res.Body.Close()
		}
	}()
	<-begun
	s.atStop = append(s.atStop, func() { close(late) }) // the broker is closed
	s.patience = 0
	mustStop(t, s)
	if <-late; !ended.Load() {
		t.Error("the broker was closed while a request was under way")
	}
	<-asked
	w := httptest.NewRecorder()
	s.mortal(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request began after the stop") })).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("it is answered %d", w.Code)
	}
}

// A request that looks at nothing does not keep the node from ending: the stop says which it is, and leaves open what the request may use.
func TestAStopWaitsNoLongerThanItsBound(t *testing.T) {
	o, said := options("")
	o.FS = vfs.NewMem()
	s := mustStart(t, o)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	begun, goOn, asked := make(chan struct{}), make(chan struct{}), make(chan struct{})
	s.serveHTTP(l, nil, new(net.Addr), 0, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(begun)
		<-goOn
	}))
	go func() {
		defer close(asked)
		if res, err := http.Get("http://" + l.Addr().String() + "/api/auth/hash_password/secret"); err == nil {
			_ = res.Body.Close()
		}
	}()
	<-begun
	s.patience, s.requestPatience = 0, 0
	if err := s.Stop(); !errors.Is(err, errRequestsLeft) {
		t.Errorf("the stop ends with %v", err)
	}
	if text := said.String(); !strings.Contains(text, "resource=/api/auth/hash_password ") || strings.Contains(text, "secret") {
		t.Errorf("the log says %s", text)
	}
	s.broker.Read(func(*topology.State, *auth.Users) {}) // it is open
	close(goOn)
	<-asked
	<-s.requests.ended
	s.done.Wait()
	s.office.Close()
	if err := s.broker.Close(); err != nil {
		t.Error(err)
	}
}
