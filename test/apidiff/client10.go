package apidiff

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"time"

	"bartleby.mq/internal/wire/amqp10"
)

// client10 is a client of AMQP 1.0 that speaks in frames, so that names, handles and counts are those that the test
// says and a recording has their values.
type client10 struct {
	nc  net.Conn
	buf []byte
}

// frameTimeout is how long a client waits for a frame.
const frameTimeout = 20 * time.Second

// open10 opens a connection.
func (t target) open10(user string, open *amqp10.Open) (c *client10, err error) {
	nc, err := net.DialTimeout("tcp", t.amqp, frameTimeout)
	if err != nil {
		return nil, err
	}
	c = &client10{nc: nc}
	defer func() {
		if err != nil {
			_ = nc.Close()
		}
	}()
	if err = c.header(amqp10.ProtocolHeaderSASL); err != nil {
		return nil, err
	}
	c.send(0, &amqp10.SASLInit{Mechanism: []byte("PLAIN"), InitialResponse: amqp10.AppendPlain(nil, "", user, user)})
	outcome, err := await10[*amqp10.SASLOutcome](c)
	if err == nil && outcome.Code != amqp10.SASLCodeOK {
		err = fmt.Errorf("%s is not let in", user)
	}
	if err != nil {
		return nil, err
	}
	if err = c.header(amqp10.ProtocolHeader); err != nil {
		return nil, err
	}
	c.send(0, open)
	_, err = await10[*amqp10.Open](c)
	return c, err
}

// header exchanges a protocol header.
func (c *client10) header(h string) error {
	c.write([]byte(h))
	for len(c.buf) < len(h) {
		if err := c.more(); err != nil {
			return err
		}
	}
	if got := string(c.buf[:len(h)]); got != h {
		return fmt.Errorf("the header %q, want %q", got, h)
	}
	c.buf = c.buf[len(h):]
	return nil
}

// write sends octets; what is wrong with the socket shows when something is waited for.
func (c *client10) write(b []byte) {
	_ = c.nc.SetWriteDeadline(time.Now().Add(frameTimeout))
	_, _ = c.nc.Write(b)
}

func (c *client10) send(channel uint16, frames ...amqp10.Composite) {
	var b []byte
	for _, f := range frames {
		b = amqp10.AppendFrame(b, channel, f)
	}
	c.write(b)
}

// transfer sends a message with one section of data.
func (c *client10) transfer(channel uint16, t amqp10.Transfer, payload []byte) {
	b, _ := amqp10.AppendTransfer(nil, channel, &t, 4096, 0, payload)
	c.write(b)
}

func (c *client10) more() error {
	var b [4096]byte
	_ = c.nc.SetReadDeadline(time.Now().Add(frameTimeout))
	n, err := c.nc.Read(b[:])
	c.buf = append(c.buf, b[:n]...)
	if n > 0 {
		return nil
	}
	return err
}

// frame returns the next frame that has a body; io.EOF when the node has closed the socket.
func (c *client10) frame() (amqp10.Composite, error) {
	for {
		raw, n, err := amqp10.NextFrame(c.buf, 1<<20)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			if err := c.more(); err != nil {
				return nil, err
			}
			continue
		}
		raw.Body, c.buf = bytes.Clone(raw.Body), c.buf[n:]
		if len(raw.Body) == 0 {
			continue
		}
		d, v, _, err := amqp10.ReadPerformative(raw)
		if err != nil {
			return nil, err
		}
		f := amqp10.NewComposite(d)
		return f, f.Decode(v)
	}
}

// await10 reads frames up to one of a type, and fails at one that ends something else.
func await10[T amqp10.Composite](c *client10) (want T, err error) {
	for {
		f, err := c.frame()
		if err != nil {
			return want, fmt.Errorf("waiting for %T: %w", want, err)
		}
		if got, ok := f.(T); ok {
			return got, nil
		}
		switch f.(type) {
		case *amqp10.Close, *amqp10.End, *amqp10.Detach:
			return want, fmt.Errorf("waiting for %T: %s", want, shown10(f))
		}
	}
}

// shown10 is a frame that ends something, with its error.
func shown10(f amqp10.Composite) string {
	said := func(what string, e *amqp10.Error) string {
		if e == nil {
			return what
		}
		return fmt.Sprintf("%s %s: %s", what, e.Condition, e.Description)
	}
	switch f := f.(type) {
	case *amqp10.Close:
		return said("close", f.Error)
	case *amqp10.End:
		return said("end", f.Error)
	case *amqp10.Detach:
		return said(fmt.Sprintf("detach %d", f.Handle), f.Error)
	}
	return fmt.Sprintf("%T", f)[len("*amqp10."):]
}

// value10 is a value of AMQP 1.0 from its bytes.
func value10(b []byte) amqp10.Value { return amqp10.MustValue(b) }

// close closes the connection, whatever else ends meanwhile.
func (c *client10) close() error {
	c.send(0, &amqp10.Close{})
	for {
		f, err := c.frame()
		if _, ok := f.(*amqp10.Close); ok || err != nil {
			return errors.Join(err, c.nc.Close())
		}
	}
}
