package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"bartleby.mq/internal/core/declare"

	"github.com/cockroachdb/pebble/v2/vfs"
	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/config"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/repair"
	"bartleby.mq/internal/server"
)

const (
	dataDir = "data"
	// atOnce is within what time a bystander is served.
	atOnce = 10 * time.Second
	// patience is how long anything may take before it is taken to hang.
	patience = 20 * time.Second
)

// node is one with its disk in memory, and a bystander.
type node struct {
	fs     *vfs.MemFS
	server *server.Server
	addr   string
	log    *watch
	bystander
	durable []place // queues that outlast a restart
}

// disk makes one with a data directory of which whoever made it has seen to it that it stays.
func disk() (*vfs.MemFS, error) {
	fs := vfs.NewCrashableMem()
	if err := fs.MkdirAll(dataDir, 0o700); err != nil {
		return nil, err
	}
	root, err := fs.OpenDir("")
	if err != nil {
		return nil, err
	}
	return fs, errors.Join(root.Sync(), root.Close())
}

// start starts a node on a disk.
func start(fs *vfs.MemFS) (*node, error) {
	n := &node{fs: fs, log: new(watch)}
	o := server.Options{
		DataDir: dataDir, FS: fs, Config: config.Default(), AMQP: []string{"127.0.0.1:0"}, Logger: slog.New(n.log), Version: "test",
		OnFatal: func(err error) { n.log.note("the disk failed: " + err.Error()) },
	}
	o.Config.MaxConnections = 0
	var err error
	if n.server, err = server.Start(o); err != nil {
		return nil, err
	}
	n.addr = n.server.Addresses().AMQP[0].String()
	if err := n.bystander.enter(n.addr); err != nil {
		return nil, errors.Join(err, n.server.Stop())
	}
	return n, nil
}

// stop stops it in order.
func (n *node) stop() error {
	n.bystander.leave()
	if err := n.server.Stop(); err != nil {
		return err
	}
	return n.log.fault()
}

// vhost makes a virtual host for a script, with its policies.
func (n *node) vhost(name string, s *script) error {
	var m topology.Metadata
	if s.apsara {
		m.Profile = deadletter.ApsaraMQ
	}
	_, err := n.server.Broker().By("guest").As(&broker.Identity{Name: "guest"}).Do(declare.PutVHost{Name: message.VHost(name), Change: declare.All(m)})
	for _, p := range s.policies {
		var refused *topology.Error
		if _, err := n.server.Broker().By("").Do(declare.PutPolicy{VHost: message.VHost(name), Policy: p.PolicyDecl, Operator: p.operator}); err != nil && !errors.As(err, &refused) {
			return err
		}
	}
	return err
}

// quiet waits until nobody is connected to a virtual host.
func (n *node) quiet(vhost string) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Microsecond) {
		left := 0
		for _, c := range n.server.Broker().Connections() {
			if string(c.VHost) == vhost {
				left++
			}
		}
		if left == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d connections have not ended after %v", left, patience)
		}
	}
}

// survives looks whether a node starts from what this one wrote: as it is now, if it were
// killed, and after it has stopped. percent of what was not synced outlasts the kill.
func (n *node) survives(percent int) error {
	killed := n.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(1, 1))})
	if err := starts(killed, n.bystander.kept, n.durable); err != nil {
		return fmt.Errorf("killed: %w", err)
	}
	if err := n.stop(); err != nil {
		return err
	}
	if err := starts(n.fs, n.bystander.kept, n.durable); err != nil {
		return fmt.Errorf("stopped: %w", err)
	}
	return nil
}

// starts looks whether a node starts from a disk with what was kept, and serves.
func starts(fs *vfs.MemFS, kept int, durable []place) error {
	report, err := repair.Examine(fs, dataDir, repair.SkipFrame)
	var damage bytes.Buffer
	if err == nil && !report.Clean() {
		err = report.Write(&damage)
	}
	n, failed := start(fs)
	switch {
	case err != nil:
		return fmt.Errorf("the check fails: %w", err)
	case failed != nil:
		return fmt.Errorf("does not start again: %w; the check says: %s", failed, &damage)
	case damage.Len() > 0:
		return fmt.Errorf("starts again, but the check says: %s", &damage)
	}
	n.bystander.kept = kept
	err = errors.Join(n.bystander.served(), n.there(durable))
	return errors.Join(err, n.stop())
}

// watch is a log in which no error may stand that is not a client's.
type watch struct {
	mu    sync.Mutex
	found []string
}

func (w *watch) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (w *watch) WithAttrs([]slog.Attr) slog.Handler               { return w }
func (w *watch) WithGroup(string) slog.Handler                    { return w }

func (w *watch) Handle(_ context.Context, r slog.Record) error {
	var line strings.Builder
	line.WriteString(r.Message)
	bug := strings.Contains(r.Message, "a bug")
	r.Attrs(func(a slog.Attr) bool {
		bug = bug || a.Key == "panic" || a.Key == "stack"
		fmt.Fprintf(&line, " %s=%s", a.Key, a.Value)
		return true
	})
	client := strings.HasPrefix(r.Message, "closing ") // what a client is told of its mistakes
	if bug || r.Level >= slog.LevelError && !client {
		w.note(line.String())
	}
	if bug {
		println(line.String()) // the process may end now
	}
	return nil
}

func (w *watch) note(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found = append(w.found, text)
}

func (w *watch) fault() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.found) == 0 {
		return nil
	}
	return errors.New(strings.Join(w.found, "\n"))
}

// bystander is a client who has nothing to do with it: queues of both types, in each a
// message that stays, and others that come and go.
type bystander struct {
	conn *amqp.Connection
	ch   *amqp.Channel
	kept int // how many stay in each queue
}

var bystanders = []string{"classic", "quorum"}

func (b *bystander) enter(addr string) (err error) {
	if b.conn, err = amqp.Dial("amqp://guest:guest@" + addr + "/"); err != nil {
		return err
	}
	if b.ch, err = b.conn.Channel(); err != nil {
		return err
	}
	for _, q := range bystanders {
		for _, name := range []string{q, q + "-kept"} {
			if _, err = b.ch.QueueDeclare(name, true, false, false, false, amqp.Table{"x-queue-type": q}); err != nil {
				return err
			}
		}
	}
	return b.ch.Confirm(false)
}

func (b *bystander) leave() { _ = b.conn.Close() }

// served is nil if everything works as for a client who is alone.
func (b *bystander) served() error {
	result := make(chan error, 1)
	began := time.Now()
	go func() { result <- b.round() }() // ends with the node if not before
	select {
	case err := <-result:
		if took := time.Since(began); err == nil && took > atOnce {
			err = fmt.Errorf("served after %v", took)
		}
		if err != nil {
			return fmt.Errorf("a bystander: %w", err)
		}
		return nil
	case <-time.After(patience):
		return fmt.Errorf("a bystander is not served within %v", patience)
	}
}

// keep leaves a message in each of the queues that are never read.
func (b *bystander) keep() error {
	for _, q := range bystanders {
		if err := b.publish(q + "-kept"); err != nil {
			return err
		}
	}
	b.kept++
	return nil
}

func (b *bystander) publish(queue string) error {
	sure, err := b.ch.PublishWithDeferredConfirm("", queue, true, false, amqp.Publishing{Body: []byte(queue), DeliveryMode: amqp.Persistent})
	if err != nil {
		return err
	}
	if ok := sure.Wait(); !ok {
		return fmt.Errorf("a message to %s is refused", queue)
	}
	return nil
}

func (b *bystander) round() error {
	for _, q := range bystanders {
		if err := b.publish(q); err != nil {
			return err
		}
	}
	for _, q := range bystanders {
		d, ok, err := b.ch.Get(q, true)
		if err != nil {
			return err
		}
		if !ok || string(d.Body) != q {
			return fmt.Errorf("the message to %s does not come back", q)
		}
		kept, err := b.ch.QueueDeclarePassive(q+"-kept", true, false, false, false, nil)
		if err != nil {
			return err
		}
		if kept.Messages != b.kept {
			return fmt.Errorf("%s-kept has %d messages, want %d", q, kept.Messages, b.kept)
		}
	}
	return nil
}
