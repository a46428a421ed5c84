package message

import (
	"bytes"
	"fmt"
	"testing"
)

func sealed(body int) Record {
	e := Envelope{Serial: 7, Exchange: []byte("x"), Key: []byte("key"), Properties: []byte{1, 2, 3}, BodySize: body, Persistent: true}
	b := make([]byte, e.Size())
	copy(e.Put(b), bytes.Repeat([]byte("body"), body/4+1))
	Record(b).Seal()
	return b
}

func TestSealFindsEveryFlippedBit(t *testing.T) {
	r := sealed(40)
	if err := Verify(r); err != nil || !r.Sealed() {
		t.Fatalf("a record as it was sealed: %v", err)
	}
	for i := range r {
		for bit := range 8 {
			bad := Record(bytes.Clone(r))
			bad[i] ^= 1 << bit
			if Verify(bad) == nil {
				t.Errorf("bit %d of byte %d flipped: not found", bit, i)
			}
		}
	}
	if Verify(r[:len(r)-1]) == nil || Verify(r[:10]) == nil || Verify(nil) == nil {
		t.Error("a record that is cut short was taken")
	}
}

// A lost block of a disk reads as zeros. What it has left of a record is no record.
func TestZerosAreNoRecord(t *testing.T) {
	if Verify(make([]byte, RecordHead)) == nil {
		t.Error("zeros were taken for a record")
	}
	for _, persistent := range []bool{true, false} {
		e := Envelope{Serial: 7, Exchange: []byte("x"), Key: []byte("key"), Properties: []byte{0x10, 0, 1}, BodySize: 600, Persistent: persistent}
		r := make(Record, e.Size())
		copy(e.Put(r), bytes.Repeat([]byte("body"), 150))
		r.Seal()
		for from := range r {
			for _, to := range []int{min(from+512, len(r)), len(r)} {
				bad := bytes.Clone(r)
				clear(bad[from:to])
				if !bytes.Equal(bad, r) && len(bad) >= RecordHead && RecordSize(bad) <= len(bad) && Verify(bad[:RecordSize(bad)]) == nil {
					t.Errorf("persistent %v, zeros from %d to %d: taken for a record", persistent, from, to)
				}
			}
		}
		for to := 1; to < len(r); to++ {
			bad := bytes.Clone(r)
			clear(bad[:to])
			if size := RecordSize(bad); size <= len(bad) && Verify(bad[:size]) == nil {
				t.Errorf("persistent %v, zeros up to %d: taken for a record", persistent, to)
			}
		}
	}
}

func TestLocation(t *testing.T) {
	for _, c := range []struct {
		l       Location
		space   Space
		segment uint32
		offset  uint32
		text    string
	}{
		{MakeLocation(InJournal, 3, 9000), InJournal, 3, 9000, "journal:3:9000"},
		{MakeLocation(InKeep, MaxSegment, 1<<32-1), InKeep, MaxSegment, 1<<32 - 1, "keep:536870911:4294967295"},
		{MakeLocation(InScratch, 1, 0), InScratch, 1, 0, "scratch:1:0"},
	} {
		if c.l.Space() != c.space || c.l.Segment() != c.segment || c.l.Offset() != c.offset || c.l.String() != c.text {
			t.Errorf("location %s, want %s", c.l, c.text)
		}
		if !c.l.Valid() {
			t.Errorf("%s is not valid", c.l)
		}
		if r := c.l.Ref(); !r.OnDisk() || r.Location() != c.l || Ref(c.l).OnDisk() {
			t.Errorf("%s does not survive being a Ref", c.l)
		}
	}
}

func TestPlacesThatCannotBe(t *testing.T) {
	for _, l := range []Location{0, 77, MakeLocation(InKeep, 0, 9), MakeLocation(Spaces, 1, 1), 1 << 63} {
		if l.Valid() {
			t.Errorf("%x is taken for a place", uint64(l))
		}
	}
}

func FuzzVerify(f *testing.F) {
	f.Add([]byte(sealed(10)))
	f.Add(make([]byte, recordHead))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if Verify(b) != nil {
			return
		}
		r := Record(b)
		if len(r.Body()) != r.BodySize() || RecordSize(b) != len(b) {
			t.Errorf("a record of %d bytes was taken, its head says %d", len(b), RecordSize(b))
		}
	})
}

func BenchmarkSeal(b *testing.B) {
	for _, n := range []int{128, 1024} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r := sealed(n)
			b.SetBytes(int64(n))
			for b.Loop() {
				r[checkAt], r[checkAt+1] = 0, 0
				r.Seal()
			}
		})
	}
}

func BenchmarkVerify(b *testing.B) {
	for _, n := range []int{128, 1024} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r := sealed(n)
			b.SetBytes(int64(n))
			for b.Loop() {
				if Verify(r) != nil {
					b.Fatal("bad")
				}
			}
		})
	}
}
