package conserve

import (
	"fmt"
	"strconv"

	"bartleby.mq/internal/wire/amqp10"
	"bartleby.mq/test/client10"
)

// Clients of AMQP 1.0 declare, bind, purge and delete by requests to the management node, in their session: so these stand in
// one order with what they publish and settle there.

// manage attaches the pair of links to the management node.
func (ch *channel) manage() bool {
	s := ch.ten
	if s.requests != nil {
		return true
	}
	in, out := s.newLink("manage"), s.newLink("manage")
	if in == nil || out == nil {
		return false
	}
	out.name = in.name
	in.sends, in.target = true, client10.ManagementNode
	requests, answers := client10.Manager(in.handle, out.handle, in.name)
	in.attach = ch.sayTen("manage", "", requests)
	ch.wait(in.attach)
	out.attach = ch.sayTen("manage", "", answers)
	ch.wait(out.attach)
	ch.credit(out, 1<<16, false)
	s.requests, s.answers = in, out
	return true
}

// request asks the management node for something. REQUIRES: the link has credit.
func (ch *channel) request(what, queue, method, path string, body []byte) *act {
	s := ch.ten
	a := ch.act(what, queue)
	id := strconv.Itoa(a.pos)
	ch.published++
	t := amqp10.Transfer{
		Handle: s.requests.handle, DeliveryID: amqp10.Some(uint32(ch.published)), DeliveryTag: []byte(id), MessageFormat: amqp10.Some[uint32](0), Settled: amqp10.Some(true),
	}
	ch.c.out, _ = amqp10.AppendTransfer(ch.c.out, ch.num, &t, ch.c.ten.conn.PeerMaxFrame, 0, client10.Request(id, method, path, body))
	s.nextOut++
	s.requests.count++
	s.asked[id] = a
	ch.wait(a)
	return a
}

// responded takes an answer of the management node.
func (ch *channel) responded(payload []byte) {
	s, l := ch.ten, ch.c.l
	m, err := amqp10.ParseMessage(payload)
	if err != nil {
		l.complain("%s: an answer of the management node: %v", ch.c.name, err)
		return
	}
	id, _ := m.Property(amqp10.PropertyCorrelationID).Text()
	a := s.asked[string(id)]
	if a == nil {
		l.complain("%s: the management node answers %q, which nobody asked", ch.c.name, id)
		return
	}
	delete(s.asked, string(id))
	status, _ := m.Property(amqp10.PropertySubject).Text()
	if code, err := strconv.Atoi(string(status)); err != nil || code >= 300 {
		if code != 404 && code != 409 && code != 403 && code != 400 {
			l.complain("%s: %s %s: %s", ch.c.name, a.what, a.queue, status)
		}
		a.failed = true
	} else if m.BodyKind == amqp10.DescriptorAMQPValue {
		if _, v, _, err := amqp10.NextSection(m.Body); err == nil {
			count, _ := v.Underlying().Lookup("message_count")
			n, _ := count.Uint64()
			a.count = int(n)
		}
	}
	l.did(ch, a)
}

// declaration is the body of a request to declare a queue.
func (s *queueSpec) declaration() []byte {
	b, start := amqp10.BeginMap(nil)
	b = amqp10.AppendBool(amqp10.AppendString(b, "durable"), s.durable)
	b = amqp10.AppendBool(amqp10.AppendString(b, "exclusive"), s.exclusive)
	b = amqp10.AppendBool(amqp10.AppendString(b, "auto_delete"), s.autoDelete)
	b, args := amqp10.BeginMap(amqp10.AppendString(b, "arguments"))
	table := s.table()
	for _, f := range table {
		b = appendValue(amqp10.AppendString(b, f.Key), f.Value)
	}
	b = amqp10.EndCompound(b, args, 2*len(table))
	return amqp10.EndCompound(b, start, 8)
}

func appendValue(b []byte, v any) []byte {
	switch v := v.(type) {
	case int32:
		return amqp10.AppendInt(b, v)
	case bool:
		return amqp10.AppendBool(b, v)
	case string:
		return amqp10.AppendString(b, v)
	}
	panic(fmt.Sprintf("no value of AMQP 1.0 for %T", v))
}

// bindingBody is the body of a request to bind a queue.
func bindingBody(exchange, queue string) []byte {
	b, start := amqp10.BeginMap(nil)
	b = amqp10.AppendString(amqp10.AppendString(b, "source"), exchange)
	b = amqp10.AppendString(amqp10.AppendString(b, "destination_queue"), queue)
	b = amqp10.AppendString(amqp10.AppendString(b, "binding_key"), "")
	b, args := amqp10.BeginMap(amqp10.AppendString(b, "arguments"))
	b = amqp10.EndCompound(b, args, 0)
	return amqp10.EndCompound(b, start, 8)
}
