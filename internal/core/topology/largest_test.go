package topology

import (
	"runtime"
	"strings"
	"testing"

	"bartleby.mq/internal/wire/amqp091"
)

// BR-14.1, BR-7.3: arguments that are as large as they may be are kept as they are, or refused: also
// where the type of the queue, which was given without a name, makes them larger.
func TestBR_14_1_TheLargestArgumentsAreKeptOrRefused(t *testing.T) {
	kept, refused := 0, 0
	for size := maxArguments - 40; size <= maxArguments+40; size++ {
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

// manyArguments are arguments of so many values, of which most are in a list in a table.
func manyArguments(n int) amqp091.Table {
	return amqp091.Table{arg("a", nil), arg("t", amqp091.Table{arg("l", make(amqp091.Array, n-3))})}
}

// BR-6.1, BR-7.1: whatever keeps arguments takes no more of them than may be, wherever in them they are.
func TestBR_7_1_ArgumentsThatAreKeptAreBounded(t *testing.T) {
	for name, declare := range map[string]func(f *fixture, args amqp091.Table) error{
		"queue": func(f *fixture, args amqp091.Table) error {
			_, _, err := f.DeclareQueue(durableQueue("new", args...), nil)
			return err
		},
		"exchange": func(f *fixture, args amqp091.Table) error {
			_, _, err := f.DeclareExchange(durableExchange("new", "fanout", args...), nil)
			return err
		},
		"binding": func(f *fixture, args amqp091.Table) error {
			_, _, err := f.Bind(toQueue("x", "q", "k", args...), nil)
			return err
		},
	} {
		f := newFixture(t, Options{})
		f.queue(durableQueue("q"))
		f.exchange(durableExchange("x", "headers"))
		for why, args := range map[string]amqp091.Table{
			"1025 values": manyArguments(maxArgumentValues + 1),
			"arguments of 70014 bytes, the limit is 65536": {arg("a", strings.Repeat("x", 70_000)), arg("b", nil)},
		} {
			err := declare(f, args)
			if refused, _ := err.(*Error); refused == nil || refused.Kind != PreconditionFailed || !strings.Contains(refused.Text, why) {
				t.Errorf("%s with %s: %v", name, why, err)
			}
		}
		if err := declare(f, manyArguments(maxArgumentValues)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What an earlier version has taken is loaded, and can be removed.
func TestMoreArgumentsFromBeforeAreKept(t *testing.T) {
	f := newFixture(t, Options{})
	f.queue(durableQueue("q"))
	f.exchange(durableExchange("x", "headers"))
	f.save()
	args := manyArguments(2 * maxArgumentValues)
	fields, err := appendFields(nil, args)
	if err != nil {
		t.Fatal(err)
	}
	b := toQueue("x", "q", "k", args...)
	f.store[queueKey(vh, "old")] = withArguments(queueRecord{Version: recordVersion, VHost: vh, Name: "old", Incarnation: 1 << 20}, append(append(fields, ','), typeField(Classic)...))
	f.store[bindingKey(newBinding(&b, nil, nil, &Queue{}))] = withArguments(bindingRecord{Version: recordVersion, VHost: vh, Source: "x", Destination: "q", Key: "k"}, fields)
	f = f.restart()
	q, ok := f.vhost().Queue("old")
	if !ok || values(q.Arguments) != 2*maxArgumentValues+1 {
		t.Fatalf("the queue is there: %t", ok)
	}
	if same, err := f.CheckQueue(durableQueue("old", args...), nil); same != q || err != nil {
		t.Errorf("declared again: %v", err)
	}
	if _, created, err := f.Bind(toQueue("x", "q", "k", args...), nil); created || err != nil {
		t.Errorf("bound again: created %t, %v", created, err)
	}
	removed, err := f.Unbind(toQueue("x", "q", "k", args...), nil)
	if err != nil || len(removed.Bindings) != 1 {
		t.Errorf("%d bindings were removed, %v", len(removed.Bindings), err)
	}
}

// BR-6.2: what tells bindings apart is made before the State is locked, whoever asks for one or takes one away.
func TestBR_6_2_ABindingIsIdentifiedOnce(t *testing.T) {
	f := newFixture(t, Options{})
	f.queue(durableQueue("q"))
	f.exchange(durableExchange("x", "headers"))
	d := toQueue("x", "q", "k", manyArguments(maxArgumentValues)...)
	f.bind(d)
	missing := d
	missing.Key = "other"
	d.EncodeArguments()
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
		if took := after.TotalAlloc - before.TotalAlloc; took >= maxArgumentValues {
			t.Errorf("%s takes %d bytes", name, took)
		}
	}
}

// What could be declared can be exported and imported, with the type of the queue, and a binding that is there already is found
// again whatever its arguments.
func TestBR_7_1_WhatIsDeclaredCanBeImported(t *testing.T) {
	f := newFixture(t, Options{})
	q, _, err := f.DeclareQueue(durableQueue("q", manyArguments(maxArgumentValues)...), nil)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := ParseArguments(ArgumentsJSON(q.Arguments))
	if err != nil || values(parsed) <= maxArgumentValues {
		t.Fatal(values(parsed), err)
	}
	if _, _, err := newFixture(t, Options{}).DeclareQueue(durableQueue("q", parsed...), nil); err != nil {
		t.Error(err)
	}
}
