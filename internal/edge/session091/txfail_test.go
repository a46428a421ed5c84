package session091_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/run/broker"
)

// A transaction that fails while it is committed has handed its messages over: its channel, which ends
// with that, does not give them up once more.
func TestAFailedCommitGivesUpNoMessageTwice(t *testing.T) {
	for name, queues := range map[string]map[string]string{
		"one log": {"c": "classic"}, "two logs": {"c": "classic", "q": "quorum"},
	} {
		t.Run(name, func(t *testing.T) { failCommit(t, queues) })
	}
}

func failCommit(t *testing.T, queues map[string]string) {
	var failing atomic.Bool
	var failed atomic.Int32
	disk := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		write := op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileWrite || op.Kind == errorfs.OpFileWriteAt
		if failing.Load() && write && strings.Contains(op.Path, "journal") {
			return errors.New("injected")
		}
		return nil
	}))
	s := serve(t, broker.Options{FS: disk, OnFatal: func(error) { failed.Add(1) }})
	ch := s.channel(t)
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	for name, kind := range queues {
		if _, err := ch.QueueDeclare(name, true, false, false, false, amqp.Table{"x-queue-type": kind}); err != nil {
			t.Fatal(err)
		}
	}
	if err := ch.Tx(); err != nil {
		t.Fatal(err)
	}
	const each = 3
	for range each {
		for name := range queues {
			if err := ch.Publish("", name, false, false, amqp.Publishing{Body: []byte("m"), DeliveryMode: amqp.Persistent}); err != nil {
				t.Fatal(err)
			}
		}
	}
	failing.Store(true)
	if err := ch.TxCommit(); err == nil {
		t.Fatal("the commit was answered")
	}
	if err := <-closed; err != nil {
		t.Log("closed: ", err)
	}
	s.stop()
	if failed.Load() == 0 {
		t.Error("the disk has not failed")
	}
	if n := s.b.Bodies().Held(); n != each {
		t.Errorf("the bodies of %d messages are left, want those of the %d that the classic queue has", n, each)
	}
}
