package hostile

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"bartleby.mq/internal/wire/amqp091"
)

// What cannot be read ends the connection with the code that the protocol has for
// it (BR-4.8), and no other connection.
func TestBrokenFrames(t *testing.T) {
	start(t)
	method := func(channel uint16, m amqp091.Method) []byte { return amqp091.AppendMethod(nil, channel, m) }
	// Less than a read takes of a client that has just been let in. Of noise that takes several
	// reads the last may bring close-ok, too, which nobody finds in it: the server would wait for
	// half a minute, as RabbitMQ does.
	noise := make([]byte, 1000)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	noise[0], noise[3] = 1, 0xff // a method frame too large, whatever the rest says
	tests := []struct {
		name string
		send []byte // after channel.open-ok of channel 1
		code uint16
		text string
	}{
		{"garbage", noise, 501, "frame_too_large"},
		{"wrong end octet", frame(1, 1, 4, []byte{0, 20, 0, 40}, 0), 501, "invalid_frame_end_marker"},
		{"larger than frame-max", frame(3, 1, 1<<20, nil, 0), 501, "frame_too_large"},
		{"largest size there is", frame(3, 1, 1<<32-1, nil, 0), 501, "frame_too_large"},
		{"unknown type", frame(77, 1, 1, []byte{0}, 0xCE), 501, "unknown_frame"},
		{"method without id", frame(1, 1, 1, []byte{0}, 0xCE), 501, "unknown_frame"},
		{"unknown method", frame(1, 1, 4, []byte{0, 60, 1, 0}, 0xCE), 0, ""},
		{"method cut short", frame(1, 1, 6, []byte{0, 50, 0, 10, 0, 0}, 0xCE), 501, "cannot decode <<0,0>>"},
		{"header without publish", frame(2, 1, 14, make([]byte, 14), 0xCE), 505, ""},
		{"body without header", frame(3, 1, 2, []byte("xx"), 0xCE), 505, ""},
		{"header on channel 0", frame(2, 0, 14, make([]byte, 14), 0xCE), 505, ""},
		{"heartbeat on a channel", frame(8, 1, 0, nil, 0xCE), 505, ""},
		{"method between header and body", bytes.Join([][]byte{publish(1, "", "q", 10, noProps, false), method(1, amqp091.BasicQos{})}, nil), 505, ""},
		{"body longer than announced", append(publish(1, "", "q", 1, noProps, false), frame(3, 1, 2, []byte("xx"), 0xCE)...), 501, ""},
		{"channel opened twice", method(1, amqp091.ChannelOpen{}), 504, ""},
		{"channel not open", method(2, amqp091.BasicQos{}), 504, ""},
		{"handshake again", method(0, amqp091.ConnectionStartOk{Mechanism: "PLAIN"}), 504, ""},
		{"method for clients", method(1, amqp091.BasicGetEmpty{}), 503, ""},
		{"properties cut short", publish(1, "", "q", 0, []byte{0xff, 0xf8, 200}, false), 541, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := loginChannel(t)
			c.send(test.send)
			if test.code == 0 {
				c.gone()
			} else {
				c.refusedWith(test.code, test.text)
			}
		})
	}
	served(t)
}

// Before it is logged in a client is owed even less.
func TestBrokenHandshakes(t *testing.T) {
	start(t)
	method := func(m amqp091.Method) []byte {
		return append([]byte(amqp091.ProtocolHeader), amqp091.AppendMethod(nil, 0, m)...)
	}
	tests := map[string][]byte{
		"HTTP":              []byte("GET / HTTP/1.1\r\nHost: broker\r\n\r\n"),
		"TLS":               {0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, 1, 2, 3},
		"AMQP 0-8":          []byte("AMQP\x01\x01\x08\x00"),
		"nothing but noise": bytes.Repeat([]byte{0xa5}, 100_000),
		"open first":        method(amqp091.ConnectionOpen{VirtualHost: "/"}),
		"tune-ok first":     method(amqp091.ConnectionTuneOk{ChannelMax: 1, FrameMax: 8192}),
		"a channel first":   append([]byte(amqp091.ProtocolHeader), amqp091.AppendMethod(nil, 1, amqp091.ChannelOpen{})...),
		"large first frame": append([]byte(amqp091.ProtocolHeader), frame(1, 0, 100_000, nil, 0)...),
		"no such mechanism": method(amqp091.ConnectionStartOk{Mechanism: "NONE"}),
		"wrong password":    method(amqp091.ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00guest\x00wrong"}),
		"response cut":      method(amqp091.ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00"}),
	}
	before := usage(t)
	var waiting []*raw
	for _, send := range tests {
		c := open(t)
		_, _ = c.Write(send) // the server may have closed before it is all sent
		waiting = append(waiting, c)
	}
	served(t)
	for _, c := range waiting {
		_ = c.SetReadDeadline(time.Now().Add(time.Second)) // some are kept waiting for longer (BR-1.8)
		c.drain()
		_ = c.Close()
	}
	settled(t, before)
}
