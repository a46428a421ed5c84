package convert_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/internal/wire/amqp10"
)

// rabbitmq has TestRecord ask a RabbitMQ, and write its answers to recordings:
//
//	go test -run TestRecord ./internal/core/convert -rabbitmq 127.0.0.1:5673
//
// It has to be an empty 4.3.6 that takes guest with the password guest.
var rabbitmq = flag.String("rabbitmq", "", "address of a RabbitMQ whose conversions TestRecord writes to testdata")

const recordings = "testdata/rabbitmq-4.3.6.json"

// octets are written as hexadecimal digits.
type octets []byte

func (o octets) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, o), nil }

func (o *octets) UnmarshalText(b []byte) (err error) {
	*o, err = hex.AppendDecode(nil, b)
	return err
}

// A recording is what became of one scenario's message in a RabbitMQ.
type recording struct {
	Name    string
	Journey journey
	Quorum  bool `json:",omitempty"`
	// Message was sent by AMQP 1.0; or Properties and Body by AMQP 0-9-1.
	Message          octets `json:",omitempty"`
	Properties, Body octets `json:",omitempty"`
	// What clients of both protocols got, or why they got nothing.
	Message10              octets `json:",omitempty"`
	Properties091, Body091 octets `json:",omitempty"`
	Refused10, Refused091  string `json:",omitempty"`
	RefusedAtPublish       string `json:",omitempty"`
}

// journey is what happens to a message before it is read from the queue "dead".
type journey string

const (
	straight journey = "straight" // it is published there
	rejected journey = "rejected" // it is rejected without requeue in the queue "source"
	expired  journey = "expired"  // its own ttl passes in the queue "source"
	failed   journey = "failed"   // it is rejected with requeue once
)

// TestRecord is no test: see rabbitmq.
func TestRecord(t *testing.T) {
	if *rabbitmq == "" {
		t.Skip("no -rabbitmq")
	}
	var list []recording
	for _, s := range scenarios() {
		r := recording{Name: s.name, Journey: s.journey, Quorum: s.quorum, Message: s.message, Body: s.body}
		if s.message == nil {
			r.Properties = amqp091.AppendPropsFrom(nil, s.properties)
		}
		if err := r.record(); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		list = append(list, r)
	}
	b, err := json.MarshalIndent(list, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(recordings, append(b, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

// record sends the message twice, to read it by either protocol.
func (r *recording) record() error {
	if err := r.arrive(); err != nil {
		var refusal refusedError
		if errors.As(err, &refusal) {
			r.RefusedAtPublish = err.Error()
			return nil
		}
		return err
	}
	c, err := dial091()
	if err != nil {
		return err
	}
	defer c.Close()
	if r.Properties091, r.Body091, err = c.get("dead"); err != nil {
		r.Refused091 = err.Error()
	}
	if err := r.arrive(); err != nil {
		return err
	}
	c10, err := dial10()
	if err != nil {
		return err
	}
	defer c10.Close()
	if r.Message10, err = c10.receive("/queues/dead"); err != nil {
		r.Refused10 = err.Error()
	}
	return nil
}

// arrive declares the queues anew, and brings the message into "dead".
func (r *recording) arrive() error {
	c, err := dial091()
	if err != nil {
		return err
	}
	defer c.Close()
	kind := "classic"
	if r.Quorum {
		kind = "quorum"
	}
	for _, q := range []string{"source", "dead"} {
		args := amqp091.Table{{Key: "x-queue-type", Value: kind}}
		if q == "source" {
			args = append(args, amqp091.Table{{Key: "x-dead-letter-exchange", Value: ""}, {Key: "x-dead-letter-routing-key", Value: "dead"}}...)
		}
		if _, err := c.call(amqp091.QueueDelete{Queue: q}); err != nil {
			return err
		}
		if _, err := c.call(amqp091.QueueDeclare{Queue: q, Durable: true, Arguments: args}); err != nil {
			return err
		}
	}
	first := "source"
	if r.Journey == straight || r.Journey == failed {
		first = "dead"
	}
	if r.Message != nil {
		c10, err := dial10()
		if err != nil {
			return err
		}
		defer c10.Close()
		if err := c10.send("/queues/"+first, r.Message); err != nil {
			return err
		}
	} else if err := c.publish(first, r.Properties, r.Body); err != nil {
		return err
	}
	switch r.Journey {
	case rejected, failed:
		if _, _, err := c.get(first); err != nil {
			return err
		}
		if err := c.write(amqp091.AppendMethod(nil, 1, amqp091.BasicReject{DeliveryTag: c.tag, Requeue: r.Journey == failed})); err != nil {
			return err
		}
		if _, err := c.call(amqp091.ChannelClose{}); err != nil { // the reject is done then
			return err
		}
	}
	return nil
}

// refusedError is what a RabbitMQ says to a message that it does not take.
type refusedError string

func (e refusedError) Error() string { return string(e) }

// patience is how long a client waits for RabbitMQ.
const patience = 4 * time.Second

// client091 is a client of AMQP 0-9-1 with a channel 1 that confirms.
type client091 struct {
	net.Conn
	buf []byte
	tag uint64
}

func dial091() (*client091, error) {
	conn, err := net.Dial("tcp", *rabbitmq)
	if err != nil {
		return nil, err
	}
	c := &client091{Conn: conn}
	if err := c.write([]byte(amqp091.ProtocolHeader)); err != nil {
		return nil, err
	}
	if _, err := c.next(); err != nil {
		return nil, err
	}
	out := amqp091.AppendMethod(nil, 0, amqp091.ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00guest\x00guest", Locale: "en_US"})
	out = amqp091.AppendMethod(out, 0, amqp091.ConnectionTuneOk{ChannelMax: 2047, FrameMax: 131072})
	out = amqp091.AppendMethod(out, 0, amqp091.ConnectionOpen{VirtualHost: "/"})
	if err := c.write(out); err != nil {
		return nil, err
	}
	for range 2 { // tune, open-ok
		if _, err := c.next(); err != nil {
			return nil, err
		}
	}
	for _, m := range []amqp091.Method{amqp091.ChannelOpen{}, amqp091.ConfirmSelect{}} {
		if _, err := c.call(m); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *client091) write(b []byte) error {
	_, err := c.Write(b)
	return err
}

// call sends a method on channel 1 and returns the answer.
func (c *client091) call(m amqp091.Method) (amqp091.Method, error) {
	if err := c.write(amqp091.AppendMethod(nil, 1, m)); err != nil {
		return nil, err
	}
	return c.method()
}

func (c *client091) method() (amqp091.Method, error) {
	f, err := c.next()
	if err != nil {
		return nil, err
	}
	m, err := amqp091.DecodeMethod(f.Payload)
	switch m := m.(type) {
	case *amqp091.ChannelClose:
		return nil, refusedError(m.ReplyText)
	case *amqp091.ConnectionClose:
		return nil, refusedError(m.ReplyText)
	}
	return m, err
}

func (c *client091) next() (amqp091.Frame, error) {
	chunk := make([]byte, 1<<16)
	for {
		f, n, err := amqp091.NextFrame(c.buf, 131072)
		if err != nil {
			return f, err
		}
		if n > 0 {
			c.buf = c.buf[n:]
			return f, nil
		}
		_ = c.SetReadDeadline(time.Now().Add(patience))
		if n, err = c.Read(chunk); err != nil {
			return f, err
		}
		c.buf = append(c.buf, chunk[:n]...)
	}
}

func (c *client091) publish(queue string, properties, body []byte) error {
	out := amqp091.AppendMethod(nil, 1, amqp091.BasicPublish{RoutingKey: queue})
	out = amqp091.AppendContentHeader(out, 1, amqp091.ClassBasic, uint64(len(body)), properties)
	if err := c.write(amqp091.AppendBody(out, 1, body, 131072)); err != nil {
		return err
	}
	_, err := c.method()
	return err
}

// get waits for a message in the queue, and takes it without an acknowledgement.
func (c *client091) get(queue string) (properties, body octets, err error) {
	for until := time.Now().Add(patience); ; {
		m, err := c.call(amqp091.BasicGet{Queue: queue})
		if err != nil {
			return nil, nil, err
		}
		if ok, is := m.(*amqp091.BasicGetOk); is {
			c.tag = ok.DeliveryTag
			break
		}
		if time.Now().After(until) {
			return nil, nil, errors.New("nothing came")
		}
	}
	f, err := c.next()
	if err != nil {
		return nil, nil, err
	}
	_, size, props, err := amqp091.ParseContentHeader(f.Payload)
	if err != nil {
		return nil, nil, err
	}
	properties = bytes.Clone(props)
	for uint64(len(body)) < size {
		if f, err = c.next(); err != nil {
			return nil, nil, err
		}
		body = append(body, f.Payload...)
	}
	return properties, body, nil
}

// client10 is a client of AMQP 1.0 with one session and one link.
type client10 struct {
	net.Conn
	buf []byte
}

func dial10() (*client10, error) {
	conn, err := net.Dial("tcp", *rabbitmq)
	if err != nil {
		return nil, err
	}
	c := &client10{Conn: conn}
	for _, step := range []struct {
		header  string
		answers int // frames
		send    amqp10.Composite
	}{
		{"AMQP\x03\x01\x00\x00", 2, &amqp10.SASLInit{Mechanism: []byte("PLAIN"), InitialResponse: []byte("\x00guest\x00guest")}},
		{"AMQP\x00\x01\x00\x00", 1, &amqp10.Open{ContainerID: []byte("recorder"), Hostname: []byte("vhost:/"), MaxFrameSize: amqp10.Some(uint32(131072))}},
	} {
		_ = c.SetReadDeadline(time.Now().Add(patience))
		if _, err := c.Write(append([]byte(step.header), amqp10.AppendFrame(nil, 0, step.send)...)); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(c, make([]byte, 8)); err != nil {
			return nil, err
		}
		for range step.answers {
			if _, _, _, err := c.next(); err != nil {
				return nil, err
			}
		}
	}
	err = c.call(&amqp10.Begin{IncomingWindow: 1000, OutgoingWindow: 1000}, amqp10.DescriptorBegin)
	return c, err
}

// call sends a performative and waits for another.
func (c *client10) call(p amqp10.Composite, answer amqp10.Descriptor) error {
	if _, err := c.Write(amqp10.AppendFrame(nil, 0, p)); err != nil {
		return err
	}
	_, _, err := c.await(answer)
	return err
}

// await waits for a performative.
func (c *client10) await(want amqp10.Descriptor) (v amqp10.Value, payload []byte, err error) {
	for {
		d, v, payload, err := c.next()
		if err != nil || d == want {
			return v, payload, err
		}
	}
}

// next returns the next performative. One that ends something is an error.
func (c *client10) next() (d amqp10.Descriptor, v amqp10.Value, payload []byte, err error) {
	chunk := make([]byte, 1<<16)
	for {
		f, n, err := amqp10.NextFrame(c.buf, 1<<20)
		if err != nil {
			return 0, v, nil, err
		}
		if n > 0 {
			c.buf = c.buf[n:]
			if d, v, payload, err = amqp10.ReadPerformative(f); err != nil {
				return 0, v, nil, err
			}
			return d, v, payload, ended(d, v)
		}
		_ = c.SetReadDeadline(time.Now().Add(patience))
		if n, err = c.Read(chunk); err != nil {
			return 0, v, nil, err
		}
		c.buf = append(c.buf, chunk[:n]...)
	}
}

func ended(d amqp10.Descriptor, v amqp10.Value) error {
	var e *amqp10.Error
	switch d {
	case amqp10.DescriptorDetach:
		var p amqp10.Detach
		if err := p.Decode(v); err != nil {
			return err
		}
		e = p.Error
	case amqp10.DescriptorEnd:
		var p amqp10.End
		if err := p.Decode(v); err != nil {
			return err
		}
		e = p.Error
	case amqp10.DescriptorClose:
		var p amqp10.Close
		if err := p.Decode(v); err != nil {
			return err
		}
		e = p.Error
	default:
		return nil
	}
	if e == nil {
		return refusedError(d.String())
	}
	return refusedError(fmt.Sprintf("%s: %s: %s", d, e.Condition, e.Description))
}

func (c *client10) send(address string, message []byte) error {
	source, target := amqp10.Source{}, amqp10.Target{Address: []byte(address)}
	err := c.call(&amqp10.Attach{
		Name: []byte("out"), Role: amqp10.RoleSender, Source: amqp10.MustValue(source.Append(nil)), Target: amqp10.MustValue(target.Append(nil)),
		InitialDeliveryCount: amqp10.Some(uint32(0)),
	}, amqp10.DescriptorFlow)
	if err != nil {
		return err
	}
	t := amqp10.Transfer{DeliveryID: amqp10.Some(uint32(0)), DeliveryTag: []byte("t"), MessageFormat: amqp10.Some(uint32(0))}
	out, sent := amqp10.AppendTransfer(nil, 0, &t, 131072, 0, message)
	if sent != len(message) {
		return errors.New("too large a message for one frame")
	}
	if _, err := c.Write(out); err != nil {
		return err
	}
	v, _, err := c.await(amqp10.DescriptorDisposition)
	if err != nil {
		return err
	}
	var d amqp10.Disposition
	if err := d.Decode(v); err != nil {
		return err
	}
	if d.State.Descriptor() == amqp10.DescriptorAccepted {
		return nil
	}
	_, _, err = c.await(amqp10.DescriptorDetach) // it says why
	return err
}

func (c *client10) receive(address string) (octets, error) {
	source, target := amqp10.Source{Address: []byte(address)}, amqp10.Target{}
	err := c.call(&amqp10.Attach{
		Name: []byte("in"), Role: amqp10.RoleReceiver, Source: amqp10.MustValue(source.Append(nil)), Target: amqp10.MustValue(target.Append(nil)),
	}, amqp10.DescriptorAttach)
	if err != nil {
		return nil, err
	}
	flow := &amqp10.Flow{
		NextIncomingID: amqp10.Some(uint32(0)), IncomingWindow: 1000, OutgoingWindow: 1000, Handle: amqp10.Some(uint32(0)),
		DeliveryCount: amqp10.Some(uint32(0)), LinkCredit: amqp10.Some(uint32(1)),
	}
	if _, err := c.Write(amqp10.AppendFrame(nil, 0, flow)); err != nil {
		return nil, err
	}
	_, payload, err := c.await(amqp10.DescriptorTransfer)
	return bytes.Clone(payload), err
}
