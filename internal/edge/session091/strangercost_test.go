package session091_test

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"bartleby.mq/internal/edge/session091"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// The first frames of a client, and a few that have no place among them.
var (
	startOk   = amqp091.AppendMethod(nil, 0, amqp091.ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00guest\x00guest", Locale: "en_US"})
	tuneOk    = amqp091.AppendMethod(nil, 0, amqp091.ConnectionTuneOk{ChannelMax: 10, FrameMax: 131072})
	unknown   = amqp091.AppendMethod(nil, 0, amqp091.ConnectionStartOk{Mechanism: "NONE", Locale: "en_US"})
	declaring = amqp091.AppendMethod(nil, 0, amqp091.QueueDeclare{Queue: "q"})
	beat      = amqp091.AppendHeartbeat(nil)
)

// endless is a client that says first, and then the same again and again, as fast as it is read.
type endless struct {
	net.Conn // its addresses
	first    []byte
	again    []byte
	at, sent int
	give     int // up after so many bytes
}

func (e *endless) Read(b []byte) (int, error) {
	if len(e.first) > 0 {
		n := copy(b, e.first)
		e.first = e.first[n:]
		return n, nil
	}
	if e.sent >= e.give {
		return 0, io.EOF
	}
	for i := range b {
		b[i] = e.again[e.at]
		e.at = (e.at + 1) % len(e.again)
	}
	e.sent += len(b)
	return len(b), nil
}

func (e *endless) Write(b []byte) (int, error)      { return len(b), nil }
func (e *endless) SetReadDeadline(time.Time) error  { return nil }
func (e *endless) SetWriteDeadline(time.Time) error { return nil }
func (e *endless) Close() error                     { return nil }

// However a client goes on that is not let in, little of it is read: not for the time that a handshake
// may take, nor while it is refused, nor while the connection closes.
func TestLittleIsReadOfStrangers(t *testing.T) {
	const most = 128 << 10
	b := serve(t, broker.Options{}).b
	somewhere, other := net.Pipe()
	defer func() { _, _ = somewhere.Close(), other.Close() }()
	method := func(size int) []byte { // connection.close that is not whole
		return append([]byte{amqp091.FrameMethod, 0, 0, 0, 0, byte(size >> 8), byte(size), 0, 10, 0, 50}, append(make([]byte, size-4), amqp091.FrameEnd)...)
	}
	for name, tt := range map[string]struct{ first, again []byte }{
		"heartbeats":                   {nil, beat},
		"heartbeats after start-ok":    {startOk, beat},
		"heartbeats after tune-ok":     {append(startOk[:len(startOk):len(startOk)], tuneOk...), beat},
		"methods after a wrong method": {declaring, declaring},
		"frames after a wrong method":  {declaring, method(8000)},
		"contents":                     {nil, []byte{amqp091.FrameBody, 0, 1, 0, 0, 0, 1, 'x', amqp091.FrameEnd}},
		"frames of no kind":            {nil, []byte{77, 0, 1, 0, 0, 0, 0, amqp091.FrameEnd}},
		"a large frame":                {nil, append([]byte{amqp091.FrameBody, 0, 1, 0x7f, 0xff, 0xff, 0xff}, bytes.Repeat([]byte{0}, 100)...)},
		"zeros":                        {nil, make([]byte, 64)},
		"anything while it is refused": {unknown, beat},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &endless{Conn: somewhere, first: tt.first, again: tt.again, give: 16 << 20}
			if session091.Serve(c, []byte(amqp091.ProtocolHeader), session091.Options{Broker: b, Logger: slog.New(slog.DiscardHandler)}) {
				_ = c.Close()
			}
			if c.sent > most {
				t.Errorf("%d bytes were read, want %d at most", c.sent, most)
			}
		})
	}
}

// What a client that is not let in makes the node hold is little, whatever it has sent before it fell silent.
func TestSilentStrangersCostLittle(t *testing.T) {
	const strangers, most = 300, 32 << 10
	s := serve(t, broker.Options{})
	header := []byte(amqp091.ProtocolHeader)
	then := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	for name, sent := range map[string][]byte{
		"nothing":                           nil,
		"a header":                          header,
		"half a frame":                      then(header, startOk[:20]),
		"most of a large frame":             then(header, []byte{amqp091.FrameMethod, 0, 0, 0, 0, 0x1f, 0xf8}, make([]byte, 8000)),
		"start-ok":                          then(header, startOk),
		"tune-ok":                           then(header, startOk, tuneOk),
		"many heartbeats":                   then(header, bytes.Repeat(beat, 7000)),
		"many heartbeats, and half of open": then(header, startOk, tuneOk, bytes.Repeat(beat, 7000), []byte{amqp091.FrameMethod}),
	} {
		t.Run(name, func(t *testing.T) {
			before := held()
			for range strangers {
				nc, err := net.Dial("tcp", s.addr)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = nc.Close() }()
				if _, err := nc.Write(sent); err != nil {
					t.Fatal(err)
				}
			}
			s.quiet(t)
			if each := (held() - before) / strangers; each > most {
				t.Errorf("%d bytes for each, want %d at most", each, most)
			} else {
				t.Logf("%d bytes for each, the client's end included", each)
			}
		})
	}
}

// quiet waits until what clients have sent is read: two who came behind them are answered.
func (s *server) quiet(t *testing.T) {
	t.Helper()
	for range 2 {
		_ = s.channel(t)
	}
	last, same := uint64(0), 0
	for deadline := time.Now().Add(10 * time.Second); same < 20 && time.Now().Before(deadline); runtime.Gosched() {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if m.Mallocs == last {
			same++
		} else {
			last, same = m.Mallocs, 0
		}
	}
}

// held is how many bytes live in this process's heap and stacks.
func held() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// A start-ok is as large as a frame may be, and full of values: what they are made of is nobody's
// memory, in the client's properties and in the response of AMQPLAIN alike. A bystander waits for the
// collector as long as strangers make it work.
func TestTablesOfStrangersCostLittle(t *testing.T) {
	const logins, mostBytes, mostObjects = 100, 64 << 10, 200
	b := serve(t, broker.Options{}).b
	somewhere, other := net.Pipe()
	defer func() { _, _ = somewhere.Close(), other.Close() }()
	voids := make(amqp091.Array, 7400)
	var nested any = amqp091.Table{}
	for range 60 {
		nested = amqp091.Table{{Key: "t", Value: nested}, {Key: "a", Value: amqp091.Array{nil}}}
	}
	var many amqp091.Table
	for range 2000 {
		many = append(many, amqp091.Field{Key: "k", Value: nil})
	}
	guess := amqp091.Table{{Key: "LOGIN", Value: "guest"}, {Key: "PASSWORD", Value: "wrong"}}
	asResponse := func(t amqp091.Table) string { return string(amqp091.AppendTable(nil, t)[4:]) }
	for name, m := range map[string]amqp091.ConnectionStartOk{
		"a list in the properties":         {ClientProperties: amqp091.Table{{Key: "l", Value: voids}}, Mechanism: "PLAIN", Response: "\x00guest\x00wrong"},
		"a list in the capabilities":       {ClientProperties: amqp091.Table{{Key: "capabilities", Value: amqp091.Table{{Key: "l", Value: voids}}}}, Mechanism: "PLAIN", Response: "\x00guest\x00wrong"},
		"many properties":                  {ClientProperties: many, Mechanism: "PLAIN", Response: "\x00guest\x00wrong"},
		"tables in tables":                 {ClientProperties: amqp091.Table{{Key: "t", Value: nested}}, Mechanism: "PLAIN", Response: "\x00guest\x00wrong"},
		"a list in the response":           {Mechanism: "AMQPLAIN", Response: asResponse(append(guess, amqp091.Field{Key: "l", Value: voids}))},
		"many fields in the response":      {Mechanism: "AMQPLAIN", Response: asResponse(append(guess, many...))},
		"nothing but NUL in the response":  {Mechanism: "PLAIN", Response: string(make([]byte, 8000))},
		"a long name and a long password":  {Mechanism: "PLAIN", Response: "\x00" + strings.Repeat("n", 4000) + "\x00" + strings.Repeat("p", 4000)},
		"a mechanism that there is not":    {Mechanism: strings.Repeat("m", 255), Response: strings.Repeat("r", 7000)},
		"EXTERNAL by who has shown no one": {Mechanism: "EXTERNAL", Response: strings.Repeat("r", 7000)},
	} {
		t.Run(name, func(t *testing.T) {
			frame := amqp091.AppendMethod(nil, 0, m)
			if len(frame) > 8192 {
				t.Fatalf("the frame has %d bytes", len(frame))
			}
			login := func() {
				c := &endless{Conn: somewhere, first: frame}
				if session091.Serve(c, []byte(amqp091.ProtocolHeader), session091.Options{Broker: b, Logger: slog.New(slog.DiscardHandler), Mechanisms: []string{"PLAIN", "AMQPLAIN", "EXTERNAL"}}) {
					_ = c.Close()
				}
			}
			login()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for range logins {
				login()
			}
			runtime.ReadMemStats(&after)
			bytes, objects := (after.TotalAlloc-before.TotalAlloc)/logins, (after.Mallocs-before.Mallocs)/logins
			if bytes > mostBytes || objects > mostObjects {
				t.Errorf("%d bytes in %d objects for each, want %d in %d at most", bytes, objects, mostBytes, mostObjects)
			} else {
				t.Logf("%d bytes in %d objects for each", bytes, objects)
			}
		})
	}
}
