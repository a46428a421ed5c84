package amqp10

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const testMax = 4096

func TestVectorsOfFrames(t *testing.T) {
	for _, c := range []struct {
		name string
		got  []byte
		wire string
	}{
		{"an empty frame (2.4.5)", AppendEmptyFrame(nil), "\x00\x00\x00\x08\x02\x00\x00\x00"},
		{"an end on channel 258", AppendFrame(nil, 258, &End{}), "\x00\x00\x00\x0c\x02\x00\x01\x02\x00\x53\x17\x45"},
		{"a SASL outcome", AppendFrame(nil, 0, &SASLOutcome{Code: SASLCodeAuth}), "\x00\x00\x00\x10\x02\x01\x00\x00\x00\x53\x44\xc0\x03\x01\x50\x01"},
	} {
		if string(c.got) != c.wire {
			t.Errorf("%s: got % x, want % x", c.name, c.got, c.wire)
		}
	}
}

func TestNextFrameWaitsForTheWholeFrame(t *testing.T) {
	whole := AppendFrame(nil, 3, &Detach{Handle: 1})
	for i := range whole {
		if _, n, err := NextFrame(whole[:i], testMax); n != 0 || err != nil {
			t.Fatalf("%d of %d bytes: got n = %d, error %v", i, len(whole), n, err)
		}
	}
	next := AppendEmptyFrame(bytes.Clone(whole))
	f, n, err := NextFrame(next, testMax)
	if err != nil || n != len(whole) || f.Channel != 3 || f.Type != FrameAMQP {
		t.Fatalf("got %+v, n = %d, error %v", f, n, err)
	}
	f, n, err = NextFrame(next[n:], testMax)
	if err != nil || n != frameHeaderSize || len(f.Body) != 0 {
		t.Fatalf("an empty frame: got %+v, n = %d, error %v", f, n, err)
	}
}

func TestExtendedHeadersAreSetAside(t *testing.T) {
	f, n, err := NextFrame([]byte("\x00\x00\x00\x14\x04\x01\x00\x09EXTENDEDbody"), testMax)
	if err != nil || n != 20 || string(f.Extended) != "EXTENDED" || string(f.Body) != "body" || f.Type != FrameSASL || f.Channel != 9 {
		t.Errorf("got %+v, n = %d, error %v", f, n, err)
	}
	if f.Extended = append(f.Extended, 0); string(f.Body) != "body" {
		t.Error("appending to what a frame has wrote into the buffer it aliases")
	}
}

func TestMalformedFrames(t *testing.T) {
	for _, c := range []struct{ wire, text string }{
		{"\x00\x00\x00\x07\x02\x00\x00\x01", "frame of type 0 on channel 1: size 7 is less than 8 (2.3.1)"},
		{"\x00\x00\x00\x00\x02\x00\x00\x01", "frame of type 0 on channel 1: size 0 is less than 8 (2.3.1)"},
		{"\xff\xff\xff\xff\x02\x00\x00\x01", "frame of type 0 on channel 1: size 4294967295 exceeds max-frame-size 4096 (2.3.1)"},
		{"\x00\x00\x10\x01\x02\x01\x00\x01", "frame of type 1 on channel 1: size 4097 exceeds max-frame-size 4096 (2.3.1)"},
		{"\x00\x00\x00\x08\x01\x00\x00\x01", "frame of type 0 on channel 1: doff 1 is less than 2 (2.3.1)"},
		{"\x00\x00\x00\x0b\x03\x00\x00\x01", "frame of type 0 on channel 1: doff 3 exceeds size 11 (2.3.1)"},
		{"\x00\x00\x00\x08\x02\x02\x00\x01", "frame of type 2 on channel 1: unknown type (2.3.1)"},
	} {
		_, n, err := NextFrame([]byte(c.wire), testMax)
		var fe *FrameError
		if !errors.As(err, &fe) || n != 0 || err.Error() != c.text {
			t.Errorf("% x: got n = %d, error %v, want %s", c.wire, n, err, c.text)
		}
	}
}

func TestFrameBodies(t *testing.T) {
	for _, c := range []struct {
		name      string
		frameType uint8
		body      string
		want      error
	}{
		{"open", FrameAMQP, "\x00\x53\x10\x45", nil},
		{"close", FrameAMQP, "\x00\x53\x18\x45", nil},
		{"transfer with payload", FrameAMQP, "\x00\x53\x14\x45payload", nil},
		{"SASL init", FrameSASL, "\x00\x53\x41\x45", nil},
		{"nothing", FrameAMQP, "", ErrTruncated},
		{"flow with payload", FrameAMQP, "\x00\x53\x13\x45payload", ErrTrailing},
		{"an outcome", FrameAMQP, "\x00\x53\x24\x45", ErrType},
		{"a list", FrameAMQP, "\x45", ErrType},
		{"SASL in an AMQP frame", FrameAMQP, "\x00\x53\x41\x45", ErrType},
		{"open in a SASL frame", FrameSASL, "\x00\x53\x10\x45", ErrType},
	} {
		f, _, err := NextFrame(rawFrame(c.frameType, 0, []byte(c.body)), testMax)
		if err != nil {
			t.Fatal(err)
		}
		d, v, payload, err := ReadPerformative(f)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: got error %v, want %v", c.name, err, c.want)
			continue
		}
		if err == nil && (v.Descriptor() != d || d == DescriptorTransfer && string(payload) != "payload") {
			t.Errorf("%s: got %v with %q", c.name, d, payload)
		}
		if err != nil && !strings.HasSuffix(err.Error(), "(2.3.2)") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// rawFrame is a frame with the body.
func rawFrame(frameType uint8, channel uint16, body []byte) []byte {
	b, start := BeginFrame(nil, frameType, channel)
	return EndFrame(append(b, body...), start)
}

func TestProtocolHeaders(t *testing.T) {
	for header, want := range map[string]ProtocolID{ProtocolHeader: ProtocolAMQP, ProtocolHeaderTLS: ProtocolTLS, ProtocolHeaderSASL: ProtocolSASL} {
		id, version, ok := ParseProtocolHeader([]byte(header))
		if !ok || id != want || version != [3]byte{1, 0, 0} {
			t.Errorf("%q: got %d, %v, %t", header, id, version, ok)
		}
	}
	for _, header := range []string{"", "AMQP", "AMQP\x00\x01\x00", "HTTP\x00\x01\x00\x00"} {
		if _, _, ok := ParseProtocolHeader([]byte(header)); ok {
			t.Errorf("%q is a protocol header", header)
		}
	}
	if id, version, ok := ParseProtocolHeader([]byte("AMQP\x00\x00\x09\x01")); !ok || id != 0 || version != [3]byte{0, 9, 1} {
		t.Errorf("0-9-1: got %d, %v, %t", id, version, ok)
	}
}

// A payload of any pieces goes out in frames that no limit is too small for, and comes in as it was.
func TestTransfersAreSplitByFrameSize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var pieces [][]byte
		var want []byte
		for range rapid.IntRange(0, 4).Draw(t, "pieces") {
			piece := rapid.SliceOfN(rapid.Byte(), 0, 1500).Draw(t, "piece")
			pieces, want = append(pieces, piece), append(want, piece...)
		}
		maxSize := rapid.Uint32Range(MinMaxFrameSize, 2000).Draw(t, "max-frame-size")
		first := Transfer{Handle: 300, DeliveryID: Some(uint32(1 << 20)), DeliveryTag: []byte("tag"), More: rapid.Bool().Draw(t, "more")}
		moreComes := first.More
		var out, got []byte
		transfer, sent, frames := first, 0, 0
		for {
			before := len(out)
			out, sent = AppendTransfer(out, 9, &transfer, maxSize, sent, pieces...)
			if frames++; len(out)-before > int(maxSize) {
				t.Fatalf("a frame of %d bytes", len(out)-before)
			}
			if transfer.More != (moreComes || sent < len(want)) {
				t.Fatalf("%d of %d bytes sent, more is %t", sent, len(want), transfer.More)
			}
			if sent == len(want) {
				break
			}
			transfer = Transfer{Handle: first.Handle, More: moreComes}
		}
		if least := (len(want) + int(maxSize) - 1) / int(maxSize); frames < least || frames > 1+len(want)/(int(maxSize)-60) {
			t.Fatalf("%d bytes in %d frames of %d", len(want), frames, maxSize)
		}
		for buf := out; len(buf) > 0; {
			f, n, err := NextFrame(buf, maxSize)
			if err != nil || n == 0 {
				t.Fatal(n, err)
			}
			_, v, payload, err := ReadPerformative(f)
			if err != nil {
				t.Fatal(err)
			}
			var in Transfer
			if err := in.Decode(v); err != nil || in.Handle != 300 || f.Channel != 9 {
				t.Fatalf("got %+v, error %v", in, err)
			}
			if buf = buf[n:]; in.More != (len(buf) > 0 || moreComes) {
				t.Fatalf("%d bytes follow, more is %t", len(buf), in.More)
			}
			got = append(got, payload...)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("sent %d bytes, got %d others", len(want), len(got))
		}
	})
}

func TestResponsesOfMechanisms(t *testing.T) {
	authzid, authcid, passwd, err := ParsePlain([]byte("admin\x00tim\x00tanstaaftanstaaf")) // as in RFC 4616, section 4
	if err != nil || string(authzid) != "admin" || string(authcid) != "tim" || string(passwd) != "tanstaaftanstaaf" {
		t.Errorf("PLAIN: got %q, %q, %q, error %v", authzid, authcid, passwd, err)
	}
	if got := AppendPlain(nil, "", "tim", "tanstaaftanstaaf"); string(got) != "\x00tim\x00tanstaaftanstaaf" {
		t.Errorf("PLAIN: got %q", got)
	}
	for response, want := range map[string]error{"": ErrResponse, "tim": ErrResponse, "\x00tim": ErrResponse, "\x00a\x00b\x00c": ErrResponse, "\x00\xff\x00b": ErrUTF8, "\x00\x00": nil} {
		if _, _, _, err := ParsePlain([]byte(response)); !errors.Is(err, want) {
			t.Errorf("PLAIN %q: got error %v, want %v", response, err, want)
		}
	}
	for response, want := range map[string]error{"": nil, "sirhc": nil, strings.Repeat("é", 255): nil, strings.Repeat("x", 256): ErrResponse, "a\x00": ErrResponse, "\xff": ErrUTF8} {
		trace, err := ParseAnonymous([]byte(response))
		if !errors.Is(err, want) || err == nil && string(trace) != response {
			t.Errorf("ANONYMOUS %q: got %q, error %v, want %v", response, trace, err, want)
		}
	}
	for response, want := range map[string]error{"": nil, "dn:cn=tim": nil, "a\x00": ErrResponse, "\xff": ErrUTF8} {
		authzid, err := ParseExternal([]byte(response))
		if !errors.Is(err, want) || err == nil && string(authzid) != response {
			t.Errorf("EXTERNAL %q: got %q, error %v, want %v", response, authzid, err, want)
		}
	}
}

func FuzzNextFrame(f *testing.F) {
	f.Add(AppendFrame(nil, 1, bigAttach()), uint32(4096))
	f.Add(AppendFrame(nil, 0, &SASLInit{Mechanism: []byte("PLAIN")}), uint32(512))
	f.Add(AppendEmptyFrame(nil), uint32(8))
	f.Add([]byte("\x00\x00\x00\x14\x04\x01\x00\x09EXTENDEDbody"), uint32(512))
	f.Add([]byte(ProtocolHeader), uint32(512))
	f.Fuzz(func(t *testing.T, buf []byte, limit uint32) {
		frame, n, err := NextFrame(buf, limit)
		if n < 0 || n > len(buf) || n > int(limit) {
			t.Fatalf("n = %d of %d bytes, at most %d", n, len(buf), limit)
		}
		var fe *FrameError
		if err != nil && !errors.As(err, &fe) {
			t.Fatalf("got error %T", err)
		}
		if n == 0 {
			return
		}
		if got := frameHeaderSize + len(frame.Extended) + len(frame.Body); got != n {
			t.Fatalf("%d bytes of %d", got, n)
		}
		_, v, _, err := ReadPerformative(frame)
		var de *DecodeError
		if err != nil && !errors.As(err, &de) {
			t.Fatalf("got error %T", err)
		}
		if err == nil {
			if err := NewComposite(v.Descriptor()).Decode(v); err != nil && !errors.As(err, &de) {
				t.Fatalf("got error %T", err)
			}
		}
		_ = FrameString(frame)
	})
}

func FuzzResponses(f *testing.F) {
	f.Add([]byte("admin\x00tim\x00tanstaaftanstaaf"))
	f.Add([]byte("\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if authzid, authcid, passwd, err := ParsePlain(b); err == nil {
			if again := AppendPlain(nil, string(authzid), string(authcid), string(passwd)); !bytes.Equal(again, b) {
				t.Fatalf("read %q, written %q", b, again)
			}
		}
		if trace, err := ParseAnonymous(b); err == nil && !bytes.Equal(trace, b) {
			t.Fatalf("%q is %q", b, trace)
		}
		if authzid, err := ParseExternal(b); err == nil && !bytes.Equal(authzid, b) {
			t.Fatalf("%q is %q", b, authzid)
		}
	})
}

func TestFramesAreShownInOneLine(t *testing.T) {
	header := AppendFrame(nil, 1, &Begin{RemoteChannel: Some(uint16(3)), IncomingWindow: 2048})
	for _, c := range []struct {
		wire []byte
		want string
	}{
		{AppendEmptyFrame(nil), "ch=0 empty"},
		{header, "ch=1 begin remote-channel=3 next-outgoing-id=0 incoming-window=2048 outgoing-window=0"},
		{AppendFrame(nil, 0, &SASLInit{Mechanism: []byte("PLAIN"), InitialResponse: []byte("\x00u\x00secret"), Hostname: []byte("h")}), `sasl-init mechanism=PLAIN initial-response=(9 bytes) hostname="h"`},
		{AppendFrame(nil, 1, &Attach{Name: []byte("l"), Source: MustValue((&Source{Address: []byte("/queues/q"), Capabilities: MustValue(AppendSymbols(nil, "queue"))}).Append(nil))}), `ch=1 attach name="l" handle=0 role=false source=source:["/queues/q" null null null null null null null null null [queue]]`},
		{rawFrame(FrameAMQP, 1, append((&Transfer{DeliveryTag: []byte{1, 2}}).Append(nil), "message"...)), "ch=1 transfer handle=0 delivery-tag=0102 payload=7"},
		{AppendFrame(nil, 1, &Open{ContainerID: []byte("c"), Properties: MustValue([]byte("\xc1\x0a\x04\xa3\x01a\x54\xff\xa3\x01b\x40"))}), `ch=1 open container-id="c" properties={a=-1 b=null}`},
		{AppendFrame(nil, 1, &Close{Error: &Error{Condition: []byte("amqp:not-found"), Description: []byte("no queue")}}), `ch=1 close error=error:[amqp:not-found "no queue"]`},
		{rawFrame(FrameAMQP, 1, []byte("\x00\x53\x14\x45")), "ch=1 transfer (transfer: handle: mandatory field is missing (2.7.5))"},
		{rawFrame(FrameAMQP, 1, []byte("\x45")), "ch=1 (frame body: value of another type (2.3.2))"},
	} {
		f, _, err := NextFrame(c.wire, testMax)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, FrameString(f)); diff != "" {
			t.Error(diff)
		}
	}
	long, _, err := NextFrame(AppendFrame(nil, 1, &Open{ContainerID: []byte(strings.Repeat("é", 3000))}), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if got := FrameString(long); len(got) > maxLine || !strings.HasSuffix(got, "...") {
		t.Errorf("a line of %d bytes that ends in %q", len(got), got[len(got)-3:])
	}
}
