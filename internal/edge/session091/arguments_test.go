package session091_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// manyArguments are arguments of n values of nothing.
func manyArguments(n int) (args amqp091.Table) {
	for i := range n {
		args = append(args, amqp091.Field{Key: fmt.Sprintf("%03x", i)})
	}
	return args
}

// BR-9.2: the arguments of a consumer are kept as they came: decoded they would take many times as much, and no alarm keeps a
// client from having more consumers. They are shown as they were.
func TestBR_9_2_TheArgumentsOfConsumersTakeLittle(t *testing.T) {
	const consumers, values, most = 500, 1000, 10_000
	s := serve(t, broker.Options{})
	w := s.login(t)
	w.methods(1, amqp091.QueueDeclare{Queue: "q"})
	await[*amqp091.QueueDeclareOk](w)
	args := manyArguments(values)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range consumers {
		w.methods(1, amqp091.BasicConsume{Queue: "q", ConsumerTag: fmt.Sprint(i), NoWait: true, Arguments: args})
	}
	w.methods(1, amqp091.ChannelFlow{Active: true})
	await[*amqp091.ChannelFlowOk](w)
	runtime.GC()
	runtime.ReadMemStats(&after)
	if each := (int(after.HeapAlloc) - int(before.HeapAlloc)) / consumers; each > most {
		t.Errorf("a consumer with arguments of %d bytes takes %d", len(amqp091.AppendTable(nil, args)), each)
	}
	w.methods(1, amqp091.BasicConsume{Queue: "q", ConsumerTag: "last", Arguments: amqp091.Table{{Key: "l", Value: amqp091.Array{int8(1), "text"}}, {Key: "n"}}})
	await[*amqp091.BasicConsumeOk](w)
	q, err := s.b.As("guest", "/").Find("q", topology.Read)
	if err != nil {
		t.Fatal(err)
	}
	attached := s.b.Node().Consumers(q.Runtime())
	if len(attached) != consumers+1 {
		t.Fatalf("there are %d consumers", len(attached))
	}
	for at, want := range map[int]string{0: "[{000 <nil>} {001 <nil>}", consumers: "[{l [1 text]} {n <nil>}]"} {
		if shown := fmt.Sprint(attached[at].Target.(broker.Informant).Info().Arguments); !strings.HasPrefix(shown, want) {
			t.Errorf("the arguments %s are shown, want %s", shown, want)
		}
	}
}

// BR-5.7, BR-6.1, BR-7.1, BR-9.2: what keeps arguments takes no more of them than may be.
func TestArgumentsThatAreKeptAreBounded(t *testing.T) {
	for name, m := range map[string]func(args amqp091.Table) amqp091.Method{
		"consume": func(args amqp091.Table) amqp091.Method { return amqp091.BasicConsume{Queue: "q", Arguments: args} },
		"queue": func(args amqp091.Table) amqp091.Method {
			return amqp091.QueueDeclare{Queue: fmt.Sprint("new", len(args)), Arguments: args}
		},
		"exchange": func(args amqp091.Table) amqp091.Method {
			return amqp091.ExchangeDeclare{Exchange: fmt.Sprint("new", len(args)), Type: "fanout", Arguments: args}
		},
		"queue binding": func(args amqp091.Table) amqp091.Method {
			return amqp091.QueueBind{Queue: "q", Exchange: "amq.headers", Arguments: args}
		},
		"exchange binding": func(args amqp091.Table) amqp091.Method {
			return amqp091.ExchangeBind{Destination: "amq.fanout", Source: "amq.headers", Arguments: args}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := serve(t, broker.Options{}).login(t)
			w.methods(1, amqp091.QueueDeclare{Queue: "q"})
			await[*amqp091.QueueDeclareOk](w)
			w.methods(1, m(manyArguments(1024)))
			if _, closed := w.next().(*amqp091.ChannelClose); closed {
				t.Error("1024 values are refused")
			}
			for i, args := range []amqp091.Table{manyArguments(1025), {{Key: "a", Value: strings.Repeat("x", 65_536)}}} {
				number := uint16(2 + i)
				w.methods(number, amqp091.ChannelOpen{}, m(args))
				w.next()
				if c, closed := w.next().(*amqp091.ChannelClose); !closed || c.ReplyCode != amqp091.CodePreconditionFailed || !strings.Contains(c.ReplyText, "the limit is") {
					t.Errorf("too many: %+v", c)
				}
			}
		})
	}
}
