package hostile

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"bartleby.mq/internal/wire/amqp10"
	"bartleby.mq/test/bystander"
	"bartleby.mq/test/node"
)

// start10 starts a server with these lines of configuration.
func start10(t *testing.T, config ...string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "bartleby-hostile-")
	if err != nil {
		t.Fatal(err)
	}
	if server, err = node.Start(node.Options{Bin: *bartleby, Dir: dir, Config: strings.Join(config, "\n") + "\n"}); err != nil {
		t.Fatal(err)
	}
	stopAtEnd(t, dir)
}

// raw10 is a client of AMQP 1.0 that sends what it likes.
type raw10 struct {
	t *testing.T
	net.Conn
	in []byte
}

// open10 makes a TCP connection and says nothing.
func open10(t *testing.T) *raw10 {
	t.Helper()
	nc, err := net.Dial("tcp", server.AMQP)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	return &raw10{t: t, Conn: nc}
}

// sasl10 is logged in.
func sasl10(t *testing.T) *raw10 {
	t.Helper()
	c := open10(t)
	c.send([]byte(amqp10.ProtocolHeaderSASL))
	c.header(amqp10.ProtocolHeaderSASL)
	want10[*amqp10.SASLMechanisms](c)
	c.perform(0, plain("guest", "guest"))
	if code := want10[*amqp10.SASLOutcome](c).Code; code != amqp10.SASLCodeOK {
		t.Fatal("an ordinary client is not let in:", code)
	}
	c.send([]byte(amqp10.ProtocolHeader))
	c.header(amqp10.ProtocolHeader)
	return c
}

func plain(user, password string) *amqp10.SASLInit {
	return &amqp10.SASLInit{Mechanism: []byte("PLAIN"), InitialResponse: amqp10.AppendPlain(nil, "", user, password)}
}

// login10 has an open connection.
func login10(t *testing.T) *raw10 {
	t.Helper()
	c := sasl10(t)
	c.perform(0, &amqp10.Open{ContainerID: []byte("hostile")})
	want10[*amqp10.Open](c)
	return c
}

// session10 has a session on channel 0, whose window is wide open.
func session10(t *testing.T) *raw10 {
	t.Helper()
	c := login10(t)
	c.begin(0, 1<<30)
	return c
}

func (c *raw10) begin(channel uint16, window uint32) {
	c.t.Helper()
	c.perform(channel, &amqp10.Begin{IncomingWindow: window, OutgoingWindow: 1 << 30})
	want10[*amqp10.Begin](c)
}

func (c *raw10) send(b []byte) {
	c.t.Helper()
	_ = c.SetWriteDeadline(time.Now().Add(30 * time.Second))
	if _, err := c.Write(b); err != nil {
		c.t.Fatalf("send: %v", err)
	}
}

// frames appends frames of one channel.
func frames(b []byte, channel uint16, list ...amqp10.Composite) []byte {
	for _, f := range list {
		b = amqp10.AppendFrame(b, channel, f)
	}
	return b
}

func (c *raw10) perform(channel uint16, list ...amqp10.Composite) {
	c.t.Helper()
	c.send(frames(nil, channel, list...))
}

// transfer appends a frame with a transfer of link 0 and its payload.
func transfer(b []byte, t amqp10.Transfer, payload []byte) []byte {
	b, _ = amqp10.AppendTransfer(b, 0, &t, 1<<30, 0, payload)
	return b
}

// first is the first transfer of a delivery that the client has not settled.
func first(id uint32) amqp10.Transfer {
	return amqp10.Transfer{DeliveryID: amqp10.Some(id), DeliveryTag: []byte{1}, MessageFormat: amqp10.Some[uint32](0)}
}

func (c *raw10) header(want string) {
	c.t.Helper()
	for len(c.in) < len(want) {
		if err := c.more(); err != nil {
			c.t.Fatalf("no header: %v", err)
		}
	}
	if got := string(c.in[:len(want)]); got != want {
		c.t.Fatalf("the server sent the header %q, want %q", got, want)
	}
	c.in = c.in[len(want):]
}

func (c *raw10) more() error {
	_ = c.SetReadDeadline(time.Now().Add(40 * time.Second))
	b := make([]byte, 64<<10)
	n, err := c.Read(b)
	c.in = append(c.in, b[:n]...)
	if n > 0 {
		return nil
	}
	return err
}

// frame10 is a frame from the server.
type frame10 struct {
	channel uint16
	is      amqp10.Composite
	payload []byte
}

// next reads one frame with a body; nil when the server has closed.
func (c *raw10) next() *frame10 {
	c.t.Helper()
	for {
		f, n, err := amqp10.NextFrame(c.in, 1<<30)
		if err != nil {
			c.t.Fatalf("the server sent a bad frame: %v", err)
		}
		if n == 0 {
			if err := c.more(); err != nil {
				var late net.Error
				if errors.As(err, &late) && late.Timeout() {
					c.t.Fatal("the server says nothing")
				}
				return nil
			}
			continue
		}
		f.Body, c.in = bytes.Clone(f.Body), c.in[n:]
		if len(f.Body) == 0 {
			continue
		}
		d, v, payload, err := amqp10.ReadPerformative(f)
		if err != nil {
			c.t.Fatalf("the server sent a bad frame: %v", err)
		}
		to := amqp10.NewComposite(d)
		if err := to.Decode(v); err != nil {
			c.t.Fatalf("the server sent a bad frame: %v", err)
		}
		return &frame10{f.Channel, to, payload}
	}
}

// want10 reads frames up to one of a type. It fails at one that ends something, unless that is asked for.
func want10[T amqp10.Composite](c *raw10) T {
	c.t.Helper()
	for {
		f := c.next()
		if f == nil {
			c.t.Fatalf("the server has closed, want %T", *new(T))
		}
		if is, ok := f.is.(T); ok {
			return is
		}
		if e, ended := ending(f.is); ended {
			c.t.Fatalf("the server sent %T %s, want %T", f.is, told(e), *new(T))
		}
	}
}

// ending is the error of a frame that ends something.
func ending(f amqp10.Composite) (e *amqp10.Error, ended bool) {
	switch f := f.(type) {
	case *amqp10.Close:
		return f.Error, true
	case *amqp10.End:
		return f.Error, true
	case *amqp10.Detach:
		return f.Error, true
	}
	return nil, false
}

func told(e *amqp10.Error) string {
	if e == nil {
		return "without an error"
	}
	return fmt.Sprintf("%s: %.200s", e.Condition, e.Description)
}

// ended reads up to the frame that ends something, and checks what it ends and why. A condition of "" is any.
func ended[T amqp10.Composite](c *raw10, condition, text string) {
	c.t.Helper()
	for {
		f := c.next()
		if f == nil {
			c.t.Errorf("the server closed without a word, want %T %s %s", *new(T), condition, text)
			return
		}
		e, is := ending(f.is)
		if !is {
			continue
		}
		if _, ok := f.is.(T); !ok || e == nil || condition != "" && string(e.Condition) != condition || !strings.Contains(string(e.Description), text) {
			c.t.Errorf("the server sent %T %s, want %T %s: %s", f.is, told(e), *new(T), condition, text)
		}
		return
	}
}

// flood sends b again and again until the time is over, or the server takes no more for a while or has closed.
func (c *raw10) flood(b []byte, most time.Duration) (sent int) {
	return (&raw{Conn: c.Conn}).flood(b, most)
}

// drain reads everything there is until the server closes.
func (c *raw10) drain() { (&raw{Conn: c.Conn}).drain() }

// many repeats frames up to about 100 KB.
func many(b []byte) []byte { return bytes.Repeat(b, max(1, 100_000/len(b))) }

func composite(v amqp10.Composite) amqp10.Value { return amqp10.MustValue(v.Append(nil)) }

// sending is an attach of a link on which the client sends, to an address or to none.
func sending(handle uint32, name, address string) *amqp10.Attach {
	t := &amqp10.Target{}
	if address != "" {
		t.Address = []byte(address)
	}
	return &amqp10.Attach{
		Name: []byte(name), Handle: handle, Role: amqp10.RoleSender, Source: composite(&amqp10.Source{}), Target: composite(t),
		InitialDeliveryCount: amqp10.Some[uint32](0),
	}
}

// receiving is an attach of a link on which the client receives.
func receiving(handle uint32, name, queue string) *amqp10.Attach {
	return &amqp10.Attach{
		Name: []byte(name), Handle: handle, Role: amqp10.RoleReceiver, Target: composite(&amqp10.Target{}),
		Source: composite(&amqp10.Source{Address: []byte("/queues/" + queue)}),
	}
}

// manager is the pair of links to the management node.
func manager(in, out uint32, name string) []amqp10.Composite {
	b, at := amqp10.BeginMap(nil)
	paired := amqp10.MustValue(amqp10.EndCompound(amqp10.AppendBool(amqp10.AppendSymbol(b, "paired"), true), at, 2))
	settled := amqp10.Some(amqp10.SenderSettleModeSettled)
	node, client := []byte("/management"), []byte("me")
	return []amqp10.Composite{
		&amqp10.Attach{
			Name: []byte(name), Handle: in, Role: amqp10.RoleSender, SndSettleMode: settled, Properties: paired, InitialDeliveryCount: amqp10.Some[uint32](0),
			Source: composite(&amqp10.Source{Address: client}), Target: composite(&amqp10.Target{Address: node}),
		},
		&amqp10.Attach{
			Name: []byte(name), Handle: out, Role: amqp10.RoleReceiver, SndSettleMode: settled, Properties: paired,
			Source: composite(&amqp10.Source{Address: node}), Target: composite(&amqp10.Target{Address: client}),
		},
	}
}

// request is a request to the management node.
func request(method, to string, body []byte) []byte {
	b := (&amqp10.Properties{MessageID: amqp10.MustValue(amqp10.AppendString(nil, "1")), To: []byte(to), Subject: []byte(method), ReplyTo: []byte("$me")}).Append(nil)
	if body == nil {
		body = amqp10.AppendNull(nil)
	}
	return append(amqp10.AppendDescriptor(b, amqp10.DescriptorAMQPValue), body...)
}

// credit is a flow of link 0, with a window that is wide open.
func credit(handle, count, credit uint32, drain, echo bool) *amqp10.Flow {
	return &amqp10.Flow{
		NextIncomingID: amqp10.Some[uint32](0), IncomingWindow: 1 << 30, OutgoingWindow: 1 << 30, Handle: amqp10.Some(handle),
		DeliveryCount: amqp10.Some(count), LinkCredit: amqp10.Some(credit), Drain: drain, Echo: echo,
	}
}

// bystanderBound is how long one in a thousand of a bystander's messages may take beside an attack.
const bystanderBound = 50 * time.Millisecond

// beside is attack with a bystander, who must not notice it.
func beside(t *testing.T, bound int64, f func() (end func())) {
	t.Helper()
	b, err := bystander.Watch(server.AMQP)
	if err != nil {
		t.Fatal(err)
	}
	attack(t, bound, func() func() {
		end := f()
		seen, err := b.Stop()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("bystander %s", seen)
		if *alone && seen.At(0.999) > bystanderBound {
			t.Errorf("a bystander waits %v at p99.9, want %v at most", seen.At(0.999), bystanderBound)
		}
		return end
	})
}
