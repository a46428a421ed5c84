package message

import (
	"bytes"
	"strings"
	"testing"
)

// shortStrings are n short strings of size bytes.
func shortStrings(n, size int) []byte {
	return bytes.Repeat(append([]byte{byte(size)}, bytes.Repeat([]byte{'k'}, size)...), n)
}

// put writes an envelope as whoever stores messages does.
func put(t *testing.T, e Envelope, body []byte) Record {
	t.Helper()
	e.BodySize = len(body)
	b := make([]byte, e.Size())
	copy(e.Put(b), body)
	Record(b).Seal()
	if err := Verify(b); err != nil {
		t.Fatalf("what was written cannot be read: %v", err)
	}
	return b
}

// TestRecordIsReadAsItWasWritten looks at every length where one of the fields that hold them is full.
func TestRecordIsReadAsItWasWritten(t *testing.T) {
	long, body := bytes.Repeat([]byte{'n'}, MaxName), []byte("body")
	for _, e := range []Envelope{
		{},
		{Exchange: long, Key: long},
		{Key: []byte("k"), BCC: shortStrings(256, 255), Properties: []byte{1, 2}, Priority: 255, HasPriority: true}, // 1<<16
		{Key: []byte("k"), BCC: shortStrings(300, 255), Properties: []byte{1, 2}, Persistent: true, HasHeaders: true, HasCC: true, HasExpiration: true},
		{Exchange: long, Key: long, BCC: append(shortStrings(MaxBCC/256, 255), shortStrings(1, MaxBCC%256-1)...)},
		{Key: []byte("k"), Properties: []byte{0, 0}, Sections: &Sections{}},
		{Exchange: long, BCC: shortStrings(2, 3), Properties: []byte{1, 2, 3}, Sections: &Sections{Head: bytes.Repeat([]byte{'h'}, 1<<16), Tail: []byte("tail")}},
	} {
		r := put(t, e, body)
		priority, has := r.Priority()
		if !bytes.Equal(r.Exchange(), e.Exchange) || !bytes.Equal(r.Key(), e.Key) || !bytes.Equal(r.BCC(), e.BCC) ||
			!bytes.Equal(r.Properties(), e.Properties) || !bytes.Equal(r.Body(), body) || RecordSize(r) != len(r) ||
			r.Persistent() != e.Persistent || r.HasHeaders() != e.HasHeaders || r.HasCC() != e.HasCC || r.HasExpiration() != e.HasExpiration ||
			priority != e.Priority || has != e.HasPriority || !sameSections(r, e.Sections) {
			t.Errorf("a record with BCC keys of %d bytes is read as another: BCC of %d, properties %x, body %q", len(e.BCC), len(r.BCC()), r.Properties(), r.Body())
		}
	}
}

func sameSections(r Record, want *Sections) bool {
	if want == nil || !r.HasSections() {
		return want == nil && !r.HasSections()
	}
	got := r.Sections()
	return bytes.Equal(got.Head, want.Head) && bytes.Equal(got.Tail, want.Tail)
}

func TestRecordThatCannotBeReadIsNotWritten(t *testing.T) {
	for name, e := range map[string]Envelope{
		"exchange": {Exchange: make([]byte, MaxName+1)}, "key": {Key: make([]byte, 303)}, "bcc": {BCC: shortStrings(MaxBCC/256+1, 255)},
		"body": {BodySize: 1 << 32},
	} {
		if e.Check() == nil {
			t.Errorf("%s: it is too long", name)
		}
		if e.BodySize > 0 {
			continue
		}
		func() {
			defer func() { _ = recover() }()
			e.Put(make([]byte, e.Size()))
			t.Errorf("%s: it was written", name)
		}()
	}
}

// What earlier versions have written is senseless where a length was cut to the bits there were: it is found.
func TestCheckRecordFindsLengthsThatWereCut(t *testing.T) {
	for name, e := range map[string]Envelope{
		"exchange of 303 bytes": {Exchange: bytes.Repeat([]byte{'x'}, MaxName)}, "BCC keys that are none": {BCC: []byte{200, 'k'}},
		"sections beyond their place": {Properties: []byte{0, 0}, Sections: &Sections{Head: []byte("head")}},
		"no place for their lengths":  {Properties: []byte{0, 0, 0, 0, 0, 0, 0}},
	} {
		b := make([]byte, e.Size())
		e.Put(b)
		switch {
		case e.Sections != nil:
			b[recordHead]++
		case e.Properties != nil:
			b[11] |= 0x80
		}
		if e.Exchange != nil {
			b[18] = byte(303 & 255)
		}
		if CheckRecord(b) == nil || Verify(b) == nil {
			t.Errorf("%s: taken for a record", name)
		}
	}
}

func TestCheckName(t *testing.T) {
	for _, name := range []string{"", "q", strings.Repeat("q", MaxName), "ünïcode"} {
		if err := CheckName("queue", name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for name, want := range map[RoutingKey]string{
		RoutingKey(strings.Repeat("k", 300)): "routing_key should be at most 255 bytes, actually was 300", "a\xff": `routing_key should be UTF-8, actually was "a\xff"`,
	} {
		if err := CheckName("routing_key", name); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// FuzzPut writes what may come and reads it back.
func FuzzPut(f *testing.F) {
	f.Add([]byte("x"), []byte("k"), 3, 4, []byte{1, 2}, []byte("head"), []byte("body"), uint8(31))
	f.Add(bytes.Repeat([]byte{'x'}, 255), []byte{}, 300, 255, []byte{}, []byte{}, []byte{}, uint8(0))
	f.Add([]byte("x"), []byte("k"), 3, 4, []byte{1, 2}, []byte("head"), []byte("body"), uint8(32))
	f.Fuzz(func(t *testing.T, exchange, key []byte, keys, size int, properties, head, body []byte, flags uint8) {
		if keys < 0 || keys > 1<<12 || size < 0 || size > MaxName {
			return
		}
		e := Envelope{
			Exchange: exchange, Key: key, BCC: shortStrings(keys, size), Properties: properties, BodySize: len(body),
			Persistent: flags&1 != 0, HasHeaders: flags&2 != 0, HasCC: flags&4 != 0, HasExpiration: flags&8 != 0, HasPriority: flags&16 != 0,
		}
		if flags&32 != 0 {
			e.Sections = &Sections{Head: head, Tail: head[len(head)/2:]}
		}
		if e.Check() != nil {
			return
		}
		r := put(t, e, body)
		_, has := r.Priority()
		if !bytes.Equal(r.Exchange(), exchange) || !bytes.Equal(r.Key(), key) || !bytes.Equal(r.BCC(), e.BCC) ||
			!bytes.Equal(r.Properties(), properties) || !bytes.Equal(r.Body(), body) || RecordSize(r) != len(r) ||
			r.Persistent() != e.Persistent || r.HasHeaders() != e.HasHeaders || r.HasCC() != e.HasCC || r.HasExpiration() != e.HasExpiration || has != e.HasPriority || !sameSections(r, e.Sections) {
			t.Errorf("%+v is read as another", e)
		}
	})
}
