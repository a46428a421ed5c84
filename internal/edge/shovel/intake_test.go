package shovel

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"bartleby.mq/internal/wire/amqp091"
)

// endless is a peer that sends as fast as it is read.
type endless struct {
	net.Conn
	read chan int
}

func (c *endless) Read(p []byte) (int, error) {
	c.read <- len(p)
	return len(p), nil
}

func (*endless) SetReadDeadline(time.Time) error { return nil }
func (*endless) Close() error                    { return nil }

// A source elsewhere is read as far as there is room, on when messages are settled, or when nothing
// of what was read is a message, and to its end when it is closed.
func TestASourceElsewhereIsReadAsThereIsRoom(t *testing.T) {
	in := newIntake(100)
	peer := &endless{read: make(chan int)}
	c := in.around(peer)
	ended := make(chan error)
	go func() {
		buffer := make([]byte, 30)
		for {
			if _, err := c.Read(buffer); err != nil || in.isClosed() {
				ended <- err
				return
			}
		}
	}()
	reads := func(n int) {
		t.Helper()
		for range n {
			<-peer.read
		}
		in.mu.Lock()
		defer in.mu.Unlock()
		// The last of them may not be counted yet.
		if in.held > 120 {
			t.Errorf("%d bytes are held, 100 may be", in.held)
		}
	}
	reads(4)
	in.release(60)
	reads(2)
	in.starve()
	reads(3)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for {
		select {
		case <-peer.read:
			continue
		case err := <-ended:
			if err != nil && !errors.Is(err, io.EOF) {
				t.Error(err)
			}
		}
		return
	}
}

func (k *intake) isClosed() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.closed
}

// What is taken off again is what came, and little more: else a source would no longer be read.
func TestWhatAMessageTookIsReleased(t *testing.T) {
	for _, m := range []carried{
		{}, {exchange: "e", key: "k", body: make([]byte, 5)}, {body: make([]byte, 1<<20)},
		{body: make([]byte, 300), properties: amqp091.PropertyList{Headers: amqp091.Table{{Key: "x", Value: string(make([]byte, 50_000))}}}},
	} {
		wire := amqp091.AppendMethod(nil, 1, amqp091.BasicDeliver{ConsumerTag: "ctag-of-the-client-library", Exchange: m.exchange, RoutingKey: m.key, DeliveryTag: 1 << 60})
		n := len(wire) + 8 + 14 + len(amqp091.AppendPropsFrom(nil, m.properties)) + len(m.body) + (len(m.body)/131064+1)*8
		if got := wireSize(&m); got < n || got > n+n/100+200 {
			t.Errorf("a message of %d bytes that took %d releases %d", len(m.body), n, got)
		}
	}
}

// Once the size of messages is known no more are asked for than there is room for.
func TestThePrefetchFollowsTheSizeOfMessages(t *testing.T) {
	for _, c := range []struct{ prefetch, largest, want int }{
		{1000, 0, 1000}, {1000, 100, 1000}, {1000, 1 << 20, 64}, {1000, 1 << 30, 1}, {0, 0, 0}, {0, 100, 0}, {0, 1 << 20, 64}, {3, 1 << 20, 3}, {1 << 16, 1, 1<<16 - 1},
	} {
		if got := window(c.prefetch, c.largest); got != c.want {
			t.Errorf("prefetch %d of messages of %d bytes is %d, want %d", c.prefetch, c.largest, got, c.want)
		}
	}
}

// What an end does not answer is told after a while, and what it has refused at once.
func TestAShovelSaysWhatItWaitsFor(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 30, 0, time.UTC)
	since := now.Add(-slow)
	for _, c := range []struct {
		status status
		want   string
	}{
		{status{}, ""},
		{status{waitsFor: publishes, waitsSince: now.Add(time.Millisecond - slow)}, ""},
		{status{waitsFor: publishes, waitsSince: since}, "waits for the destination to take or confirm messages since 2026-05-01 12:00:25"},
		{status{waitsFor: publishes, waitsSince: since, refused: 3, refusedAt: since}, "waits for the destination to take or confirm messages since 2026-05-01 12:00:25"},
		{status{refused: 3, refusedAt: since}, "the destination refused 3 messages at 2026-05-01 12:00:25, as a full queue does; they are in the source and tried again"},
		{status{blocked: true, refused: 3}, "the destination takes nothing for now, for an alarm of its memory or disk"},
	} {
		if got := c.status.waiting(now); got != c.want {
			t.Errorf("%+v says %q, want %q", c.status, got, c.want)
		}
	}
}
