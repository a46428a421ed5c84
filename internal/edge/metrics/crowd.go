package metrics

import (
	"errors"
	"net/http"
	"time"
)

const (
	// maxScrapes is how many scrapes are made at once: each has all its series in memory, some 11 KB for each
	// queue where objects are told apart, until its client has taken them, and anybody may ask.
	maxScrapes = 4
	// scrapeTime is how long a client may take to take them; then the next has its turn.
	scrapeTime = 30 * time.Second
)

// inTurn is h for so many requests at once; others wait.
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

// hurried is an answer that its client must have taken by a moment.
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
