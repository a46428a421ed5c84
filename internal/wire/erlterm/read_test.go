package erlterm

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// bare is a term without lines.
func bare(t Term) any {
	each := func(list []Term) (all []any) {
		for _, t := range list {
			all = append(all, bare(t))
		}
		return all
	}
	switch v := t.Value.(type) {
	case List:
		return append([]any{"list"}, each(v)...)
	case Group:
		return append([]any{"tuple"}, each(v)...)
	case Map:
		return append([]any{"map"}, each(v)...)
	}
	return t.Value
}

func TestRead(t *testing.T) {
	for text, want := range map[string]any{
		"a.":                              Atom("a"),
		"rabbit@host_1 .":                 Atom("rabbit@host_1"),
		`'PLAIN'.`:                        Atom("PLAIN"),
		`'it\'s'.`:                        Atom("it's"),
		"0.":                              int64(0),
		"-5672.":                          int64(-5672),
		"1_000_000.":                      int64(1_000_000),
		"16#FF.":                          int64(255),
		"16#ff_ff.":                       int64(65535),
		"2#101.":                          int64(5),
		"$a.":                             int64('a'),
		`$\n.`:                            int64('\n'),
		"0.4.":                            0.4,
		"-1.5e-3.":                        -0.0015,
		"9223372036854775807.":            int64(9223372036854775807),
		`"".`:                             Text(""),
		`"a\"b\\\n\x41\x{e9}\101\^A".`:    Text("a\"b\\\nAéA\x01"),
		`"a" % and` + "\n" + ` "b".`:      Text("ab"),
		"\"two\nlines\".":                 Text("two\nlines"),
		`<<>>.`:                           Binary(""),
		`<<"x">>.`:                        Binary("x"),
		`<<"é"/utf8>>.`:                   Binary("é"),
		`<<"é">>.`:                        Binary("\xe9"),
		`<<"a", 0, 255, $b>>.`:            Binary("a\x00\xffb"),
		"[].":                             []any{"list"},
		"[a, {b, [1]}, {}].":              []any{"list", Atom("a"), []any{"tuple", Atom("b"), []any{"list", int64(1)}}, []any{"tuple"}},
		"#{}.":                            []any{"map"},
		"#{a => 1, <<\"b\">> => [c]}.":    []any{"map", Atom("a"), int64(1), Binary("b"), []any{"list", Atom("c")}},
		"% nothing but this\n[\n% x.\n].": []any{"list"},
		"[1].%":                           []any{"list", int64(1)},
	} {
		got, err := Read(text)
		if err != nil || len(got) != 1 {
			t.Errorf("%s: %v, %v", text, got, err)
			continue
		}
		if diff := cmp.Diff(want, bare(got[0])); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

func TestReadKnowsLines(t *testing.T) {
	got, err := Read("% one\n[{a,\n  \"x\ny\"},\n {b, 1}].\nc.\n")
	if err != nil || len(got) != 2 || got[0].Line != 2 || got[1].Line != 6 {
		t.Fatalf("%+v, %v", got, err)
	}
	if b := got[0].Value.(List)[1]; b.Line != 5 || b.Value.(Group)[1].Line != 5 {
		t.Errorf("%+v", b)
	}
}

// What is wrong is named with its line, and nothing is called or guessed.
func TestReadErrors(t *testing.T) {
	for text, want := range map[string]string{
		"[a":                       `line 1: the end of the text comes where , or ] is due`,
		"[a,\n\n b c].":            `line 3: "c]." comes where , or ] is due`,
		"[a,].":                    `line 1: "]." is no term`,
		"a":                        "line 1: the text ends, and no . is behind the last term",
		"a.b":                      `line 1: ".b" comes where . or , or a closing bracket is due`,
		"\n\"open":                 `line 2: the " has no second one`,
		"X.":                       `line 1: "X." is a variable; only terms are read`,
		"[a|b].":                   `line 1: "|b]." comes where , or ] is due`,
		"fun() -> ok end.":         `line 1: "() -> ok end." comes where . or , or a closing bracket is due`,
		"<<256>>.":                 "line 1: 256 is not a byte from 0 to 255",
		`<<"日">>.`:                 `line 1: '日' needs /utf8 behind the string`,
		"<<1:16>>.":                `line 1: ":16>>." comes where , or >> is due`,
		"99999999999999999999.":    "line 1: the integer is not from -9223372036854775808 to 9223372036854775807",
		"1.0e999.":                 "line 1: the number is too large for a float",
		"37#1.":                    "line 1: 37 is not a base from 2 to 36",
		"#{a => }.":                `line 1: "}." is no term`,
		"#{a}.":                    `line 1: "}." comes where => is due`,
		`"""` + "\nx\n" + `""".`:   "line 1: strings in triple quotes are not read",
		`"\x{110000}".`:            "line 1: the number behind a backslash is not that of a character",
		strings.Repeat("[", 200):   "line 1: there are more than 100 lists and tuples in each other",
		strings.Repeat("{", 200):   "line 1: there are more than 100 lists and tuples in each other",
		"listeners.tcp.1 = 5672":   `line 1: ".tcp.1 = 5672" comes where . or , or a closing bracket is due`,
		strings.Repeat(" ", 5<<20): "line 1: the text has more than 4194304 bytes",
	} {
		_, err := Read(text)
		var syntax *SyntaxError
		if !errors.As(err, &syntax) || err.Error() != want {
			t.Errorf("%.40q: %v, want %s", text, err, want)
		}
	}
}

// No text panics, and each error is of a line of the text.
func FuzzRead(f *testing.F) {
	f.Add("[{rabbit, [{tcp_listeners, [5672, {\"127.0.0.1\", 5673}]}, {default_user, <<\"x\"/utf8>>}]}]. % end\n")
	f.Add("#{'a b' => 16#FF, $\\x{41} => -1.5e3}.")
	f.Add("<<1,2,\"\\^A\">>.\n\"\"\"")
	f.Fuzz(func(t *testing.T, text string) {
		_, err := Read(text)
		if err == nil {
			return
		}
		var syntax *SyntaxError
		if !errors.As(err, &syntax) || syntax.Line < 1 || syntax.Line > strings.Count(text, "\n")+1 {
			t.Errorf("%v", err)
		}
	})
}
