package shovel

import (
	"net"
	"sync"
	"time"

	"bartleby.mq/internal/wire/amqp091"
)

const (
	// intakeBytes limits the unsettled bytes from a remote source. Further bytes wait in the
	// sockets. A prefetch limits only the number of messages.
	intakeBytes = 64 << 20
	// starvation is how long nothing arrives until a source is read beyond the limit, as for a larger message.
	starvation = time.Second
	// readPatience is the deadline of the read after a pause. The library sets its own when it has read a frame.
	readPatience = 30 * time.Second
	// largestPrefetch is the largest value of basic.qos.
	largestPrefetch = 1<<16 - 1
)

// window is how many messages a remote source may send ahead. A broker that cannot send for long, because the shovel does
// not read, closes the connection. So the shovel requests only as many messages as it has room for, once it knows their size.
func window(prefetch, largest int) int {
	if fit := intakeBytes / max(largest, 1); fit < largestPrefetch && (prefetch == 0 || fit < prefetch) {
		return max(fit, 1)
	}
	return min(prefetch, largestPrefetch)
}

// wireSize is a lower bound of a message's size on the wire.
func wireSize(m *carried) int {
	const methodAndFrames, perFrame, smallestFrame = 128, 8, 4096
	n := len(m.exchange) + len(m.key) + len(m.body) + methodAndFrames
	return n + len(m.body)/smallestFrame*perFrame + len(amqp091.AppendPropsFrom(nil, m.properties))
}

// intake limits the bytes that are read from a socket and not released.
type intake struct {
	limit int

	mu      sync.Mutex
	changed *sync.Cond
	held    int
	closed  bool
}

func newIntake(limit int) *intake {
	k := &intake{limit: limit}
	k.changed = sync.NewCond(&k.mu)
	return k
}

func (k *intake) around(c net.Conn) net.Conn { return &boundedConn{c, k} }

// release makes room again.
func (k *intake) release(n int) {
	k.mu.Lock()
	k.held = max(0, k.held-n)
	k.mu.Unlock()
	k.changed.Broadcast()
}

// starve says that no read bytes are left to be released.
func (k *intake) starve() { k.release(k.limit) }

// await waits for room, and says whether it had to.
func (k *intake) await() (waited bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for k.held >= k.limit && !k.closed {
		waited = true
		k.changed.Wait()
	}
	return waited
}

func (k *intake) add(n int) {
	k.mu.Lock()
	k.held += n
	k.mu.Unlock()
}

func (k *intake) close() {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	k.changed.Broadcast()
}

// boundedConn reads as an intake has room. The library sets a deadline for each frame, which
// passes while there is none.
type boundedConn struct {
	net.Conn
	intake *intake
}

func (c *boundedConn) Read(p []byte) (int, error) {
	if c.intake.await() {
		if err := c.Conn.SetReadDeadline(time.Now().Add(readPatience)); err != nil {
			return 0, err
		}
	}
	n, err := c.Conn.Read(p)
	c.intake.add(n)
	return n, err
}

func (c *boundedConn) Close() error {
	c.intake.close()
	return c.Conn.Close()
}
