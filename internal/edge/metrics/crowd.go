package metrics

import (
	"errors"
	"net/http"
	"time"
)

const (
	// maxScrapes is the number of concurrent scrapes. Each has all its series in memory until its client has read
	// them, some 11 KB for each queue in per-object metrics, and anybody may scrape.
	maxScrapes = 4
	// scrapeTime is how long a client may take to read them; then the next has its turn.
	scrapeTime = 30 * time.Second
)

// inTurn limits h to a number of concurrent requests; others wait.
func inTurn(h http.Handler, most int) http.Handler {
	slots := make(chan struct{}, most)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
		case <-r.Context().Done():
			return
		}
		h.ServeHTTP(&hurried{w, time.Now().Add(scrapeTime)}, r) // a panic of it ends the process
		<-slots
	})
}

// hurried is an answer that its client must have read by a deadline.
type hurried struct {
	http.ResponseWriter
	until time.Time
}

var errSlow = errors.New("the client takes too long")

// Write implements http.ResponseWriter.
func (w *hurried) Write(b []byte) (int, error) {
	if time.Now().After(w.until) {
		return 0, errSlow
	}
	return w.ResponseWriter.Write(b)
}
