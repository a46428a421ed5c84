package apidiff

import (
	"errors"
	"fmt"
	"net"
	"time"

	"bartleby.mq/internal/wire/amqp10"
	"bartleby.mq/test/client10"
)

// recorded10 is a client of AMQP 1.0 that speaks in frames, so that names, handles and counts are those that the test
// says and a recording has their values.
type recorded10 struct {
	client10.Wire
}

// frameTimeout is how long a client waits for a frame.
const frameTimeout = 20 * time.Second

// open10 opens a connection.
func (t target) open10(user string, open *amqp10.Open) (c *recorded10, err error) {
	nc, err := net.DialTimeout("tcp", t.amqp, frameTimeout)
	if err != nil {
		return nil, err
	}
	c = &recorded10{client10.Wire{Conn: nc, Patience: frameTimeout}}
	defer func() {
		if err != nil {
			_ = nc.Close()
		}
	}()
	if err = c.Exchange(amqp10.ProtocolHeaderSASL); err != nil {
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
	if err = c.Exchange(amqp10.ProtocolHeader); err != nil {
		return nil, err
	}
	c.send(0, open)
	_, err = await10[*amqp10.Open](c)
	return c, err
}

// write sends octets; what is wrong with the socket shows when something is waited for.
func (c *recorded10) write(b []byte) {
	_ = c.SetWriteDeadline(time.Now().Add(frameTimeout))
	_, _ = c.Write(b)
}

func (c *recorded10) send(channel uint16, frames ...amqp10.Composite) {
	c.write(client10.Frames(nil, channel, frames...))
}

// transfer sends a message with one section of data.
func (c *recorded10) transfer(channel uint16, t amqp10.Transfer, payload []byte) {
	b, _ := amqp10.AppendTransfer(nil, channel, &t, 4096, 0, payload)
	c.write(b)
}

// await10 reads frames up to one of a type, and fails at one that ends something else.
func await10[T amqp10.Composite](c *recorded10) (want T, err error) {
	for {
		f, err := c.Next()
		if err != nil {
			return want, fmt.Errorf("waiting for %T: %w", want, err)
		}
		if got, ok := f.Is.(T); ok {
			return got, nil
		}
		if _, ends := client10.Ending(f.Is); ends {
			return want, fmt.Errorf("waiting for %T: %s", want, shown10(f.Is))
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
func (c *recorded10) close() error {
	c.send(0, &amqp10.Close{})
	for {
		f, err := c.Next()
		if _, ok := f.Is.(*amqp10.Close); ok || err != nil {
			return errors.Join(err, c.Conn.Close())
		}
	}
}
