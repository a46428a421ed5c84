package partition

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/queue"
)

// lines is a log that any goroutine may write.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestFewLinesTellOfManyTimeouts(t *testing.T) {
	var l timeoutLog
	const minute = 60_000
	for at, want := range map[int64]int{minute: 0, 2*minute - 1: 0} { // the minute's first moment and its last
		l = timeoutLog{since: minute, written: timeoutLines}
		if ok, _, left := l.may(at); ok || left != want {
			t.Errorf("a line beyond the limit at %d: %v, %d left out", at, ok, left)
		}
	}
	l = timeoutLog{}
	for i := range 25 {
		ok, last, left := l.may(minute)
		if ok != (i < timeoutLines) || last != (i == timeoutLines-1) || left != 0 {
			t.Errorf("the %dth of a minute: line %v, last %v, %d left out", i+1, ok, last, left)
		}
	}
	if ok, last, left := l.may(2 * minute); !ok || last || left != 15 {
		t.Errorf("the first of the next minute: line %v, last %v, %d left out, want 15", ok, last, left)
	}
	if ok, _, _ := l.may(0); !ok {
		t.Error("a clock that went back stops the log")
	}
}

// named is a client that the log can name.
type named struct{ client }

func (n *named) Cause() deadletter.Cause {
	return deadletter.Cause{ConsumerTag: "c", Connection: "127.0.0.1:1 -> 127.0.0.1:2", User: "shop"}
}

func TestAConsumerTimeoutLeavesALine(t *testing.T) {
	w := openMail(t, vfs.NewCrashableMem(), 1, nil, table{})
	defer w.stop()
	var log lines
	w.n.Logger = slog.New(slog.NewTextHandler(&log, nil))
	w.create(&definition{"q", quorum, settings(func(s *queue.Settings) { s.ConsumerTimeout = 20 }), DeadLetter{}}, 1)
	w.start()
	q := w.queues["q"]
	s := &named{client{arrivedc: make(chan struct{}, 1)}}
	if ok, err := w.n.Attach(q, &queue.Consumer{Tag: "c", Target: s}, func() {}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{q}, Body: w.record(1), TTL: -1, Priority: -1}})
	w.await("the log tells of the timeout", func() bool { return strings.Contains(log.text(), "consumer timeout") })
	for _, d := range s.take() {
		w.n.bodies.Release(d.d.Body)
	}
	for _, has := range []string{"queue=q", "consumer_tag=c", "deliveries=1", "user=shop", `connection="127.0.0.1:1 -> 127.0.0.1:2"`} {
		if !strings.Contains(log.text(), has) {
			t.Errorf("the line has no %s: %s", has, log.text())
		}
	}
}
