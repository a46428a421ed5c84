package hostile

import (
	"testing"
	"time"

	"bartleby.mq/internal/wire/amqp091"
)

// handshakeLimit is how long the server waits for a handshake (BR-1.10), with
// room for a busy machine.
const handshakeLimit = 10*time.Second + 5*time.Second

// A client that does not come to the end of its handshake is cut after ten
// seconds, at whatever point it stopped and however busy it looks.
func TestHandshakesNeverFinished(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a time-out of ten seconds")
	}
	start(t)
	header := []byte(amqp091.ProtocolHeader)
	startOk := amqp091.AppendMethod(nil, 0, amqp091.ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00guest\x00guest"})
	tuneOk := amqp091.AppendMethod(nil, 0, amqp091.ConnectionTuneOk{ChannelMax: 10, FrameMax: 8192})
	slowly := append(header[:8:8], startOk...)
	stages := [][]byte{nil, header[:5], header, append(header[:8:8], startOk[:9]...), slowly, append(slowly[:len(slowly):len(slowly)], tuneOk...)}
	attack(t, 64*mib, func() func() {
		began := time.Now()
		var all []*raw
		for range 100 {
			for _, stage := range stages {
				c := open(t)
				c.send(stage)
				all = append(all, c)
			}
		}
		// One byte at a time keeps nobody alive.
		loris := make(chan struct{})
		go func() {
			defer close(loris)
			c := open(t)
			for _, each := range slowly {
				if _, err := c.Write([]byte{each}); err != nil {
					break
				}
				time.Sleep(250 * time.Millisecond)
			}
			_ = c.Close()
		}()
		return func() {
			for _, c := range all {
				c.drain()
				_ = c.Close()
			}
			<-loris
			if took := time.Since(began); took > handshakeLimit {
				t.Errorf("unfinished handshakes were cut after %v, want %v at most", took, handshakeLimit)
			}
		}
	})
}

// Frames may come a byte at a time: the connection lives, and costs no more than any.
func TestFramesByteByByte(t *testing.T) {
	start(t)
	attack(t, 64*mib, func() func() {
		var all []*raw
		for range 100 {
			all = append(all, loginChannel(t))
		}
		b := append(publish(1, "", "nowhere", 3, noProps, false), frame(3, 1, 3, []byte("abc"), 0xCE)...)
		b = append(b, amqp091.AppendMethod(nil, 1, amqp091.BasicQos{PrefetchCount: 1})...)
		for _, each := range b[:len(b)-1] {
			for _, c := range all {
				c.send([]byte{each})
			}
		}
		return func() {
			for _, c := range all {
				c.send(b[len(b)-1:])
				c.expect(amqp091.BasicQosOkID)
				_ = c.Close()
			}
		}
	})
}
