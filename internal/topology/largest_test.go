package topology

import (
	"runtime"
	"strings"
	"testing"

	"bartleby.mq/internal/amqp091"
)

// BR-14.1, BR-7.3: arguments that are as large as they may be are kept as they are, or refused: also
// where the type of the queue, which was given without a name, makes them larger.
func TestBR_14_1_TheLargestArgumentsAreKeptOrRefused(t *testing.T) {
	kept, refused := 0, 0
	for size := maxTable - 40; size <= maxTable; size++ {
		for _, named := range []bool{true, false} {
			args := amqp091.Table{arg("pad", "")}
			if named {
				args = append(args, arg("x-queue-type", ""))
			}
			args[0].Value = strings.Repeat("x", size-len(amqp091.AppendTable(nil, args)))
			f := newFixture(t, Options{})
			f.save()
			d := durableQueue("q")
			d.Arguments = args
			if _, _, err := f.DeclareQueue(d, nil); err != nil {
				refused++
				continue
			}
			kept++
			f.save()
			q, ok := f.restart().vhost().Queue("q")
			if !ok {
				t.Fatalf("%d bytes: the queue is gone", size)
			}
			if pad, _ := q.Arguments.Get("pad"); pad != args[0].Value {
				t.Fatalf("%d bytes: the argument is gone", size)
			}
		}
	}
	if kept == 0 || refused == 0 {
		t.Errorf("%d kept and %d refused, want some of each", kept, refused)
	}
}

// BR-6.2: what tells bindings apart is made before the State is locked, whoever asks for one or takes one away.
func TestBR_6_2_ABindingIsIdentifiedOnce(t *testing.T) {
	f := newFixture(t, Options{})
	f.queue(durableQueue("q"))
	f.exchange(durableExchange("x", "headers"))
	d := toQueue("x", "q", "k", arg("a", make(amqp091.Array, 1024)))
	f.bind(d)
	missing := d
	missing.Key = "other"
	if err := d.EncodeArguments(); err != nil {
		t.Fatal(err)
	}
	missing.Identify()
	for name, op := range map[string]func() error{
		"bind":   func() error { _, _, err := f.Bind(d, nil); return err },
		"unbind": func() error { _, err := f.Unbind(missing, nil); return err },
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := op(); err != nil {
			t.Error(err)
		}
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took >= 1024 {
			t.Errorf("%s takes %d bytes", name, took)
		}
	}
}
