package letter

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// MaxPattern is the maximal length of a pattern, in bytes.
	MaxPattern = 200
	// maxPatternInput is how many bytes of an error text a pattern looks at.
	maxPatternInput = 1 << 10
	// maxQuoted is how long a quoted value may be, in bytes; a quotation mark without a second one within this is a character.
	maxQuoted = 200
	// longID is the length from which a word with letters and several digits is an id.
	longID = 10
)

// Pattern returns what error texts of one kind share: numbers, hexadecimal numbers, ids, dates, times and addresses
// become "#", quoted values and mail addresses "…", and runs of white space one space. It is UTF-8 of at most MaxPattern
// bytes. The same text has the same pattern in all releases, because the ids of groups depend on it.
func Pattern(text string) string {
	if len(text) > maxPatternInput {
		text = text[:maxPatternInput]
	}
	var room [MaxPattern + 64]byte
	p := patterner{in: text, out: room[:0]}
	for len(p.out) <= MaxPattern && p.step() {
	}
	out := strings.TrimRight(string(p.out), " ")
	for i := min(len(out), MaxPattern); i < len(out); i-- {
		if utf8.RuneStart(out[i]) {
			return out[:i]
		}
	}
	return out
}

type patterner struct {
	in  string
	at  int
	out []byte
}

// step reads one word, one quoted value or one other character. It returns false at the end.
func (p *patterner) step() bool {
	if p.at == len(p.in) {
		return false
	}
	switch c := p.in[p.at]; {
	case isWord(c):
		p.word()
	case c == '"' || c == '`' || c == '\'':
		if !p.quoted(p.in[p.at:p.at+1], p.in[p.at:p.at+1]) {
			p.put(c)
		}
	case c < utf8.RuneSelf:
		p.put(c)
	default:
		p.rune()
	}
	return true
}

// put copies an ASCII character; white space and control characters become one space.
func (p *patterner) put(c byte) {
	p.at++
	if c > ' ' && c != 0x7f {
		p.out = append(p.out, c)
		return
	}
	if n := len(p.out); n > 0 && p.out[n-1] != ' ' {
		p.out = append(p.out, ' ')
	}
}

// rune copies a character that is not ASCII.
func (p *patterner) rune() {
	r, n := utf8.DecodeRuneInString(p.in[p.at:])
	if closing := closingMark(r); closing != "" && p.quoted(p.in[p.at:p.at+n], closing) {
		return
	}
	switch {
	case unicode.IsDigit(r):
		p.at += n
		p.number()
	case unicode.IsSpace(r) || unicode.IsControl(r):
		p.put(' ')
		p.at += n - 1
	default: // an invalid byte becomes U+FFFD
		p.at += n
		p.out = utf8.AppendRune(p.out, r)
	}
}

// closingMark is the second quotation mark of a pair.
func closingMark(r rune) string {
	switch r {
	case '“', '„':
		return "”"
	case '«':
		return "»"
	case '‘':
		return "’"
	}
	return ""
}

// quoted replaces a quoted value. It returns false if there is none: a single quotation mark in a word, as in "can't", is
// an apostrophe.
func (p *patterner) quoted(opening, closing string) bool {
	single := closing == "'"
	if single && p.at > 0 && isWord(p.in[p.at-1]) {
		return false
	}
	begin := p.at + len(opening)
	rest := p.in[begin:min(len(p.in), begin+maxQuoted)]
	for from := 0; ; {
		i := strings.Index(rest[from:], closing)
		if i < 0 {
			return false
		}
		end := begin + from + i + len(closing)
		if single && end < len(p.in) && isWord(p.in[end]) {
			from += i + 1
			continue
		}
		p.out = append(append(append(p.out, opening...), "…"...), closing...)
		p.at = end
		return true
	}
}

// word reads letters, digits and underscores.
func (p *patterner) word() {
	if p.uuid() {
		return
	}
	begin, digits, hex := p.at, 0, true
	for p.at < len(p.in) && isWord(p.in[p.at]) {
		c := p.in[p.at]
		if isDigit(c) {
			digits++
		}
		hex = hex && isHex(c)
		p.at++
	}
	w := p.in[begin:p.at]
	before, after := byte(0), byte(0)
	if begin > 0 {
		before = p.in[begin-1]
	}
	if p.at < len(p.in) {
		after = p.in[p.at]
	}
	switch {
	case after == '@' && p.mail(begin):
	case digits == len(w),
		hex && len(w) >= 8,
		hex && digits > 0 && (len(w) >= 4 || before == ':' || after == ':' || before == '@'),
		len(w) > 2 && w[0] == '0' && (w[1] == 'x' || w[1] == 'X') && allHex(w[2:]),
		len(w) >= longID && digits >= 3 && digits < len(w),
		digits == 0 && partOfDate(w) && (p.afterNumber() || p.beforeNumber()):
		p.number()
	case (w == "AM" || w == "PM" || w == "am" || w == "pm") && p.afterNumber():
		p.out = p.out[:len(p.out)-1] // with the space
	case digits == 0:
		p.out = append(p.out, w...)
	default:
		for i := 0; i < len(w); {
			if isDigit(w[i]) {
				for i < len(w) && isDigit(w[i]) {
					i++
				}
				p.number()
				continue
			}
			p.out = append(p.out, w[i])
			i++
		}
	}
}

// number writes "#". Numbers that are joined by one character, as those of a date, a time, an address or a version, are
// one, and so is a number with its sign.
func (p *patterner) number() {
	out := p.out
	n := len(out)
	if n > 0 && out[n-1] == '#' {
		return
	}
	if n > 1 && out[n-2] == '#' && strings.IndexByte("-:./,+_T", out[n-1]) >= 0 {
		p.out = out[:n-1]
		return
	}
	if n > 2 && out[n-3] == '#' && out[n-1] == ':' && out[n-2] == ':' { // IPv6
		p.out = out[:n-2]
		return
	}
	if n > 0 && out[n-1] == '-' && (n == 1 || strings.IndexByte(" =(:[,", out[n-2]) >= 0) {
		out = out[:n-1]
	}
	p.out = append(out, '#')
}

// uuid reads a UUID.
func (p *patterner) uuid() bool {
	const size = 36
	if len(p.in)-p.at < size || p.at+size < len(p.in) && isWord(p.in[p.at+size]) {
		return false
	}
	for i, c := range []byte(p.in[p.at : p.at+size]) {
		if dash := i == 8 || i == 13 || i == 18 || i == 23; dash != (c == '-') || !dash && !isHex(c) {
			return false
		}
	}
	p.at += size
	p.number()
	return true
}

// mail reads a mail address whose first part ends at p.at. The part may have begun in words before, joined by dots.
func (p *patterner) mail(begin int) bool {
	end, dots := p.at+1, 0
	for end < len(p.in) && (isWord(p.in[end]) || p.in[end] == '-' || p.in[end] == '.' && end+1 < len(p.in) && isWord(p.in[end+1])) {
		if p.in[end] == '.' {
			dots++
		}
		end++
	}
	if dots == 0 {
		return false
	}
	for n := len(p.out); n > 0 && begin > 0 && (isWord(p.out[n-1]) || strings.IndexByte(".-+#", p.out[n-1]) >= 0); n-- {
		p.out = p.out[:n-1]
	}
	p.out = append(p.out, "…"...)
	p.at = end
	return true
}

// afterNumber says whether a number and one space stand before.
func (p *patterner) afterNumber() bool {
	n := len(p.out)
	return n > 1 && p.out[n-1] == ' ' && (p.out[n-2] == '#' || n > 2 && p.out[n-2] == ',' && p.out[n-3] == '#') || n > 1 && p.out[n-1] == '-' && p.out[n-2] == '#'
}

// beforeNumber says whether a number, or another part of a date, comes next.
func (p *patterner) beforeNumber() bool {
	rest := strings.TrimLeft(p.in[p.at:min(len(p.in), p.at+8)], " ,-.")
	return rest != "" && (isDigit(rest[0]) || len(rest) >= 3 && partOfDate(rest[:3]))
}

// partOfDate says whether w is a short name of a month or of a day of the week.
func partOfDate(w string) bool {
	switch w {
	case "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
		"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun":
		return true
	}
	return false
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isHex(c byte) bool { return isDigit(c) || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F' }

func allHex(s string) bool {
	for i := range len(s) {
		if !isHex(s[i]) {
			return false
		}
	}
	return true
}

func isWord(c byte) bool {
	return isDigit(c) || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_'
}
