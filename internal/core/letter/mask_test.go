package letter_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/wire/amqp091"
)

func mask(t testing.TB, r letter.MaskRules) *letter.Mask {
	t.Helper()
	m, err := letter.NewMask(r)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// What paths name is hidden in JSON, however it is written; all else stays byte for byte.
func TestPathsHideValues(t *testing.T) {
	for _, c := range []struct{ path, body, want string }{
		{"$.iban", `{"iban": "DE89", "n": 1}`, `{"iban": "•••", "n": 1}`},
		{"$.iban", `{"\u0069ban":"DE89"}`, `{"\u0069ban":"•••"}`},
		{"$.iban", `{"iban":"DE89","iban":"FR12"}`, `{"iban":"•••","iban":"•••"}`},
		{"$.iban", `{"IBAN":7}`, `{"IBAN":"•••"}`},
		{"$.iban", `{"a":{"iban":1}}`, `{"a":{"iban":1}}`},
		{"$..iban", `{"a":[{"iban":{"x":[1,2]}}]}`, `{"a":[{"iban":"•••"}]}`},
		{"$.a[*].b", `{"a":[{"b":1},{"c":2,"b":3}]}`, `{"a":[{"b":"•••"},{"c":2,"b":"•••"}]}`},
		{"$.a[1]", "{ \"a\" : [ 1 ,\n2 ] }", "{ \"a\" : [ 1 ,\n\"•••\" ] }"},
		{"$['a b'].*", `{"a b":{"c":null,"d":true}}`, `{"a b":{"c":"•••","d":"•••"}}`},
		{"$", `[1]`, `"•••"`},
		{"$..iban", `{"payload":"{\"iban\":\"DE89\"}"}`, `{"payload":"{\"iban\":\"•••\"}"}`},
		{"$.a.iban", `{"a":" {\"iban\": 1}"}`, `{"a":" {\"iban\": \"•••\"}"}`},
		{"$.iban", "{\"iban\":1}\n{\"iban\":2}", "{\"iban\":\"•••\"}\n{\"iban\":\"•••\"}"},
		// Where nobody can tell what there is, all is hidden.
		{"$.iban", `{"iban":"DE89"`, letter.Hidden},
		{"$.iban", `iban=DE89`, letter.Hidden},
		{"$.iban", "\uFEFF{\"iban\":1}", letter.Hidden},
		{"$.iban", "\xff", letter.Hidden},
		{"$.iban", "{\"iban\":\"a\x00\"}", letter.Hidden},
		{"$.iban", strings.Repeat(`{"a":`, 300) + "1" + strings.Repeat("}", 300), letter.Hidden},
		{"$.iban", strings.Repeat(" ", letter.MaxMasked) + "1", letter.Hidden},
		{"$..iban", `{"a":"{\"iban\":1"}`, `{"a":"•••"}`},
		{"$.iban", `{"iban":1}x`, letter.Hidden},
		{"$.iban", `{"a":01}`, letter.Hidden},
		{"$.iban", ``, ``},
	} {
		m := mask(t, letter.MaskRules{Paths: []string{c.path}})
		got, masked := m.Body([]byte(c.body))
		if string(got) != c.want || masked != (c.want != c.body) {
			t.Errorf("%s in %.80s: %s, %t; want %s", c.path, c.body, got, masked, c.want)
		}
		if again, _ := m.Body(got); c.want != letter.Hidden && string(again) != c.want {
			t.Errorf("%s in %.80s, again: %s", c.path, got, again)
		}
	}
}

// What patterns match is hidden in texts and in JSON, also where an escape spells it.
func TestPatternsHideText(t *testing.T) {
	for _, c := range []struct{ patterns, body, want string }{
		{`DE\d+`, `to DE89 and DE90.`, `to ••• and •••.`},
		{`DE\d+`, `{"to":"x \u0044E89","DE1":[4111,"{\"a\":\"\\u0044E89\"}"]}`, `{"to":"x •••","•••":[4111,"{\"a\":\"•••\"}"]}`},
		{`\b4\d{3}\b`, `{"n":4111,"m":41111,"s":"4111"}`, `{"n":"•••","m":41111,"s":"•••"}`},
		{`ab bc`, `abc`, `•••`},       // overlapping matches of two patterns
		{`abc b`, `abc b`, `••• •••`}, // one within the other
		{`^secret`, `{"a":"secret of","b":"a secret"}`, `{"a":"••• of","b":"a secret"}`},
		{`DE\d+`, `{"to":"\u0044E89"`, letter.Hidden},
		{`DE\d+`, `log: \u0044E89`, letter.Hidden},
		{`DE\d+`, `{"to":"log \\u0044E89"}`, `{"to":"•••"}`},
		{`DE\d+`, "D\x00E89", letter.Hidden},
		{`DE\d+`, "plain text", "plain text"},
	} {
		got, _ := mask(t, letter.MaskRules{Patterns: strings.Fields(c.patterns)}).Body([]byte(c.body))
		if string(got) != c.want {
			t.Errorf("%s in %s: %s, want %s", c.patterns, c.body, got, c.want)
		}
	}
}

// Headers are hidden by name at any depth, and what patterns match in names, texts and numbers.
func TestHeadersAreHidden(t *testing.T) {
	m := mask(t, letter.MaskRules{Headers: []string{"Authorization"}, Patterns: []string{`\bk-\w+`, `\b4\d{3}\b`}})
	headers := map[string]any{"authorization": "x", "a": []any{map[string]any{"AUTHORIZATION": int64(7), "b": "the k-1"}}, "n": int64(4111), "f": 4111.5, "g": 4111e12, "k-2": nil, "t": true}
	got, _ := json.Marshal(m.Value(headers))
	if want := `{"a":[{"AUTHORIZATION":"•••","b":"the •••"}],"authorization":"•••","f":"•••","g":4111000000000000,"n":"•••","t":true,"•••":null}`; string(got) != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if headers["authorization"] != "x" {
		t.Error("Value has changed what it was given")
	}
}

func TestWrongMasks(t *testing.T) {
	for _, r := range []letter.MaskRules{
		{Headers: []string{""}}, {Headers: []string{"x-death"}}, {Headers: []string{"CC"}}, {Headers: make([]string, 101)}, {Headers: []string{strings.Repeat("a", 256)}},
		{Paths: []string{"a"}}, {Paths: []string{"$."}}, {Paths: []string{"$a"}}, {Paths: []string{"$[x]"}}, {Paths: []string{"$[1"}}, {Paths: []string{"$['a"}}, {Paths: []string{"$..."}}, {Paths: []string{"$.a..[-1]"}},
		{Patterns: []string{"("}}, {Patterns: []string{"a*"}}, {Patterns: []string{"^"}}, {Patterns: []string{"a\xff"}},
	} {
		if _, err := letter.NewMask(r); err == nil {
			t.Errorf("%q is taken", r)
		}
	}
	if m, err := letter.NewMask(letter.MaskRules{}); m != nil || err != nil {
		t.Error("a mask that hides nothing is one")
	}
}

// A letter behind a mask says nothing of what is hidden, wherever it was said, and is in the group that it is in without.
func TestLettersBehindAMask(t *testing.T) {
	headers := amqp091.Table{
		{Key: "x-exception-message", Value: "com.shop.BadError: no k-123 here"}, {Key: "x-exception-stacktrace", Value: "com.shop.BadError: no k-123 here\n\tat a.B\nCaused by: x.YError: k-9"},
		{Key: "__TypeId__", Value: "com.shop.Order"}, {Key: "token", Value: "k-77"},
	}
	rec := record(headers, "", "body")
	read := func(r letter.MaskRules) *letter.Letter {
		l, ok := letter.NewReader(nil).Masked(mask(t, r)).Read(rec, died(5))
		if !ok {
			t.Fatal("no letter")
		}
		return l
	}
	plain := read(letter.MaskRules{})
	if plain.IsMasked() {
		t.Error("a letter without a mask is masked")
	}
	group := plain.Group()
	for _, c := range []struct {
		rules letter.MaskRules
		want  string
	}{
		{letter.MaskRules{Headers: []string{"x-exception-message"}}, "com.shop.BadError|•••|com.shop.Order"},
		{letter.MaskRules{Headers: []string{"x-exception-message", "x-exception-stacktrace", "__typeid__"}}, "|•••|•••"},
		{letter.MaskRules{Patterns: []string{`k-\d+`, `shop\.\w+`}}, "|com.•••: no ••• here|com.•••"},
	} {
		l := read(c.rules)
		cause := l.WholeCause()
		if got := cause.Class + "|" + cause.Error + "|" + l.Type(); got != c.want || !l.IsMasked() {
			t.Errorf("%+v: %s, want %s", c.rules, got, c.want)
		}
		if strings.Contains(cause.Detail+cause.Error, "k-") && c.rules.Patterns != nil {
			t.Errorf("%+v", cause)
		}
		if l.Group() != group || l.GroupShown() == group {
			t.Errorf("group %+v, shown as %+v", l.Group(), l.GroupShown())
		}
	}
}

// A query behind a mask finds by what is shown; what would ask for hidden values is named.
func TestQueriesBehindAMask(t *testing.T) {
	m := mask(t, letter.MaskRules{Headers: []string{"token"}, Patterns: []string{`k-\d+`}})
	rec := record(amqp091.Table{{Key: "token", Value: "abc"}, {Key: "note", Value: "k-123"}, {Key: "tenant", Value: "t1"}, {Key: "x-exception-message", Value: "bad k-5"}}, "k-9", "{}")
	for _, c := range []struct {
		filter, value, asks string
		finds               bool
	}{
		{"where", "header.token=abc", "header.token", false},
		{"where", "header.TOKEN", "header.TOKEN", false},
		{"where", "header.k-123", "header.k-123", false}, // a pattern hides names, too: it would tell that there is one
		{"where", "header.tenant-k-1=x", "header.tenant-k-1", false},
		{"body", "x", "body", false},
		{"where", "header.tenant=t1", "", true},
		{"where", "header.note~k-1", "", false},
		{"where", "header.note=•••", "", true},
		{"error", "k-5", "", false},
		{"error", "bad", "", true},
		{"type", "k-9", "", false},
		{"where", "property.type~9", "", false},
		{"message_id", "m-1", "", true},
	} {
		q, err := letter.ParseQuery("/", map[string][]string{c.filter: {c.value}}, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := q.Asks(m); got != c.asks {
			t.Errorf("%s %s asks for %q, want %q", c.filter, c.value, got, c.asks)
		}
		l, _ := letter.NewReader(nil).Masked(m).Read(rec, died(5))
		if got := q.Match(l); c.asks == "" && got != c.finds {
			t.Errorf("%s %s: %t", c.filter, c.value, got)
		}
	}
}

// Property: whatever JSON surrounds a secret, it is not in what is shown, and what is shown is JSON again.
func TestNoSecretIsInAMaskedBody(t *testing.T) {
	m := mask(t, letter.MaskRules{Paths: []string{"$..secret"}, Patterns: []string{`pat[0-9]+tap`}})
	rapid.Check(t, func(t *rapid.T) {
		number := 0
		next := func(form string) string { number++; return fmt.Sprintf(form, number) }
		var value func(depth int) any
		value = func(depth int) any {
			kinds := 7
			if depth == 0 {
				kinds = 4
			}
			switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
			case 0:
				return rapid.SampledFrom([]any{nil, true, 1.5, "plain", "ü\u2028\"\\"}).Draw(t, "leaf")
			case 1:
				return "a " + next("pat%dtap") + " b"
			case 2:
				return map[string]any{"secret": next("hidden%d")}
			case 3:
				return map[string]any{next("pat%dtap"): 1.0}
			case 4:
				return []any{value(depth - 1), value(depth - 1)}
			case 5:
				return map[string]any{"a": value(depth - 1), "Secret": []any{next("hidden%d"), value(depth - 1)}}
			}
			inner, _ := json.Marshal(value(depth - 1))
			return string(inner)
		}
		text, _ := json.Marshal(value(3))
		if rapid.Bool().Draw(t, "escaped") { // each letter of the secrets as an escape
			text = []byte(strings.NewReplacer("hidden", `\u0068idden`, "pat", `\u0070at`).Replace(string(text)))
			if !json.Valid(text) {
				t.Skip("an escape within an escape")
			}
		}
		shown, _ := m.Body(text)
		if !json.Valid(shown) && string(shown) != letter.Hidden {
			t.Fatalf("%s is no JSON, of %s", shown, text)
		}
		var all []string
		var collect func(v any)
		collect = func(v any) {
			switch v := v.(type) {
			case string:
				all = append(all, v)
				var inner any
				if json.Unmarshal([]byte(v), &inner) == nil {
					collect(inner)
				}
			case []any:
				for _, e := range v {
					collect(e)
				}
			case map[string]any:
				for k, e := range v {
					all = append(all, k)
					collect(e)
				}
			}
		}
		var decoded any
		_ = json.Unmarshal(shown, &decoded)
		collect(decoded)
		if i := slices.IndexFunc(all, func(s string) bool { return strings.Contains(s, "hidden") || strings.Contains(s, "tap") }); i >= 0 {
			t.Fatalf("%q is shown of %s: %s", all[i], text, shown)
		}
	})
}

// A mask takes any bytes.
func FuzzMask(f *testing.F) {
	m := mask(f, letter.MaskRules{Paths: []string{"$..secret", "$.a[0]"}, Patterns: []string{`pat[0-9]+tap`}})
	for _, s := range []string{`{"secret":1}`, `[{"a":["x"]}]`, `"\ud800"`, `{"a":"{\"secret\":\"\\u0041\"}"}`, `{"`, `"\`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		shown, masked := m.Body(body)
		if !masked && string(shown) != string(body) {
			t.Errorf("%q became %q unsaid", body, shown)
		}
		again, _ := m.Body(shown)
		if string(again) != string(shown) && string(shown) != letter.Hidden {
			t.Errorf("%q became %q, and that %q", body, shown, again)
		}
	})
}

// Headers that are shown under other names, such as routing keys and origins, cannot be masked by name, however they are written.
func TestHeadersOfOriginsCannotBeMasked(t *testing.T) {
	for _, name := range []string{"x-original-routingKey", "x-original-exchange", "X-Original-RoutingKey", "cc", "bcc", "X-Death", "x-first-death-queue"} {
		if _, err := letter.NewMask(letter.MaskRules{Headers: []string{name}}); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if m, err := letter.NewMask(letter.MaskRules{Headers: []string{"x-original"}}); err != nil || m == nil {
		t.Error(err)
	}
}

// A body in which a path with .. can be followed in many ways is masked in time that grows with its length.
func TestDeepBodiesAreMaskedInTime(t *testing.T) {
	deep := strings.Repeat(`{"customer":{"card":`, 60)
	ones := "[" + strings.Repeat("1,", 200_000) + `{"number":"SECRET"}]`
	steps := "$" + strings.Repeat("..*", 32)
	for _, c := range []struct{ path, body string }{{"$..customer..card..number", deep + ones + strings.Repeat("}}", 60)}, {steps, strings.Repeat("[", 100) + `"SECRET"` + strings.Repeat("]", 100)}} {
		began := time.Now()
		shown, masked := mask(t, letter.MaskRules{Paths: []string{c.path}}).Body([]byte(c.body))
		if took := time.Since(began); took > 5*time.Second || !masked || strings.Contains(string(shown), "SECRET") {
			t.Fatalf("%s: %v, masked %t", c.path, took, masked)
		}
	}
	if _, err := letter.NewMask(letter.MaskRules{Paths: []string{steps + "..*"}}); err == nil {
		t.Error("a path of 33 steps is taken")
	}
}

// What a mask may cost is bounded, whatever its author writes, and what would cost more is hidden as a whole.
func TestMasksAreBounded(t *testing.T) {
	var many []string
	for range 4 {
		many = append(many, "x.{0,150}y")
	}
	if _, err := letter.NewMask(letter.MaskRules{Patterns: many}); err == nil || !strings.Contains(err.Error(), "512 steps together") {
		t.Errorf("patterns of 600 steps: %v", err)
	}
	m := mask(t, letter.MaskRules{Patterns: []string{".{0,240}.{0,240}b$"}})
	long := strings.Repeat("a", 200_000)
	if shown := m.Text(long); shown != letter.Hidden {
		t.Errorf("a text that is too much to look at: %.20s", shown)
	}
	if shown, masked := m.Body([]byte(`["` + strings.Repeat(`short","`, 30_000) + `"]`)); string(shown) != letter.Hidden || !masked {
		t.Errorf("a body of many texts: %.20s", shown)
	}
	if shown := m.Text("short"); shown != "short" {
		t.Error(shown)
	}
	var paths []string
	for i := range 100 {
		paths = append(paths, "$"+strings.Repeat("..a", 31)+"."+fmt.Sprint("k", i))
	}
	deep := mask(t, letter.MaskRules{Paths: paths})
	if shown, masked := deep.Body([]byte(strings.Repeat(`{"a":`, 100) + "[" + strings.Repeat("{},", 50_000) + "{}]" + strings.Repeat("}", 100))); string(shown) != letter.Hidden || !masked {
		t.Errorf("paths that are much to look at: %.20s, masked %t", shown, masked)
	}
	if shown, masked := deep.Body([]byte(`{"a":{"b":1}}`)); string(shown) != `{"a":{"b":1}}` || masked {
		t.Errorf("a small body: %s", shown)
	}
}

// What the expressions of a search cost is bounded: their steps together, and how much of a value they look at.
func TestSearchesAreBounded(t *testing.T) {
	var many []string
	for range 3 {
		many = append(many, "header.h~.{0,200}b")
	}
	var wrong *letter.QueryError
	if _, err := letter.ParseQuery("/", map[string][]string{"where": many}, 0); !errors.As(err, &wrong) || !strings.Contains(err.Error(), "512 steps together") {
		t.Errorf("three expressions of 200 steps: %v", err)
	}
	if _, err := letter.ParseQuery("/", map[string][]string{"where": many[:2], "error": {".{0,200}"}}, 0); !errors.As(err, &wrong) {
		t.Errorf("with that of the error: %v", err)
	}
	for at, finds := range map[int]bool{100: true, 20_000: false} {
		rec := record(amqp091.Table{{Key: "h", Value: strings.Repeat("a", at) + "needle"}}, "", "{}")
		q, err := letter.ParseQuery("/", map[string][]string{"where": {"header.h~needle"}}, 0)
		if err != nil {
			t.Fatal(err)
		}
		l, _ := letter.NewReader(nil).Read(rec, died(5))
		if got := q.Match(l); got != finds {
			t.Errorf("an expression finds a text at %d: %t", at, got)
		}
	}
}

// A rule is not refused when masks come after it. Behind them it finds no header whose value or name is hidden.
func TestAConditionDoesNotSeeHiddenHeaders(t *testing.T) {
	m := mask(t, letter.MaskRules{Headers: []string{"token"}, Patterns: []string{`cust-\d+`}})
	rec := record(amqp091.Table{{Key: "token", Value: "abc"}, {Key: "cust-4711", Value: "x"}}, "t", "{}")
	for _, where := range []string{"header.cust-4711", "header.cust-4711=x", "header.token", "header.TOKEN=abc", "header.token~^a"} {
		q, err := letter.ParseQuery("/", map[string][]string{"where": {where}}, 0)
		if err != nil {
			t.Fatal(err)
		}
		if q.Asks(m) == "" {
			t.Errorf("%s may be asked", where)
		}
		l, _ := letter.NewReader(nil).Masked(m).Read(rec, died(5))
		if q.Match(l) {
			t.Errorf("%s is found", where)
		}
	}
}
