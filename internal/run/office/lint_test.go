package office

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"bartleby.mq/internal/core/declare"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// lines is a log that a test reads while others write.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

func (l *lines) eventually(t *testing.T, text string, n int) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); l.count(text) != n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d times %q, not %d:\n%s", l.count(text), text, n, l.b.String())
		}
	}
}

// A queue that was declared, or got a policy, so that its dead letters are lost, is in the log: once, and not what was mended in time.
func TestDeclarationsThatLoseLettersAreLogged(t *testing.T) {
	for _, strict := range []bool{false, true} {
		b, err := broker.Open(broker.Options{FS: vfs.NewMem(), Dir: "data", Strict: strict})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.CreateDefault(broker.Default{VHost: "/", User: "guest", Password: "guest", Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
			t.Fatal(err)
		}
		var log lines
		f, err := New(Options{Broker: b, Logger: slog.New(slog.NewTextHandler(&log, nil)), LintAfter: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		d := &desk{t, b, b.As("guest", "/"), f}
		d.declare("good")
		d.declare("fine", amqp091.Field{Key: "x-dead-letter-exchange", Value: ""}, amqp091.Field{Key: "x-dead-letter-routing-key", Value: "good"})
		d.declare("orders", amqp091.Field{Key: "x-dead-letter-exchange", Value: "gone"})
		d.declare("bills")
		policy := topology.PolicyDecl{Name: "p", Pattern: "^bills$", Definition: topology.Definition{"dead-letter-exchange": "", "dead-letter-routing-key": "nobody"}}
		for range 2 {
			if _, err := b.By("").Do(declare.PutPolicy{VHost: "/", Policy: policy}); err != nil {
				t.Fatal(err)
			}
			if !strict {
				log.eventually(t, "queue=bills rule=dlx-no-route", 1)
			}
		}
		d.declare("last", amqp091.Field{Key: "x-dead-letter-exchange", Value: "gone"})
		if !strict {
			log.eventually(t, "queue=last rule=dlx-missing", 1)
		}
		want := map[bool]int{false: 3, true: 0}[strict]
		if n := log.count("Dead letters will lead nowhere"); n != want {
			t.Errorf("strict %t: %d lines, not %d:\n%s", strict, n, want, log.b.String())
		}
		d.close()
	}
}
