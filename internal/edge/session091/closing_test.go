package session091

import (
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// Whoever wants a channel closed of a connection that is closing does not end it before its client has answered (BR-1.13).
// Who wants the connection closed does.
func TestBR_1_13_AChannelEndsNoConnectionThatCloses(t *testing.T) {
	for name, want := range map[string]int{"a channel": 1, "the connection": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := brokerOn(t, vfs.NewMem())
				near, far := net.Pipe()
				p := dialled(t, b, near, far, 1)
				synctest.Wait()
				c := b.Connections()[0].Client().(*conn)
				ch := c.channels[1]
				p.send(amqp091.AppendMethod(nil, 0, amqp091.ConnectionStartOk{})) // has no place
				synctest.Wait()
				if p.heard[amqp091.ConnectionCloseID] != 1 {
					t.Fatal("the connection is not closed")
				}
				if name == "a channel" {
					c.abort(ch, fail(amqp091.CodePreconditionFailed, "too late"))
				} else {
					c.Terminate(amqp091.CodeConnectionForced, "now")
				}
				synctest.Wait()
				_, _ = far.Write(amqp091.AppendMethod(nil, 0, amqp091.ConnectionClose{})) // ours, at the same time
				synctest.Wait()
				if n := p.heard[amqp091.ConnectionCloseOkID]; n != want {
					t.Errorf("the client's close was answered %d times, want %d", n, want)
				}
				_ = far.Close()
				synctest.Wait()
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// overtaken is a connection of which something else happens just before the reader sets the deadline for close-ok.
type overtaken struct {
	net.Conn
	before atomic.Pointer[func()]
}

func (o *overtaken) SetReadDeadline(at time.Time) error {
	if time.Until(at) > closeTimeout/2 {
		if f := o.before.Swap(nil); f != nil {
			(*f)()
		}
	}
	return o.Conn.SetReadDeadline(at)
}

// noneIsLeft checks that the connection has ended, and closes the client's side and the broker.
func noneIsLeft(t *testing.T, b *broker.Broker, far net.Conn) {
	t.Helper()
	if n := len(b.Connections()); n != 0 {
		t.Errorf("%d connections are left, want none", n)
	}
	_ = far.Close()
	synctest.Wait()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// BR-1.13: whoever wants a connection closed just when it begins to wait for close-ok is not overlooked.
func TestBR_1_13_AnEndThatComesWithAnotherIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := brokerOn(t, vfs.NewMem())
		near, far := net.Pipe()
		o := &overtaken{Conn: near}
		p := dialled(t, b, o, far, 1)
		synctest.Wait()
		c := b.Connections()[0].Client().(*conn)
		end := func() { c.Terminate(amqp091.CodeConnectionForced, "now") }
		o.before.Store(&end)
		p.send(amqp091.AppendMethod(nil, 0, amqp091.ConnectionStartOk{})) // has no place
		synctest.Wait()
		noneIsLeft(t, b, far)
	})
}

// BR-1.13: a client whose connection is being closed is told once that its own close was heard: it could ask without
// reading, and the answers would wait without end.
func TestBR_1_13_AClosingConnectionAnswersOneClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := brokerOn(t, vfs.NewMem())
		near, far := net.Pipe()
		p := dialled(t, b, near, far, 1)
		synctest.Wait()
		closes := amqp091.AppendMethod(nil, 0, amqp091.ConnectionStartOk{}) // has no place
		for range 10 {
			closes = amqp091.AppendMethod(closes, 0, amqp091.ConnectionClose{})
		}
		p.send(closes)
		synctest.Wait()
		if n := p.heard[amqp091.ConnectionCloseOkID]; n != 1 {
			t.Errorf("the client was answered %d times", n)
		}
		noneIsLeft(t, b, far)
	})
}

// Nor where it comes when somebody has just wanted a channel of it closed, for which nothing is to be done.
func TestBR_1_13_AnEndThatComesWithAnAbortIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := brokerOn(t, vfs.NewMem())
		near, far := net.Pipe()
		o := &overtaken{Conn: near}
		p := dialled(t, b, o, far, 1)
		synctest.Wait()
		c := b.Connections()[0].Client().(*conn)
		ch := c.channels[1]
		p.send(amqp091.AppendMethod(nil, 0, amqp091.ConnectionStartOk{})) // has no place
		synctest.Wait()
		end := func() { c.Terminate(amqp091.CodeConnectionForced, "now") }
		o.before.Store(&end)
		c.abort(ch, fail(amqp091.CodePreconditionFailed, "too late"))
		synctest.Wait()
		noneIsLeft(t, b, far)
	})
}

// Nor where it comes when the reader has met the deadline of an abort that it heeded before.
func TestBR_1_13_AnEndThatComesWithAStaleDeadlineIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := brokerOn(t, vfs.NewMem())
		near, far := net.Pipe()
		o := &overtaken{Conn: near}
		p := dialled(t, b, o, far, 1)
		synctest.Wait()
		c := b.Connections()[0].Client().(*conn)
		p.send(amqp091.AppendMethod(nil, 0, amqp091.ConnectionStartOk{})) // has no place
		synctest.Wait()
		end := func() { c.Terminate(amqp091.CodeConnectionForced, "now") }
		o.before.Store(&end)
		_ = near.SetReadDeadline(time.Now()) // as interrupt does after its flag, which the reader may have seen by then
		synctest.Wait()
		noneIsLeft(t, b, far)
	})
}

// BR-1.13: a client that has closed its connection is answered once, however often it says so in one write.
func TestBR_1_13_AClosedConnectionAnswersOneClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := brokerOn(t, vfs.NewMem())
		near, far := net.Pipe()
		p := dialled(t, b, near, far, 1)
		synctest.Wait()
		closes := amqp091.AppendMethod(nil, 0, amqp091.ConnectionClose{})
		p.send(append(closes, closes...))
		synctest.Wait()
		if n := p.heard[amqp091.ConnectionCloseOkID]; n != 1 {
			t.Errorf("the client was answered %d times", n)
		}
		noneIsLeft(t, b, far)
	})
}

// BR-4.8: what comes behind a whole frame that is of no use, in the same write, is read: the close-ok perhaps.
func TestBR_4_8_WhatIsBehindABadFrameIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := brokerOn(t, vfs.NewMem())
		near, far := net.Pipe()
		p := dialled(t, b, near, far, 1)
		synctest.Wait()
		p.send(amqp091.AppendMethod([]byte{9, 0, 1, 0, 0, 0, 0, amqp091.FrameEnd}, 0, amqp091.ConnectionCloseOk{}))
		synctest.Wait()
		if n := p.heard[amqp091.ConnectionCloseID]; n != 1 {
			t.Errorf("the client was told %d times that its connection is closed", n)
		}
		noneIsLeft(t, b, far)
	})
}
