package amqp091

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

const testMax = 131072 - FrameOverhead

// rawFrame builds a frame by hand, right or wrong.
func rawFrame(frameType uint8, channel uint16, payload []byte, end byte) []byte {
	b := []byte{frameType, byte(channel >> 8), byte(channel)}
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	return append(append(b, payload...), end)
}

// header returns the 7 bytes that announce a payload.
func header(frameType uint8, channel uint16, size uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{frameType, byte(channel >> 8), byte(channel)}, size)
}

func TestBR4_8_FrameErrors(t *testing.T) {
	long := bytes.Repeat([]byte{1}, 17)
	for _, c := range []struct {
		name  string
		buf   []byte
		max   int
		code  uint16
		text  string
		whole bool // the frame can be passed over
	}{
		{"end octet", rawFrame(1, 1, []byte{0, 20, 0, 10}, 0), testMax, 501, "type 1, all octets = <<0,20,0,10>>: {invalid_frame_end_marker,0}", false},
		{"end octet, long payload", rawFrame(3, 1, long, 7), testMax, 501, "type 3, first 16 octets = <<1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1>>: {invalid_frame_end_marker,\n" + strings.Repeat(" ", 64) + "7}", false},
		{"too large, known from the header", header(3, 1, 200000), testMax, 501, "type 3, all octets = <<>>: {frame_too_large,200000,131064}", false},
		{"too large by one past the slack", header(3, 1, testMax+9), testMax, 501, "type 3, all octets = <<>>: {frame_too_large,131073,131064}", false},
		{"too large beyond all reason", header(65, 1, 0xFFFFFFFF), testMax, 501, "type 65, all octets = <<>>: {frame_too_large,4294967295,131064}", false},
		{"unknown type", rawFrame(7, 1, []byte("abc"), FrameEnd), testMax, 501, `type 7, all octets = <<"abc">>: unknown_frame`, true},
		{"unknown type, escapes", rawFrame(9, 1, []byte("a\"\\\n\x1b"), FrameEnd), testMax, 501, `type 9, all octets = <<"a\"\\\n\e">>: unknown_frame`, true},
		{"unknown type, not all printable", rawFrame(9, 1, []byte("ab\x00"), FrameEnd), testMax, 501, `type 9, all octets = <<97,98,0>>: unknown_frame`, true},
		{"unknown type, Latin-1", rawFrame(9, 1, []byte{0xE9}, FrameEnd), testMax, 501, `type 9, all octets = <<233>>: unknown_frame`, true},
		{"unknown type on channel 0", rawFrame(0, 0, nil, FrameEnd), testMax, 501, `type 0, all octets = <<>>: unknown_frame`, true},
		{"method without ids", rawFrame(1, 1, []byte{0, 20, 0}, FrameEnd), testMax, 501, "type 1, all octets = <<0,20,0>>: unknown_frame", true},
		{"content header too short", rawFrame(2, 1, []byte{0, 60}, FrameEnd), testMax, 501, "type 2, all octets = <<0,60>>: unknown_frame", true},
		{"heartbeat with payload", rawFrame(8, 0, []byte("x"), FrameEnd), testMax, 501, `type 8, all octets = <<"x">>: unknown_frame`, true},
		{"heartbeat on a channel", rawFrame(8, 1, nil, FrameEnd), testMax, 505, "type 8, all octets = <<>>", true},
		{"body on channel 0", rawFrame(3, 0, []byte("abc"), FrameEnd), testMax, 505, `type 3, all octets = <<"abc">>`, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, n, err := NextFrame(c.buf, c.max)
			var fe *FrameError
			if !errors.As(err, &fe) {
				t.Fatalf("got error %v, want a *FrameError", err)
			}
			if fe.Code != c.code || fe.Text != c.text {
				t.Errorf("got  %d %s\nwant %d %s", fe.Code, fe.Text, c.code, c.text)
			}
			want := 0
			if c.whole {
				want = len(c.buf)
			}
			if n != want {
				t.Errorf("got n = %d, want %d", n, want)
			}
			if !strings.HasPrefix(err.Error(), CodeName(c.code)+" - ") {
				t.Errorf("error %q does not begin with its code's name", err)
			}
		})
	}
}

func TestBR4_8_EightBytesOfSlack(t *testing.T) {
	payload := make([]byte, 108)
	f, n, err := NextFrame(rawFrame(3, 1, payload, FrameEnd), 100)
	if err != nil || n != 116 || len(f.Payload) != 108 {
		t.Errorf("a payload of 108 where 100 is agreed: got %d bytes, n = %d, error %v", len(f.Payload), n, err)
	}
}

func TestNextFrameWaitsForTheWholeFrame(t *testing.T) {
	whole := AppendMethod(nil, 3, QueueDeclare{Queue: "q"})
	for i := range whole {
		if _, n, err := NextFrame(whole[:i], testMax); n != 0 || err != nil {
			t.Fatalf("%d of %d bytes: got n = %d, error %v", i, len(whole), n, err)
		}
	}
	next := AppendHeartbeat(bytes.Clone(whole))
	f, n, err := NextFrame(next, testMax)
	if err != nil || n != len(whole) || f.Type != FrameMethod || f.Channel != 3 {
		t.Fatalf("got %+v, n = %d, error %v", f, n, err)
	}
	f, n, err = NextFrame(next[n:], testMax)
	if err != nil || n != FrameOverhead || f.Type != FrameHeartbeat || f.Channel != 0 {
		t.Fatalf("heartbeat: got %+v, n = %d, error %v", f, n, err)
	}
}

func TestNextFramePayloadCannotGrowIntoTheBuffer(t *testing.T) {
	buf := AppendBody(nil, 1, []byte("body"), 0)
	f, _, err := NextFrame(buf, testMax)
	if err != nil {
		t.Fatal(err)
	}
	_ = append(f.Payload, 0)
	if buf[len(buf)-1] != FrameEnd {
		t.Error("appending to a payload wrote into the buffer it aliases")
	}
}

func FuzzNextFrame(f *testing.F) {
	f.Add(AppendMethod(nil, 1, BasicPublish{RoutingKey: "q"}), 4096)
	f.Add(AppendContentHeader(nil, 1, ClassBasic, 5, []byte{0, 0}), 4096)
	f.Add(AppendBody(nil, 1, []byte("hello"), 0), 4096)
	f.Add(AppendHeartbeat(nil), 0)
	f.Add([]byte(ProtocolHeader), 0)
	f.Fuzz(func(t *testing.T, buf []byte, limit int) {
		limit = max(0, min(limit, 1<<20))
		frame, n, err := NextFrame(buf, limit)
		if n < 0 || n > len(buf) {
			t.Fatalf("n = %d of %d bytes", n, len(buf))
		}
		if n > 0 {
			if again := rawFrame(frame.Type, frame.Channel, frame.Payload, FrameEnd); !bytes.Equal(again, buf[:n]) {
				t.Fatalf("read % x, which is % x again", buf[:n], again)
			}
		}
		var fe *FrameError
		if err != nil && !errors.As(err, &fe) {
			t.Fatalf("got error %T", err)
		}
		_ = FrameString(frame)
	})
}
