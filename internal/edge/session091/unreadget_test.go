package session091

import (
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// A get that cannot be read ends the connection; no commit behind it, in the same write, goes on without its settlement.
func TestBR_8_11_NoCommitGoesOnBehindAGetThatCannotBeRead(t *testing.T) {
	var fail atomic.Bool
	files := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		read := op.Kind == errorfs.OpFileRead || op.Kind == errorfs.OpFileReadAt || op.Kind == errorfs.OpOpen
		if fail.Load() && read && (strings.Contains(op.Path, "data/journal") || strings.Contains(op.Path, "data/keep")) {
			return errors.New("too many open files")
		}
		return nil
	}))
	b := brokerOn(t, files)
	if err := b.CreateDefault(broker.Default{VHost: "/", User: "guest", Password: "guest", Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
		t.Fatal(err)
	}
	persistent := func(q string, size int) []byte {
		p := amqp091.AppendMethod(nil, 1, amqp091.BasicPublish{RoutingKey: q})
		p = amqp091.AppendContentHeader(p, 1, amqp091.ClassBasic, uint64(size), []byte{0x10, 0, 2})
		return amqp091.AppendBody(p, 1, make([]byte, size), 131072)
	}
	run := func(b *broker.Broker, until amqp091.MethodID, frames []byte, then []byte, arm bool) map[amqp091.MethodID]int {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		far, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		near, _ := l.Accept()
		_ = l.Close()
		var wg sync.WaitGroup
		wg.Go(func() {
			if Serve(near, []byte(amqp091.ProtocolHeader), Options{Broker: b, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Version: "4.3.6"}) {
				_ = near.Close()
			}
		})
		hello := amqp091.AppendMethod(nil, 0, amqp091.ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00guest\x00guest", Locale: "en_US"})
		hello = amqp091.AppendMethod(hello, 0, amqp091.ConnectionTuneOk{ChannelMax: 10, FrameMax: 131072})
		hello = amqp091.AppendMethod(hello, 0, amqp091.ConnectionOpen{VirtualHost: "/"})
		hello = amqp091.AppendMethod(hello, 1, amqp091.ChannelOpen{})
		_, _ = far.Write(append(hello, frames...))
		heard := map[amqp091.MethodID]int{}
		var in []byte
		buf := make([]byte, 64<<10)
		sent := false
		_ = far.SetReadDeadline(time.Now().Add(10 * time.Second))
		for {
			k, err := far.Read(buf)
			if err != nil {
				break
			}
			in = append(in, buf[:k]...)
			for {
				f, n, err := amqp091.NextFrame(in, 1<<20)
				if n == 0 || err != nil {
					break
				}
				in = in[n:]
				if f.Type != amqp091.FrameMethod {
					continue
				}
				id, _, _ := amqp091.SplitMethod(f.Payload)
				heard[id]++
				if id == until && !sent {
					sent = true
					fail.Store(arm)
					_, _ = far.Write(then)
				}
				if id == amqp091.ConnectionCloseID {
					_, _ = far.Write(amqp091.AppendMethod(nil, 0, amqp091.ConnectionCloseOk{}))
				}
			}
		}
		_ = far.Close()
		wg.Wait()
		return heard
	}
	var make1 []byte
	for _, q := range []string{"in", "out"} {
		make1 = append(make1, amqp091.AppendMethod(nil, 1, amqp091.QueueDeclare{Queue: q, Durable: true})...)
	}
	make1 = append(make1, amqp091.AppendMethod(nil, 1, amqp091.ConfirmSelect{})...)
	run(b, amqp091.ConfirmSelectOkID, make1, append(persistent("in", 5000), amqp091.AppendMethod(nil, 0, amqp091.ConnectionClose{})...), false)
	if n := b.Node().Counts(runtimeQueue(t, b, "in")).Ready; n != 1 {
		t.Fatal(n)
	}
	if err := errors.Join(b.Node().Checkpoint(), b.Close()); err != nil {
		t.Fatal(err)
	}
	b = brokerOn(t, files)
	whole := amqp091.AppendMethod(nil, 1, amqp091.BasicGet{Queue: "in"})
	whole = append(whole, persistent("out", 1)...)
	whole = amqp091.AppendMethod(whole, 1, amqp091.BasicAck{Multiple: true})
	whole = amqp091.AppendMethod(whole, 1, amqp091.TxCommit{})
	heard := run(b, amqp091.TxSelectOkID, amqp091.AppendMethod(nil, 1, amqp091.TxSelect{}), whole, true)
	fail.Store(false)
	if heard[amqp091.BasicGetOkID] != 0 || heard[amqp091.ConnectionCloseID] != 1 {
		t.Errorf("heard %v: want no get-ok, and the end", heard)
	}
	if heard[amqp091.TxCommitOkID] != 0 {
		t.Error("the client is told of a commit")
	}
	in, out := b.Node().Counts(runtimeQueue(t, b, "in")), b.Node().Counts(runtimeQueue(t, b, "out"))
	if in.Ready != 1 || out.Ready != 0 {
		t.Errorf("%d in the one, %d in the other; want 1 and 0", in.Ready, out.Ready)
	}
	_ = b.Close()
}
