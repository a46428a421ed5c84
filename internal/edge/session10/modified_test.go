package session10_test

import (
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp10"
)

// annotationsOf is a map of annotations: symbols and encoded values.
func annotationsOf(pairs ...any) amqp10.Value {
	b, start := amqp10.BeginMap(nil)
	for i := 0; i < len(pairs); i += 2 {
		b = append(amqp10.AppendSymbol(b, pairs[i].(string)), pairs[i+1].([]byte)...)
	}
	return amqp10.MustValue(amqp10.EndCompound(b, start, len(pairs)))
}

// modify settles a delivery as modified.
func (c *client) modify(tr *amqp10.Transfer, m *amqp10.Modified) {
	c.send(0, &amqp10.Disposition{Role: amqp10.RoleReceiver, First: tr.DeliveryID.Value, Settled: true, State: composite(m)})
}

// DL-14.6: on a quorum queue the annotations of an outcome come with the redelivery and with the dead letter, over both protocols; a
// classic queue ignores them.
func TestDL_14_6_AnnotationsOfModified(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			n := serve(t, broker.Options{}, nil)
			n.declare(t, "dlq", nil)
			n.declare(t, "q", amqp.Table{"x-queue-type": kind, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dlq"})
			c := n.session(t)
			c.consumer(0, 0, "q", 100)
			n.publish(t, "q", "m")
			tr, _ := awaitTransfer(c)
			c.modify(tr, &amqp10.Modified{DeliveryFailed: true, MessageAnnotations: annotationsOf("x-a", amqp10.AppendString(nil, "one"), "x-n", amqp10.AppendUbyte(nil, 5))})
			tr, payload := awaitTransfer(c)
			m, err := amqp10.ParseMessage(payload)
			if err != nil {
				t.Fatal(err)
			}
			annotations := m.MessageAnnotations.Underlying()
			a, _ := annotations.Lookup("x-a")
			text, _ := a.Text()
			number, _ := annotations.Lookup("x-n")
			if want := map[string]string{"classic": "", "quorum": "one"}[kind]; string(text) != want || (number.Type() == amqp10.TypeLong) != (kind == "quorum") {
				t.Errorf("the redelivery has %q and a number of type %s", text, number.Type())
			}
			if key, _ := annotations.Lookup("x-routing-key"); key.IsNull() {
				t.Error("the redelivery has no routing key")
			} else if s, _ := key.Text(); string(s) != "q" {
				t.Errorf("the redelivery has the routing key %q", s)
			}
			c.modify(tr, &amqp10.Modified{UndeliverableHere: true, MessageAnnotations: annotationsOf("x-a", amqp10.AppendString(nil, "two"))})
			d := n.got(t, "dlq")
			if kind == "quorum" && (d.Headers["x-a"] != "two" || d.Headers["x-n"] != int64(5)) || kind == "classic" && d.Headers["x-a"] != nil || d.Headers["x-first-death-queue"] != "q" {
				t.Errorf("the dead letter has %v", d.Headers)
			}
		})
	}
}

// Annotations that RabbitMQ fails at, and those beyond our bound, end the session, and the message stays in its queue.
func TestDL_14_6_AnnotationsThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		key, value      string
		condition, text string
	}{
		{"own", "v", amqp10.ConditionInvalidField, "reserved_annotation_key"},
		{"x-a", strings.Repeat("v", 17<<10), amqp10.ConditionResourceLimitExceeded, "the limit is 16384"},
	} {
		n := serve(t, broker.Options{}, nil)
		n.declare(t, "q", amqp.Table{"x-queue-type": "quorum"})
		client := n.session(t)
		client.consumer(0, 0, "q", 1)
		n.publish(t, "q", "m")
		tr, _ := awaitTransfer(client)
		client.modify(tr, &amqp10.Modified{MessageAnnotations: annotationsOf(c.key, amqp10.AppendString(nil, c.value))})
		client.want(awaitEnd(client).Error, c.condition, c.text)
		if d := n.got(t, "q"); string(d.Body) != "m" || !d.Redelivered {
			t.Errorf("%q is in the queue", d.Body)
		}
	}
}

// DL-12.5: the annotation x-opt-delivery-time delays the next delivery from a quorum queue, also one without delayed retry; a moment
// beyond all of time does, and one in the past delays nothing.
func TestDL_12_5_DeliveryTime(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	n.declare(t, "q", amqp.Table{"x-queue-type": "quorum"})
	c := n.session(t)
	c.consumer(0, 0, "q", 100)
	n.publish(t, "q", "m")
	tr, _ := awaitTransfer(c)
	at := time.Now().Add(300 * time.Millisecond).UnixMilli()
	c.modify(tr, &amqp10.Modified{MessageAnnotations: annotationsOf("x-opt-delivery-time", amqp10.AppendTimestamp(nil, at))})
	tr, _ = awaitTransfer(c)
	if now := time.Now().UnixMilli(); now < at {
		t.Errorf("it came %d ms before its time", at-now)
	}
	c.modify(tr, &amqp10.Modified{MessageAnnotations: annotationsOf("x-opt-delivery-time", amqp10.AppendLong(nil, 1000))})
	tr, _ = awaitTransfer(c)
	c.modify(tr, &amqp10.Modified{MessageAnnotations: annotationsOf("x-opt-delivery-time", amqp10.AppendLong(nil, 1<<63-1))})
	n.publish(t, "q", "next")
	if _, payload := awaitTransfer(c); !strings.HasSuffix(string(payload), "next") {
		t.Errorf("got %q, want what was published later", payload)
	}
}

// DL-12.5: a moment before all of time has passed, too.
func TestDL_12_5_DeliveryTimeBeforeAllOfTime(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	n.declare(t, "q", amqp.Table{"x-queue-type": "quorum"})
	c := n.session(t)
	c.consumer(0, 0, "q", 100)
	n.publish(t, "q", "m")
	tr, _ := awaitTransfer(c)
	c.modify(tr, &amqp10.Modified{MessageAnnotations: annotationsOf("x-opt-delivery-time", amqp10.AppendLong(nil, -1<<63))})
	if tr, _ := awaitTransfer(c); tr.DeliveryID.Value != 1 { // it fails when nothing comes
		t.Errorf("delivery %d", tr.DeliveryID.Value)
	}
}

// Under an alarm an outcome passes, with its moment, but long annotations would take the memory that is short.
func TestAnnotationsUnderAnAlarmAreShort(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	n.declare(t, "q", amqp.Table{"x-queue-type": "quorum"})
	c := n.session(t)
	c.consumer(0, 0, "q", 100)
	n.publish(t, "q", "m")
	tr, _ := awaitTransfer(c)
	n.b.SetAlarm(broker.Memory, true)
	has := func(key string) bool {
		t.Helper()
		var payload []byte
		tr, payload = awaitTransfer(c)
		m, err := amqp10.ParseMessage(payload)
		if err != nil {
			t.Fatal(err)
		}
		_, has := m.MessageAnnotations.Underlying().Lookup(key)
		return has
	}
	c.modify(tr, &amqp10.Modified{MessageAnnotations: annotationsOf("x-short", amqp10.AppendString(nil, "v"))})
	if !has("x-short") {
		t.Error("a short annotation is not merged")
	}
	at := time.Now().Add(200 * time.Millisecond).UnixMilli()
	long := strings.Repeat("v", 300)
	c.modify(tr, &amqp10.Modified{MessageAnnotations: annotationsOf("x-long", amqp10.AppendString(nil, long), "x-opt-delivery-time", amqp10.AppendTimestamp(nil, at))})
	if has("x-long") {
		t.Error("a long annotation is merged")
	}
	if now := time.Now().UnixMilli(); now < at {
		t.Errorf("it came %d ms before its time", at-now)
	}
	n.b.SetAlarm(broker.Memory, false)
	c.modify(tr, &amqp10.Modified{MessageAnnotations: annotationsOf("x-long", amqp10.AppendString(nil, long))})
	if !has("x-long") {
		t.Error("a long annotation is not merged after the alarm")
	}
}

// A client of AMQP 0-9-1 gets all headers in one frame: with annotations that make them too large for the usual frame_max, no such
// client could take the message, and a queue would offer it for ever. So it gets them only if there is room; a client of AMQP 1.0 does.
func TestAnnotationsLeaveHeadersReadable(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	n.declare(t, "dlq", nil)
	n.declare(t, "q", amqp.Table{"x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dlq"})
	c := n.session(t)
	c.consumer(0, 0, "q", 100)
	for _, size := range []int{100 << 10, 110 << 10} {
		if err := n.channel(t).Publish("", "q", false, false, amqp.Publishing{Headers: amqp.Table{"large": strings.Repeat("h", size)}}); err != nil {
			t.Fatal(err)
		}
		tr, _ := awaitTransfer(c)
		c.modify(tr, &amqp10.Modified{UndeliverableHere: true, MessageAnnotations: annotationsOf("x-a", amqp10.AppendString(nil, strings.Repeat("v", 15<<10)))})
		d := n.got(t, "dlq")
		_, has := d.Headers["x-a"]
		if room := size < 105<<10; has != room || d.Headers["x-first-death-queue"] != "q" || len(d.Headers["large"].(string)) != size {
			t.Errorf("with %d bytes of headers: annotated %v, died in %v", size, has, d.Headers["x-first-death-queue"])
		}
	}
}
