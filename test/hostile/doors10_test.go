package hostile

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/wire/amqp10"
	"bartleby.mq/test/certificate"
	"bartleby.mq/test/client10"
	"bartleby.mq/test/websocket"
)

// doors10 are the listeners at which clients speak something else before AMQP 1.0.
type doors10 struct {
	tls, web, webTLS string // HOST:PORT
	trust            *tls.Config
}

// door10 makes a connection on which AMQP 1.0 is spoken. socket is that below, which is cut without a word.
type door10 struct {
	name string
	open func(t *testing.T) (over net.Conn, socket *net.TCPConn)
}

// startDoors10 starts a server that has them all.
func startDoors10(t *testing.T, config ...string) *doors10 {
	t.Helper()
	ca := certificate.NewAuthority(t, "ca")
	dir := t.TempDir()
	cert, key := ca.Issue(t, "server", time.Hour, nil).Write(t, dir)
	d := &doors10{tls: free(t), web: free(t), webTLS: free(t), trust: &tls.Config{RootCAs: ca.Pool(), ServerName: "localhost"}}
	for _, prefix := range []string{"ssl_options", "web_amqp.ssl"} {
		config = append(config, prefix+".cacertfile = "+ca.Write(t, dir), prefix+".certfile = "+cert, prefix+".keyfile = "+key)
	}
	_, web, _ := net.SplitHostPort(d.web)
	_, webTLS, _ := net.SplitHostPort(d.webTLS)
	start10(t, append(config, "listeners.ssl.1 = "+d.tls, "web_amqp.tcp.ip = 127.0.0.1", "web_amqp.tcp.port = "+web, "web_amqp.ssl.ip = 127.0.0.1", "web_amqp.ssl.port = "+webTLS)...)
	return d
}

// free is an address at which nobody listens.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func tcp(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	return nc.(*net.TCPConn)
}

// secure speaks TLS on a socket.
func (d *doors10) secure(t *testing.T, nc net.Conn) *tls.Conn {
	t.Helper()
	over := tls.Client(nc, d.trust)
	if err := over.Handshake(); err != nil {
		t.Fatal(err)
	}
	return over
}

// upgraded speaks WebSocket on a connection.
func upgraded(t *testing.T, nc net.Conn) *websocket.Conn {
	t.Helper()
	over, err := websocket.Upgrade(nc, websocket.Request("/ws", nil))
	if err != nil {
		t.Fatal(err)
	}
	return over
}

func (d *doors10) all() []door10 {
	return []door10{
		{"TLS", func(t *testing.T) (net.Conn, *net.TCPConn) {
			nc := tcp(t, d.tls)
			return d.secure(t, nc), nc
		}},
		{"WebSocket", func(t *testing.T) (net.Conn, *net.TCPConn) {
			nc := tcp(t, d.web)
			return upgraded(t, nc), nc
		}},
		{"WebSocket with TLS", func(t *testing.T) (net.Conn, *net.TCPConn) {
			nc := tcp(t, d.webTLS)
			return upgraded(t, d.secure(t, nc)), nc
		}},
	}
}

// session is a client with a session on channel 0.
func (d door10) session(t *testing.T, window uint32) (*raw10, *net.TCPConn) {
	t.Helper()
	over, socket := d.open(t)
	c := &raw10{t, client10.Wire{Conn: over, Patience: 40 * time.Second, Largest: 1 << 30}}
	c.logIn()
	c.begin(0, window)
	return c, socket
}

// Whoever speaks something else before AMQP is owed no more than others: it is cut when it stops, wherever that is, and when it says much
// that means nothing.
func TestStrangersAtDoors10(t *testing.T) {
	d := startDoors10(t, "handshake_timeout = 3000", "ssl_handshake_timeout = 3000")
	sasl := []byte(amqp10.ProtocolHeaderSASL)
	hello := clientHello(t)
	bin := func(b []byte) []byte { return websocket.Frame(websocket.Binary, true, b) }
	huge := append([]byte{0x82, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 0, 0, 0, 0)
	request := requestBytes()
	raw := map[string]struct {
		addr string
		send []byte
	}{
		"nothing, TLS":             {d.tls, nil},
		"nothing, web":             {d.web, nil},
		"half a record":            {d.tls, hello[:3]},
		"half a hello":             {d.webTLS, hello[:len(hello)/2]},
		"hello":                    {d.webTLS, hello},
		"hello, and noise":         {d.tls, append(bytes.Clone(hello), bytes.Repeat([]byte{0x16, 3, 3, 0x40, 0}, 20_000)...)},
		"empty records":            {d.tls, bytes.Repeat([]byte{0x16, 3, 1, 0, 0}, 50_000)},
		"a handshake of 16 MB":     {d.tls, append([]byte{0x16, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff}, make([]byte, 100_000)...)},
		"half a request":           {d.web, request[:40]},
		"endless headers":          {d.web, append(request[:len(request)-2], bytes.Repeat([]byte("X: y\r\n"), 20_000)...)},
		"one endless line":         {d.web, append([]byte("GET /"), bytes.Repeat([]byte("x"), 200_000)...)},
		"a body that never comes":  {d.web, []byte("POST /ws HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n")},
		"requests one by another":  {d.web, bytes.Repeat([]byte("GET /x HTTP/1.1\r\nHost: x\r\n\r\n"), 2000)},
		"AMQP at once":             {d.web, sasl},
		"upgraded":                 {d.web, request},
		"half a frame's head":      {d.web, append(bytes.Clone(request), 0x82)},
		"half a mask":              {d.web, append(bytes.Clone(request), bin(sasl)[:4]...)},
		"half a header":            {d.web, append(bytes.Clone(request), bin(sasl[:4])...)},
		"a huge frame":             {d.web, append(append(bytes.Clone(request), huge...), sasl...)},
		"empty frames":             {d.web, append(bytes.Clone(request), bytes.Repeat(websocket.Frame(websocket.Continuation, false, nil), 50_000)...)},
		"empty pieces":             {d.web, append(append(bytes.Clone(request), websocket.Frame(websocket.Binary, false, nil)...), bytes.Repeat(websocket.Frame(websocket.Continuation, false, nil), 50_000)...)},
		"pings":                    {d.web, append(bytes.Clone(request), bytes.Repeat(websocket.Frame(websocket.Ping, true, make([]byte, 125)), 50_000)...)},
		"logged in, and then none": {d.web, append(bytes.Clone(request), bin(bytes.Join([][]byte{sasl, saslFrame(plain("guest", "guest")), []byte(amqp10.ProtocolHeader)}, nil))...)},
		"much behind the login":    {d.web, append(bytes.Clone(request), bin(append(bytes.Clone(sasl), bytes.Repeat(saslFrame(plain("guest", "guest")), 20_000)...))...)},
	}
	beside(t, 96*mib, func() func() {
		began := time.Now()
		var all []*raw10
		var sending sync.WaitGroup
		for range 10 {
			for _, one := range raw {
				c := &raw10{t, client10.Wire{Conn: tcp(t, one.addr)}}
				all = append(all, c)
				sending.Go(func() {
					_ = c.SetWriteDeadline(began.Add(handshakeLimit))
					_, _ = c.Write(one.send)
				})
			}
		}
		// Those who go on say what means nothing, as long as they are heard.
		for _, b := range [][]byte{websocket.Frame(websocket.Continuation, true, nil), websocket.Frame(websocket.Pong, true, nil), websocket.Frame(websocket.Ping, true, nil)} {
			for range 4 {
				c := &raw10{t, client10.Wire{Conn: tcp(t, d.web)}}
				all = append(all, c)
				sending.Go(func() {
					_, _ = c.Write(append(bytes.Clone(request), websocket.Frame(websocket.Binary, false, nil)...))
					go c.drain()
					c.flood(many(b), handshakeLimit)
				})
			}
		}
		sending.Wait()
		return func() {
			for _, c := range all {
				_ = c.SetReadDeadline(began.Add(handshakeLimit))
				c.drain()
				if time.Since(began) >= handshakeLimit {
					t.Fatal("a client is there that has not logged in")
				}
			}
		}
	})
}

// requestBytes is a client's request for a WebSocket.
func requestBytes() []byte {
	var b bytes.Buffer
	_ = websocket.Request("/ws", nil).Write(&b)
	return b.Bytes()
}

// clientHello is the first that a client of TLS says.
func clientHello(t *testing.T) []byte {
	t.Helper()
	ours, theirs := net.Pipe()
	go func() { _ = tls.Client(ours, &tls.Config{ServerName: "localhost"}).Handshake() }() // ends with the pipe
	defer func() { _, _ = ours.Close(), theirs.Close() }()
	b := make([]byte, 4096)
	n, err := theirs.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return b[:n]
}

// What a client says below AMQP when it is let in takes no more than what it says in AMQP.
func TestFloodsBelowAMQP10(t *testing.T) {
	d := startDoors10(t)
	queue10(t, "q", "classic", 10, 10)
	empty := amqp10.AppendEmptyFrame(nil)
	var bytewise []byte
	for _, b := range empty {
		bytewise = append(bytewise, websocket.Frame(websocket.Binary, true, []byte{b})...)
	}
	endless := append([]byte{0x82, 0xff, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff}, 0, 0, 0, 0)
	for name, flood := range map[string]struct{ first, b []byte }{
		"pings":           {nil, websocket.Frame(websocket.Ping, true, make([]byte, 125))},
		"pongs":           {nil, websocket.Frame(websocket.Pong, true, nil)},
		"empty frames":    {nil, websocket.Frame(websocket.Binary, true, nil)},
		"byte by byte":    {nil, bytewise},
		"an endless one":  {endless, empty},
		"endless pieces":  {websocket.Frame(websocket.Binary, false, nil), websocket.Frame(websocket.Continuation, false, empty)},
		"pings in pieces": {websocket.Frame(websocket.Binary, false, nil), append(websocket.Frame(websocket.Ping, true, nil), websocket.Frame(websocket.Continuation, false, empty)...)},
	} {
		for _, reads := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, reads %t", name, reads), func(t *testing.T) {
				beside(t, 64*mib, func() func() {
					var all []*raw10
					var flooding sync.WaitGroup
					var sent [6]int
					for i := range sent {
						door := d.all()[1+i%2]
						c, _ := door.session(t, 1<<30)
						c.perform(0, receiving(0, "l", "q"), credit(0, 0, 1000, false, true))
						all = append(all, c)
						below := c.Conn.(*websocket.Conn).Conn
						if reads {
							go c.drain()
						}
						flooding.Go(func() {
							_, _ = below.Write(flood.first)
							sent[i] = (&raw{Conn: below}).flood(many(flood.b), 1500*time.Millisecond)
						})
					}
					flooding.Wait()
					t.Logf("bytes sent %v", sent)
					return func() {
						for _, c := range all {
							_ = c.Conn.(*websocket.Conn).Conn.Close()
						}
					}
				})
			})
		}
	}
}

// Clients that read large messages slowly, by any door, cost what waits for them and no more, and nobody waits for them.
func TestSlowReadersAtDoors10(t *testing.T) {
	const readers, messages, size = 10, 20, 10 * mib
	d := startDoors10(t)
	for _, kind := range []string{"classic", "quorum"} {
		queue10(t, kind, kind, messages, size)
	}
	for _, door := range d.all() {
		for _, window := range []uint32{0, 2, 1 << 30} {
			t.Run(fmt.Sprintf("%s, window %d", door.name, window), func(t *testing.T) {
				beside(t, readers*(8+10)*mib+64*mib, func() func() {
					var all []*raw10
					var reading sync.WaitGroup
					for i := range readers {
						c, _ := door.session(t, window)
						all = append(all, c)
						grant := credit(0, 0, 1000, false, false)
						grant.IncomingWindow = window
						c.perform(0, receiving(0, "l", []string{"classic", "quorum"}[i%2]), grant)
						reading.Go(func() {
							b := make([]byte, 1000)
							for range 150 { // 100 KB a second
								_ = c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
								if _, err := c.Read(b); err != nil && !strings.Contains(err.Error(), "timeout") {
									return
								}
								time.Sleep(10 * time.Millisecond)
							}
						})
					}
					reading.Wait()
					return func() {
						for _, c := range all {
							_ = c.Close()
						}
					}
				})
			})
		}
	}
	for _, kind := range []string{"classic", "quorum"} {
		full(t, kind, messages)
	}
}

// full waits until a queue has all its messages again, and nobody consumes.
func full(t *testing.T, queue string, messages int) {
	t.Helper()
	until(t, queue, func(q amqp.Queue) bool { return q.Messages == messages && q.Consumers == 0 })
}

// A connection that is cut in any state leaves nothing behind, and what it had goes back.
func TestCutsAtDoors10(t *testing.T) {
	d := startDoors10(t)
	queue10(t, "classic", "classic", 100, 100_000)
	filled(t, "quorum", amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int32(-1)}, 100, 100_000) // a cut is a failure
	more := first(0)
	more.More = true
	pair := manager(0, 1, "m")
	states := map[string][]byte{
		"session":            nil,
		"half a frame":       client10.Frames(nil, 0, receiving(0, "l", "classic"))[:9],
		"no credit":          client10.Frames(nil, 0, receiving(0, "l", "classic")),
		"credit":             client10.Frames(nil, 0, receiving(0, "l", "classic"), credit(0, 0, 100, false, false)),
		"a drain":            client10.Frames(nil, 0, receiving(0, "l", "quorum"), credit(0, 0, 1000, true, true)),
		"two links":          client10.Frames(nil, 0, receiving(0, "l", "quorum"), receiving(1, "m", "classic"), credit(0, 0, 50, false, false), credit(1, 0, 50, false, false)),
		"half a message":     transfer(client10.Frames(nil, 0, sending(0, "l", "/queues/classic")), more, make([]byte, 1000)),
		"half a transfer":    transfer(client10.Frames(nil, 0, sending(0, "l", "/queues/classic")), first(0), make([]byte, 1000))[:500],
		"half a link pair":   client10.Frames(nil, 0, pair[0]),
		"a request":          transfer(client10.Frames(nil, 0, pair...), listing, request("GET", "/queues/classic", nil)),
		"a detach":           client10.Frames(nil, 0, receiving(0, "l", "quorum"), credit(0, 0, 50, false, false), &amqp10.Detach{Closed: true}),
		"a dynamic node":     client10.Frames(nil, 0, &amqp10.Attach{Name: []byte("d"), Role: amqp10.RoleReceiver, Source: client10.Described(&amqp10.Source{Dynamic: true}), Target: client10.Described(&amqp10.Target{})}),
		"end":                client10.Frames(nil, 0, receiving(0, "l", "quorum"), credit(0, 0, 50, false, false), &amqp10.End{}),
		"close, and no wait": client10.Frames(nil, 0, receiving(0, "l", "classic"), credit(0, 0, 50, false, false), &amqp10.Close{}),
	}
	for _, door := range d.all() {
		t.Run(door.name, func(t *testing.T) {
			beside(t, 96*mib, func() func() {
				var cutting sync.WaitGroup
				for name, state := range states {
					cutting.Go(func() {
						for i := range 16 {
							c, socket := door.session(t, 1<<30)
							_, _ = c.Write(state)
							if i&1 != 0 { // what it gets is under way
								_ = c.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
								_, _ = c.Read(make([]byte, 1000))
							}
							if i&2 != 0 {
								_ = socket.SetLinger(0) // a reset
							}
							if i&4 != 0 && name != "session" { // no more comes, but all is read
								_ = socket.CloseWrite()
								_ = socket.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
								_, _ = socket.Read(make([]byte, 1000))
							}
							_ = socket.Close()
						}
					})
				}
				cutting.Wait()
				return func() {}
			})
		})
	}
	for _, kind := range []string{"classic", "quorum"} {
		full(t, kind, 100)
	}
	// Half records of TLS, and frames that end in the midst of a record.
	t.Run("half records", func(t *testing.T) {
		beside(t, 64*mib, func() func() {
			for range 50 {
				c, socket := d.all()[0].session(t, 1<<30)
				b := binary.BigEndian.AppendUint16([]byte{23, 3, 3}, 16_000)
				_, _ = socket.Write(append(b, make([]byte, 100)...))
				_ = socket.Close()
				_ = c.Conn
			}
			return func() {}
		})
	})
}
