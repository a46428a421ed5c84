package twodrivers

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
)

// counted are headers that only quorum queues show (DL-11.2).
var counted = []string{"x-delivery-count", "x-acquired-count"}

// stream is what a channel was told, each sort in its order. Deliveries are in that of their
// consumers: which of two queues delivers first is a matter of time (BR-8.12).
type stream struct{ answers, deliveries, confirms []string }

// compare lets everything come to rest, compares what clients were told and what queues
// hold, and notes it.
func (p *play) compare() string {
	time.Sleep(pause)
	synctest.Wait()
	var told [connections][2][]event
	for conn := range connections {
		for i, n := range p.nodes {
			if n.clients[conn] != nil {
				told[conn][i] = n.clients[conn].take()
			}
		}
	}
	meeting := p.meeting(&told)
	difference := ""
	for conn := range connections {
		if p.nodes[0].clients[conn] == nil {
			continue
		}
		p.forgiveFresh(conn, told[conn])
		var streams [2]map[uint16]*stream
		for i := range p.nodes {
			streams[i] = p.streams(i, conn, told[conn][i])
		}
		if difference = differStreams(conn, streams); difference != "" {
			break
		}
		p.note(conn, told[conn])
	}
	if difference == "" {
		difference = p.compareQueues()
	}
	for _, name := range meeting {
		if (difference != "" || p.nodes[0].order(name) != p.nodes[1].order(name)) && except("DL-1.9") {
			p.ended = true
			return ""
		}
	}
	return difference
}

// meeting are the queues that messages have come to in more than one way since the last
// operation: at once, so that their order, and what follows from it, is a matter of time. It
// looks at all copies that have not been seen yet.
func (p *play) meeting(told *[connections][2][]event) (meeting []string) {
	ways := map[string]map[string]bool{}
	arrived := func(queue, copy string) {
		if p.seen[queue+" "+copy] {
			return
		}
		p.seen[queue+" "+copy] = true
		_, way, _ := strings.Cut(copy, " ")
		for { // to this queue, and to those that it died in before
			if ways[queue] == nil {
				ways[queue] = map[string]bool{}
			}
			ways[queue][way] = true
			death, before, _ := strings.Cut(strings.TrimPrefix(way, "<"), "<")
			if death == "" {
				return
			}
			queue, _, _ = strings.Cut(death, "/")
			if way = before; way != "" {
				way = "<" + way
			}
		}
	}
	for conn := range told {
		for i := range p.nodes {
			for _, e := range told[conn][i] {
				if m, ok := e.method.(*amqp091.BasicDeliver); ok {
					arrived(p.queueOf(conn, m.ConsumerTag), copyName(&e.content.props, e.content.body))
				}
			}
		}
	}
	for _, name := range append(slices.Clone(queueNames), sameClassic, sameQuorum) {
		for _, n := range p.nodes {
			for _, at := range n.places(name) {
				arrived(name, at.name)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(ways)) {
		if len(ways[name]) > 1 {
			meeting = append(meeting, name)
		}
	}
	return meeting
}

// forgiveFresh forgives a classic queue that hands a dead letter on as if it had never been
// delivered, where a client is waiting for it (DL-6.14).
func (p *play) forgiveFresh(conn int, events [2][]event) {
	for _, e := range events[0] {
		classic, ok := e.method.(*amqp091.BasicDeliver)
		if !ok {
			continue
		}
		q, died := p.queueOf(conn, classic.ConsumerTag), false
		if _, died = e.content.props.Headers.Get("x-death"); !died {
			continue
		}
		key := q + " " + copyName(&e.content.props, e.content.body)
		quorum := sameDelivery(events, classic)
		if quorum != nil && !classic.Redelivered && quorum.Redelivered && !p.delivered[key] && except("DL-6.14") {
			classic.Redelivered = true
			p.forgiven[q]++
		}
		p.delivered[key] = true
	}
}

// sameDelivery is the delivery by the quorum node that has the place of one by the classic node
// among those of its consumer, nil if there is none.
func sameDelivery(events [2][]event, classic *amqp091.BasicDeliver) *amqp091.BasicDeliver {
	list := func(events []event) (list []*amqp091.BasicDeliver) {
		for _, e := range events {
			if m, ok := e.method.(*amqp091.BasicDeliver); ok && m.ConsumerTag == classic.ConsumerTag {
				list = append(list, m)
			}
		}
		return list
	}
	quorum := list(events[1])
	if i := slices.Index(list(events[0]), classic); i < len(quorum) {
		return quorum[i]
	}
	return nil
}

// queueOf is the queue of a consumer, "" if it is not known.
func (p *play) queueOf(conn int, tag string) string {
	for _, ch := range p.channels[conn] {
		if ch == nil {
			continue
		}
		for _, c := range ch.consumers {
			if c.tag == tag {
				return c.queue
			}
		}
	}
	return ""
}

func differStreams(conn int, told [2]map[uint16]*stream) string {
	for ch := range uint16(asking + 1) {
		a, b := told[0][ch], told[1][ch]
		if a == nil {
			a = &stream{}
		}
		if b == nil {
			b = &stream{}
		}
		for _, s := range []struct {
			what            string
			classic, quorum []string
		}{{"answers", a.answers, b.answers}, {"deliveries", a.deliveries, b.deliveries}, {"confirms", a.confirms, b.confirms}} {
			if d := differ(fmt.Sprintf("%s on c%d.%d", s.what, conn, ch), strings.Join(s.classic, "\n           "), strings.Join(s.quorum, "\n           ")); d != "" {
				return d
			}
		}
	}
	return ""
}

// streams shows events as text, without what the rules let differ.
func (p *play) streams(node, conn int, events []event) map[uint16]*stream {
	told := map[uint16]*stream{}
	for _, e := range events {
		s := told[e.channel]
		if s == nil {
			s = &stream{}
			told[e.channel] = s
		}
		switch m := e.method.(type) {
		case *amqp091.BasicAck:
			p.confirmed(s, node, conn, e.channel, m.DeliveryTag, m.Multiple, "ack")
		case *amqp091.BasicNack:
			p.confirmed(s, node, conn, e.channel, m.DeliveryTag, m.Multiple, "nack")
		case *amqp091.BasicDeliver:
			s.deliveries = append(s.deliveries, p.show(node, conn, e))
		default:
			s.answers = append(s.answers, p.show(node, conn, e))
		}
	}
	for _, s := range told {
		slices.Sort(s.confirms)
		consumer := func(text string) string { name, _, _ := strings.Cut(text, " "); return name }
		slices.SortStableFunc(s.deliveries, func(a, b string) int { return strings.Compare(consumer(a), consumer(b)) })
	}
	return told
}

// confirmed takes apart what one answer confirms: which publishes share one is a matter of time.
func (p *play) confirmed(s *stream, node, conn int, ch uint16, tag uint64, multiple bool, how string) {
	c := p.channels[conn][ch]
	if c == nil {
		s.confirms = append(s.confirms, how+" on a channel that is closed")
		return
	}
	tags := []uint64{tag}
	if multiple {
		tags = nil
		for t := range c.unconfirmed[node] {
			if t <= tag {
				tags = append(tags, t)
			}
		}
	}
	for _, t := range tags {
		if !c.unconfirmed[node][t] {
			s.confirms = append(s.confirms, fmt.Sprintf("%s once more", how))
		}
		delete(c.unconfirmed[node], t)
		s.confirms = append(s.confirms, fmt.Sprintf("%06d %s", t, how))
	}
}

// show shows an event as text. Of delivery tags it only looks whether they grow (BR-9.6).
func (p *play) show(node, conn int, e event) string {
	grown := func(tag uint64) string {
		ch := p.channels[conn][e.channel]
		if ch == nil || tag <= p.lastTags[node][ch] {
			return fmt.Sprintf(" with the tag %d, which does not grow", tag)
		}
		p.lastTags[node][ch] = tag
		return ""
	}
	var text string
	switch m := e.method.(type) {
	case *amqp091.BasicDeliver:
		text = fmt.Sprintf("%s redelivered=%v %q %q%s", m.ConsumerTag, m.Redelivered, m.Exchange, m.RoutingKey, grown(m.DeliveryTag))
	case *amqp091.BasicGetOk:
		text = fmt.Sprintf("%s redelivered=%v %q %q left=%d%s", m.Name(), m.Redelivered, m.Exchange, m.RoutingKey, m.MessageCount, grown(m.DeliveryTag))
	default:
		text = fmt.Sprintf("%s %+v", m.Name(), m)
	}
	if e.content != nil {
		count("messages compared")
		if _, died := e.content.props.Headers.Get("x-death"); died {
			count("dead letters compared")
		}
	}
	if e.content != nil {
		text += " " + properties(e.content.props) + " " + strings.TrimRight(string(e.content.body), ".")
	}
	return text
}

// properties shows a message's properties, without what only one type counts.
func properties(l amqp091.PropertyList) string {
	var b strings.Builder
	text := func(name string, v *string) {
		if v != nil {
			fmt.Fprintf(&b, " %s=%q", name, *v)
		}
	}
	if l.DeliveryMode != nil {
		fmt.Fprintf(&b, " delivery-mode=%d", *l.DeliveryMode)
	}
	if l.Priority != nil {
		fmt.Fprintf(&b, " priority=%d", *l.Priority)
	}
	text("expiration", l.Expiration)
	headers := slices.DeleteFunc(slices.Clone(l.Headers), func(f amqp091.Field) bool { return slices.Contains(counted, f.Key) && except("DL-11.2") })
	if len(headers) > 0 {
		b.WriteString(" headers=")
		value(&b, headers)
	}
	return b.String()
}

func value(b *strings.Builder, v any) {
	switch v := v.(type) {
	case amqp091.Table:
		b.WriteByte('{')
		for i, f := range v {
			if i > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(f.Key + "=")
			value(b, f.Value)
		}
		b.WriteByte('}')
	case amqp091.Array:
		b.WriteByte('[')
		for i, x := range v {
			if i > 0 {
				b.WriteByte(' ')
			}
			value(b, x)
		}
		b.WriteByte(']')
	case string:
		fmt.Fprintf(b, "%q", v)
	default:
		fmt.Fprintf(b, "%T:%v", v, v)
	}
}

// note enters into the ledger what both clients were told.
func (p *play) note(conn int, events [2][]event) {
	for _, e := range events[0] {
		if e.channel == 0 {
			if _, closed := e.method.(*amqp091.ConnectionClose); closed {
				p.channels[conn] = [asking + 1]*channel{}
				for _, n := range p.nodes {
					n.hangUp(conn)
				}
				return
			}
			continue
		}
		ch := p.channels[conn][e.channel]
		if ch == nil {
			continue
		}
		switch m := e.method.(type) {
		case *amqp091.ChannelClose:
			p.channels[conn][e.channel] = nil
		case *amqp091.BasicGetEmpty:
			ch.gets = ch.gets[1:]
		case *amqp091.BasicGetOk:
			from := ch.gets[0]
			ch.gets = ch.gets[1:]
			if !from.noAck {
				h := held{queue: from.queue, instant: instant(e.content), copy: copyName(&e.content.props, e.content.body)}
				h.tags = [2]uint64{m.DeliveryTag, events[1][slices.IndexFunc(events[1], isGot)].method.(*amqp091.BasicGetOk).DeliveryTag}
				ch.held = append(ch.held, h)
			}
		case *amqp091.BasicDeliver:
			for _, c := range ch.consumers {
				if c.tag == m.ConsumerTag && !c.noAck {
					h := held{queue: c.queue, instant: instant(e.content), copy: copyName(&e.content.props, e.content.body)}
					h.tags = [2]uint64{m.DeliveryTag, sameDelivery(events, m).DeliveryTag}
					ch.held = append(ch.held, h)
				}
			}
		}
	}
}

// instant says whether a message has a TTL of 0.
func instant(x *content) bool { return x.props.Expiration != nil && *x.props.Expiration == "0" }

// isGot finds the one message that an operation has got.
func isGot(e event) bool {
	_, ok := e.method.(*amqp091.BasicGetOk)
	return ok
}

// totals are what a queue holds, nothing if it is not there.
func (n *node) totals(name string) queue.Totals {
	if info := n.declared(name); info != nil {
		return n.b.Counts(*info).Totals
	}
	return queue.Totals{}
}

// compareQueues compares the counts of all queues, and of the nodes.
func (p *play) compareQueues() string {
	var counts [2]map[string]string
	for i, n := range p.nodes {
		counts[i] = map[string]string{}
		for _, s := range n.b.CountQueues() {
			s.Counts.Stats.Active = 0
			if i == 0 {
				s.Counts.Stats.Redelivered += p.forgiven[string(s.Queue.Name)]
				if p.credited {
					s.Counts.Stats.Credited.Redelivered += p.forgiven[string(s.Queue.Name)]
				}
			}
			counts[i][string(s.Queue.Name)] = countText(&s.Counts)
		}
		t := &n.b.Totals.Traffic[broker.LoginAMQP091]
		counts[i]["the node"] = fmt.Sprintf("published=%d routed=%d confirmed=%d refused=%d dropped=%d returned=%d",
			t.Published.Load(), t.Routed.Load(), t.Confirmed.Load(), t.Refused.Load(), t.UnroutableDropped.Load(), t.UnroutableReturned.Load())
	}
	for q := range queues {
		if counts[0][queueName(q)] == "" {
			p.gone(q)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(counts[0])) {
		if d := differ("counts of "+name, counts[0][name], counts[1][name]); d != "" {
			return d
		}
	}
	return differ("how many queues there are", fmt.Sprint(len(counts[0])), fmt.Sprint(len(counts[1])))
}

// starved finds a queue where something is ready, and a consumer that may have all it wants.
func (p *play) starved() string {
	for conn := range p.channels {
		for _, ch := range p.channels[conn] {
			if ch == nil {
				continue
			}
			for _, c := range ch.consumers {
				q := slices.Index(queueNames, c.queue)
				if !c.unlimited || p.apsara || p.declared[q] == nil || p.declared[q].args.single {
					continue
				}
				for _, n := range p.nodes {
					if ready := n.totals(c.queue).Ready; ready > 0 {
						return fmt.Sprintf("%d messages are ready in %s on the %s node, and consumer %s waits for them", ready, c.queue, n.kind(), c.tag)
					}
				}
			}
		}
	}
	return ""
}

// gone notes that a queue is not there, nor are its consumers.
func (p *play) gone(q int) {
	p.declared[q], p.forgiven[queueName(q)] = nil, 0
	for i := range p.channels {
		for _, ch := range p.channels[i] {
			if ch != nil {
				ch.consumers = slices.DeleteFunc(ch.consumers, func(c *consumer) bool { return c.queue == queueName(q) })
			}
		}
	}
}

// countText shows the counts that are not 0.
func countText(c *partition.Counts) string {
	var b strings.Builder
	b.WriteString("it is there")
	number := func(name string, v any) {
		if text := fmt.Sprint(v); text != "0" && text != "false" {
			b.WriteString(" " + name + "=" + text)
		}
	}
	number("ready", c.Ready)
	number("unacknowledged", c.Out)
	number("delayed", c.Delayed)
	number("dying", c.Dying)
	number("held", c.Held)
	number("in-transit", c.Transit)
	number("stranded", c.Stranded)
	number("consumers", c.Consumers)
	number("unused", c.Unused)
	s := reflect.ValueOf(c.Stats)
	for i := range s.NumField() {
		if name := s.Type().Field(i).Name; name != "Dead" {
			number(name, s.Field(i).Interface())
		}
	}
	for reason, outcomes := range c.Stats.Dead {
		for outcome, n := range outcomes {
			number(fmt.Sprintf("dead(%v, %v)", deadletter.Reason(reason), deadletter.Outcome(outcome)), n)
		}
	}
	return b.String()
}
