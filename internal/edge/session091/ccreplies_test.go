package session091_test

import (
	"slices"
	"testing"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/edge/session091"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
)

// A message whose CC names requesters is kept once, however many it names and however often, and each has it once:
// equal keys lead to one queue (BR-12.2, BR-8.5).
func TestAMessageIsKeptOnceForAllTheRequestersItNames(t *testing.T) {
	const size = 100_000
	for name, inTx := range map[string]bool{"at once": false, "in a transaction": true} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, broker.Options{})
			first, second := s.requester(t), s.requester(t)
			var letGo []func()
			var waiting []func() int
			for _, c := range s.b.Connections() {
				n, release := session091.StopSending(c.Client())
				waiting, letGo = append(waiting, n), append(letGo, release)
			}
			names := amqp091.Array{second}
			for range 2000 {
				names = append(names, first)
			}
			w := s.login(t)
			if inTx {
				w.methods(1, amqp091.TxSelect{})
				await[*amqp091.TxSelectOk](w)
			}
			before := s.b.Bodies().Memory()
			b := amqp091.AppendPublish(nil, 1, amqp091.Publish{RoutingKey: []byte("nowhere")})
			b = amqp091.AppendContentHeader(b, 1, amqp091.ClassBasic, size, amqp091.AppendTable([]byte{0x20, 0}, amqp091.Table{{Key: "CC", Value: names}}))
			w.send(amqp091.AppendBody(b, 1, make([]byte, size), 131072))
			w.methods(1, amqp091.ChannelFlow{Active: true})
			await[*amqp091.ChannelFlowOk](w)
			if kept := s.b.Bodies().Memory() - before; kept > 3*(size+200_000) {
				t.Errorf("a message of %d bytes and its names take %d", size, kept)
			}
			if inTx {
				w.methods(1, amqp091.TxCommit{})
				await[*amqp091.TxCommitOk](w)
			}
			for i, n := range waiting {
				if n() != 1 {
					t.Errorf("%d replies wait for requester %d, want one", n(), i)
				}
				letGo[i]()
			}
		})
	}
}

// counting is a requester that looks at a queue when it is answered.
type counting struct {
	b     *broker.Broker
	q     *partition.Queue
	ready []int
}

func (r *counting) Reply(_, _ []byte, body message.Ref) {
	r.ready = append(r.ready, r.b.Node().Counts(r.q).Ready)
	r.b.Bodies().Release(body)
}

// What a client publishes is done in order, also where a message goes to a requester by its CC (BR-12.2).
func TestWhatPrecedesACopyForARequesterIsDoneBefore(t *testing.T) {
	s := serve(t, broker.Options{})
	w := s.login(t)
	w.methods(1, amqp091.QueueDeclare{Queue: "q"})
	await[*amqp091.QueueDeclareOk](w)
	q, err := s.b.As("guest", "/").Find("q", topology.Read)
	if err != nil {
		t.Fatal(err)
	}
	r := &counting{b: s.b, q: q.Runtime()}
	headers := amqp091.Table{{Key: "CC", Value: amqp091.Array{s.b.AddRequester(r)}}}
	w.send(append(messageFrames("", "q", false, nil), messageFrames("", "nowhere", false, headers)...))
	w.methods(1, amqp091.ChannelFlow{Active: true})
	await[*amqp091.ChannelFlowOk](w)
	if !slices.Equal(r.ready, []int{1}) {
		t.Errorf("%v messages are in the queue at each answer, want the one that was published before", r.ready)
	}
}
