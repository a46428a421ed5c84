package journal

import (
	"bytes"
	"testing"
)

func TestFrameIsTiedToItsPlace(t *testing.T) {
	key := makeFrameKey(3, 0x1234_5678_9abc_def0)
	b := make([]byte, frameHeaderBytes+5)
	key.put(b, 9000, kindPayload, MakePos(3, 8500), []byte("he"), []byte("llo"))
	parse := func(k frameKey, b []byte, offset int64) (frame, frameVerdict) {
		f, v := k.parseHeader(b, offset, int64(len(b)))
		if v == frameGood {
			v = k.parse(b, offset, &f)
		}
		return f, v
	}
	f, v := parse(key, b, 9000)
	if v != frameGood || string(f.payload) != "hello" || f.syncedTo != MakePos(3, 8500) || f.kind != kindPayload || f.bytes != int64(len(b)) {
		t.Fatalf("got %+v, verdict %d", f, v)
	}
	if _, v := parse(key, b, 9001); v != frameBroken {
		t.Errorf("one byte further: verdict %d, want broken", v)
	}
	if _, v := parse(makeFrameKey(3, 0x9234_5678_9abc_def1), b, 9000); v != frameNone {
		t.Errorf("another epoch: verdict %d, want none", v)
	}
	// An epoch so near that syncedTo still looks right: the seed of the CRC differs.
	if _, v := parse(makeFrameKey(3, 0x1234_5678_9abc_def1), b, 9000); v != frameBroken {
		t.Errorf("a near epoch: verdict %d, want broken", v)
	}
	if _, v := parse(key, b[:len(b)-1], 9000); v != frameBroken {
		t.Errorf("cut short: verdict %d, want broken", v)
	}
	for i := range b {
		for bit := range 8 {
			flipped := bytes.Clone(b)
			flipped[i] ^= 1 << bit
			if _, v := parse(key, flipped, 9000); v == frameGood {
				t.Errorf("bit %d of byte %d flipped: still good", bit, i)
			}
		}
	}
	if _, v := parse(key, make([]byte, 100), 9000); v != frameNone {
		t.Errorf("zeros: verdict %d, want none", v)
	}
}

// FuzzSegment hands arbitrary bytes to the reader of a segment's frames: it must not
// panic, must not allocate beyond the bytes, and what it takes for frames must be
// exactly what put would have written.
func FuzzSegment(f *testing.F) {
	key := makeFrameKey(1, 1<<40)
	one := make([]byte, frameHeaderBytes+3)
	key.put(one, headerBytes, kindPayload, 0, []byte("abc"))
	two := make([]byte, frameHeaderBytes)
	key.put(two, headerBytes+int64(len(one)), kindMark, MakePos(1, headerBytes+1))
	f.Add(append(bytes.Clone(one), two...))
	f.Add(append(bytes.Clone(one), 0, 0, 0, 0, 0))
	f.Add(two)
	f.Add([]byte{255, 255, 255, 255, 0, 0, 0, 0, 1, 1})
	f.Fuzz(func(t *testing.T, frames []byte) {
		data := append(header{segment: 1, epoch: 1 << 40}.encode(), frames...)
		fs := withFiles(t, map[string][]byte{segmentName(1): data}, "", nil)
		var again []byte
		_, got, err := tryOpen(fs)
		for _, r := range got {
			if r.pos.Offset()+frameHeaderBytes+int64(len(r.payload)) > int64(len(data)) {
				t.Fatalf("frame at %s of %d bytes reaches behind the file", r.pos, len(r.payload))
			}
			b := data[r.pos.Offset():][:frameHeaderBytes+len(r.payload)]
			again = append(again[:0], b...)
			synced, _ := key.syncedTo(b, r.pos.Offset())
			key.put(again, r.pos.Offset(), kindPayload, synced, r.payload)
			if !bytes.Equal(again, b) {
				t.Fatalf("frame at %s: read %x, written it would be %x", r.pos, b, again)
			}
		}
		if report, cerr := check(fs, testDir); cerr != nil || (err == nil) != (report.Damage == nil) {
			t.Fatalf("Recover: %v, Check: %v, %v", err, report.Damage, cerr)
		}
	})
}

// FuzzHeader hands arbitrary bytes to the reader of headers.
func FuzzHeader(f *testing.F) {
	f.Add(header{segment: 1, epoch: 5, prevEnd: 7}.encode(), int64(1<<20))
	f.Add([]byte{}, int64(0))
	f.Add(make([]byte, headerStride+10), int64(headerStride+10))
	f.Fuzz(func(t *testing.T, b []byte, size int64) {
		if len(b) > headerBytes {
			b = b[:headerBytes]
		}
		h, state, _, _ := decodeHeader(b, 1, size)
		if state == headerValid && h.segment != 1 {
			t.Errorf("header of segment %d taken for that of segment 1", h.segment)
		}
		if state != headerValid && h != (header{}) {
			t.Errorf("a header that is not valid says %+v", h)
		}
	})
}
