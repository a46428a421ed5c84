package partition

import (
	"testing"
)

// FuzzReadOperations: nonsense is an error, and a frame's operations are read back.
func FuzzReadOperations(f *testing.F) {
	var fr frame
	fr.reset()
	fr.settle(3, 17)
	fr.settle(3, 18)
	fr.hold(3, 19, 1, 5)
	fr.hash(4, 5)
	f.Add(fr.bytes())
	f.Add(LostFrame())
	f.Fuzz(func(t *testing.T, payload []byte) {
		if !IsFrame(payload) {
			return
		}
		n := 0
		_ = ReadOperations(payload, func(o *Operation) {
			if n++; o.Kind == "" || len(o.Targets) > len(payload) || o.Record > len(payload) {
				t.Fatalf("%+v out of %d bytes", o, len(payload))
			}
		})
		if n > len(payload) {
			t.Fatalf("%d operations in %d bytes", n, len(payload))
		}
	})
}

func TestReadOperations(t *testing.T) {
	var fr frame
	fr.reset()
	fr.settle(3, 17)
	fr.settle(3, 18)
	fr.hold(4, 1, 1, 5)
	var got []Operation
	if err := ReadOperations(fr.bytes(), func(o *Operation) { got = append(got, *o) }); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0].Kind != "settle" || got[0].First != 17 || got[0].Count != 2 || got[1].Kind != "hold" || got[1].Queue != 4 {
		t.Errorf("read back: %+v", got)
	}
}
