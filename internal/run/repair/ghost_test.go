package repair

import (
	"bytes"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/partition"
)

// The deletion of a queue is lost from the log of declarations. After a repair the queue does not exist, or it is an
// ordinary one: it can be used and deleted, and its former messages do not come back.
func TestAQueueWhoseDeletionIsLostIsNoGhost(t *testing.T) {
	for _, kind := range []string{"orders", "critical"} {
		for _, how := range []How{SkipFrame, Cut} {
			t.Run(kind+" "+string(how), func(t *testing.T) {
				files := checkpointed(t, 20)
				b, c := start(t, files)
				if _, err := c.DeleteQueue(message.QueueName(kind), false, false); err != nil {
					t.Fatal(err)
				}
				if _, err := c.DeclareQueue(topology.QueueDecl{Name: "later", Durable: true}); err != nil {
					t.Fatal(err)
				}
				stop(t, b)
				path, offset := lastIn(t, files, stateLogDir, kind)
				rot(t, files, path, offset)
				out := repaired(t, files, how)
				b, c = start(t, files)
				defer func() { stop(t, b) }()
				if there(b, kind) {
					publish(t, c, kind, "new")
					g, ok, err := c.Get(message.QueueName(kind), false)
					if err != nil || !ok {
						t.Fatalf("it is there, and a get says %t, %v\n%s", ok, err, out)
					}
					c.Run([]partition.Op{{Kind: partition.Ack, Queue: g.Queue, ID: g.ID, Consumer: g.By}})
					b.Bodies().Release(g.Body)
					if _, err := c.DeleteQueue(message.QueueName(kind), false, false); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := c.DeclareQueue(topology.QueueDecl{Name: message.QueueName(kind), Durable: true}); err != nil {
					t.Fatal(err)
				}
				publish(t, c, kind, "again")
				stop(t, b)
				b, c = start(t, files)
				g, ok, err := c.Get(message.QueueName(kind), true)
				if err != nil || !ok {
					t.Fatalf("declared anew: %t, %v", ok, err)
				}
				b.Bodies().Release(g.Body)
				if _, ok, err = c.Get(message.QueueName(kind), true); err != nil || ok {
					t.Errorf("there is more in it than was published: %t, %v", ok, err)
				}
			})
		}
	}
}

// there says whether a queue is declared.
func there(b *broker.Broker, name string) (ok bool) {
	b.Read(func(s *topology.State, _ *auth.Users) {
		v, _ := s.VHost("/")
		_, ok = v.Queue(message.QueueName(name))
	})
	return ok
}

// lastIn is where a text is last in the files of a part.
func lastIn(t *testing.T, files vfs.FS, part, text string) (path string, offset int64) {
	t.Helper()
	names, err := files.List(files.PathJoin(dataDir, part))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		at := files.PathJoin(dataDir, part, name)
		if i := bytes.LastIndex(read(t, files, at), []byte(text)); i >= 0 {
			path, offset = at, int64(i)
		}
	}
	if path == "" {
		t.Fatalf("%q is nowhere", text)
	}
	return path, offset
}
