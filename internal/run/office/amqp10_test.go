package office

import (
	"context"
	"slices"
	"testing"

	"bartleby.mq/internal/core/convert"
	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/letters"
	"bartleby.mq/internal/wire/amqp10"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// publish10 publishes a message of AMQP 1.0.
func (d *bureau) publish10(key string, whole []byte) {
	d.t.Helper()
	m, err := amqp10.ParseMessage(whole)
	var in convert.Incoming
	if err == nil {
		err = convert.FromAMQP10(&in, &m)
	}
	if err != nil {
		d.t.Fatal(err)
	}
	p := broker.Publication{Key: []byte(key), Raw: in.Raw, Props: in.Props, Sections: &in.Sections, Body: [][]byte{in.Body}, Size: len(in.Body)}
	if routed, err := d.c.PublishOne(&p); err != nil || !routed {
		d.t.Fatal(routed, err)
	}
}

// Of a letter of AMQP 1.0 whose body is a value the office shows the text, and an edit leaves all that it does not name as it was.
func TestALetterOfAMQP10(t *testing.T) {
	d := openBureau(t, vfs.NewMem(), nil)
	defer d.close()
	d.letters("quorum", "quorum", 0)
	properties := amqp10.Properties{Subject: []byte("order.placed"), To: []byte("/queues/work"), CorrelationID: amqp10.MustValue(amqp10.AppendUlong(nil, 7))}
	application := func(tenant string) []byte {
		b, start := amqp10.BeginMap(amqp10.AppendDescriptor(nil, amqp10.DescriptorApplicationProperties))
		b = amqp10.AppendUbyte(amqp10.AppendString(amqp10.AppendString(amqp10.AppendString(b, "tenant"), tenant), "level"), 3)
		return amqp10.EndCompound(b, start, 4)
	}
	value := amqp10.AppendString(amqp10.AppendDescriptor(nil, amqp10.DescriptorAMQPValue), "a text")
	d.publish10("work", slices.Concat(properties.Append(nil), application("t3"), value))
	d.kill("work")
	d.eventually("the letter is there", func() bool { return d.ready("dlq") == 1 })
	q, err := d.b.AsOperator("test", "/").Find("dlq", topology.Read)
	if err != nil {
		t.Fatal(err)
	}
	id := d.look("dlq")[0].id
	w, err := d.jobs.office.Letter(d.c, q, id, 100, false)
	if err != nil || string(w.Body) != "a text" || w.Section != convert.KindValue || w.Preview != "a text" || w.Type != "order.placed" {
		t.Fatalf("%q, %s, preview %q, type %q, %v", w.Body, w.Section, w.Preview, w.Type, err)
	}
	if body, _, _, err := d.jobs.office.Body(q, id, false); err != nil || string(body) != "a text" {
		t.Fatalf("%q, %v", body, err)
	}

	j := d.start(Request{Action: letters.EditLetter, Queues: []string{"dlq"}, IDs: []string{id}, Edit: &letter.Edit{Headers: map[string]any{"tenant": "t4"}}, How: How{Then: ThenReplay}})
	d.until(j.ID, Done)
	want := slices.Concat(properties.Append(nil), application("t4"), value)
	q, err = d.b.AsOperator("test", "/").Find("work", topology.Read)
	if err != nil {
		t.Fatal(err)
	}
	e, err := letters.Extent(d.b, q)
	if err != nil {
		t.Fatal(err)
	}
	var got [][]byte
	if _, _, err = letters.Browse(context.Background(), d.b, q, e.There, 10, func(_ queue.View, rec message.Record, _ []byte) bool {
		head, body, tail := convert.AppendAMQP10(nil, rec, &convert.Delivery{})
		m, err := amqp10.ParseMessage(slices.Concat(head, body, tail))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, slices.Clone(m.Bare))
		return true
	}); err != nil || len(got) != 1 || string(got[0]) != string(want) {
		t.Errorf("% x\nwant % x, %v", got, want, err)
	}
}
