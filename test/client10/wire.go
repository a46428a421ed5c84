package client10

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"bartleby.mq/internal/wire/amqp10"
)

// Wire is a socket from which protocol headers and frames are read: for tests that write whatever they like.
type Wire struct {
	net.Conn
	// Patience is how long the server may say nothing; 0: the test sets deadlines itself.
	Patience time.Duration
	// Largest is the largest frame that is read, in octets; 0: MaxFrame.
	Largest uint32

	in []byte
}

// MaxFrame is the largest frame that is read, unless a Wire says otherwise.
const MaxFrame = 1 << 20

// A Frame is a frame from the server. Its slices are its own.
type Frame struct {
	Channel uint16
	Is      amqp10.Composite
	Payload []byte // of a transfer
}

// Header waits for a protocol header.
func (w *Wire) Header() (string, error) {
	for len(w.in) < amqp10.ProtocolHeaderSize {
		if err := w.more(); err != nil {
			return "", err
		}
	}
	h := string(w.in[:amqp10.ProtocolHeaderSize])
	w.in = bytes.Clone(w.in[amqp10.ProtocolHeaderSize:])
	return h, nil
}

// Exchange sends a protocol header and waits for the same one.
func (w *Wire) Exchange(header string) error {
	if _, err := w.Write([]byte(header)); err != nil {
		return err
	}
	got, err := w.Header()
	if err == nil && got != header {
		err = fmt.Errorf("protocol header %q, want %q", got, header)
	}
	return err
}

func (w *Wire) more() error {
	if w.Patience > 0 {
		_ = w.SetReadDeadline(time.Now().Add(w.Patience))
	}
	b := make([]byte, 32<<10)
	n, err := w.Read(b)
	w.in = append(w.in, b[:n]...)
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// ErrBadFrame is wrapped by errors of Next for what is no frame, or has no performative.
var ErrBadFrame = errors.New("the server sent a bad frame")

// Next waits for the next frame that has a body.
func (w *Wire) Next() (f Frame, err error) {
	largest := w.Largest
	if largest == 0 {
		largest = MaxFrame
	}
	for {
		raw, n, err := amqp10.NextFrame(w.in, largest)
		if err != nil {
			return f, fmt.Errorf("%w: %w", ErrBadFrame, err)
		}
		if n == 0 {
			if err := w.more(); err != nil {
				return f, err
			}
			continue
		}
		raw.Body, w.in = bytes.Clone(raw.Body), w.in[n:]
		if len(raw.Body) == 0 {
			continue
		}
		d, v, payload, err := amqp10.ReadPerformative(raw)
		if err == nil {
			f = Frame{raw.Channel, amqp10.NewComposite(d), payload}
			err = f.Is.Decode(v)
		}
		if err != nil {
			return f, fmt.Errorf("%w: %w", ErrBadFrame, err)
		}
		return f, nil
	}
}

// Frames appends frames of one channel.
func Frames(b []byte, channel uint16, list ...amqp10.Composite) []byte {
	for _, f := range list {
		b = amqp10.AppendFrame(b, channel, f)
	}
	return b
}

// Ending is the error of a frame that ends something; nil if it has none, or ends nothing.
func Ending(c amqp10.Composite) (e *amqp10.Error, ends bool) {
	switch c := c.(type) {
	case *amqp10.Detach:
		return c.Error, true
	case *amqp10.End:
		return c.Error, true
	case *amqp10.Close:
		return c.Error, true
	}
	return nil, false
}

// Said is the error that a frame ends something with, "" if it has none.
func Said(c amqp10.Composite) string {
	e, _ := Ending(c)
	if e == nil {
		return ""
	}
	return string(e.Condition) + ": " + string(e.Description)
}

// ManagementNode is the address of the node that takes requests.
const ManagementNode = "/management"

// Manager is the pair of links to the management node: requests go in, answers come out.
func Manager(in, out uint32, name string) (requests, answers *amqp10.Attach) {
	b, start := amqp10.BeginMap(nil)
	paired := amqp10.MustValue(amqp10.EndCompound(amqp10.AppendBool(amqp10.AppendSymbol(b, "paired"), true), start, 2))
	settled := amqp10.Some(amqp10.SenderSettleModeSettled)
	node, me := []byte(ManagementNode), []byte("me")
	requests = &amqp10.Attach{
		Name: []byte(name), Handle: in, Role: amqp10.RoleSender, SndSettleMode: settled, Properties: paired, InitialDeliveryCount: amqp10.Some[uint32](0),
		Source: Described(&amqp10.Source{Address: me}), Target: Described(&amqp10.Target{Address: node}),
	}
	answers = &amqp10.Attach{
		Name: []byte(name), Handle: out, Role: amqp10.RoleReceiver, SndSettleMode: settled, Properties: paired,
		Source: Described(&amqp10.Source{Address: node}), Target: Described(&amqp10.Target{Address: me}),
	}
	return requests, answers
}

// Request is a request to the management node, as a message. A body of nil is null.
func Request(id, method, to string, body []byte) []byte {
	p := amqp10.Properties{
		MessageID: amqp10.MustValue(amqp10.AppendString(nil, id)), To: []byte(to), Subject: []byte(method), ReplyTo: []byte("$me"),
	}
	if body == nil {
		body = amqp10.AppendNull(nil)
	}
	return append(amqp10.AppendDescriptor(p.Append(nil), amqp10.DescriptorAMQPValue), body...)
}
