package api_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// Bodies are bounded by what their request needs, and the answer says by how much.
func TestABodyIsAsLargeAsItsRequestNeeds(t *testing.T) {
	n := start(t)
	n.must("PUT", "/queues/%2F/q", `{"durable":true}`)
	large := strings.Repeat("x", 2<<20)
	if a := n.do("PUT", "/queues/%2F/q2", `{"arguments":{"x":"`+large+`"}}`); a.status != 413 || !strings.Contains(a.body, "1048576 bytes") {
		t.Errorf("a queue of 2 MiB: %d %s", a.status, a.body)
	}
	n.must("POST", "/exchanges/%2F/amq.default/publish", `{"routing_key":"q","properties":{},"payload_encoding":"string","payload":"`+large+`"}`)
	n.must("POST", "/definitions", `{"more":"`+large+`"}`)
	nulls := "[null" + strings.Repeat(",null", 200_000) + "]"
	a := n.do("POST", "/exchanges/%2F/amq.default/publish", `{"routing_key":"q","properties":{},"payload_encoding":"string","payload":`+nulls+`}`)
	if a.status != 400 || !strings.Contains(a.body, "more than 200000 values") {
		t.Errorf("a message of many values: %d %.200s", a.status, a.body)
	}
	a = n.do("POST", "/definitions", `{"queues":[`+strings.Repeat("[],", 2_000_000)+`[]]}`)
	if a.status != 400 || !strings.Contains(a.body, "more than 2000000 values") {
		t.Errorf("definitions of many values: %d %.200s", a.status, a.body)
	}
}

// slow is a body that says when it is begun to be read, and has no end before it may.
type slow struct {
	begun, end chan struct{}
	once       sync.Once
}

func (s *slow) Read([]byte) (int, error) {
	s.once.Do(func() { s.begun <- struct{}{} })
	<-s.end
	return 0, io.EOF
}

// However many send large bodies at once, few are in memory; small ones wait for none of them.
func TestFewLargeBodiesAreReadAtOnce(t *testing.T) {
	n := start(t)
	begun, end := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { n.send(httptest.NewRequest("POST", "/api/definitions", &slow{begun: begun, end: end})) })
		<-begun
	}
	gone, leave := context.WithCancel(context.Background())
	leave()
	fifth := &slow{begun: make(chan struct{}, 1), end: end}
	if a := n.send(httptest.NewRequestWithContext(gone, "POST", "/api/definitions", fifth)); a.status != 503 || len(fifth.begun) > 0 {
		t.Errorf("the fifth large body, for whom nobody waits: %d %s, begun: %d", a.status, a.body, len(fifth.begun))
	}
	n.must("PUT", "/queues/%2F/q", `{"durable":true}`)
	close(end)
	all.Wait()
	n.must("POST", "/definitions", `{"more":"`+strings.Repeat("x", 2<<20)+`"}`)
}

// Whoever has all places for large bodies, by bodies that never come, gives one up to another user who comes.
func TestLargeBodiesAreSharedByUser(t *testing.T) {
	n := start(t)
	n.must("PUT", "/users/low", `{"password":"low","tags":"administrator"}`)
	begun, end := make(chan struct{}), make(chan struct{})
	answers := make(chan answer, 4)
	for range 4 {
		q := httptest.NewRequest("POST", "/api/definitions", &slow{begun: begun, end: end})
		q.SetBasicAuth("low", "low")
		go func() { answers <- n.send(q) }()
		select {
		case <-begun:
		case a := <-answers:
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	n.must("POST", "/definitions", `{"more":"`+strings.Repeat("x", 2<<20)+`"}`) // it would wait for ever
	close(end)
	for range 4 {
		<-answers
	}
}

// Whoever has all imports gives one up to another user who comes, and its import ends.
func TestImportsAreSharedByUser(t *testing.T) {
	n := startOffice(t)
	n.must("PUT", "/users/low", `{"password":"low","tags":"administrator"}`)
	n.must("PUT", "/queues/%2F/q", `{"durable":true}`)
	begun, end := make(chan struct{}), make(chan struct{})
	answers := make(chan answer, 4)
	send := func(body io.Reader) *http.Request {
		q := httptest.NewRequest("POST", "/api/office/import/%2F/q", body)
		q.SetBasicAuth("low", "low")
		return q
	}
	n.must("PUT", "/permissions/%2F/low", `{"configure":".*","write":".*","read":""}`)
	for range 4 {
		q := send(&slow{begun: begun, end: end})
		go func() { answers <- n.send(q) }()
		select {
		case <-begun:
		case a := <-answers:
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	if a := n.send(send(strings.NewReader(""))); a.status != 429 {
		t.Errorf("the fifth import of a user: %d %s", a.status, a.body)
	}
	n.must("POST", "/office/import/%2F/q", "")
	close(end)
	for range 4 {
		<-answers
	}
}
