package api_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"bartleby.mq/internal/edge/api"
)

// Who gets many messages at once waits for its turn, as who lists all there is does; who gets a few does not.
func TestAGetOfManyMessagesTakesTurns(t *testing.T) {
	n := start(t)
	n.must("PUT", "/queues/%2F/q", `{}`)
	done := api.HoldReads(n.handler)
	get := func(ctx context.Context, count string) int {
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/api/queues/%2F/q/get", strings.NewReader(`{"count":`+count+`,"ackmode":"peek","encoding":"auto"}`))
		r.SetBasicAuth("guest", "guest")
		r.RemoteAddr = "127.0.0.1:1234"
		w := httptest.NewRecorder()
		n.handler.ServeHTTP(w, r)
		return w.Code
	}
	if code := get(t.Context(), "10"); code != http.StatusOK {
		t.Errorf("a few: %d", code)
	}
	for _, count := range []string{"1000", "-1"} {
		gone, leave := context.WithCancel(t.Context())
		leave() // whoever must wait goes at once
		if code := get(gone, count); code == http.StatusOK {
			t.Errorf("%s while all turns are taken: %d", count, code)
		}
	}
	done()
	if code := get(t.Context(), "1000"); code != http.StatusOK {
		t.Errorf("many, in turn: %d", code)
	}
}
