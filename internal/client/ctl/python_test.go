package ctl

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// Numbers and texts look as Python 3 prints them.
func TestValuesAsPythonPrintsThem(t *testing.T) {
	for text, want := range map[string]string{
		`0.0`: "0.0", `1e3`: "1000.0", `1.5`: "1.5", `1e16`: "1e+16", `9999999999999998.0`: "9999999999999998.0", `123456789012345678901`: "123456789012345678901",
		`0.0001`: "0.0001", `0.00001`: "1e-05", `-0.0`: "-0.0", `1E400`: "1E400", `true`: "True", `null`: "None", `"é"`: "é",
	} {
		v, err := parseOrdered(text)
		if got := pythonText(v); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		`{"b":1,"a":[],"b":2.50}`:                    `{"b": 2.5, "a": []}`,
		`[{"é":"\u0001\t\"\\/<\ud83d\ude00\u007f"}]`: `[{"\u00e9": "\u0001\t\"\\/<\ud83d\ude00` + "\x7f" + `"}]`,
		`[null,true,{}]`:                             `[null, true, {}]`,
	} {
		v, err := parseOrdered(text)
		if got := pythonJSON(v); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", text, got, err, want)
		}
	}
	v, err := parseOrdered(`[{"b":{"d":[1,2],"c":{}},"a":"é"}]`)
	want := "[\n  {\n    \"a\": \"é\",\n    \"b\": {\n      \"c\": {},\n      \"d\": [\n        1,\n        2\n      ]\n    }\n  }\n]"
	if got := prettyJSON(v); err != nil || got != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
	for _, text := range []string{"", "[", "{} {}", `{"a"}`, "nonsense"} {
		if v, err := parseOrdered(text); err == nil {
			t.Errorf("%q is %v", text, v)
		}
	}
}

// What is written as JSON is read back equal.
func FuzzJSONIsReadBackEqual(f *testing.F) {
	for _, seed := range []string{`{"a":[1,2.5,"x\n",null,true,{}],"b":"é😀"}`, `"\ud800"`, `1e309`, `-0.0`, `[[],{"":0}]`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, err := parseOrdered(text)
		if valid := json.Valid([]byte(text)); (err == nil) != valid && len(text) < 1000 {
			t.Fatalf("%q: %v, valid: %t", text, err, valid)
		}
		if err != nil {
			return
		}
		var want any
		if json.Unmarshal([]byte(text), &want) != nil {
			return // a number that does not fit
		}
		for _, written := range []string{pythonJSON(v), prettyJSON(v)} {
			var got any
			if err := json.Unmarshal([]byte(written), &got); err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("%q is written as %q and read as %v, %v", text, written, got, err)
			}
		}
		if strings.ContainsFunc(pythonJSON(v), func(r rune) bool { return r > 0x7f }) {
			t.Fatalf("%q: %s is not ASCII", text, pythonJSON(v))
		}
	})
}
