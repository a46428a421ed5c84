package deadletter

import (
	"bytes"
	"testing"
)

// What was divided is united to what it was; what differs in times, counts and
// expirations only has the same shared part.
func TestDivideUnite(t *testing.T) {
	one := record(death{"a", Expired, "", []string{"k"}, 5}, death{"b", Rejected, "x", []string{"k", "cc"}, -1})
	two := record(death{"a", Expired, "", []string{"k"}, 5}, death{"b", Rejected, "x", []string{"k", "cc"}, -1})
	for i := range two.Deaths {
		two.Deaths[i].First += 100_000
		two.Deaths[i].Last += 1 << 40
		two.Deaths[i].Count = 300
		two.Deaths[i].Expiration = 70
	}
	var parts [][]byte
	for _, h := range []*History{one, two, {}} {
		b := h.Append(nil)
		shared, own, ok := Divide(b, nil, nil)
		if got := Unite([]byte("x"), shared, own); !ok || !bytes.Equal(got[1:], b) {
			t.Errorf("united to %x, want %x", got[1:], b)
		}
		parts = append(parts, shared)
	}
	if !bytes.Equal(parts[0], parts[1]) {
		t.Errorf("the shared parts are %x and %x, want the same", parts[0], parts[1])
	}
}

// Whatever can be divided can be united, and what does not fit together is nothing.
func FuzzDivide(f *testing.F) {
	h := record(death{"a", Expired, "", []string{"k"}, 5}, death{"b", Rejected, "x", []string{"k", "cc"}, -1})
	f.Add(h.Append(nil), []byte{1, 2})
	f.Add(apsaraRecord(Rules{LimitReason: "l"}, death{"a", Nacked, "", []string{"k"}, 5}).Append(nil), []byte{1, 2})
	f.Fuzz(func(t *testing.T, b, other []byte) {
		Unite(nil, b, other)
		Unite(nil, other, b)
		shared, own, ok := Divide(b, nil, nil)
		if !ok {
			if _, err := Parse(b); err == nil {
				t.Error("a history cannot be divided")
			}
			return
		}
		if got := Unite(nil, shared, own); !bytes.Equal(got, b) {
			t.Errorf("%x was divided and united to %x", b, got)
		}
	})
}
