package metrics

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Who has all scrapes, and reads them slowly or not at all, gives one up to another address.
func TestScrapesAreSharedByAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow, served atomic.Int32
		goOn := make(chan struct{})
		h := inTurn(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				<-goOn
			}
			if _, err := io.WriteString(w, "series"); err == nil && r.URL.Path == "/slow" {
				slow.Add(1)
			} else if err == nil {
				served.Add(1)
			}
		}), 2)
		ask := func(from, path string) {
			r := httptest.NewRequestWithContext(t.Context(), "GET", path, http.NoBody)
			r.RemoteAddr = from
			h.ServeHTTP(httptest.NewRecorder(), r)
		}
		for range 3 {
			go ask("192.0.2.1:1", "/slow")
		}
		synctest.Wait()
		ask("192.0.2.2:1", "/metrics")
		if served.Load() != 1 {
			t.Error("another address was not served")
		}
		close(goOn)
		synctest.Wait()
		if slow.Load() != 2 {
			t.Errorf("%d of the three were served, want all but the one that gave way", slow.Load())
		}
	})
}

// A scrape takes memory for each object, and whoever asks has not logged in: few are made at once, and who
// takes their answer slowly does not keep the others waiting for ever.
func TestFewScrapesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var under, served atomic.Int32
		goOn := make(chan struct{})
		h := inTurn(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			under.Add(1)
			defer under.Add(-1)
			<-goOn
			if _, err := io.WriteString(w, "series"); err == nil {
				served.Add(1)
			}
		}), 2)
		ask := func(ctx context.Context) {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/metrics", http.NoBody))
		}
		gone, leave := context.WithCancel(t.Context())
		for range 2 {
			go ask(t.Context())
		}
		synctest.Wait()
		go ask(gone)
		go ask(t.Context())
		synctest.Wait()
		if n := under.Load(); n != 2 {
			t.Fatalf("%d at once, want 2", n)
		}
		leave() // it does not wait any more
		goOn <- struct{}{}
		synctest.Wait()
		if n := under.Load(); n != 2 {
			t.Fatalf("%d at once after one has ended, want 2", n)
		}
		time.Sleep(scrapeTime + time.Second) // of the bubble's clock
		close(goOn)
		synctest.Wait()
		if n := served.Load(); n != 1 || under.Load() != 0 {
			t.Errorf("%d were served in time and %d go on, want 1 and none", n, under.Load())
		}
	})
}
