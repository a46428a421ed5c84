package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
)

// spoilt is a node that was started on messages 0 to 9 of a queue. The record of one of them has rotted on disk.
type spoilt struct {
	t     *testing.T
	files *vfs.MemFS
	b     *Broker
	c     *Connection
	full  atomic.Bool // nothing can be set aside
}

const rotten = 4

// spoil makes it. kind is the type of the queue, "q"; its dead go to "dead".
func spoil(t *testing.T, kind string) *spoilt {
	t.Helper()
	s := &spoilt{t: t, files: vfs.NewMem()}
	s.start()
	if err := s.b.CreateDefault(Default{VHost: "/", User: "guest", Password: "guest", Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
		t.Fatal(err)
	}
	typed := amqp091.Field{Key: "x-queue-type", Value: kind}
	mustDeclare(t, s.c, "dead", typed)
	mustDeclare(t, s.c, "q", typed, amqp091.Field{Key: "x-dead-letter-exchange", Value: ""}, amqp091.Field{Key: "x-dead-letter-routing-key", Value: "dead"})
	persistent := uint8(2)
	for i := range 10 {
		publish(t, s.c, "", "q", text(i), amqp091.PropertyList{DeliveryMode: &persistent})
	}
	if err := s.b.node.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	s.stop()
	s.rot(text(rotten))
	s.start()
	t.Cleanup(func() { s.stop() })
	return s
}

func text(i int) string { return fmt.Sprintf("message %d ", i) + strings.Repeat("x", 1000) }

func (s *spoilt) start() {
	s.t.Helper()
	var err error
	files := errorfs.Wrap(s.files, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if s.full.Load() && op.Kind == errorfs.OpCreate && strings.Contains(op.Path, "set-aside") {
			return errors.New("no room")
		}
		return nil
	}))
	if s.b, err = Open(Options{FS: files, Dir: "/data", Partitions: 2, Logger: slog.New(slog.DiscardHandler), Storage: Storage{SegmentBytes: 64 << 10}}); err != nil {
		s.t.Fatal(err)
	}
	s.c = s.b.As("guest", "/")
}

func (s *spoilt) stop() {
	s.t.Helper()
	if s.b == nil {
		return
	}
	if err := s.b.Close(); err != nil {
		s.t.Error(err)
	}
	s.b = nil
}

// rot changes a byte of the message, wherever it is on disk.
func (s *spoilt) rot(text string) {
	s.t.Helper()
	for _, dir := range []string{"/data/journal", "/data/keep"} {
		names, err := s.files.List(dir)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, name := range names {
			path := s.files.PathJoin(dir, name)
			b := s.read(path)
			at := bytes.Index(b, []byte(text))
			if at < 0 {
				continue
			}
			f, err := s.files.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
			if err != nil {
				s.t.Fatal(err)
			}
			if _, err := f.WriteAt([]byte{'?'}, int64(at)+20); err != nil {
				s.t.Fatal(err)
			}
			if err := errors.Join(f.Sync(), f.Close()); err != nil {
				s.t.Fatal(err)
			}
			return
		}
	}
	s.t.Fatalf("%.20q is nowhere on disk", text)
}

func (s *spoilt) read(path string) []byte {
	s.t.Helper()
	f, err := s.files.Open(path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(f)
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

// counts shows a queue.
func (s *spoilt) counts(name string) *partition.Counts {
	s.t.Helper()
	var q *topology.Queue
	s.b.Read(func(state *topology.State, _ *auth.Users) {
		v, _ := state.VHost("/")
		for _, each := range v.Queues() {
			if string(each.Name) == name {
				q = each
			}
		}
	})
	c := s.b.node.Counts(runtimeOf(q))
	return &c
}

// wants returns all messages except the one that has rotted.
func wants() (list []string) {
	for i := range 10 {
		if i != rotten {
			list = append(list, text(i))
		}
	}
	return list
}

// aside checks that the message was set aside, once, and is in no queue.
func (s *spoilt) aside(left int) {
	s.t.Helper()
	list, err := s.b.data.Aside.List(0)
	if err != nil || len(list) != 1 {
		s.t.Fatalf("%d files are there, %v; want one", len(list), err)
	}
	if !strings.HasPrefix(list[0].Name, "message-") {
		s.t.Errorf("the file is called %s", list[0].Name)
	}
	for _, want := range []string{`"vhost":"/"`, `"queue":"q"`, "journal:", "check is"} {
		if !strings.Contains(string(list[0].Note), want) {
			s.t.Errorf("the note does not say %s: %s", want, list[0].Note)
		}
	}
	spoilt := []byte(text(rotten))
	spoilt[20] = '?'
	if b := s.read("/data/set-aside/" + list[0].Name); !bytes.HasSuffix(b, spoilt) {
		s.t.Errorf("the file has not the bytes as they are: %q", b)
	}
	if n := s.b.node.SetAsides(); n != 1 {
		s.t.Errorf("%d were counted, want 1", n)
	}
	if c := s.counts("q"); c.Messages() != left || c.Stats.SetAside != 1 {
		s.t.Errorf("the queue has %d messages and counts %d set aside, want %d and 1", c.Messages(), c.Stats.SetAside, left)
	}
}

// stays checks that the message is in its queue: who only looks leaves it there, since its file may be put back.
func (s *spoilt) stays() {
	s.t.Helper()
	if n, c := s.b.node.SetAsides(), s.counts("q"); n != 0 || c.Messages() != 10 || c.Stats.SetAside != 0 {
		s.t.Errorf("the queue has %d messages, and %d were set aside, want 10 and none", c.Messages(), n)
	}
}

// eachKind runs f with a node of each type of queue.
func eachKind(t *testing.T, f func(t *testing.T, s *spoilt)) {
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) { f(t, spoil(t, kind)) })
	}
}

func same(t *testing.T, got []string) {
	t.Helper()
	if !slices.Equal(got, wants()) {
		t.Errorf("%d messages came, want all but the one that has rotted, in order", len(got))
	}
}

// A consumer that reaches a rotten message gets all the others. The message is set aside, and stays so after a
// restart.
func TestConsumerPassesRottenMessage(t *testing.T) {
	eachKind(t, func(t *testing.T, s *spoilt) {
		sub, err := s.c.Subscribe("q", "tag", 3)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for len(got) < 9 {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			taken, err := sub.Next(ctx, 100)
			cancel()
			if err != nil {
				t.Fatalf("after %d messages: %v", len(got), err)
			}
			for i := range taken {
				got = append(got, string(taken[i].Body))
			}
			sub.Ack(taken)
		}
		sub.Cancel()
		same(t, got)
		s.aside(0)
		s.stop()
		s.start()
		if n := s.counts("q").Messages(); n != 0 {
			t.Errorf("%d messages are back after a restart", n)
		}
	})
}

// Taking messages, peeking, and browsing skip it as well.
func TestReadersPassRottenMessage(t *testing.T) {
	for name, after := range map[string]After{"removes": AckRemoves, "requeues": AckRequeues} {
		t.Run(name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, s *spoilt) {
				var got []string
				if err := s.c.Take("q", 0, after, func(m *Shown) (bool, error) { got = append(got, string(m.Body)); return true, nil }); err != nil {
					t.Fatal(err)
				}
				same(t, got)
				s.aside(map[After]int{AckRemoves: 0, AckRequeues: 9}[after])
			})
		})
	}
	t.Run("peek", func(t *testing.T) {
		eachKind(t, func(t *testing.T, s *spoilt) {
			var got []string
			if err := s.c.Peek("q", 0, func(m *Shown) bool { got = append(got, string(m.Body)); return true }); err != nil {
				t.Fatal(err)
			}
			same(t, got)
			s.stays()
		})
	})
	t.Run("browse", func(t *testing.T) {
		eachKind(t, func(t *testing.T, s *spoilt) {
			q, err := s.c.Find("q", topology.Read)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			if _, _, err := s.b.node.Browse(q.Runtime(), queue.Cursor{}, 100, func(_ queue.View, rec message.Record, _ []byte) bool {
				got = append(got, string(rec.Body()))
				return true
			}); err != nil {
				t.Fatal(err)
			}
			same(t, got)
			s.stays()
		})
	})
}

// If taking messages fails halfway, all of them stay where they were: nobody has seen them.
func TestWhatCouldNotBeShownGoesBack(t *testing.T) {
	refused := errors.New("it cannot be shown")
	for name, after := range map[string]After{
		"ack_requeue_false": AckRemoves, "ack_requeue_true": AckRequeues, "reject_requeue_false": RejectRemoves, "reject_requeue_true": RejectRequeues,
	} {
		t.Run(name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, s *spoilt) {
				s.full.Store(true)
				for _, last := range []int{rotten - 1, rotten} { // the second meets the message that cannot be read
					n := 0
					if err := s.c.Take("q", 0, after, func(*Shown) (bool, error) {
						if n++; n > last {
							return false, refused
						}
						return true, nil
					}); err == nil {
						t.Errorf("%d were shown, and there was no error", n)
					}
					if q, dead := s.counts("q"), s.counts("dead"); n != rotten || q.Ready != 10 || q.Out != 0 || dead.Messages() != 0 {
						t.Errorf("%d were shown; %d are ready, %d out, %d dead; want 4, 10, 0, 0", n, q.Ready, q.Out, dead.Messages())
					}
				}
				s.full.Store(false)
				var got []string
				if err := s.c.Take("q", 0, AckRemoves, func(m *Shown) (bool, error) { got = append(got, string(m.Body)); return true, nil }); err != nil {
					t.Fatal(err)
				}
				same(t, got)
				s.aside(0)
			})
		})
	}
}

// A router of deaths that reaches it goes on with the others.
func TestDeadPassRottenMessage(t *testing.T) {
	eachKind(t, func(t *testing.T, s *spoilt) {
		var got []Got
		for range 10 {
			g, ok, err := s.c.Get("q", false)
			if err != nil || !ok {
				t.Fatal(ok, err)
			}
			got = append(got, g)
		}
		var ops []partition.Op
		for i := range got {
			s.b.release(&got[i].Delivery)
			ops = append(ops, partition.Op{Kind: partition.Reject, Queue: got[i].Queue, ID: got[i].ID, Consumer: got[i].By})
		}
		s.c.Run(ops)
		for until := time.Now().Add(10 * time.Second); s.counts("dead").Ready < 9 || s.counts("q").Messages() > 0; {
			if time.Now().After(until) {
				t.Fatalf("%d dead letters have arrived, the queue has %d", s.counts("dead").Ready, s.counts("q").Messages())
			}
			s.c.Settle()
		}
		var dead []string
		if err := s.c.Take("dead", 0, AckRemoves, func(m *Shown) (bool, error) { dead = append(dead, string(m.Body)); return true, nil }); err != nil {
			t.Fatal(err)
		}
		same(t, dead)
		s.aside(0)
	})
}

// A rotten message does not stop compaction from moving the others out of its file.
func TestCompactionPassesRottenMessage(t *testing.T) {
	eachKind(t, func(t *testing.T, s *spoilt) {
		s.b.node.Checkpointing.CompactBelow = 1000 // every file
		if err := s.b.node.Checkpoint(); err != nil {
			t.Fatal(err)
		}
		if did, err := s.b.node.Compact(); err != nil || !did {
			t.Fatalf("compaction: %t, %v", did, err)
		}
		s.aside(9)
		var got []string
		if err := s.c.Take("q", 0, AckRemoves, func(m *Shown) (bool, error) { got = append(got, string(m.Body)); return true, nil }); err != nil {
			t.Fatal(err)
		}
		same(t, got)
	})
}
