package index

import (
	"bytes"
	"reflect"
	"testing"
)

// What is read as a cursor is stored and read again as the same.
func FuzzCursorIsReadBackEqual(f *testing.F) {
	for _, c := range []Cursor{{}, {begun: true, id: MakeID(31, 1<<40)}, {ends: []uint64{0, 1 << 50, 3}}, {begun: true, id: MakeID(0, 1), ends: []uint64{7}}} {
		f.Add(c.Append(nil))
		back, err := ParseCursor(c.Append(nil))
		if err != nil || !reflect.DeepEqual(back, c) {
			f.Errorf("%+v is read back as %+v, %v", c, back, err)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := ParseCursor(b)
		if err != nil {
			return
		}
		back, err := ParseCursor(c.Append(nil))
		if err != nil || !bytes.Equal(back.Append(nil), c.Append(nil)) || !reflect.DeepEqual(back, c) {
			t.Errorf("%+v is read back as %+v, %v", c, back, err)
		}
	})
}
