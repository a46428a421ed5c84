package convert_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"bartleby.mq/internal/core/convert"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/wire/amqp10"
)

// outcome is what the broker keeps of an outcome's annotations.
func outcome(tb interface{ Fatalf(string, ...any) }, items ...[]byte) string {
	kept, err := convert.OutcomeAnnotations(amqp10.MustValue(mapping(items...)))
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return kept
}

// shownAnnotations are annotations of a history by their keys.
func shownAnnotations(annotations string) any {
	if annotations == "" {
		return map[string]any{}
	}
	return shown(amqp10.MustValue([]byte(annotations)))
}

// TestDL14_6_ValuesOfAnOutcome: they become what RabbitMQ makes of them.
func TestDL14_6_ValuesOfAnOutcome(t *testing.T) {
	kept := outcome(t,
		sym("x-ubyte"), ubyte(3), sym("x-ulong"), ulong(7), sym("x-huge"), ulong(1<<63), sym("x-byte"), amqp10.AppendByte(nil, -3), sym("x-int"), amqp10.AppendInt(nil, -4),
		sym("x-time"), amqp10.AppendTimestamp(nil, 1000), sym("x-char"), amqp10.AppendChar(nil, 'z'), sym("x-symbol"), sym("s"), sym("x-binary"), binary("b"),
		sym("x-octets"), binary("\xff"), sym("x-string"), str("s"), sym("x-bool"), amqp10.AppendBool(nil, true), sym("x-double"), amqp10.AppendDouble(nil, 1.5),
		sym("x-list"), list(ubyte(1), sym("s")), sym("x-map"), mapping(str("k"), ubyte(1)), sym("x-null"), amqp10.AppendNull(nil),
		sym("x-twice"), str("first"), sym("x-twice"), str("second"),
		sym("x-exchange"), str("forged"), sym("x-delivery-count"), ubyte(1), sym("x-opt-deaths"), str("forged"), sym("x-first-death-queue"), str("forged"),
	)
	want := map[string]any{
		"symbol x-ubyte": "long 3", "symbol x-ulong": "long 7", "symbol x-huge": "ulong 9223372036854775808", "symbol x-byte": "long -3", "symbol x-int": "long -4",
		"symbol x-time": "long 1000", "symbol x-char": "long 122", "symbol x-symbol": "string s", "symbol x-binary": "string b", "symbol x-string": "string s",
		"symbol x-twice": "string second",
	}
	got, _ := shownAnnotations(kept).(map[string]any)
	for k, v := range want {
		if diff := cmp.Diff(v, got[k]); diff != "" {
			t.Errorf("%s: %s", k, diff)
		}
	}
	if keys := len(want) + len([]string{"x-octets", "x-bool", "x-double", "x-list", "x-map"}); len(got) != keys {
		t.Errorf("%d annotations are kept, want %d: %v", len(got), keys, got)
	}
	if err := convert.CheckAnnotations(kept); err != nil {
		t.Error(err)
	}
}

// TestDL14_6_AnnotationsThatAreRefused say what is wrong.
func TestDL14_6_AnnotationsThatAreRefused(t *testing.T) {
	var many [][]byte
	for i := range 65 {
		many = append(many, sym(fmt.Sprint("x-", i)), ubyte(1))
	}
	for want, section := range map[string][]byte{
		"{reserved_annotation_key,{symbol,<<\"own\">>}}":                       mapping(sym("own"), ubyte(1)),
		"{reserved_annotation_key,{utf8,<<\"x-a\">>}}":                         mapping(str("x-a"), ubyte(1)),
		"annotations of an outcome: they have 16391 bytes, the limit is 16384": mapping(sym("x-a"), str(strings.Repeat("a", 16<<10-12))),
		"annotations of an outcome: there are more than 64":                    mapping(many...),
		"annotations of an outcome: a key has more than 255 bytes":             mapping(sym("x-"+strings.Repeat("a", 254)), ubyte(1)),
		"annotations of an outcome: they are no map":                           list(),
	} {
		kept, err := convert.OutcomeAnnotations(amqp10.MustValue(section))
		if kept != "" || err == nil || err.Error() != want {
			t.Errorf("%.80s: %v, want %s", kept, err, want)
		}
	}
	if kept, err := convert.OutcomeAnnotations(amqp10.Value{}); kept != "" || err != nil {
		t.Errorf("no annotations are %q, %v", kept, err)
	}
}

// TestDL14_6_MergedAnnotations: the last outcome that names a key counts, and nothing grows beyond the limits.
func TestDL14_6_MergedAnnotations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		merged, model := "", map[string]any{}
		for range rapid.IntRange(1, 30).Draw(t, "outcomes") {
			next := maps.Clone(model)
			var items [][]byte
			for range rapid.IntRange(0, 5).Draw(t, "annotations") {
				key, text := fmt.Sprint("x-", rapid.IntRange(0, 80).Draw(t, "key")), strings.Repeat("v", rapid.SampledFrom([]int{0, 1, 300, 5000}).Draw(t, "size"))
				items = append(items, sym(key), str(text))
				next["symbol "+key] = "string " + text
			}
			more, err := convert.OutcomeAnnotations(amqp10.MustValue(mapping(items...)))
			if err != nil {
				var tooMuch *convert.AnnotationsError
				if !errors.As(err, &tooMuch) {
					t.Fatal(err)
				}
				continue
			}
			var ok bool
			before := merged
			if merged, ok = convert.MergeAnnotations(before, more); ok {
				model = next
			} else if merged != before {
				t.Fatal("what had no room has changed something")
			}
			if len(merged) > convert.MaxAnnotations || len(model) > 64 {
				t.Fatalf("%d bytes of %d annotations", len(merged), len(model))
			}
			if diff := cmp.Diff(any(model), shownAnnotations(merged)); diff != "" {
				t.Fatal(diff)
			}
			if err := convert.CheckAnnotations(merged); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestDL14_6_AnnotationsBecomeHeaders: those of simple types, sorted among the headers of the death.
func TestDL14_6_AnnotationsBecomeHeaders(t *testing.T) {
	h := died()
	h.Annotations = outcome(t, sym("x-why"), str("broken"), sym("x-a"), ulong(5), sym("x-list"), list(ubyte(1)), sym("x-map"), mapping(), sym("x-bool"), amqp10.AppendBool(nil, true))
	got := map[string]string{}
	var keys []string
	for _, f := range convert.Headers(h) {
		keys = append(keys, f.Key)
		got[f.Key] = string(f.Encoded)
	}
	if !slices.IsSorted(keys) || len(keys) != len(h.Headers())+3 {
		t.Errorf("the headers are %q", keys)
	}
	if got["x-why"] != "S\x00\x00\x00\x06broken" || got["x-a"] != "l\x00\x00\x00\x00\x00\x00\x00\x05" || got["x-bool"] != "t\x01" {
		t.Errorf("the headers are %q", got)
	}
	matchable := 0
	for _, f := range convert.Matchable(h) {
		if f.Key == "x-why" || f.Key == "x-first-death-reason" {
			matchable++
		}
		if f.Key == "x-death" {
			t.Error("x-death can be matched")
		}
	}
	if matchable != 2 {
		t.Errorf("%d headers can be matched, want 2", matchable)
	}
	if plain := convert.Headers(&deadletter.History{}); len(plain) != 0 {
		t.Errorf("without a death there are headers %v", plain)
	}
}

// TestDL12_5_DeliveryTime is a moment in milliseconds, in any type of whole numbers.
func TestDL12_5_DeliveryTime(t *testing.T) {
	for want, v := range map[int64][]byte{5: amqp10.AppendTimestamp(nil, 5), 6: ulong(6), 7: amqp10.AppendInt(nil, 7), -1: str("8")} {
		at, ok := convert.DeliveryTime(outcome(t, sym("x-opt-delivery-time"), v))
		if ok != (want >= 0) || ok && at != want {
			t.Errorf("%x: %d, %v", v, at, ok)
		}
	}
	if _, ok := convert.DeliveryTime(""); ok {
		t.Error("no annotations say a time")
	}
}
