package crash

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/run/cluster"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/test/node"
)

// atOnce is how long the end of a process by a panic may take.
const atOnce = time.Second

// longBefore is for what should have happened long before.
const longBefore = 15 * time.Second

// frequent are steps that are passed while a node starts, or by its first clients: it
// panics once it has passed them this often, with clients at work.
var frequent = map[string]int{
	partition.FailPublishAppended: 5, partition.FailSettleAppended: 5, partition.FailDeathMarked: 5, partition.FailDeathPlanned: 5,
	partition.FailDeathBeforeAppend: 5, partition.FailDeathAppended: 5, partition.FailDeathUnlocked: 5, partition.FailMailSent: 5,
	partition.FailMailTaken: 5, journal.FailBeforeWrite: 30, journal.FailAfterWrite: 30, journal.FailAfterSync: 30,
	cluster.FailRaftAppend: 30, cluster.FailRaftCommit: 30, cluster.FailRaftApplied: 30,
}

var panicAt = regexp.MustCompile(`panic at (\S+) at (\d+)`)

// logOf is what the servers of a directory have written so far.
func logOf(t *testing.T, dir string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// endedByBug waits for the end of the process and checks that it was by a panic that was
// logged whole. It returns what was logged since.
func endedByBug(t *testing.T, n *node.Node, dir string, since int) string {
	t.Helper()
	select {
	case <-n.Ended():
	case <-time.After(longBefore):
		n.Kill()
		t.Fatalf("the process goes on, or hangs:\n%s", tail(logOf(t, dir)[since:]))
	}
	log := logOf(t, dir)[since:]
	if n.ExitCode() != 2 {
		t.Errorf("the process ended with %d, want 2:\n%s", n.ExitCode(), tail(log))
	}
	if !strings.Contains(log, "the node ends by a bug") || !strings.Contains(log, "goroutine ") {
		t.Errorf("the log does not tell of the panic:\n%s", tail(log))
	}
	return log
}

func tail(s string) string { return s[max(0, len(s)-4000):] }

// A panic at any step ends the process at once, whatever is locked there, while clients
// work; what was confirmed before is there afterwards.
func TestPanicsEndTheProcess(t *testing.T) {
	if testing.Short() {
		t.Skip("ends servers for a while")
	}
	l := newLife(t, together(), 7)
	l.kinds["s1"], l.kinds["s2"], l.kinds["s3"] = "classic", "quorum", "classic" // both ways in every round
	defer func() {
		if !t.Failed() {
			_ = os.RemoveAll(l.options.Dir)
		}
	}()
	for _, name := range failpoints() {
		t.Run(name, func(t *testing.T) { l.panicAt(t, name) })
		if t.Failed() {
			t.Fatalf("the data is in %s", l.options.Dir)
		}
	}
	l.audit()
}

func (l *life) panicAt(t *testing.T, name string) {
	o := l.options
	o.Env = append(slices.Clone(environment), fmt.Sprintf("BARTLEBY_PANIC=%s:%d", name, max(1, frequent[name])))
	since := 0
	if _, err := os.Stat(filepath.Join(o.Dir, "log")); err == nil {
		since = len(logOf(t, o.Dir))
	}
	n, err := node.Start(o)
	if err != nil && !errors.Is(err, node.ErrEnded) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	finish := func() {}
	c := &clients{addr: n.AMQP, http: n.HTTP, ledger: l.ledger, covers: l.s.covers, seed: l.rng.Uint64()}
	if err == nil {
		if conn, err := dial(n.AMQP); err == nil {
			c.failed(l.s.declare(conn, l.kinds), "topology")
			_ = conn.Close()
			finish = c.run(ctx, l.workers)
		}
	}
	log := endedByBug(t, n, o.Dir, since)
	ended := time.Now()
	cancel()
	finish()
	l.killed("panic")
	m := panicAt.FindStringSubmatch(log)
	if m == nil || m[1] != name {
		t.Fatalf("the process ended elsewhere:\n%s", tail(log))
	}
	at, _ := strconv.ParseInt(m[2], 10, 64)
	if took := ended.Sub(time.Unix(0, at)); took > atOnce {
		t.Errorf("the process took %v to end, want %v at most", took, atOnce)
	}
	if !strings.Contains(log, "failpoint "+name) {
		t.Errorf("the log does not tell what panicked:\n%s", tail(log))
	}
}

// single starts a node for one panic.
func single(t *testing.T, env ...string) (*node.Node, node.Options) {
	t.Helper()
	o := node.Options{Bin: *binary, Dir: t.TempDir(), Env: env}
	n, err := node.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Kill)
	return n, o
}

func mustDial(t *testing.T, n *node.Node) (*amqp.Connection, *amqp.Channel) {
	t.Helper()
	conn, err := dial(n.AMQP)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return conn, ch
}

// declareQueue is named so because nothing else of it matters.
func declareQueue(ch *amqp.Channel, name string) error {
	_, err := ch.QueueDeclare(name, true, false, false, false, nil)
	return err
}

// A panic of a session's own ends its connection: what it held goes back, and others do not
// notice.
func TestPanicInASessionEndsItsConnection(t *testing.T) {
	n, o := single(t)
	_, bystander := mustDial(t, n)
	if err := declareQueue(bystander, "q"); err != nil {
		t.Fatal(err)
	}
	if err := bystander.Publish("", "q", false, false, amqp.Publishing{Body: []byte("held")}); err != nil {
		t.Fatal(err)
	}
	conn, ch := mustDial(t, n)
	closed := conn.NotifyClose(make(chan *amqp.Error, 1))
	for ok := false; !ok; {
		var err error
		if _, ok, err = ch.Get("q", false); err != nil {
			t.Fatal(err)
		}
	}
	if err := declareQueue(ch, "bartleby.provoke.session"); err == nil {
		t.Fatal("the session did not panic")
	}
	select {
	case <-closed: //nolint:errcheck // that it is closed is all
	case <-time.After(longBefore):
		t.Fatal("the connection goes on, or hangs")
	}
	deliveries, err := bystander.Consume("q", "", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case d := <-deliveries:
		if string(d.Body) != "held" || !d.Redelivered {
			t.Errorf("got %q (redelivered %v), want what the other connection held", d.Body, d.Redelivered)
		}
	case <-time.After(longBefore):
		t.Error("what the connection held did not go back")
	}
	if log := logOf(t, o.Dir); !strings.Contains(log, "connection ended by a bug") || !strings.Contains(log, "provoked in a session") {
		t.Errorf("the log does not tell of the panic:\n%s", tail(log))
	}
	if err := n.Stop(); err != nil {
		t.Error(err)
	}
}

// A session that panics with a lock of its connection, which partitions take to deliver, ends
// the process, and so does one that cannot give back what it holds.
func TestPanicInASessionThatOthersWaitFor(t *testing.T) {
	for _, name := range []string{"bartleby.provoke.locked", "bartleby.provoke.end"} {
		t.Run(name, func(t *testing.T) {
			n, o := single(t)
			_, ch := mustDial(t, n)
			if err := declareQueue(ch, name); err == nil {
				t.Fatal("the session did not panic")
			}
			endedByBug(t, n, o.Dir, 0)
		})
	}
}

// A panic in a request over HTTP, below the lock of a partition, ends the process: the
// library would recover, answer 500 and leave the lock behind.
func TestPanicInARequestOverHTTP(t *testing.T) {
	n, o := single(t, "BARTLEBY_PANIC="+partition.FailPublishAppended+":1")
	_, ch := mustDial(t, n)
	if err := declareQueue(ch, "q"); err != nil {
		t.Fatal(err)
	}
	body := `{"properties":{"delivery_mode":2},"routing_key":"q","payload":"x","payload_encoding":"string"}`
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+n.HTTP+"/api/exchanges/%2F/amq.default/publish", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth("guest", "guest")
	if answer, err := http.DefaultClient.Do(r); err == nil {
		_ = answer.Body.Close()
		t.Errorf("the request was answered with %s", answer.Status)
	}
	log := endedByBug(t, n, o.Dir, 0)
	if !strings.Contains(log, "a request over HTTP") {
		t.Errorf("the log does not say where:\n%s", tail(log))
	}
}
