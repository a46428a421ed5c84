package erlterm

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Term is a term that was read, and the line on which it begins, from 1.
type Term struct {
	Line int
	// Value is an Atom, int64, float64, Text, Binary, List, Group or Map.
	Value any
}

type (
	// Text is a string in double quotes, which to Erlang is a list of characters.
	Text string
	// Binary has the bytes between << and >>.
	Binary string
	// List is [a,b].
	List []Term
	// Group is a tuple, {a,b}, of terms with their lines.
	Group []Term
	// Map is #{a => b}: keys and values in turn.
	Map []Term
)

// Bounds of a text of terms. A configuration has some kilobytes.
const (
	maxText  = 4 << 20 // bytes
	maxDepth = 100     // lists and tuples in each other
)

// SyntaxError is a text that is not of terms.
type SyntaxError struct {
	Line int // from 1
	Text string
}

// Error names the line and the rule.
func (e *SyntaxError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Text) }

// Read reads a text of terms, each with a full stop behind it, as Erlang's file:consult does. It reads what configurations are
// written in: atoms, numbers, strings, binaries, lists, tuples and maps, with comments between. It calls nothing. An error is a
// *SyntaxError.
func Read(text string) (terms []Term, err error) {
	if len(text) > maxText {
		return nil, &SyntaxError{1, fmt.Sprintf("the text has more than %d bytes", maxText)}
	}
	r := reader{text: strings.TrimPrefix(text, "\ufeff"), line: 1}
	if !utf8.ValidString(r.text) {
		r.text = fromLatin1(r.text) // the encoding of files for older releases of Erlang
	}
	for {
		r.space()
		if r.text == "" {
			return terms, nil
		}
		t, err := r.term(0)
		if err == nil {
			r.space()
			err = r.fullStop()
		}
		if err != nil {
			return nil, &SyntaxError{r.line, err.Error()}
		}
		terms = append(terms, t)
	}
}

func fromLatin1(text string) string {
	runes := make([]rune, len(text))
	for i := range len(text) {
		runes[i] = rune(text[i])
	}
	return string(runes)
}

// reader reads a text from its beginning.
type reader struct {
	text string // that is left
	line int
}

// space passes over what is between tokens.
func (r *reader) space() {
	for r.text != "" {
		switch c := r.text[0]; {
		case c == '%':
			_, rest, found := strings.Cut(r.text, "\n")
			if r.text = rest; found {
				r.line++
			}
		case c <= ' ':
			if c == '\n' {
				r.line++
			}
			r.text = r.text[1:]
		case strings.HasPrefix(r.text, "\u00a0"):
			r.text = r.text[len("\u00a0"):]
		default:
			return
		}
	}
}

// takes passes over a token, and the space behind it, if it is next.
func (r *reader) takes(token string) bool {
	rest, ok := strings.CutPrefix(r.text, token)
	if ok {
		r.text = rest
		r.space()
	}
	return ok
}

// fullStop passes over the end of a term: a point with space, a comment or nothing behind it.
func (r *reader) fullStop() error {
	if r.text == "" {
		return errors.New("the text ends, and no . is behind the last term")
	}
	if r.text[0] != '.' || len(r.text) > 1 && r.text[1] > ' ' && r.text[1] != '%' {
		return fmt.Errorf("%s comes where . or , or a closing bracket is due", r.next())
	}
	r.text = r.text[1:]
	return nil
}

// next shows the beginning of what is left.
func (r *reader) next() string {
	const most = 20
	line, _, _ := strings.Cut(r.text, "\n")
	if line == "" {
		return "the end of the text"
	}
	if runes := []rune(line[:min(len(line), 4*most)]); len(runes) > most {
		line = string(runes[:most]) + "…"
	}
	return strconv.Quote(line)
}

func (r *reader) term(depth int) (Term, error) {
	t := Term{Line: r.line}
	if depth > maxDepth {
		return t, fmt.Errorf("there are more than %d lists and tuples in each other", maxDepth)
	}
	if r.text == "" {
		return t, errors.New("the text ends within a term")
	}
	var err error
	switch c, _ := utf8.DecodeRuneInString(r.text); {
	case r.takes("["):
		t.Value, err = r.list(depth)
	case r.takes("{"):
		var all []Term
		all, err = r.upTo("}", depth)
		t.Value = Group(all)
	case r.takes("#{"):
		t.Value, err = r.pairs(depth)
	case r.takes("<<"):
		t.Value, err = r.binary()
	case c == '"':
		t.Value, err = r.strings()
	case c == '\'':
		var name string
		name, err = r.quoted('\'')
		t.Value = Atom(name)
	case c == '$' || c == '-' || c == '+' || isDigit(c):
		t.Value, err = r.number()
	case unicode.IsLower(c):
		end := strings.IndexFunc(r.text, func(c rune) bool { return !unicode.IsLetter(c) && !unicode.IsDigit(c) && c != '_' && c != '@' })
		if end < 0 {
			end = len(r.text)
		}
		t.Value, r.text = Atom(r.text[:end]), r.text[end:]
	case unicode.IsUpper(c) || c == '_':
		err = fmt.Errorf("%s is a variable; only terms are read", r.next())
	default:
		err = fmt.Errorf("%s is no term", r.next())
	}
	return t, err
}

// list reads the terms of a list whose bracket is open.
func (r *reader) list(depth int) (List, error) {
	all, err := r.upTo("]", depth)
	return List(all), err
}

// upTo reads terms with commas between, up to the closing bracket.
func (r *reader) upTo(closing string, depth int) (all []Term, err error) {
	if r.takes(closing) {
		return nil, nil
	}
	for {
		t, err := r.term(depth + 1)
		if err != nil {
			return nil, err
		}
		all = append(all, t)
		r.space()
		switch {
		case r.takes(","):
		case r.takes(closing):
			return all, nil
		default:
			return nil, fmt.Errorf("%s comes where , or %s is due", r.next(), closing)
		}
	}
}

// pairs reads the keys and values of a map whose bracket is open.
func (r *reader) pairs(depth int) (all Map, err error) {
	if r.takes("}") {
		return nil, nil
	}
	for {
		for _, behind := range []string{"=>", ""} {
			t, err := r.term(depth + 1)
			if err != nil {
				return nil, err
			}
			all = append(all, t)
			r.space()
			if behind != "" && !r.takes(behind) {
				return nil, fmt.Errorf("%s comes where => is due", r.next())
			}
		}
		switch {
		case r.takes(","):
		case r.takes("}"):
			return all, nil
		default:
			return nil, fmt.Errorf("%s comes where , or } is due", r.next())
		}
	}
}

// binary reads the segments of a binary whose brackets are open: strings and bytes.
func (r *reader) binary() (Binary, error) {
	var b strings.Builder
	for first := true; ; first = false {
		r.space()
		if r.takes(">>") {
			return Binary(b.String()), nil
		}
		if !first && !r.takes(",") {
			return "", fmt.Errorf("%s comes where , or >> is due", r.next())
		}
		if strings.HasPrefix(r.text, `"`) {
			text, err := r.strings()
			if err != nil {
				return "", err
			}
			if err := r.segment(&b, text); err != nil {
				return "", err
			}
			continue
		}
		if r.text == "" || r.text[0] != '$' && !isDigit(rune(r.text[0])) {
			return "", fmt.Errorf("%s is neither a string nor a byte", r.next())
		}
		n, err := r.number()
		if err != nil {
			return "", err
		}
		value, whole := n.(int64)
		if !whole || value < 0 || value > math.MaxUint8 {
			return "", fmt.Errorf("%v is not a byte from 0 to 255", n)
		}
		b.WriteByte(byte(value))
	}
}

// segment adds a string to a binary: a byte for each character, or with /utf8 its bytes.
func (r *reader) segment(b *strings.Builder, text Text) error {
	r.space()
	if r.takes("/") {
		if !r.takes("utf8") {
			return fmt.Errorf("%s is a type of segments that is not read; utf8 is", r.next())
		}
		b.WriteString(string(text))
		return nil
	}
	for _, c := range text {
		if c > unicode.MaxLatin1 {
			return fmt.Errorf("%q needs /utf8 behind the string", c)
		}
		b.WriteByte(byte(c))
	}
	return nil
}

// strings reads a string, and those that follow it, which make one.
func (r *reader) strings() (Text, error) {
	var all strings.Builder
	for strings.HasPrefix(r.text, `"`) {
		if strings.HasPrefix(r.text, `"""`) {
			return "", errors.New("strings in triple quotes are not read")
		}
		text, err := r.quoted('"')
		if err != nil {
			return "", err
		}
		all.WriteString(text)
		r.space()
	}
	return Text(all.String()), nil
}

// quoted reads what is between two quotes.
func (r *reader) quoted(quote byte) (string, error) {
	from := r.line
	r.text = r.text[1:]
	var b strings.Builder
	for r.text != "" {
		c, n := utf8.DecodeRuneInString(r.text)
		r.text = r.text[n:]
		switch {
		case c == rune(quote):
			return b.String(), nil
		case c == '\\':
			var err error
			if c, err = r.escape(); err != nil {
				return "", err
			}
		case c == '\n':
			r.line++
		}
		b.WriteRune(c)
	}
	r.line = from
	return "", fmt.Errorf("the %c has no second one", quote)
}

// unescaped are the characters that have a letter behind a backslash.
var unescaped = map[rune]rune{'n': '\n', 'r': '\r', 't': '\t', 'v': '\v', 'b': '\b', 'f': '\f', 'e': '\x1b', 's': ' ', 'd': '\x7f', '0': 0}

// escape reads a character behind a backslash.
func (r *reader) escape() (rune, error) {
	c, n := utf8.DecodeRuneInString(r.text)
	if n == 0 {
		return 0, errors.New("the text ends behind a backslash")
	}
	switch {
	case c >= '0' && c <= '7':
		for n = 1; n < 3 && n < len(r.text) && r.text[n] >= '0' && r.text[n] <= '7'; n++ {
		}
		return r.character(r.text[:n], 8, n)
	case c == 'x' && strings.HasPrefix(r.text, "x{"):
		digits, _, closed := strings.Cut(r.text[2:], "}")
		if !closed {
			return 0, errors.New(`\x{ has no }`)
		}
		return r.character(digits, 16, len(digits)+3)
	case c == 'x' && len(r.text) >= 3:
		return r.character(r.text[1:3], 16, 3)
	case c == '^' && len(r.text) >= 2 && r.text[1] >= '@' && r.text[1] <= '_':
		c = rune(r.text[1]) & 0x1f
		r.text = r.text[2:]
		return c, nil
	}
	r.text = r.text[n:]
	if plain, ok := unescaped[c]; ok {
		return plain, nil
	}
	if c == '\n' {
		r.line++
	}
	return c, nil
}

// character is the one with the number in digits, which are in the next n bytes.
func (r *reader) character(digits string, base, n int) (rune, error) {
	code, err := strconv.ParseUint(digits, base, 32)
	if err != nil || code > unicode.MaxRune || !utf8.ValidRune(rune(code)) {
		return 0, errors.New("the number behind a backslash is not that of a character")
	}
	r.text = r.text[n:]
	return rune(code), nil
}

// number reads an integer, a float, or a character behind $.
func (r *reader) number() (any, error) {
	if rest, ok := strings.CutPrefix(r.text, "$"); ok {
		c, n := utf8.DecodeRuneInString(rest)
		if n == 0 {
			return nil, errors.New("the text ends behind $")
		}
		if r.text = rest[n:]; c == '\\' {
			var err error
			c, err = r.escape()
			return int64(c), err
		}
		if c == '\n' {
			r.line++
		}
		return int64(c), nil
	}
	sign := ""
	if c := r.text[0]; c == '-' || c == '+' {
		sign = strings.TrimPrefix(r.text[:1], "+")
		r.text = r.text[1:]
		r.space()
	}
	digits := r.digits(10)
	if digits == "" {
		return nil, fmt.Errorf("%s is no number", r.next())
	}
	base := 10
	if strings.HasPrefix(r.text, "#") {
		n, err := strconv.Atoi(digits)
		if err != nil || n < 2 || n > 36 {
			return nil, fmt.Errorf("%s is not a base from 2 to 36", digits)
		}
		base, r.text = n, r.text[1:]
		if digits = r.digits(base); digits == "" {
			return nil, fmt.Errorf("%s is no number of base %d", r.next(), base)
		}
	} else if len(r.text) > 1 && r.text[0] == '.' && isDigit(rune(r.text[1])) {
		return r.float(sign + digits)
	}
	n, err := strconv.ParseInt(sign+digits, base, 64)
	if err != nil {
		return nil, fmt.Errorf("the integer is not from %d to %d", math.MinInt64, math.MaxInt64)
	}
	return n, nil
}

// float reads what is behind the integer part.
func (r *reader) float(whole string) (float64, error) {
	r.text = r.text[1:]
	number := whole + "." + r.digits(10)
	if len(r.text) > 1 && (r.text[0] == 'e' || r.text[0] == 'E') {
		rest := r.text[1:]
		sign := ""
		if rest[0] == '-' || rest[0] == '+' {
			sign, rest = rest[:1], rest[1:]
		}
		if rest != "" && isDigit(rune(rest[0])) {
			r.text = rest
			number += "e" + sign + r.digits(10)
		}
	}
	f, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0, errors.New("the number is too large for a float")
	}
	return f, nil
}

// digits reads digits of a base. An underscore may be between two of them.
func (r *reader) digits(base int) string {
	is := func(c byte) bool {
		n, err := strconv.ParseUint(string(c), base, 8)
		return err == nil && n < uint64(base)
	}
	var b strings.Builder
	for r.text != "" {
		switch {
		case is(r.text[0]):
			b.WriteByte(r.text[0])
		case r.text[0] == '_' && b.Len() > 0 && len(r.text) > 1 && is(r.text[1]):
		default:
			return b.String()
		}
		r.text = r.text[1:]
	}
	return b.String()
}

func isDigit(c rune) bool { return c >= '0' && c <= '9' }
