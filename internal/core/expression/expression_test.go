package expression

import (
	"errors"
	"regexp"
	"strings"
	"testing"
)

func TestExpressionsAreBounded(t *testing.T) {
	for name, text := range map[string]string{
		"long":                      strings.Repeat("a", MaxBytes+1),
		"repetition":                "a{1000}",
		"many repetitions":          strings.Repeat(".{0,1000}", 100) + "b$",
		"one too many":              strings.Repeat("a{255}", 3),
		"nested repetition":         "((abcdefgh){10}){60}",
		"repetition of texts":       "(?:" + strings.Repeat("x", 500) + "){9}",
		"open repetition":           "a{600,}",
		"classes":                   strings.Repeat(`\pL`, 500),
		"long and broken":           strings.Repeat("(", MaxBytes+1),
		"a text after a repetition": "^.{0,3}" + strings.Repeat("a", 600),
		"a text anywhere":           strings.Repeat("a", 600),
		"behind a look-ahead":       `^(?!amq\.).{0,1000}`,
		"in a look-ahead":           `^(?!.{0,1000}b).*`,
		"wide ranges without case":  "(?i)" + strings.Repeat("[B-\U0001e942]", 400),
		"the same in a class":       "a(?i:[" + strings.Repeat("B-\U0001e942", 400) + "])",
		"the same by numbers":       "(?i)[" + strings.Repeat(`B-\x{1E942}`, 100) + "]",
	} {
		re, err := Compile(text)
		if tooLarge := (*TooLarge)(nil); re != nil || !errors.As(err, &tooLarge) {
			t.Errorf("%s: %v, want that it is too large", name, err)
		}
		if _, err := CompileName(text); err == nil {
			t.Errorf("%s: is taken for names", name)
		}
	}
	for _, text := range []string{
		"", ".*", "^amq\\.", "^(orders|invoices)$", "^.{0,255}$", `^\p{L}{1,255}$`, "a{500}", "(?i)^[a-z0-9._-]{1,255}$", "(?i)^[а-яё0-9]+-[α-ω]+$", "(?i)^[一-龥ぁ-ん]{1,20}$", `(?i)[^\x{0}-\x{ff}]`, "[B-\U0001e942]{100}",
		"^(" + strings.Repeat("some.queue|", 300) + "last)$",
	} {
		if _, err := Compile(text); err != nil {
			t.Errorf("%.40s: %v", text, err)
		}
	}
}

// What RabbitMQ's users write for "all but" means that; other look-aheads are refused in Go's words.
func TestALookAheadAtTheBeginningIsAllBut(t *testing.T) {
	for _, c := range []struct {
		text   string
		is, no []string
	}{
		{`^(?!amq\.).*`, []string{"", "orders", "x.amq.y", "amq"}, []string{"amq.gen-1", "amq."}},
		{`^(?!amq\.|mgmt\.).+$`, []string{"orders", "amqp"}, []string{"", "amq.x", "mgmt.x"}},
		{`^(?!(?:a|b)[)x]).*c`, []string{"abc", "bc"}, []string{"a)c", "bxc", "ab"}},
		{`^(?!a[]|]).*`, []string{"ab"}, []string{"a]", "a|"}},
		{`^(?![[:alpha:])]|\d).*`, []string{"", "_a"}, []string{"a", ")", "1"}},
		{`(?i)^(?!AMQ\.)o`, []string{"Orders", "o"}, []string{"amq.o", "x"}},
		{`(?i)^(?!o\.)o`, []string{"Orders", "o"}, []string{"O.x"}},
		{`^(?!a)(b|c)$`, []string{"b", "c"}, []string{"a", "bc"}},
	} {
		n, err := CompileName(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		for _, name := range c.is {
			if !n.MatchString(name) {
				t.Errorf("%s does not match %q", c.text, name)
			}
		}
		for _, name := range c.no {
			if n.MatchString(name) {
				t.Errorf("%s matches %q", c.text, name)
			}
		}
	}
	for _, text := range []string{`^(?!a)b|c`, `(?!a)b`, `^x(?!a)b`, `^(?!a)x[[:alpha:](]|b`, `^(?!a)*b`, `^(?!a){0}b`, `^(?!a)?b`, `^(?!a`, `^(?!\Qa)\E)b`, `^(?!(?!a)b)c`} {
		if n, err := CompileName(text); err == nil {
			t.Errorf("%s is taken as %v", text, n)
		}
	}
}

func FuzzCompileName(f *testing.F) {
	for _, text := range []string{`^(?!amq\.).*`, "^(a|b){3}$", `^(?!a[]|]).*`, `\pL{20}`} {
		f.Add(text, "amq.a")
	}
	f.Fuzz(func(t *testing.T, text, name string) {
		n, err := CompileName(text)
		if err != nil {
			return
		}
		got := n.MatchString(name)
		if re, err := regexp.Compile(text); err == nil && got != re.MatchString(name) {
			t.Errorf("%q matches %q: %v, and not so for Go", text, name, got)
		}
	})
}
