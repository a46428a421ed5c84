package crash

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

var (
	binary   = flag.String("bartleby", "", "the binary to kill; built if it is not given")
	duration = flag.Duration("for", 0, "how long to go on; 0 is a few kills")
)

// kills is how often the node is killed when no duration is given.
const kills = 4

// build returns the path of the binary under test.
func build(t *testing.T) string {
	t.Helper()
	if *binary != "" {
		path, err := filepath.Abs(*binary)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	path := filepath.Join(t.TempDir(), "bartleby")
	if out, err := exec.Command("go", "build", "-o", path, "../../cmd/bartleby").CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	return path
}

// node is a server process with a directory of its own.
type node struct {
	t    *testing.T
	bin  string
	dir  string
	addr string
	cmd  *exec.Cmd
	done chan struct{} // closed when the process is gone and its log is read
}

// start runs the process and returns when it takes connections.
func (n *node) start() {
	n.t.Helper()
	n.cmd = exec.Command(n.bin, "server", "--data-dir", n.dir, "--amqp", "127.0.0.1:0", "--http", "none", "--prometheus", "none")
	log, err := n.cmd.StderrPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	if err := n.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	started := make(chan string, 1)
	n.done = make(chan struct{})
	go func() { // ends with the process
		defer close(n.done)
		lines := bufio.NewScanner(log)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			text := lines.Text()
			if _, rest, ok := strings.Cut(text, `msg="Server startup complete" amqp=[`); ok {
				addr, _, _ := strings.Cut(rest, "]")
				started <- addr
			}
			if strings.Contains(text, "level=ERROR") {
				n.t.Log(text)
			}
		}
		_ = n.cmd.Wait()
	}()
	select {
	case n.addr = <-started:
	case <-n.done:
		n.t.Fatal("the node did not start")
	case <-time.After(time.Minute):
		n.kill()
		n.t.Fatal("the node did not start within a minute")
	}
}

func (n *node) kill() {
	_ = n.cmd.Process.Signal(syscall.SIGKILL)
	<-n.done
}

func (n *node) dial() (*amqp.Connection, error) {
	return amqp.DialConfig("amqp://guest:guest@"+n.addr+"/", amqp.Config{Dial: func(network, addr string) (net.Conn, error) {
		return net.DialTimeout(network, addr, 10*time.Second)
	}})
}

// The queues: a message enters a source, dies there in one way, and belongs in
// the graves then. Two graves take each dead letter of the fan-out's.
var sources = []struct {
	name   string
	args   amqp.Table
	reject bool // a consumer rejects what comes
	graves []string
}{
	{"rejected.classic", amqp.Table{"x-dead-letter-exchange": "one"}, true, []string{"grave.rejected.classic"}},
	{"rejected.quorum", amqp.Table{"x-dead-letter-exchange": "one", "x-queue-type": "quorum"}, true, []string{"grave.rejected.quorum"}},
	{"expired.classic", amqp.Table{"x-dead-letter-exchange": "one", "x-message-ttl": 20}, false, []string{"grave.expired.classic"}},
	{"maxlen.classic", amqp.Table{"x-dead-letter-exchange": "one", "x-max-length": 5}, false, []string{"grave.maxlen.classic"}},
	{"fanout.classic", amqp.Table{"x-dead-letter-exchange": "all", "x-message-ttl": 10}, false, []string{"grave.all.1", "grave.all.2"}},
}

func declare(ch *amqp.Channel) error {
	if err := ch.ExchangeDeclare("one", "direct", true, false, false, false, nil); err != nil {
		return err
	}
	if err := ch.ExchangeDeclare("all", "fanout", true, false, false, false, nil); err != nil {
		return err
	}
	for _, s := range sources {
		if _, err := ch.QueueDeclare(s.name, true, false, false, false, s.args); err != nil {
			return err
		}
		for _, g := range s.graves {
			if _, err := ch.QueueDeclare(g, true, false, false, false, nil); err != nil {
				return err
			}
			if err := ch.QueueBind(g, s.name, s.args["x-dead-letter-exchange"].(string), false, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// load publishes to one source until ctx ends or the node is gone, and notes what was confirmed.
func load(ctx context.Context, n *node, source string, next *int, sent, confirmed map[string]bool) error {
	c, err := n.dial()
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	ch, err := c.Channel()
	if err != nil {
		return err
	}
	if err := ch.Confirm(false); err != nil {
		return err
	}
	for ctx.Err() == nil {
		var batch []*amqp.DeferredConfirmation
		first := *next
		for range 20 {
			id := source + "/" + strconv.Itoa(*next)
			*next++
			sent[id] = true
			d, err := ch.PublishWithDeferredConfirm("", source, false, false, amqp.Publishing{
				MessageId: id, DeliveryMode: amqp.Persistent, Body: []byte(id + strings.Repeat(".", rand.IntN(2000))),
			})
			if err != nil {
				return err
			}
			batch = append(batch, d)
		}
		for i, d := range batch {
			ok, err := d.WaitContext(ctx)
			if err != nil {
				return err
			}
			if ok {
				confirmed[source+"/"+strconv.Itoa(first+i)] = true
			}
		}
	}
	return nil
}

// reject consumes from one source and rejects everything until the node is gone.
func reject(ctx context.Context, n *node, source string) error {
	c, err := n.dial()
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	ch, err := c.Channel()
	if err != nil {
		return err
	}
	if err := ch.Qos(50, 0, false); err != nil {
		return err
	}
	deliveries, err := ch.Consume(source, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case d, ok := <-deliveries:
			if !ok {
				return errors.New("the node is gone")
			}
			if err := d.Reject(false); err != nil {
				return err
			}
		}
	}
}

// take empties a queue for good and returns how often each message was in it.
func take(ch *amqp.Channel, queue string) (map[string]int, error) {
	found := map[string]int{}
	for {
		d, ok, err := ch.Get(queue, true)
		if err != nil || !ok {
			return found, err
		}
		if !strings.HasPrefix(string(d.Body), d.MessageId) {
			return nil, fmt.Errorf("message %q has the body of another: %.40q", d.MessageId, d.Body)
		}
		found[d.MessageId]++
	}
}

// DL-21.1, DL-21.2: after a kill at any moment, every message that was confirmed
// is in its source or in every grave of that source, nowhere twice.
func TestEveryConfirmedMessageIsInOnePlace(t *testing.T) {
	if testing.Short() {
		t.Skip("kills processes for seconds")
	}
	n := &node{t: t, bin: build(t), dir: filepath.Join(t.TempDir(), "data")}
	n.start()
	defer func() { n.kill() }()
	next := make([]int, len(sources))
	total := 0
	began := time.Now()
	for round := 1; *duration == 0 && round <= kills || time.Since(began) < *duration; round++ {
		total += killOnce(t, n, next)
		if t.Failed() {
			t.Fatalf("in round %d; the data directory is %s", round, keep(t, n.dir))
		}
	}
	t.Logf("%d confirmed messages, each where it belongs", total)
}

// killOnce loads the node, kills it, starts it again and accounts for everything.
func killOnce(t *testing.T, n *node, next []int) (confirmedTotal int) {
	c, err := n.dial()
	if err != nil {
		t.Fatal(err)
	}
	ch, err := c.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if err := declare(ch); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	sent, confirmed := make([]map[string]bool, len(sources)), make([]map[string]bool, len(sources))
	for i, s := range sources {
		sent[i], confirmed[i] = map[string]bool{}, map[string]bool{}
		// Both end with an error when the node is gone: that is what they are there for.
		work.Go(func() { _ = load(ctx, n, s.name, &next[i], sent[i], confirmed[i]) })
		if s.reject {
			work.Go(func() { _ = reject(ctx, n, s.name) })
		}
	}
	select {
	case <-time.After(500*time.Millisecond + rand.N(time.Second)):
	case <-n.done:
		t.Error("the node ended by itself")
	}
	n.kill()
	cancel()
	work.Wait()
	_ = c.Close()

	n.start()
	if c, err = n.dial(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if ch, err = c.Channel(); err != nil {
		t.Fatal(err)
	}
	for i, s := range sources {
		confirmedTotal += len(confirmed[i])
		// The source first: what dies between the two looks is in the graves then.
		inSource, err := take(ch, s.name)
		if err != nil {
			t.Fatal(err)
		}
		graves := make([]map[string]int, len(s.graves))
		for j, g := range s.graves {
			if graves[j], err = take(ch, g); err != nil {
				t.Fatal(err)
			}
		}
		account(t, s.name, sent[i], confirmed[i], inSource, graves)
	}
	return confirmedTotal
}

// account looks at the places of every message of one source.
func account(t *testing.T, source string, sent, confirmed map[string]bool, inSource map[string]int, graves []map[string]int) {
	missing, doubled, strangers := 0, 0, 0
	for id := range sent {
		for j := range graves {
			places := inSource[id] + graves[j][id]
			if places > 1 {
				doubled++
				t.Logf("%s is %d times in the source and %d times in grave %d", id, inSource[id], graves[j][id], j+1)
			}
			if places == 0 && confirmed[id] {
				missing++
			}
		}
	}
	for _, place := range append(graves, inSource) {
		for id := range place {
			if !sent[id] {
				strangers++
			}
		}
	}
	if missing > 0 || doubled > 0 || strangers > 0 {
		t.Errorf("%s: of %d confirmed messages %d are missing, %d are in two places, %d come from an earlier round",
			source, len(confirmed), missing, doubled, strangers)
	}
}

// keep copies a data directory out of the test's, so that somebody can look at it.
func keep(t *testing.T, dir string) string {
	kept, err := os.MkdirTemp("", "bartleby-crash-")
	if err != nil {
		return err.Error()
	}
	if err := os.CopyFS(kept, os.DirFS(dir)); err != nil {
		t.Log(err)
	}
	return kept
}
