package erlterm

import "testing"

func TestDL_4_3_TermsPrintAsInRabbitMQ(t *testing.T) {
	for _, c := range []struct {
		in   any
		want string
	}{
		{"x", `<<"x">>`},
		{"", `<<>>`},
		{"a\"b\\", `<<"a\"b\\">>`},
		{"\x00\x14", `<<0,20>>`},
		{"\xff", `<<255>>`},
		{"日", `<<"日"/utf8>>`},
		{int64(-1), "-1"},
		{true, "true"},
		{1.0, "1.0"},
		{1.5, "1.5"},
		{1e30, "1.0e30"},
		{[]any{int64(1), "a"}, `[1,<<"a">>]`},
		{[]Pair{{"bogus", int64(1)}}, `[{<<"bogus">>,1}]`},
		{map[string]any{"b": int64(2), "a": nil}, `#{<<"a">> => undefined,<<"b">> => 2}`},
		{Atom("invalid_overflow"), "invalid_overflow"},
	} {
		if got := Format(c.in); got != c.want {
			t.Errorf("Format(%#v) = %s, want %s", c.in, got, c.want)
		}
	}
}
