package session10_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"testing"
	"time"

	"go.uber.org/goleak"

	"bartleby.mq/internal/edge/session10"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp10"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A client that does not log in first is told how.
func TestAClientWithoutSASL(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	c := n.dial(t)
	c.write([]byte(amqp10.ProtocolHeader))
	c.header(amqp10.ProtocolHeaderSASL)
	c.ended()
}

// A login that is refused is told so, late; one that breaks the dialog hears nothing.
func TestRefusedLogins(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	for name, c := range map[string]struct {
		init *amqp10.SASLInit
		told bool
	}{
		"password":  {&amqp10.SASLInit{Mechanism: []byte("PLAIN"), InitialResponse: amqp10.AppendPlain(nil, "", "guest", "wrong")}, true},
		"mechanism": {&amqp10.SASLInit{Mechanism: []byte("SCRAM-SHA-256")}, false},
		"external":  {&amqp10.SASLInit{Mechanism: []byte("EXTERNAL")}, false},
		"anonymous": {&amqp10.SASLInit{Mechanism: []byte("ANONYMOUS")}, false}, // without credentials to log in with
		"malformed": {&amqp10.SASLInit{Mechanism: []byte("PLAIN"), InitialResponse: []byte("guest")}, false},
	} {
		init, told := c.init, c.told
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := n.dial(t)
			c.write([]byte(amqp10.ProtocolHeaderSASL))
			c.header(amqp10.ProtocolHeaderSASL)
			await[*amqp10.SASLMechanisms](c)
			began := time.Now()
			c.send(0, init)
			if told {
				if code := await[*amqp10.SASLOutcome](c).Code; code != amqp10.SASLCodeAuth {
					t.Errorf("%v", code)
				}
			} else if f, err := c.read(); err == nil {
				t.Errorf("got %+v", f.is)
			}
			if took := time.Since(began); took < 2*time.Second {
				t.Errorf("refused after %v", took)
			}
			c.ended()
		})
	}
}

// A virtual host is chosen by the hostname; one that is not there is refused without a word.
func TestVirtualHosts(t *testing.T) {
	for _, strict := range []bool{false, true} {
		n := serve(t, broker.Options{}, func(o *session10.Options) { o.Strict = strict })
		c := n.dial(t)
		c.login()
		c.send(0, &amqp10.Open{ContainerID: []byte("test"), Hostname: []byte("vhost:nowhere")})
		if f, err := c.read(); err == nil {
			t.Errorf("strict %v: %+v", strict, f.is)
		}
		c = n.dial(t)
		c.login()
		c.send(0, &amqp10.Open{ContainerID: []byte("test"), Hostname: []byte("vhost:/")})
		await[*amqp10.Open](c)
	}
}

// What open may not say ends the connection without a word.
func TestWrongOpens(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	for text, open := range map[string]*amqp10.Open{
		"max_frame_size (511) < minimum maximum frame size (512)":  {ContainerID: []byte("x"), MaxFrameSize: amqp10.Some[uint32](511)},
		"idle-time-out (999 ms) < minimum idle-time-out (1000 ms)": {ContainerID: []byte("x"), IdleTimeOut: amqp10.Some[uint32](999)},
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			c := n.dial(t)
			c.login()
			c.send(0, open)
			if f, err := c.read(); err == nil {
				t.Errorf("got %+v, want no word", f.is)
			}
		})
	}
}

func (c *client) raw(size uint32, doff, kind byte, channel uint16, body []byte) {
	b := binary.BigEndian.AppendUint32(nil, size)
	b = append(b, doff, kind, byte(channel>>8), byte(channel))
	c.write(append(b, body...))
}

// Frames that make no sense close the connection with a reason, after the open.
func TestFramesWithoutSense(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	huge := append([]byte{0, 0x53, 0x10, 0xd0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 0)
	manyNulls := append([]byte{0, 0x53, 0x12, 0xc0, 20, 1, 0xf0}, 0, 0, 0, 5, 0xff, 0xff, 0xff, 0xff, 0x40, 0, 0, 0, 0, 0, 0)
	deep := bytes.Repeat([]byte{0xc0, 200, 1}, 300)
	for name, s := range map[string]struct {
		do        func(c *client)
		condition string
	}{
		"too short":      {func(c *client) { c.raw(7, 2, 0, 0, nil) }, amqp10.ConditionFramingError},
		"too long":       {func(c *client) { c.raw(1<<31, 2, 0, 0, nil) }, amqp10.ConditionFramingError},
		"no header":      {func(c *client) { c.raw(8, 1, 0, 0, nil) }, amqp10.ConditionFramingError},
		"header only":    {func(c *client) { c.raw(8, 200, 0, 0, nil) }, amqp10.ConditionFramingError},
		"another type":   {func(c *client) { c.raw(8, 2, 7, 0, nil) }, amqp10.ConditionFramingError},
		"SASL again":     {func(c *client) { c.send(0, &amqp10.SASLInit{Mechanism: []byte("PLAIN")}) }, amqp10.ConditionFramingError},
		"high channel":   {func(c *client) { c.send(64, &amqp10.Begin{}) }, amqp10.ConditionFramingError},
		"garbage":        {func(c *client) { c.raw(12, 2, 0, 0, []byte("abcd")) }, amqp10.ConditionDecodeError},
		"huge count":     {func(c *client) { c.raw(uint32(8+len(huge)), 2, 0, 0, huge) }, amqp10.ConditionDecodeError},
		"array of nulls": {func(c *client) { c.raw(uint32(8+len(manyNulls)), 2, 0, 0, manyNulls) }, amqp10.ConditionDecodeError},
		"depth":          {func(c *client) { c.raw(uint32(8+len(deep)), 2, 0, 0, deep) }, amqp10.ConditionDecodeError},
		"open again":     {func(c *client) { c.send(0, &amqp10.Open{ContainerID: []byte("x")}) }, amqp10.ConditionInternalError},
	} {
		t.Run(name, func(t *testing.T) {
			c := n.session(t)
			s.do(c)
			c.want(awaitClose(c).Error, s.condition, "")
			c.send(0, &amqp10.Close{})
			c.ended()
		})
	}
}

// Before the login a client gets little: nothing large, and not for long.
func TestStrangers(t *testing.T) {
	n := serve(t, broker.Options{}, func(o *session10.Options) { o.HandshakeTimeout = time.Second })
	for name, do := range map[string]func(c *client){
		"says nothing": func(c *client) {},
		"half a frame": func(c *client) { _, _ = c.nc.Write([]byte{0, 0, 1, 0, 2, 1}) },
		"large frame":  func(c *client) { _, _ = c.nc.Write([]byte{0, 1, 0, 0, 2, 1, 0, 0}) },
		"much":         func(c *client) { _, _ = c.nc.Write(bytes.Repeat([]byte{0, 0, 0, 8, 2, 1, 0, 0}, 9000)) },
		"AMQP":         func(c *client) { _, _ = c.nc.Write([]byte{0, 0, 0, 8, 2, 0, 0, 0}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := n.dial(t)
			c.write([]byte(amqp10.ProtocolHeaderSASL))
			c.header(amqp10.ProtocolHeaderSASL)
			do(c)
			_ = c.nc.SetReadDeadline(time.Now().Add(patience))
			if _, err := io.Copy(io.Discard, c.nc); err != nil && fmt.Sprint(err) == "i/o timeout" {
				t.Error(err)
			}
		})
	}
}

// A client that falls silent is closed, and one that only keeps the connection alive is not; it hears as much from us.
func TestIdleTimeout(t *testing.T) {
	n := serve(t, broker.Options{}, func(o *session10.Options) { o.IdleTimeout = 300 * time.Millisecond })
	c := n.dial(t)
	c.login()
	c.send(0, &amqp10.Open{ContainerID: []byte("x"), IdleTimeOut: amqp10.Some[uint32](1000)})
	if o := await[*amqp10.Open](c); o.IdleTimeOut.Value != 150 {
		t.Errorf("idle-time-out %d", o.IdleTimeOut.Value)
	}
	_ = c.nc.SetReadDeadline(time.Now().Add(patience))
	c.write(amqp10.AppendEmptyFrame(nil))
	var empty [8]byte
	for range 2 { // of ours
		go func() { _, _ = c.nc.Write(bytes.Repeat(amqp10.AppendEmptyFrame(nil), 3)) }()
		if _, err := io.ReadFull(c.nc, empty[:]); err != nil || string(empty[:]) != string(amqp10.AppendEmptyFrame(nil)) {
			t.Fatalf("% x %v", empty, err)
		}
	}
	c.want(awaitClose(c).Error, amqp10.ConditionResourceLimitExceeded, "no frame received from client within idle timeout threshold")
}

// An operator closes a connection with his reason.
func TestTerminate(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	c := n.session(t)
	for _, other := range n.b.Connections() {
		other.Terminate(320, "Closed via management plugin")
	}
	c.want(awaitClose(c).Error, amqp10.ConditionInternalError, "Connection forced: \"Closed via management plugin\"")
	c.send(0, &amqp10.Close{})
	c.ended()
}

// Frames for a session that has ended are nobody's, and its channel may be used again.
func TestFramesAfterTheEnd(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	n.declare(t, "q", nil)
	c := n.session(t)
	c.send(0, &amqp10.End{})
	await[*amqp10.End](c)
	c.transfer(0, one(0), text("x"))
	c.send(0, &amqp10.Attach{Name: []byte("x")}, &amqp10.Flow{}, &amqp10.End{})
	c.begin(0, 10)
	c.consumer(0, 0, "q", 1)
}

// Whatever a client says of credit, delivery-counts and ranges, it gets no more than the queue has, and nothing breaks.
func TestCreditWithoutSense(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	n.declare(t, "q", nil)
	n.publish(t, "q", "a", "b")
	c := n.session(t)
	c.consumer(0, 0, "q", 0)
	for _, count := range []uint32{0, 1, 1 << 31, 1<<32 - 1, 1<<31 - 1} {
		for _, credit := range []uint32{0, 1<<32 - 1, 1 << 31} {
			c.credit(0, 0, count, credit, false)
			c.send(0, &amqp10.Disposition{Role: amqp10.RoleReceiver, First: count, Last: amqp10.Some(credit)})
		}
	}
	c.credit(0, 0, 0, 1<<32-1, false)
	awaitTransfer(c)
	awaitTransfer(c)
}

// A message that is larger than the link takes ends the session, and goes back.
func TestALinkWithSmallMessages(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	n.declare(t, "q", nil)
	n.publish(t, "q", "a long body indeed, which is longer than forty bytes")
	c := n.session(t)
	c.send(0, &amqp10.Attach{
		Name: []byte("c"), Role: amqp10.RoleReceiver, Source: composite(&amqp10.Source{Address: []byte("/queues/q")}), Target: composite(&amqp10.Target{}), MaxMessageSize: amqp10.Some[uint64](40),
	})
	await[*amqp10.Attach](c)
	c.credit(0, 0, 0, 1, false)
	c.want(awaitEnd(c).Error, amqp10.ConditionMessageSizeExceeded, "maximum message size (40 bytes)")
	n.got(t, "q")
}

// Flows that nobody answers because of the window do not pile up.
func TestManyFlows(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	n.declare(t, "q", nil)
	n.publish(t, "q", "a")
	c := n.open(t)
	c.begin(0, 0)
	c.consumer(0, 0, "q", 0)
	flow := &amqp10.Flow{OutgoingWindow: 1000, Handle: amqp10.Some[uint32](0), DeliveryCount: amqp10.Some[uint32](0), LinkCredit: amqp10.Some[uint32](5), Echo: true}
	for range 1100 {
		c.send(0, flow)
	}
	c.want(awaitEnd(c).Error, amqp10.ConditionResourceLimitExceeded, "too many flows")
}
