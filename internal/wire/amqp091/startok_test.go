package amqp091

import (
	"bytes"
	"testing"
)

// FuzzDecodeStartOk: it agrees with Decode about everything but the properties that are not wanted.
func FuzzDecodeStartOk(f *testing.F) {
	f.Add(ConnectionStartOk{ClientProperties: Table{{"product", "p"}, {"list", Array{true, nil}}}, Mechanism: "PLAIN", Response: "r", Locale: "l"}.Append(nil))
	f.Add([]byte{0, 0, 0, 1, 255})
	f.Fuzz(func(t *testing.T, args []byte) {
		var want ConnectionStartOk
		wrong := want.Decode(args)
		got, err := DecodeStartOk(args, func([]byte, byte, []byte) bool { return true })
		if (err == nil) != (wrong == nil) || err != nil && err.Error() != wrong.Error() {
			t.Fatalf("Decode says %v, DecodeStartOk %v", wrong, err)
		}
		if err == nil && !bytes.Equal(got.Append(nil), want.Append(nil)) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
		_, _ = DecodeStartOk(args, func([]byte, byte, []byte) bool { return false })
	})
}

func TestUnwantedPropertiesCostNothing(t *testing.T) {
	list := make(Array, 7400)
	for i := range list {
		list[i] = nil
	}
	args := ConnectionStartOk{ClientProperties: Table{{"list", list}}, Mechanism: "PLAIN"}.Append(nil)
	if n := testing.AllocsPerRun(10, func() {
		if _, err := DecodeStartOk(args, func([]byte, byte, []byte) bool { return false }); err != nil {
			t.Fatal(err)
		}
	}); n > 5 {
		t.Errorf("%v allocations", n)
	}
}
