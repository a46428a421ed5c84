package deadletter

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

var wholeCause = Cause{
	ConsumerTag: "tag", Connection: "10.0.0.1:50000 -> 10.0.0.2:5672", User: "user", Error: "error",
	Name: "billing", Product: "product", Version: "1.2", Class: "class", Detail: "detail", DeliveryCount: 300,
}

func anyCause(t *rapid.T) Cause {
	text := func(what string) string { return rapid.SampledFrom([]string{"", "", "x", "\xff"}).Draw(t, what) }
	return Cause{
		ConsumerTag: text("tag"), Connection: text("connection"), User: text("user"), Error: text("error"),
		Name: text("name"), Product: text("product"), Version: text("version"), Class: text("class"), Detail: text("detail"),
		DeliveryCount: rapid.SampledFrom([]uint32{0, 0, 1, 128, 1<<32 - 1}).Draw(t, "deliveries"),
	}
}

// A cause of which nothing new is known is stored as releases without it stored it, and nothing empty is stored.
func TestNothingEmptyIsStoredOfACause(t *testing.T) {
	size := func(c Cause) int { return len((&History{Cause: c}).Append(nil)) }
	if got := (&History{Cause: Cause{User: "u"}}).Append(nil); got[1] != 0 || size(Cause{User: "u"}) != size(Cause{})+1 {
		t.Errorf("stored as %x", got)
	}
	if extra := size(Cause{Product: "RabbitMQ"}) - size(Cause{}); extra != 1+1+len("RabbitMQ") {
		t.Errorf("a product takes %d bytes", extra)
	}
}

// A note is in a history until its death is recorded. It is read back, clients see nothing of it, and the message keeps what
// it had without it.
func TestANoteLastsUntilTheDeath(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h History
		h.Delayed = rapid.Bool().Draw(t, "delayed")
		for range rapid.IntRange(0, 3).Draw(t, "deaths") {
			h.Record(&Event{
				Queue: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "queue"), Reason: Rejected, Time: 5, Expiration: -1,
				Keys: []string{"k"}, NextKeys: []string{"l"}, Cause: anyCause(t),
			})
		}
		h.Annotations = rapid.SampledFrom([]string{"", "", "annotations"}).Draw(t, "annotations")
		if rapid.Bool().Draw(t, "moved") {
			h.Marks = h.Moved(rapid.Uint64Range(1, 300).Draw(t, "job"), "dlq")
		}
		stored := h.Append(nil)
		if h.Fresh() && h.Annotations == "" && rapid.Bool().Draw(t, "none") {
			stored = nil
		}
		n := Note{Cause: anyCause(t), HasKey: rapid.Bool().Draw(t, "has key")}
		if n.HasKey {
			n.Key = rapid.SampledFrom([]string{"", "key"}).Draw(t, "key")
		}
		sent := n
		sent.Annotations = rapid.SampledFrom([]string{"", "merged elsewhere"}).Draw(t, "of the note")
		if back, err := ParseNote(sent.Append(nil)); err != nil || *back != sent || back.HasWords() != (n != Note{}) {
			t.Fatalf("%+v is read back as %+v, %v", sent, back, err)
		}
		noted := Noted(stored, &sent)
		back, err := Parse(noted)
		if err != nil || back.Note == nil || *back.Note != n {
			t.Fatalf("the note is read back as %+v, %v, want %+v", back.Note, err, n)
		}
		shared, own, ok := Divide(noted, nil, nil)
		if !ok || !bytes.Equal(Unite(nil, shared, own), noted) {
			t.Fatalf("%x is not divided and united", noted)
		}
		if HeadSent(shared) != HeadSent(stored) || StoredKeepsTTL(noted) != h.KeepsTTL() || back.Fresh() != h.Fresh() {
			t.Fatal("the note changes what the message has")
		}
		if h.KeepsTTL() && !HeadMayKeepTTL(shared) {
			t.Fatal("the shared part hides that the message keeps its TTL")
		}
		if diff := cmp.Diff(h.Headers(), back.Headers()); diff != "" {
			t.Fatalf("clients see the note (-want +got):\n%s", diff)
		}
		again := Noted(noted, &Note{})
		if back, err := Parse(again); err != nil || *back.Note != (Note{}) {
			t.Fatalf("another note takes its place: %+v, %v", back.Note, err)
		}
		e := Event{Queue: "q", Reason: Rejected, Time: 7, Expiration: -1, Keys: []string{"k"}}
		back.Record(&e)
		h.Record(&e)
		if diff := cmp.Diff(h, back, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("the note is left after the death (-want +got):\n%s", diff)
		}
	})
}

// What no release has written is refused.
func TestSenselessCauses(t *testing.T) {
	good := (&History{Cause: Cause{Product: "p"}}).Append(nil)
	at := bytes.Index(good, []byte{causeProduct, 1, 'p'})
	for what, mask := range map[string]byte{"a mask of tomorrow": 1 << 7, "a key without a note": causeKey, "no note": causeProduct | causeNote, "nothing": 0} {
		b := bytes.Clone(good)
		b[at] = mask
		if h, err := Parse(b); err == nil {
			t.Errorf("%s is read as %+v", what, h)
		}
	}
	note := (&Note{Cause: wholeCause, HasKey: true}).Append(nil)
	for n := range note {
		if got, err := ParseNote(note[:n]); err == nil {
			t.Errorf("%d bytes of %d are read as %+v", n, len(note), got)
		}
	}
	if got, err := ParseNote((&History{Note: &Note{}}).Append(nil)); err == nil {
		t.Errorf("a history is read as %+v", got)
	}
}

func TestThePeerIsInTheNameOfItsConnection(t *testing.T) {
	if got := wholeCause.Peer(); got != "10.0.0.1:50000" {
		t.Errorf("the peer is %q", got)
	}
	if got := (&Cause{Connection: "shovel"}).Peer(); got != "" {
		t.Errorf("the peer of a shovel is %q", got)
	}
}
