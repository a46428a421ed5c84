package metrics

import (
	"errors"
	"net/http"
	"net/netip"
	"time"

	"bartleby.mq/internal/run/share"
)

const (
	// maxScrapes is the number of concurrent scrapes. Each has all its series in memory until its client has read
	// them, some 11 KB for each queue in per-object metrics, and anybody may scrape.
	maxScrapes = 4
	// scrapeTime is how long a client may take to read them; then the next has its turn.
	scrapeTime = 30 * time.Second
)

// inTurn limits h to a number of concurrent requests, which addresses share; others wait.
func inTurn(h http.Handler, most int) http.Handler {
	room := share.NewRoom[netip.Prefix](most)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		place := room.Wait(share.Network(r.RemoteAddr), r.Context().Done())
		if place == nil {
			return
		}
		place.OnYield(func() { _ = http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0)) }) // a write that waits ends; a recorder in a test has none
		h.ServeHTTP(&hurried{w, time.Now().Add(scrapeTime), place.Yield()}, r)                        // a panic of it ends the process
		place.Leave()
	})
}

// hurried is an answer that its client must have read by a deadline, and before its place is another's.
type hurried struct {
	http.ResponseWriter
	until  time.Time
	yieldc <-chan struct{}
}

var errSlow = errors.New("the client takes too long")

// Write implements http.ResponseWriter.
func (w *hurried) Write(b []byte) (int, error) {
	select {
	case <-w.yieldc:
		return 0, errSlow
	default:
	}
	if time.Now().After(w.until) {
		return 0, errSlow
	}
	return w.ResponseWriter.Write(b)
}
