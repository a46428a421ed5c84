package hostile

import (
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"bartleby.mq/internal/wire/amqp091"
)

// idleConnections is how many connections are opened, if the machine lets us.
const idleConnections = 10_000

// idleBytes is what an idle connection may cost the server: two goroutines and
// their stacks, a read buffer, and what the tables of the broker hold.
const idleBytes = 64 << 10

func TestIdleConnections(t *testing.T) {
	if testing.Short() {
		t.Skip("opens thousands of connections")
	}
	start(t)
	count := idleConnections
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	// Go has raised the soft limit to the hard one already, in the server too, which keeps some for its disk and for HTTP.
	if room := (int(min(limit.Cur, 1<<20)) - 1000) / 4 * 3; room < count {
		t.Logf("this machine allows %d open files: %d connections instead of %d", limit.Cur, room, count)
		count = room
	}
	attack(t, int64(count)*idleBytes+64*mib, func() func() {
		all := make([]*raw, count)
		var opening sync.WaitGroup
		const atATime = 50
		for w := range atATime {
			opening.Go(func() {
				for i := w; i < count; i += atATime {
					all[i] = loginChannel(t)
				}
			})
		}
		opening.Wait()
		return func() {
			for _, c := range all {
				if c != nil { // or its login has failed
					_ = c.Close()
				}
			}
		}
	})
}

// Clients that come and go in the middle of anything leave nothing behind.
func TestConnectionChurn(t *testing.T) {
	start(t)
	header := []byte(amqp091.ProtocolHeader)
	attack(t, 128*mib, func() func() {
		var churning sync.WaitGroup
		for range 20 {
			churning.Go(func() {
				for range 100 {
					switch rand.IntN(4) {
					case 0:
						_ = open(t).Close()
					case 1:
						c := open(t)
						c.send(header)
						_ = c.Close()
					case 2:
						c := loginChannel(t)
						c.method(1, amqp091.QueueDeclare{Exclusive: true})
						c.send(publish(1, "", "nowhere", 1000, noProps, false)) // and no body
						_ = c.Close()
					case 3:
						c := loginChannel(t)
						_ = c.Conn.(interface{ SetLinger(int) error }).SetLinger(0) // a reset
						_ = c.Close()
					}
				}
			})
		}
		churning.Wait()
		return func() {}
	})
}

// Channels opened and closed without end, and one more than allowed.
func TestChannelFlood(t *testing.T) {
	start(t)
	attack(t, 128*mib, func() func() {
		c := login(t)
		go c.drain()
		pair := append(amqp091.AppendMethod(nil, 1, amqp091.ChannelOpen{}), amqp091.AppendMethod(nil, 1, amqp091.ChannelClose{ReplyCode: 200})...)
		var b []byte
		for range 1000 {
			b = append(b, pair...)
		}
		c.flood(b, 2*time.Second)
		return func() { _ = c.Close() }
	})
	c := login(t)
	for i := range 2048 {
		c.method(uint16(i+1), amqp091.ChannelOpen{})
	}
	c.refusedWith(530, "channel_max (2047)")
}
