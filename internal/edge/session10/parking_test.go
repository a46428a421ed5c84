package session10

import (
	"log/slog"
	"net"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/partition"
)

// parked is a session whose window is closed, with n deliveries of one message parked in it.
func parked(tb testing.TB, n int) (s *session, k *consumer) {
	tb.Helper()
	b, err := broker.Open(broker.Options{FS: vfs.NewMem(), Dir: "data"})
	if err != nil {
		tb.Fatal(err)
	}
	near, far := net.Pipe()
	c := &conn{broker: b, link: b.As("guest", "/"), log: slog.New(slog.DiscardHandler), clientMax: 65536}
	c.sock.Init(near, nil, c.log)
	c.out.Init(&c.sock, pen{c})
	body := c.link.Store(&broker.Publication{Exchange: []byte{}, Key: []byte("q"), Raw: []byte{0, 0}, Body: [][]byte{[]byte("hello")}, Size: 5})
	s = &session{c: c}
	k = &consumer{s: s, q: &partition.Queue{}}
	b.Bodies().Retain(body, n)
	for range n {
		s.park(&item{kind: itemDelivery, s: s, consumer: k, bytes: 1, d: delivery(body)})
	}
	tb.Cleanup(func() {
		for s.parking.Oldest() != nil {
			b.Bodies().Release(s.parking.Oldest().d.Body)
			s.parking.Shift()
		}
		b.Bodies().Release(body)
		if held := b.Bodies().Held(); held != 0 {
			tb.Errorf("%d bodies are held at the end", held)
		}
		_, _ = near.Close(), far.Close()
		if err := b.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s, k
}

func delivery(body message.Ref) queue.Delivery {
	return queue.Delivery{Content: queue.Content{Body: body, Size: 5}, ID: 1}
}

// A delivery leaves a session as soon as the client's window has room for it, and no other with it.
func TestAWindowOfOneLetsOneOut(t *testing.T) {
	s, k := parked(t, 3000)
	for n := 1; n <= 2000; n++ {
		s.limit++
		pen{s.c}.unpark(s)
		if got := k.count.Load(); int(got) != n || s.parking.Len() != 3000-n || s.parked.Load() != int64(3000-n) || s.unsettled.n != n {
			t.Fatalf("%d are sent, %d parked, %d bytes, %d unsettled; want %d", got, s.parking.Len(), s.parked.Load(), s.unsettled.n, n)
		}
		s.c.out.Wire = s.c.out.Wire[:0]
	}
	s.limit += 1e6
	pen{s.c}.unpark(s)
	if s.waiting() || s.parked.Load() != 0 {
		t.Errorf("%d are parked in an open window", s.parking.Len())
	}
}

// What is parked of an ended link goes when it is its turn, without a window.
func TestWhatIsParkedOfAnEndedSessionGoes(t *testing.T) {
	s, k := parked(t, 3000)
	k.NoAck = true
	s.closed = true
	pen{s.c}.unpark(s)
	if s.waiting() || len(s.c.out.Wire) > 0 {
		t.Errorf("%d are parked, %d bytes were sent", s.parking.Len(), len(s.c.out.Wire))
	}
}

// Holes that links leave when they end are never more than what is parked.
func TestHolesDoNotPileUp(t *testing.T) {
	s, other := parked(t, 100)
	other.NoAck = true
	body := s.parking.Oldest().d.Body
	for range 1000 {
		k := &consumer{s: s, q: other.q, ended: true}
		for range 10 {
			s.c.broker.Bodies().Retain(body, 1)
			s.park(&item{kind: itemDelivery, s: s, consumer: k, bytes: 1, d: delivery(body)})
		}
		pen{s.c}.withdraw(k)
		if n := s.parking.Len(); n-s.holes != 100 || n > 201 || s.parked.Load() != 100 {
			t.Fatalf("%d are parked, %d of them holes, %d bytes", n, s.holes, s.parked.Load())
		}
	}
	s.limit = 1000
	pen{s.c}.unpark(s)
	if s.waiting() || s.holes != 0 || other.count.Load() != 100 {
		t.Errorf("%d are parked, %d of them holes, %d were sent", s.parking.Len(), s.holes, other.count.Load())
	}
}

// A window of one while much is parked costs as much a delivery as when little is.
func BenchmarkWindowOfOne(b *testing.B) {
	for name, n := range map[string]int{"10": 10, "10000": 10000} {
		b.Run(name, func(b *testing.B) {
			s, k := parked(b, n)
			k.NoAck = true
			body := s.parking.Oldest().d.Body
			for b.Loop() {
				s.c.broker.Bodies().Retain(body, 1)
				d := delivery(body)
				d.NoAck = true
				s.park(&item{kind: itemDelivery, s: s, consumer: k, bytes: 1, d: d})
				s.limit++
				pen{s.c}.unpark(s)
				s.c.out.Wire = s.c.out.Wire[:0]
			}
		})
	}
}
