package letter_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"bartleby.mq/internal/core/convert"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/wire/amqp10"
)

func described10(b []byte) []byte { return slices.Concat([]byte{0}, sym10("d"), b) }

// An edit shows what it takes out, and what gets room: a mask hides that too, though clients of AMQP 0-9-1 do not see it.
func TestAMaskHidesWhatOnlyClientsOfAMQP10See(t *testing.T) {
	inner, at := amqp10.BeginMap(nil)
	inner = amqp10.EndCompound(slices.Concat(inner, str10("secret"), str10("pin 1234")), at, 2)
	big := str10(strings.Repeat("b", 119<<10))
	for what, c := range map[string]struct {
		pairs             [][]byte
		headers, patterns bool // whether a mask of them hides it
	}{
		"nothing":      {[][]byte{str10("k"), described10(str10("v"))}, true, false}, // what is described may have names
		"a decimal":    {[][]byte{str10("k"), amqp10.AppendDecimal32(nil, [4]byte{1})}, false, false},
		"described":    {[][]byte{str10("secret"), described10(str10("pin 1234"))}, true, true},
		"in a map":     {[][]byte{str10("k"), described10(inner)}, true, true},
		"no room":      {[][]byte{str10("big"), big, str10("secret"), str10("pin 1234" + strings.Repeat("y", 5000))}, true, true},
		"another name": {[][]byte{str10("big"), big, str10("k"), str10("pin 1234" + strings.Repeat("y", 5000))}, false, true},
		"escaped":      {[][]byte{str10("k"), described10(slices.Concat([]byte{0xc0, 11, 1}, str10("a\npin 12")))}, true, false},
	} {
		rec := record10(t, append(mapOf(amqp10.DescriptorApplicationProperties, c.pairs...), amqp10.AppendData(nil, []byte("body"))...))
		for kind, want := range map[string]bool{"headers": c.headers, "patterns": c.patterns} {
			rules := letter.MaskRules{Headers: []string{"Secret"}}
			if kind == "patterns" {
				rules = letter.MaskRules{Patterns: []string{`pin \d{4}`}}
			}
			m, err := letter.NewMask(rules)
			if err != nil {
				t.Fatal(err)
			}
			if got := m.Hides(rec); got != want {
				t.Errorf("%s, %s: %v, want %v", what, kind, got, want)
			}
		}
	}
}

// Of two pairs with one name a mask hides what it hides of either: clients of AMQP 0-9-1 see the first that has room, and an edit that makes
// room says what they would see instead.
func TestAMaskHidesWhatIsBehindAHeaderOfTheSameName(t *testing.T) {
	big := sym10("x-big")
	bigger := str10(strings.Repeat("b", 119<<10))
	secret := str10("pin 1234" + strings.Repeat("y", 5000))
	annotations := func(pairs ...[]byte) []byte { return mapOf(amqp10.DescriptorMessageAnnotations, pairs...) }
	application := func(pairs ...[]byte) []byte { return mapOf(amqp10.DescriptorApplicationProperties, pairs...) }
	open := application(str10("x-k"), str10("open"))
	for what, c := range map[string]struct {
		sections []byte
		edit     string
		want     bool
	}{
		"an annotation without room":    {slices.Concat(annotations(big, bigger, sym10("x-k"), secret), open), `{"headers":{"x-big":null}}`, true},
		"a second application property": {application(str10("k"), str10("open"), str10("k"), secret), `{"headers":{"k":null}}`, true},
		"behind what the broker writes": {slices.Concat(annotations(sym10("x-opt-rabbitmq-received-time"), amqp10.AppendTimestamp(nil, 1)), application(str10("timestamp_in_ms"), str10("pin 1234"), str10("x-opt-rabbitmq-received-time"), amqp10.AppendUbyte(nil, 1))), `{"headers":{"x-opt-rabbitmq-received-time":null}}`, true},
		"nothing is hidden":             {slices.Concat(annotations(big, bigger, sym10("x-k"), str10("hid"+strings.Repeat("y", 5000))), open), `{"headers":{"x-big":null}}`, false},
		"a list that is seen":           {application(str10("list"), amqp10.AppendSymbols(nil, "a", "b")), `{"headers":{"list":null}}`, false},
	} {
		rec := record10(t, append(c.sections, amqp10.AppendData(nil, []byte("body"))...))
		m, err := letter.NewMask(letter.MaskRules{Headers: []string{"other"}, Patterns: []string{`pin \d{4}`}})
		if err != nil {
			t.Fatal(err)
		}
		e := editFrom(t, c.edit)
		_, changes, err := e.Apply(rec, &deadletter.History{})
		if got := m.Hides(rec); got != c.want {
			t.Errorf("%s: %v, want %v; the edit shows %v (%v)", what, got, c.want, changes, err)
		}
	}
}

// What would change beside what an edit names is in its error as short texts, numbers too.
func TestWhatWouldChangeTooIsShownInBrief(t *testing.T) {
	rec := record10(t, slices.Concat(
		mapOf(amqp10.DescriptorMessageAnnotations, sym10("x-big"), str10(strings.Repeat("b", 119<<10)), sym10("x-k"), str10(strings.Repeat("y", 5000))),
		mapOf(amqp10.DescriptorApplicationProperties, str10("x-k"), amqp10.AppendUbyte(nil, 7)),
		amqp10.AppendData(nil, []byte("body"))))
	e := editFrom(t, `{"headers":{"x-big":null}}`)
	want := "edit: header.x-k would change too, from 7 to " + strings.Repeat("y", 100) + "; the edit does not name it"
	if _, _, err := e.Apply(rec, &deadletter.History{}); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// A map that is edited keeps pairs whose keys are too long for AMQP 0-9-1.
func TestAnEditedMapKeepsLongKeys(t *testing.T) {
	long := strings.Repeat("k", 300)
	inner, at := amqp10.BeginMap(nil)
	inner = amqp10.EndCompound(slices.Concat(inner, str10("n"), amqp10.AppendUbyte(nil, 1), str10(long), str10("kept")), at, 4)
	rec := record10(t, append(mapOf(amqp10.DescriptorApplicationProperties, str10("map"), inner), amqp10.AppendData(nil, []byte("b"))...))
	e := editFrom(t, `{"headers":{"map":{"n":2}}}`)
	d, _, err := e.Apply(rec, &deadletter.History{})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(d.Sections.Head, slices.Concat(str10(long), str10("kept"))) {
		t.Errorf("% x", d.Sections.Head)
	}
}

// An edit of a letter with more pairs than it takes changes the body and nothing else.
func TestAnEditOfALetterWithManyPairs(t *testing.T) {
	const many = 1 << 14
	b, at := amqp10.BeginMap(amqp10.AppendDescriptor(nil, amqp10.DescriptorApplicationProperties))
	b = amqp10.EndCompound(append(b, bytes.Repeat(append(str10("k"), 0x40), many)...), at, 2*many)
	rec := record10(t, append(b, amqp10.AppendData(nil, []byte("b"))...))
	e := editFrom(t, `{"headers":{"k":1}}`)
	if _, _, err := e.Apply(rec, &deadletter.History{}); err == nil || !strings.Contains(err.Error(), "only its body can be changed") {
		t.Error(err)
	}
	e = editFrom(t, `{"body":"c"}`)
	d, _, err := e.Apply(rec, &deadletter.History{})
	if err != nil || string(d.Body) != "c" || !bytes.HasPrefix(d.Sections.Head, b) {
		t.Errorf("%q (%v)", d.Body, err)
	}
}

// A body of several data sections is shown, and searched, as what clients of AMQP 0-9-1 get.
func TestSeveralDataSectionsAreShownAsOne(t *testing.T) {
	h := deadletter.History{Deaths: []deadletter.Death{{Queue: "q", Reason: deadletter.Rejected, Count: 1, First: 1, Last: 1, Expiration: -1}}}
	l, ok := letter.NewReader(nil).Read(record10(t, full10(bodies10["two"])), h.Append(nil))
	if !ok {
		t.Fatal("it is no letter")
	}
	if body, kind, cut := l.Text(100); string(body) != "content" || kind != "" || cut {
		t.Errorf("%q %s %v", body, kind, cut)
	}
	for text, want := range map[string]bool{"content": true, "ntent": true, "tnet": false} {
		q, err := letter.ParseQuery("/", map[string][]string{"body": {text}}, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := q.Match(l); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// Keys in keys in keys of maps are quoted once for each map: that takes time for each, and memory for none that is long.
func TestKeysOfMapsThatAreMapsAreShownIfTheyAreShort(t *testing.T) {
	body := func(key []byte, depth int) []byte {
		for range depth {
			b, at := amqp10.BeginMap(nil)
			key = amqp10.EndCompound(slices.Concat(b, key, []byte{0x40}), at, 2)
		}
		return append(amqp10.AppendDescriptor(nil, amqp10.DescriptorAMQPValue), key...)
	}
	text, _, cut := convert.BodyText(record10(t, body(str10("k"), 2)), 1000)
	if string(text) != `{"{\"k\":null}":null}` || cut {
		t.Errorf("%s %v", text, cut)
	}
	rec := record10(t, body(str10(strings.Repeat("a", 1<<20)), 90))
	began := time.Now()
	text, _, cut = convert.BodyText(rec, letter.WholeText(rec))
	if strings.Contains(string(text), "aa") || !strings.Contains(string(text), "…") || cut {
		t.Errorf("%.100s %v", text, cut)
	}
	t.Log(time.Since(began))
}
