package security

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"bartleby.mq/internal/wire/amqp10"
	"bartleby.mq/test/client10"
)

// framed is a client of AMQP 1.0 that speaks in frames.
type framed struct {
	t *testing.T
	client10.Wire
}

// dial10 opens a socket, with TLS if there is a configuration for it.
func (n *node) dial10(t *testing.T, secure *tls.Config) *framed {
	t.Helper()
	var nc net.Conn
	var err error
	if secure == nil {
		nc, err = net.Dial("tcp", n.s.Addresses().AMQP[0].String())
	} else {
		nc, err = tls.Dial("tcp", n.s.Addresses().AMQPS[0].String(), secure)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(30 * time.Second))
	return &framed{t, client10.Wire{Conn: nc}}
}

func (c *framed) write(b []byte) {
	_, _ = c.Write(b) // what comes back says whether it was taken
}

func (c *framed) send(frames ...amqp10.Composite) {
	c.write(client10.Frames(nil, 0, frames...))
}

func (c *framed) header() string {
	h, _ := c.Header()
	return h
}

// next is the next frame, nil when the node has closed the socket.
func (c *framed) next() amqp10.Composite {
	c.t.Helper()
	f, err := c.Next()
	if errors.Is(err, client10.ErrBadFrame) {
		c.t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	if _, ok := f.Is.(*amqp10.Transfer); ok {
		return &answer10{payload: f.Payload}
	}
	return f.Is
}

// answer10 stands for a transfer, of which only the payload matters.
type answer10 struct {
	amqp10.Transfer
	payload []byte
}

// login10 is how a login ended: the code of the outcome, or -1 if the node closed without a word.
func (c *framed) login10(mechanism string, response []byte) int {
	c.t.Helper()
	c.write([]byte(amqp10.ProtocolHeaderSASL))
	if c.header() != amqp10.ProtocolHeaderSASL {
		return -1
	}
	c.next() // the mechanisms
	c.send(&amqp10.SASLInit{Mechanism: []byte(mechanism), InitialResponse: response})
	if o, ok := c.next().(*amqp10.SASLOutcome); ok {
		return int(o.Code)
	}
	return -1
}

// open10 opens a virtual host and a session after a login, and returns why that failed, "" if it did not.
func (c *framed) open10(hostname string) string {
	c.t.Helper()
	c.write([]byte(amqp10.ProtocolHeader))
	if c.header() != amqp10.ProtocolHeader {
		return "closed"
	}
	c.send(&amqp10.Open{ContainerID: []byte("c"), Hostname: []byte(hostname)})
	if _, ok := c.next().(*amqp10.Open); !ok {
		return "closed"
	}
	c.send(&amqp10.Begin{IncomingWindow: 1000, OutgoingWindow: 1000})
	switch f := c.next().(type) {
	case *amqp10.Begin:
		return ""
	case *amqp10.Close:
		return said10(f.Error)
	default:
		return fmt.Sprintf("%T", f)
	}
}

func said10(e *amqp10.Error) string {
	if e == nil {
		return "no error"
	}
	return string(e.Condition) + ": " + string(e.Description)
}

// session10 is a user, whose password is its name, with a session in a virtual host.
func (n *node) session10(t *testing.T, user, vhost string) *framed {
	t.Helper()
	c := n.dial10(t, nil)
	if code := c.login10("PLAIN", amqp10.AppendPlain(nil, "", user, user)); code != 0 {
		t.Fatalf("%s is not let in: %d", user, code)
	}
	if why := c.open10("vhost:" + vhost); why != "" {
		t.Fatalf("%s in %s: %s", user, vhost, why)
	}
	return c
}

// result is what comes next that says whether something was done: "" if so, else the condition and the text. An answer of the
// management node is "" for 2xx, else its status.
func (c *framed) result() string {
	c.t.Helper()
	for {
		switch f := c.next().(type) {
		case nil:
			return "closed"
		case *amqp10.Close:
			return said10(f.Error)
		case *amqp10.End:
			return said10(f.Error)
		case *amqp10.Detach:
			return said10(f.Error)
		case *answer10:
			m, err := amqp10.ParseMessage(f.payload)
			if err != nil {
				c.t.Fatal(err)
			}
			if status, _ := m.Property(amqp10.PropertySubject).Text(); len(status) != 3 || status[0] != '2' {
				return string(status)
			}
			return ""
		case *amqp10.Disposition:
			if f.State.Descriptor() != amqp10.DescriptorRejected {
				return ""
			}
			var r amqp10.Rejected
			if err := r.Decode(f.State); err != nil {
				c.t.Fatal(err)
			}
			return said10(r.Error)
		}
	}
}

// receive attaches a link to a queue, and waits for the answer to a drain.
func (c *framed) receive(queue string) string {
	c.send(&amqp10.Attach{Name: []byte("l"), Role: amqp10.RoleReceiver, Source: client10.Described(&amqp10.Source{Address: []byte("/queues/" + queue)}), Target: client10.Described(&amqp10.Target{})},
		&amqp10.Flow{IncomingWindow: 1000, OutgoingWindow: 1000, Handle: amqp10.Some[uint32](0), DeliveryCount: amqp10.Some[uint32](0), LinkCredit: amqp10.Some[uint32](0), Echo: true})
	return c.attached()
}

// attached waits for an attach and the flow after it.
func (c *framed) attached() string {
	c.t.Helper()
	for {
		f := c.next()
		if f == nil {
			return "closed"
		}
		switch f := f.(type) {
		case *amqp10.Flow:
			return ""
		case *amqp10.End:
			return said10(f.Error)
		case *amqp10.Detach:
			return said10(f.Error)
		case *amqp10.Close:
			return said10(f.Error)
		}
	}
}

// send10 attaches a link to an address, and sends a message with properties.
func (c *framed) send10(address string, p *amqp10.Properties) string {
	t := &amqp10.Target{}
	if address != "" {
		t.Address = []byte(address)
	}
	c.send(&amqp10.Attach{Name: []byte("l"), Handle: 1, Role: amqp10.RoleSender, Source: client10.Described(&amqp10.Source{}), Target: client10.Described(t), InitialDeliveryCount: amqp10.Some[uint32](0)})
	if why := c.attached(); why != "" {
		return why
	}
	b, _ := amqp10.AppendTransfer(nil, 0, &amqp10.Transfer{Handle: 1, DeliveryID: amqp10.Some[uint32](0), DeliveryTag: []byte{1}}, 1<<20, 0, amqp10.AppendData(p.Append(nil), []byte("x")))
	c.write(b)
	return c.result()
}

// request makes a request to the management node.
func (c *framed) request(method, to string, body ...string) string {
	requests, answers := client10.Manager(2, 3, "m")
	c.send(requests, answers, &amqp10.Flow{IncomingWindow: 1000, OutgoingWindow: 1000, Handle: amqp10.Some[uint32](3), DeliveryCount: amqp10.Some[uint32](0), LinkCredit: amqp10.Some[uint32](10)})
	var fields []byte
	if body != nil {
		var at int
		fields, at = amqp10.BeginMap(nil)
		for _, s := range body {
			if s == "{}" {
				empty, at := amqp10.BeginMap(fields)
				fields = amqp10.EndCompound(empty, at, 0)
				continue
			}
			fields = amqp10.AppendString(fields, s)
		}
		fields = amqp10.EndCompound(fields, at, len(body))
	}
	b := client10.Request("1", method, to, fields)
	b, _ = amqp10.AppendTransfer(nil, 0, &amqp10.Transfer{Handle: 2, DeliveryID: amqp10.Some[uint32](0), DeliveryTag: []byte{1}, Settled: amqp10.Some(true)}, 1<<20, 0, b)
	c.write(b)
	return c.result()
}
