package hostile

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/test/node"
)

var (
	bartleby = flag.String("bartleby", "", "the server to attack (default: build one)")
	alone    = flag.Bool("alone", false, "this machine does nothing else: bound how long a bystander waits")
)

// server is what the test at hand attacks.
var server *node.Node

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if *bartleby == "" {
		dir, err := os.MkdirTemp("", "bartleby-bin-")
		if err != nil {
			return 0, err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		if *bartleby, err = node.Build(dir); err != nil {
			return 0, err
		}
	}
	return m.Run(), nil
}

// start starts a server for one test. What one test makes it use does not blur
// what the next one finds. It must end in order after all that was done to it.
func start(t *testing.T) {
	t.Helper()
	dir, err := os.MkdirTemp("", "bartleby-hostile-")
	if err != nil {
		t.Fatal(err)
	}
	if server, err = node.Start(node.Options{Bin: *bartleby, Dir: dir}); err != nil {
		t.Fatal(err)
	}
	stopAtEnd(t, dir)
}

// stopAtEnd stops the server when the test ends.
func stopAtEnd(t *testing.T, dir string) {
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log("the data directory and the log are in", dir)
			return
		}
		_ = os.RemoveAll(dir)
	})
}

// dial connects as an ordinary client.
func dial(t *testing.T) *amqp.Connection {
	t.Helper()
	conn, err := amqp.Dial("amqp://guest:guest@" + server.AMQP + "/")
	if err != nil {
		t.Fatalf("an ordinary client cannot connect: %v", err)
	}
	return conn
}

// atOnce is how long an ordinary client may take for everything, connecting
// included. It is generous: the machine may be busy with other tests.
const atOnce = 3 * time.Second

// served checks that an ordinary client is: it connects, declares, publishes,
// and gets back what it published.
func served(t *testing.T) {
	t.Helper()
	began := time.Now()
	conn := dial(t)
	defer func() { _ = conn.Close() }()
	if err := roundTrip(conn); err != nil {
		t.Fatalf("an ordinary client is not served: %v", err)
	}
	if took := time.Since(began); took > atOnce {
		t.Errorf("an ordinary client was served in %v, want %v at most", took, atOnce)
	}
}

func roundTrip(conn *amqp.Connection) error {
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.Confirm(false); err != nil {
		return err
	}
	q, err := ch.QueueDeclare("", false, false, true, false, nil)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	answer, err := ch.PublishWithDeferredConfirm("", q.Name, false, false, amqp.Publishing{Body: []byte("ordinary")})
	if err != nil {
		return err
	}
	if ok, err := answer.WaitContext(ctx); !ok || err != nil {
		return fmt.Errorf("not confirmed: %w", err)
	}
	d, ok, err := ch.Get(q.Name, true)
	if err != nil {
		return err
	}
	if !ok || string(d.Body) != "ordinary" {
		return errors.New("the message did not come back")
	}
	return nil
}

func usage(t *testing.T) node.Usage {
	t.Helper()
	u, err := server.Usage()
	if err != nil {
		t.Fatalf("the server cannot be looked at: %v", err)
	}
	return u
}

const mib = 1 << 20

// attack runs f, which returns with the attack standing and gives back what ends
// it. The server may then use up to bound bytes of memory more than before.
func attack(t *testing.T, bound int64, f func() (end func())) {
	t.Helper()
	before := usage(t)
	end := f()
	served(t)
	during := usage(t)
	if grown := during.RSS - before.RSS; grown > bound {
		t.Errorf("the server has grown from %d to %d MiB, want %d MiB more at most", before.RSS/mib, during.RSS/mib, bound/mib)
	}
	end()
	served(t)
	after := settled(t, before)
	t.Logf("memory %d, %d, %d MiB; goroutines %d, %d, %d; files %d, %d, %d; before, during, after",
		before.RSS/mib, during.RSS/mib, after.RSS/mib, before.Goroutines, during.Goroutines, after.Goroutines, before.Files, during.Files, after.Files)
}

// slack is how many goroutines and files more than before are no leak: those of
// the store, which come and go.
const slack = 5

// settled waits until the server has given back what an attack took.
func settled(t *testing.T, before node.Usage) (u node.Usage) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		u = usage(t)
		if u.Goroutines <= before.Goroutines+slack && u.Files <= before.Files+slack {
			return u
		}
		if time.Now().After(deadline) {
			t.Errorf("after the attack the server has %d goroutines and %d files, before it had %d and %d", u.Goroutines, u.Files, before.Goroutines, before.Files)
			return u
		}
	}
}
