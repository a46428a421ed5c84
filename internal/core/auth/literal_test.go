package auth

import (
	"regexp/syntax"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// places are expressions with the variable in each kind of place.
var places = []string{
	"X", "^X$", `^X\.`, "^[X]+$", "^[^X]+$", "^[ЖX]$", "^[X-]$", "^[]X]$", "^[^]X]$", "X+", "^X{2}$", "^X*$", "^.{X}$", "^.{X,}$", "^.{1,X}$", `^\X$`, `^\\X$`, `^\\\X$`,
	`^\pX$`, `^\p{X}$`, `^\PX$`, `^\xX$`, `^\x{X}$`, `^\QX\E$`, `^\QЖ.X`, `^\Q\X\E`, `^\Q\\EX`, "^(?X)Ж$", "^(?X:a)$", "^(?P<X>a)$", "^(X|Ж)$", "^(?:X)?$", "^[[:X:]]$", "^X|Ж$", `^(?!X).*$`,
	`^(?i)X$`, "^[X&&Ж]$", "^ЖX.*$", "^(?s:X)$",
}

// A name means in an expression what a sequence of letters that mean nothing would mean there: the expression has the same parts,
// and only its letters are others. Or it is refused, and denies. BR-3.5.
func TestBR_3_5_NamesChangeNoExpression(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(
			rapid.StringOfN(rapid.RuneFrom([]rune(`-^]&~[\|()*+?.{}$,:<>=!#EQPpdDwsSzbBAiLN0159 azé€😀`+"\n")), 1, 6, -1),
			rapid.SampledFrom([]string{"a-z", "^a", "]|.*", `\E.*`, "d", "L", "5", "i", "alpha", "41", "^", "-", "]", "{client_id}", "{username}", "\x00-\x7f", `]+$|^.*`, "Greek"}),
			rapid.String(),
		).Draw(t, "name")
		plain := alike(name)
		place := rapid.SampledFrom(places).Draw(t, "place")
		for _, variable := range []string{"{username}", "{client_id}"} {
			with := func(name string) string {
				text := strings.ReplaceAll(place, "X", variable)
				return expand(withNames(text, "v", name), map[string]string{clientIDVariable: name})
			}
			if compile(with(name)) == nil {
				continue
			}
			if want, got := shape(t, with(plain)), shape(t, with(name)); want != got && !strings.Contains(place, "(?!") {
				t.Errorf("%s with %q is %s, want the parts %s", place, name, got, want)
			}
		}
	})
}

// alike is a text of as many letters, of which as many differ, and none is of a range, a class or a flag.
func alike(text string) string {
	letters := map[rune]rune{}
	return strings.Map(func(r rune) rune {
		if letters[r] == 0 {
			letters[r] = rune(0x4e00 + 2*len(letters))
		}
		return letters[r]
	}, text)
}

// shape writes the parts of an expression without the letters: a text of any length, and a class of any signs, is a dot.
func shape(t *rapid.T, text string) string {
	re, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	var write func(re *syntax.Regexp)
	write = func(re *syntax.Regexp) {
		switch re.Op {
		case syntax.OpLiteral, syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
			if s := b.String(); s == "" || s[len(s)-1] != '.' {
				b.WriteByte('.')
			}
			return
		}
		b.WriteString(re.Op.String())
		for _, sub := range re.Sub {
			write(sub)
		}
		b.WriteByte(';')
	}
	write(re)
	return b.String()
}

// In a class the letters of a name are each a sign of the class, and nothing more.
func TestBR_3_5_ANameInAClassIsASetOfLetters(t *testing.T) {
	for name, c := range map[string]struct{ is, no []string }{
		"a-z":    {[]string{"a", "z", "-", "a-z-"}, []string{"b", "m"}},
		"^a":     {[]string{"a", "^"}, []string{"b", ""}},
		"]|.*":   {[]string{"]", "|", ".", "*"}, []string{"a", "x]"}},
		`\d`:     {[]string{`\`, "d"}, []string{"1"}},
		"[:al:]": {[]string{":", "a", "l", "[", "]"}, []string{"b"}},
	} {
		for _, variable := range []string{"{username}", "{client_id}"} {
			re := newTopicPattern("^["+variable+"]+$", "v", name)
			n := re.compiled
			if n == nil {
				n = re.with(name)
			}
			for _, s := range c.is {
				if n == nil || !n.MatchString(s) {
					t.Errorf("[%s] of %q does not match %q", variable, name, s)
				}
			}
			for _, s := range c.no {
				if n != nil && n.MatchString(s) {
					t.Errorf("[%s] of %q matches %q", variable, name, s)
				}
			}
		}
	}
	for text, c := range map[string]struct{ name, is, no string }{
		`^\{username}$`:     {"d", "{username}", "5"},
		`^\p{username}$`:    {"L", "", "x"},
		`^.{{username}}$`:   {"3", "x{3}", "abc"},
		`^\Q.{username}\E$`: {"a-b", ".a-b", "xa-b"},
		`^{username}$`:      {"A.ü😀", "A.ü😀", "Axü😀"},
	} {
		n := newTopicPattern(text, "v", c.name).compiled
		if c.is != "" && (n == nil || !n.MatchString(c.is)) || n != nil && n.MatchString(c.no) {
			t.Errorf("%s with %q: does not match %q, or matches %q", text, c.name, c.is, c.no)
		}
	}
}
