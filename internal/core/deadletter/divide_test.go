package deadletter

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
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

// A first death that differs by its numbers from another one is told in its words.
func TestDiedAlike(t *testing.T) {
	died := func(rules *Rules, at, expiration int64) *History {
		var h History
		h.Record(&Event{
			Queue: "a", Reason: Expired, Time: at, Expiration: expiration, Exchange: "x", Keys: []string{"k", "l"}, NextExchange: "dlx", NextKeys: []string{"m"},
			KeysReplaced: true, Cause: Cause{User: "u"}, Rules: rules,
		})
		return &h
	}
	for _, rules := range []*Rules{nil, {Profile: ApsaraMQ, LimitReason: "l"}} {
		one, two := died(rules, 1_700_000_000_000, -1), died(rules, 1_800_000_000_000, 77)
		got, own, ok := DiedAlike([]byte("before"), one.Append(nil), 1_800_000_000_000, 77)
		want := two.Append(nil)
		if !ok || string(got) != "before"+string(want) {
			t.Errorf("told as %x, want %x", got, want)
		}
		if _, part, _ := Divide(want, nil, nil); !bytes.HasSuffix(got, part) || own != len(part) {
			t.Errorf("%d bytes are its own, Divide says %x", own, part)
		} else if !one.Renumber(part) || !cmp.Equal(one, two) {
			t.Errorf("renumbered: %s", cmp.Diff(two, one))
		}
		if one.Renumber([]byte{1}) || one.Renumber(append(got[len(got)-own:], 0)) {
			t.Error("numbers of another kind of history were taken")
		}
	}
	several := record(death{"a", Expired, "", []string{"k"}, 5}, death{"b", Rejected, "x", []string{"k", "cc"}, -1})
	for _, h := range []*History{{}, several} {
		if _, _, ok := DiedAlike(nil, h.Append(nil), 1, 2); ok {
			t.Errorf("a history of %d deaths was taken for a first one", len(h.Deaths))
		}
	}
}

// Whatever can be divided can be united, and what does not fit together is nothing.
func FuzzDivide(f *testing.F) {
	h := record(death{"a", Expired, "", []string{"k"}, 5}, death{"b", Rejected, "x", []string{"k", "cc"}, -1})
	f.Add(h.Append(nil), []byte{1, 2})
	h.Marks, h.Cause = h.Replayed(1000), wholeCause
	f.Add(h.Append(nil), []byte{1, 2})
	f.Add(Noted(h.Append(nil), &Note{Cause: wholeCause, Key: "key", HasKey: true}), []byte{1, 2})
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
		_, _, _ = DiedAlike(nil, b, 1, 2)
		if h, err := Parse(b); err == nil && !h.Renumber(own) {
			t.Errorf("the own part of %x is not taken back", b)
		}
	})
}
