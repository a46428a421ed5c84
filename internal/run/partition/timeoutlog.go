package partition

import (
	"sync"
	"time"
)

// timeoutLog writes a line for each consumer that a consumer timeout ends, but at most timeoutLines a minute: a client with very many
// consumers may hang with all of them.
type timeoutLog struct {
	mu      sync.Mutex // no other lock is taken under it
	since   int64      // when this minute began, in milliseconds since 1970
	written int        // lines since then
	left    int        // consumers without a line since then
}

const timeoutLines = 10

// may says whether there may be a line now, whether it is the last one for a while, and how many were left out before it.
func (l *timeoutLog) may(now int64) (ok, last bool, left int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if passed := now - l.since; passed < 0 || passed >= time.Minute.Milliseconds() {
		left = l.left
		l.since, l.written, l.left = now, 0, 0
	}
	if l.written == timeoutLines {
		l.left++
		return false, false, 0
	}
	l.written++
	return true, l.written == timeoutLines, left
}

// logTimeout tells of a consumer whose deliveries were taken back. REQUIRES: nothing is locked.
func (n *Node) logTimeout(t *timeout) {
	ok, last, left := n.timeouts.may(n.Now())
	if !ok {
		return
	}
	log := n.Logger.With("vhost", string(t.q.VHost), "queue", t.q.Name, "consumer_tag", t.c.Tag, "deliveries", t.n)
	if c, is := t.c.Target.(Culprit); is {
		cause := c.Cause()
		log = log.With("connection", cause.Connection, "user", cause.User)
	}
	if left > 0 {
		log = log.With("not_logged_before", left)
	}
	text := "A consumer did not settle its deliveries within the consumer timeout: they are back in the queue, and it gets no more"
	if last {
		text += ". Further ones of this minute are not logged"
	}
	log.Warn(text)
}
