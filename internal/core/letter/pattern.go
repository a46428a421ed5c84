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
)

// Pattern returns what error texts of one cause share. A word that is a value becomes "#": a number, an id, a date, a
// duration, an amount, an address. Quoted values that are no names, and mail addresses, become "…", and runs of white
// space one space. What tells causes apart stays: names, quoted or not, and numbers that the words before them make a code,
// as in "status 503", "ORA-00001" or "exit 137". A word is replaced as a whole or not at all, because what is left of an
// id would make a group of each.
//
// The obvious other way is to learn which words vary from the texts that came before, as miners of log templates do. Then
// the group of a letter would depend on the letters that the node has seen, and differ between nodes. So a pattern is a
// function of its text alone. It is UTF-8 of at most MaxPattern bytes, and the same in all releases, because the ids of
// groups depend on it.
func Pattern(text string) string {
	if len(text) > maxPatternInput {
		text = text[:maxPatternInput]
	}
	p := patterner{in: text, closing: -1}
	for p.n <= MaxPattern && p.at < len(p.in) {
		p.step()
	}
	n := p.n
	for n > 0 && p.out[n-1] == ' ' {
		n--
	}
	if n > MaxPattern {
		for n = MaxPattern; !utf8.RuneStart(p.out[n]); n-- {
		}
	}
	return string(p.out[:n])
}

// patterner reads a text once, from its beginning to its end, and looks ahead by a bounded number of bytes.
type patterner struct {
	in string
	at int // 0 <= at <= len(in)
	// out has n bytes of the pattern. What has no room in it is behind the end of the pattern.
	out [MaxPattern + 64]byte
	n   int

	// sense is what the words before make of a number that comes next.
	sense sense
	// closing is where the quotation that is being read ends, or -1: its second mark begins there and has marks bytes.
	closing, marks int
	// bare says that the quotation has no space in it, so that it may be an id.
	bare bool
	// path says that a path or an address is being read, request that a method of HTTP stood before it.
	path, request bool
	// web says that the text speaks of HTTP, one that the last number was 1.
	web, one bool
	// temporary says that what is being read is below a directory for temporary files.
	temporary bool
	// tried is behind the last run of characters that has been looked at for base64: nothing is read often.
	tried int
	// kept is behind the last code that stayed, or 0; state says that an SQLSTATE stood before.
	kept  int
	state bool
}

// step reads one word, one mark or one other character.
func (p *patterner) step() {
	if p.closing >= 0 && p.at > p.closing { // what was read as a whole had the mark in it
		p.closing, p.bare = -1, false
	}
	c := p.in[p.at]
	switch k := classes[c]; {
	case p.at == p.closing:
		p.add(p.in[p.at : p.at+p.marks])
		p.at, p.closing, p.bare = p.at+p.marks, -1, false
	case k&wordy != 0 || latin(p.in, p.at):
		p.word()
	case k&mark == 0:
		if c < utf8.RuneSelf {
			p.put(c)
		} else {
			p.rune()
		}
	case c == '"' || c == '`' || c == '\'':
		if p.closing >= 0 || !p.quoted(1, p.in[p.at:p.at+1]) {
			p.put(c)
		}
	case c == '(' && p.at >= 2 && p.in[p.at-1] == '=' && p.in[p.at-2] == ')' && p.key():
	case c == ':' && p.at+1 < len(p.in) && p.in[p.at+1] == ':' && (p.at == 0 || !isWord(p.in[p.at-1])) && p.colons():
	case (c == '/' || c == '+') && (p.at == 0 || !isWord(p.in[p.at-1])) && p.encoded():
	case c == '?' && p.path:
		p.query()
	default:
		p.put(c)
	}
}

func (p *patterner) add(s string) { p.n += copy(p.out[p.n:], s) }

func (p *patterner) addByte(c byte) {
	if p.n < len(p.out) {
		p.out[p.n] = c
		p.n++
	}
}

// put copies an ASCII character; white space and control characters become one space.
func (p *patterner) put(c byte) {
	p.at++
	switch {
	case c <= ' ' || c == 0x7f:
		if p.path {
			p.path, p.temporary = false, false
			if p.request {
				p.request, p.sense = false, status
			}
		}
		if p.n > 0 && p.out[p.n-1] != ' ' {
			p.addByte(' ')
		}
		return
	case c == '/' || c == '\\':
		p.path = p.path || p.at < len(p.in) && classes[p.in[p.at]]&wordy != 0
	case c == ':' && p.sense == failure:
		p.sense = failed
	case classes[c]&passing == 0:
		p.sense = silent
	}
	p.addByte(c)
}

// rune copies a character that is not ASCII and in no word.
func (p *patterner) rune() {
	r, n := utf8.DecodeRuneInString(p.in[p.at:])
	if p.closing < 0 {
		if closing := closingMark(r); closing != "" && p.quoted(n, closing) {
			return
		}
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
		if unicode.IsLetter(r) {
			p.sense = silent
			if r == '码' && speaksOfCode(p.in[:p.at]) {
				p.sense = exact
			}
		}
		if r == utf8.RuneError {
			p.add("\uFFFD")
		} else {
			p.add(p.in[p.at-n : p.at])
		}
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

// quoted reads the opening mark of a quotation, or all of it if it is a value. It returns false if there is none: a single
// quotation mark in a word, as in "can't", is an apostrophe.
func (p *patterner) quoted(opening int, closing string) bool {
	single := closing == "'"
	if single && p.at > 0 && isWord(p.in[p.at-1]) {
		return false
	}
	begin := p.at + opening
	rest := p.in[begin:min(len(p.in), begin+maxQuoted)]
	for from := 0; ; {
		i := strings.Index(rest[from:], closing)
		if i < 0 {
			return false
		}
		end := begin + from + i
		if single && end+1 < len(p.in) && isWord(p.in[end+1]) {
			from += i + 1
			continue
		}
		content := p.in[begin:end]
		bare := strings.IndexByte(content, ' ') < 0
		p.add(p.in[p.at:begin])
		if p.free(content, bare) {
			p.add("…")
			p.add(closing)
			p.at, p.sense = end+len(closing), silent
			return true
		}
		p.at, p.closing, p.marks, p.bare = begin, end, len(closing), bare
		return true
	}
}

// free says whether a quotation is a value whatever its words are.
func (p *patterner) free(content string, bare bool) bool {
	if content == "" || p.sense == personal {
		return true
	}
	// A text in JSON, or in what Python prints, is data, unless its key says otherwise.
	if n := p.at; n > 3 && (p.in[n-1] == ':' || p.in[n-1] == ' ' && p.in[n-2] == ':') {
		key := strings.TrimRight(p.in[max(0, n-24):n], ": ")
		if last := len(key) - 1; last > 0 && (key[last] == '"' || key[last] == '\'') {
			key = key[:last]
			begin := last
			for begin > 0 && isWord(key[begin-1]) {
				begin--
			}
			return !telling(key[begin:])
		}
	}
	return !bare && titled(content)
}

// titled says whether all words begin with a capital, as in the name of a person or of a product.
func titled(s string) bool {
	words := 0
	for i := range len(s) {
		if i > 0 && s[i-1] != ' ' {
			continue
		}
		if s[i] >= utf8.RuneSelf {
			continue
		}
		if classes[s[i]]&capital == 0 {
			return false
		}
		words++
	}
	return words > 1
}

// key reads the values of a key as PostgreSQL writes them, "(4711)" in "Key (id)=(4711) already exists".
func (p *patterner) key() bool {
	rest := p.in[p.at:min(len(p.in), p.at+maxQuoted)]
	end := strings.Index(rest, ") ")
	if end < 0 {
		end = strings.IndexByte(rest, ')')
	}
	if end < 0 {
		return false
	}
	p.add("(#)")
	p.at, p.sense = p.at+end+1, silent
	return true
}

// query reads what stands behind the path of an address.
func (p *patterner) query() {
	end := p.at + 1
	for end < len(p.in) && end != p.closing && p.in[end] > ' ' && strings.IndexByte("\"'`<>()[]{}", p.in[end]) < 0 {
		end++
	}
	for end > p.at+1 && strings.IndexByte(".,:;!?", p.in[end-1]) >= 0 {
		end--
	}
	if end == p.at+1 {
		p.path = false
		p.put('?')
		return
	}
	p.add("?#")
	p.at = end
}

// word reads letters, digits and underscores, and dashes between them.
func (p *patterner) word() {
	begin, end := p.at, p.at
	var seen class
	digits, joined := 0, false
	for end < len(p.in) {
		k := classes[p.in[end]]
		if k&wordy == 0 {
			if latin(p.in, end) {
				seen |= foreign
				end += 2
				continue
			}
			next := end + 1
			if p.in[end] != '-' || end == begin || next == len(p.in) {
				break
			}
			if p.in[next] == '-' && next+1 < len(p.in) {
				next++
			}
			if classes[p.in[next]]&wordy == 0 {
				break
			}
			joined = true
			end = next
			continue
		}
		if k&digit != 0 {
			digits++
		}
		seen |= k
		end++
	}
	p.at = end
	w, after := p.in[begin:end], byte(0)
	if end < len(p.in) {
		after = p.in[end]
	}
	hex := seen&(beyond|foreign) == 0
	switch after {
	case '@':
		if p.mail(begin) {
			return
		}
	case ':':
		if hex && !joined && len(w) <= 4 && (begin == 0 || p.in[begin-1] != '.') {
			p.at = begin
			if p.colons() {
				return
			}
			p.at = end
		}
	case '+', '/', '=':
		if after == '/' && hex && seen&small == 0 && p.place() {
			return
		}
		if !p.path && (begin == 0 || p.in[begin-1] != '/') {
			p.at = begin
			if p.encoded() {
				return
			}
			p.at = end
		}
	}
	switch {
	case digits > 0:
		if p.isCode(w, begin, digits == len(w), joined, seen) {
			p.add(w)
			p.kept, p.sense = end, silent
			return
		}
		if digits == len(w) || !p.isName(w, begin, seen, joined) {
			p.one = w == "1"
			p.id(len(w))
			return
		}
		p.add(w)
		p.sense = silent
	case partOfDate(w) && (p.afterNumber() || p.beforeNumber()):
		p.number()
	case hex && (len(w) >= 16 || !joined && (len(w) >= 8 || len(w) >= 6 && p.sense == identity)), seen&foreign == 0 && p.isRandom(w, seen, joined):
		p.id(len(w))
	default:
		if p.one {
			p.one = false
			if p.n > 1 && p.out[p.n-1] == ' ' && p.out[p.n-2] == '#' {
				w = severalOf(w)
			}
		}
		p.add(w)
		p.learn(w)
	}
}

// id writes "#" for a word of n bytes, with what belongs to it if it is an id: a dash at its end, or the end of base64.
func (p *patterner) id(n int) {
	end := p.at
	for n >= 8 && end < len(p.in) && end < p.at+2 && (p.in[end] == '-' || p.in[end] == '=') {
		end++
	}
	if end == len(p.in) || classes[p.in[end]]&wordy == 0 && p.in[end] != '>' {
		p.at = end
	}
	p.number()
}

// isName says whether a word of letters and digits is a name.
func (p *patterner) isName(w string, begin int, seen class, joined bool) bool {
	switch {
	case w[0]|0x20 == 'v' && len(w) <= 3 && allDigits(w[1:]): // as in "/v1/orders" and "order.placed.v2"
		return begin > 0 && (p.in[begin-1] == '/' || p.in[begin-1] == '.') && (p.at+1 >= len(p.in) || p.in[p.at] != '.' || !isDigit(p.in[p.at+1]))
	case technical(w):
		return true
	case joined:
		return false
	case seen&under != 0:
		return technicalParts(w)
	}
	return seen&capital != 0 && seen&small != 0 && p.sense != identity && !p.path && nameWithDigit(w)
}

// learn takes from a word what it says of a number behind it.
func (p *patterner) learn(w string) {
	if p.path && (w == "tmp" || w == "temp" || w == "Temp") {
		p.temporary = true
	}
	switch s := senseOf(w, p.sense); s {
	case method:
		p.request, p.web = true, true
	case answered:
		p.sense, p.web = s, true
	case status:
		p.sense, p.web = s, true
		if p.at+1 < len(p.in) && p.in[p.at] == '/' && isDigit(p.in[p.at+1]) { // "HTTP/1.1 503"
			for p.at++; p.at < len(p.in) && (isDigit(p.in[p.at]) || p.in[p.at] == '.'); p.at++ {
			}
		}
	case sqlState:
		p.state, p.sense = true, s
	default:
		p.sense = s
		switch w {
		case "request", "Request", "server", "Server", "upstream", "gateway", "fetch", "client":
			p.web = true
		}
	}
}

// number writes "#" for a value. Values that are joined by one character, or stand behind one another, are one: the
// parts of a date, of an address, of a list, of "2 minutes 3 seconds". A sign and a currency before a number and a unit
// behind it belong to it.
func (p *patterner) number() {
	p.sense = silent
	p.write()
	for p.unit() {
	}
}

func (p *patterner) write() {
	out, n := &p.out, p.n
	if n > 0 {
		switch last := out[n-1]; {
		case last == '#':
			return
		case last == '-' || last == '+':
			first := n - 1
			for first > 0 && out[first-1] == '-' { // an id may begin with two
				first--
			}
			if first == 0 || strings.IndexByte(" =(:[,./\"'", out[first-1]) >= 0 {
				n = first
			}
		case last == '$':
			n--
		case last == ' ' && n >= 4 && currency(string(out[n-4:n-1])) && (n == 4 || !isWord(out[n-5])):
			n -= 4
		case last >= utf8.RuneSelf || last == ' ' && n > 1 && out[n-2] >= utf8.RuneSelf:
			m := n
			if last == ' ' {
				m--
			}
			if r, size := utf8.DecodeLastRune(out[:m]); unicode.Is(unicode.Sc, r) {
				n = m - size
			}
		}
	}
	switch {
	case n > 0 && out[n-1] == '#':
		n--
	case n > 1 && out[n-2] == '#' && strings.IndexByte("-:./,+_' ", out[n-1]) >= 0:
		n -= 2
	case n > 2 && out[n-3] == '#' && out[n-1] == ' ' && out[n-2] == ',':
		n -= 3
	case n > 3 && out[n-1] == ':' && out[n-2] == ']' && out[n-3] == '#' && out[n-4] == '[': // the port of an IPv6 address
		n -= 4
	case n > 4 && out[n-1] == '/' && out[n-4] == '/' && classes[out[n-2]]&classes[out[n-3]]&hexadecimal != 0: // a directory by the first byte of a hash
		n -= 3
		if out[n-1] == '/' && n > 1 && out[n-2] == '#' {
			n -= 2
		}
	}
	p.n = n
	p.addByte('#')
}

// unit reads a unit, a currency or a zone behind a number.
func (p *patterner) unit() bool {
	rest := p.in[p.at:min(len(p.in), p.at+16)]
	if rest == "" || rest[0] != ' ' && rest[0] < utf8.RuneSelf {
		return false
	}
	begin := 0
	if rest[0] == ' ' {
		begin = 1
	}
	end := begin
	for end < len(rest) && classes[rest[end]]&(capital|small) != 0 {
		end++
	}
	if end == begin {
		if end < len(rest) && rest[end] >= utf8.RuneSelf {
			if r, n := utf8.DecodeRuneInString(rest[end:]); unicode.Is(unicode.Sc, r) {
				p.at += end + n
				return true
			} else if (r == 'µ' || r == 'μ') && end+n < len(rest) && rest[end+n] == 's' {
				p.at += end + n + 1
				return true
			}
		}
		return false
	}
	if end < len(rest) && (isWord(rest[end]) || rest[end] >= utf8.RuneSelf || rest[end] == '-') || !isUnit(rest[begin:end]) {
		return false
	}
	p.at += end
	return true
}

// colons reads an IPv6 address, a MAC address or a time: digits between at least two colons.
func (p *patterner) colons() bool {
	end, group, colons, digits := p.at, 0, 0, 0
	for end < len(p.in) && end-p.at < 64 {
		c := p.in[end]
		if c == ':' {
			colons++
			group = 0
		} else if k := classes[c]; k&hexadecimal != 0 {
			if k&digit != 0 {
				digits++
			}
			if group++; group > 4 {
				return false
			}
		} else {
			break
		}
		end++
	}
	if p.in[end-1] == ':' && p.in[end-2] != ':' {
		end--
		colons--
	}
	if colons < 2 || digits == 0 {
		return false
	}
	if end < len(p.in) && isWord(p.in[end]) {
		return false
	}
	p.at = end
	if end+1 < len(p.in) && p.in[end] == '%' && isWord(p.in[end+1]) { // the zone of an address
		for p.at++; p.at < len(p.in) && isWord(p.in[p.at]); p.at++ {
		}
	}
	p.number()
	return true
}

// encoded reads base64, which has characters that stand between words elsewhere.
func (p *patterner) encoded() bool {
	if p.at < p.tried {
		return false
	}
	const shortest = 16
	end := p.at
	for end < len(p.in) && classes[p.in[end]]&encoding != 0 {
		end++
	}
	p.tried = end
	if end-p.at < shortest {
		return false
	}
	// A path has long parts of one kind.
	const kinds = digit | capital | small
	changes, part, seen := 0, p.at, class(0)
	for i := p.at + 1; i < end; i++ {
		if a, b := classes[p.in[i-1]]&kinds, classes[p.in[i]]&kinds; a != 0 && b != 0 && a != b && (a != capital || b != small) {
			changes++
		}
	}
	for i := p.at; i <= end; i++ {
		if i < end && p.in[i] != '/' {
			seen |= classes[p.in[i]] & kinds
			continue
		}
		if i-part >= 4 && seen == small && !unlike(p.in[part:i], likely) {
			return false
		}
		part, seen = i+1, 0
	}
	if changes*7 < end-p.at || !unlike(p.in[p.at:end], 0) {
		return false
	}
	for n := 0; n < 2 && end < len(p.in) && p.in[end] == '='; n++ {
		end++
	}
	p.at = end
	p.number()
	return true
}

// place reads the second part of a place in PostgreSQL's log, such as 0/16B3748.
func (p *patterner) place() bool {
	end, digits := p.at+1, 0
	for end < len(p.in) && classes[p.in[end]]&hexadecimal != 0 && classes[p.in[end]]&small == 0 {
		digits += int(classes[p.in[end]] & digit)
		end++
	}
	if n := end - p.at - 1; digits == 0 || n < 4 || n > 8 || end < len(p.in) && (isWord(p.in[end]) || p.in[end] == '/') {
		return false
	}
	p.at = end
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
	for begin > 0 && p.n > 0 && (isWord(p.out[p.n-1]) || strings.IndexByte(".-+#", p.out[p.n-1]) >= 0) {
		p.n--
	}
	p.add("…")
	p.at, p.sense = end, silent
	return true
}

// afterNumber says whether a number and one space, comma, dash or slash stand before.
func (p *patterner) afterNumber() bool {
	out, n := &p.out, p.n
	if n < 2 {
		return false
	}
	switch out[n-1] {
	case '-', '/':
		return out[n-2] == '#'
	case ' ':
		return out[n-2] == '#' || n > 2 && out[n-2] == ',' && out[n-3] == '#'
	}
	return false
}

// beforeNumber says whether a number, or another part of a date, comes next.
func (p *patterner) beforeNumber() bool {
	rest := strings.TrimLeft(p.in[p.at:min(len(p.in), p.at+8)], " ,-./")
	return rest != "" && (isDigit(rest[0]) || len(rest) >= 3 && partOfDate(rest[:3]))
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isWord(c byte) bool { return classes[c]&wordy != 0 }
