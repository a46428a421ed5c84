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
	"bartleby.mq/test/client10"
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
	client10.Wire
}

// open10 makes a TCP connection and says nothing.
func open10(t *testing.T) *raw10 {
	t.Helper()
	nc, err := net.Dial("tcp", server.AMQP)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	return &raw10{t, client10.Wire{Conn: nc, Patience: 40 * time.Second, Largest: 1 << 30}}
}

// sasl10 is logged in.
func sasl10(t *testing.T) *raw10 {
	t.Helper()
	c := open10(t)
	c.sasl()
	return c
}

func (c *raw10) sasl() {
	c.t.Helper()
	c.send([]byte(amqp10.ProtocolHeaderSASL))
	c.header(amqp10.ProtocolHeaderSASL)
	want10[*amqp10.SASLMechanisms](c)
	c.perform(0, plain("guest", "guest"))
	if code := want10[*amqp10.SASLOutcome](c).Code; code != amqp10.SASLCodeOK {
		c.t.Fatal("an ordinary client is not let in:", code)
	}
	c.send([]byte(amqp10.ProtocolHeader))
	c.header(amqp10.ProtocolHeader)
}

func plain(user, password string) *amqp10.SASLInit {
	return &amqp10.SASLInit{Mechanism: []byte("PLAIN"), InitialResponse: amqp10.AppendPlain(nil, "", user, password)}
}

// login10 has an open connection.
func login10(t *testing.T) *raw10 {
	t.Helper()
	c := open10(t)
	c.logIn()
	return c
}

func (c *raw10) logIn() {
	c.t.Helper()
	c.sasl()
	c.perform(0, &amqp10.Open{ContainerID: []byte("hostile")})
	want10[*amqp10.Open](c)
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

func (c *raw10) perform(channel uint16, list ...amqp10.Composite) {
	c.t.Helper()
	c.send(client10.Frames(nil, channel, list...))
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
	if got, err := c.Header(); err != nil || got != want {
		c.t.Fatalf("the server sent the header %q (%v), want %q", got, err, want)
	}
}

// next reads one frame with a body; nil when the server has closed.
func (c *raw10) next() *client10.Frame {
	c.t.Helper()
	f, err := c.Next()
	var late net.Error
	switch {
	case err == nil:
		return &f
	case errors.Is(err, client10.ErrBadFrame):
		c.t.Fatal(err)
	case errors.As(err, &late) && late.Timeout():
		c.t.Fatal("the server says nothing")
	}
	return nil
}

// want10 reads frames up to one of a type. It fails at one that ends something, unless that is asked for.
func want10[T amqp10.Composite](c *raw10) T {
	c.t.Helper()
	for {
		f := c.next()
		if f == nil {
			c.t.Fatalf("the server has closed, want %T", *new(T))
		}
		if is, ok := f.Is.(T); ok {
			return is
		}
		if e, ended := client10.Ending(f.Is); ended {
			c.t.Fatalf("the server sent %T %s, want %T", f.Is, told(e), *new(T))
		}
	}
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
		e, is := client10.Ending(f.Is)
		if !is {
			continue
		}
		if _, ok := f.Is.(T); !ok || e == nil || condition != "" && string(e.Condition) != condition || !strings.Contains(string(e.Description), text) {
			c.t.Errorf("the server sent %T %s, want %T %s: %s", f.Is, told(e), *new(T), condition, text)
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

// sending is an attach of a link on which the client sends, to an address or to none.
func sending(handle uint32, name, address string) *amqp10.Attach {
	t := &amqp10.Target{}
	if address != "" {
		t.Address = []byte(address)
	}
	return &amqp10.Attach{
		Name: []byte(name), Handle: handle, Role: amqp10.RoleSender, Source: client10.Described(&amqp10.Source{}), Target: client10.Described(t),
		InitialDeliveryCount: amqp10.Some[uint32](0),
	}
}

// receiving is an attach of a link on which the client receives.
func receiving(handle uint32, name, queue string) *amqp10.Attach {
	return &amqp10.Attach{
		Name: []byte(name), Handle: handle, Role: amqp10.RoleReceiver, Target: client10.Described(&amqp10.Target{}),
		Source: client10.Described(&amqp10.Source{Address: []byte("/queues/" + queue)}),
	}
}

// manager is the pair of links to the management node.
func manager(in, out uint32, name string) []amqp10.Composite {
	requests, answers := client10.Manager(in, out, name)
	return []amqp10.Composite{requests, answers}
}

// request is a request to the management node.
func request(method, to string, body []byte) []byte { return client10.Request("1", method, to, body) }

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
