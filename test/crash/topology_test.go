package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/test/node"
)

// wish is a change of topology and whether the server has said that it is done.
// A change that was asked for and not answered may be there or not.
type wish struct{ there, certain bool }

// What declare-ok, delete-ok and bind-ok say outlives a kill at the next moment.
func TestKillAfterDeclareOk(t *testing.T) {
	if testing.Short() {
		t.Skip("kills servers for a while")
	}
	dir, err := os.MkdirTemp("", "bartleby-crash-")
	if err != nil {
		t.Fatal(err)
	}
	first := *seed
	if first == 0 {
		first = rand.Uint64() >> 16
	}
	rng := rand.New(rand.NewPCG(first, 2))
	o := node.Options{Bin: *binary, Dir: dir}
	wishes := map[string]wish{}
	for round := 0; round < max(3, *kills/20) && !t.Failed(); round++ {
		n, err := node.Start(o)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := dial(n.AMQP)
		if err != nil {
			t.Fatal(err)
		}
		checkTopology(t, conn, wishes)
		done := make(chan struct{})
		go func() { // ends with the connection
			defer close(done)
			changeTopology(conn, rng, wishes)
		}()
		select {
		case <-time.After(time.Duration(20+rand.IntN(150)) * time.Millisecond):
		case <-done:
			t.Error("the server refused a change of topology")
		}
		n.Kill()
		<-done
	}
	if t.Failed() {
		t.Logf("the data is in %s; to try again:\n\tgo test ./test/crash -count=1 -run TestKillAfterDeclareOk -seed %d -kills %d", dir, first, *kills)
		return
	}
	_ = os.RemoveAll(dir)
}

// changeTopology declares, binds and deletes until the server is gone. Now and
// then it publishes right after a declare-ok; what is confirmed must be there too.
func changeTopology(conn *amqp.Connection, rng *rand.Rand, wishes map[string]wish) {
	ch, err := conn.Channel()
	if err != nil {
		return
	}
	if err := ch.Confirm(false); err != nil {
		return
	}
	for {
		name := fmt.Sprintf("q%d", rng.IntN(40))
		kind := []string{"classic", "quorum"}[name[len(name)-1]%2]
		remove := rng.IntN(3) == 0
		wishes[name] = wish{!remove, false}
		if remove {
			delete(wishes, name+" message")
			_, err = ch.QueueDelete(name, false, false, false)
		} else if _, err = ch.QueueDeclare(name, true, false, false, false, amqp.Table{"x-queue-type": kind}); err == nil {
			err = ch.QueueBind(name, name, "amq.topic", false, nil)
		}
		if err != nil {
			return
		}
		wishes[name] = wish{!remove, true}
		if remove || rng.IntN(2) == 0 {
			continue
		}
		wishes[name+" message"] = wish{true, false}
		answer, err := ch.PublishWithDeferredConfirm("amq.topic", name, true, false, amqp.Publishing{DeliveryMode: amqp.Persistent})
		if err != nil {
			return
		}
		if ok, err := answer.WaitContext(context.Background()); err != nil || !ok {
			return
		}
		wishes[name+" message"] = wish{true, true}
	}
}

func checkTopology(t *testing.T, conn *amqp.Connection, wishes map[string]wish) {
	for i := range 40 {
		name := fmt.Sprintf("q%d", i)
		ch, err := conn.Channel()
		if err != nil {
			t.Fatal(err)
		}
		q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
		w, known := wishes[name]
		switch {
		case !known && err == nil:
			t.Errorf("%s is there and was never declared", name)
		case w.certain && w.there != (err == nil):
			t.Errorf("%s: there should be %v, and: %v", name, w.there, err)
		}
		message := wishes[name+" message"]
		if err == nil && w.certain && message.certain && q.Messages == 0 {
			t.Errorf("%s has lost its message", name)
		}
		wishes[name] = wish{err == nil, true}
		delete(wishes, name+" message")
		if err != nil {
			continue // and the channel is closed
		}
		// Deleted with what it holds, so that the next round's messages are its own.
		if _, err := ch.QueueDelete(name, false, false, false); err != nil {
			t.Error(err)
		}
		wishes[name] = wish{false, true}
		_ = ch.Close()
	}
}
