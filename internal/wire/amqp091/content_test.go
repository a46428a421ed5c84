package amqp091

import (
	"bytes"
	"testing"
)

func TestAppendBodySplitsAtFrameMax(t *testing.T) {
	body := bytes.Repeat([]byte("0123456789"), 10)
	for _, c := range []struct {
		frameMax, frames int
	}{{108, 1}, {107, 2}, {58, 2}, {9, 100}, {0, 1}, {FrameOverhead, 1}} {
		buf := AppendBody(nil, 5, body, c.frameMax)
		var got []byte
		frames := 0
		for len(buf) > 0 {
			f, n, err := NextFrame(buf, testMax)
			if err != nil || n == 0 || f.Type != FrameBody || f.Channel != 5 {
				t.Fatalf("frame-max %d: frame %+v, n = %d, error %v", c.frameMax, f, n, err)
			}
			if c.frameMax > FrameOverhead && n > c.frameMax {
				t.Errorf("frame-max %d: a frame of %d bytes", c.frameMax, n)
			}
			got, buf = append(got, f.Payload...), buf[n:]
			frames++
		}
		if frames != c.frames || !bytes.Equal(got, body) {
			t.Errorf("frame-max %d: %d frames, want %d, with %q", c.frameMax, frames, c.frames, got)
		}
	}
	if got := AppendBody(nil, 1, nil, 4096); len(got) != 0 {
		t.Errorf("an empty body has %d bytes of frames", len(got))
	}
}

func TestContentHeaderComesThroughTheWire(t *testing.T) {
	props := AppendPropsFrom(nil, PropertyList{Headers: Table{{"k", "v"}}})
	buf := AppendContentHeader([]byte("before"), 3, ClassBasic, 1<<63, props)
	f, n, err := NextFrame(buf[len("before"):], testMax)
	if err != nil || n != len(buf)-len("before") || f.Type != FrameHeader || f.Channel != 3 {
		t.Fatalf("frame %+v, n = %d, error %v", f, n, err)
	}
	class, size, got, err := ParseContentHeader(f.Payload)
	if err != nil || class != ClassBasic || size != 1<<63 || !bytes.Equal(got, props) {
		t.Errorf("got class %d, size %d, properties % x, error %v", class, size, got, err)
	}
	for i := range contentHeaderSize {
		if _, _, _, err := ParseContentHeader(f.Payload[:i]); err == nil {
			t.Errorf("a header of %d bytes was accepted", i)
		}
	}
}
