package letter

import "strings"

// isCode says whether a word with digits tells causes apart.
func (p *patterner) isCode(w string, begin int, number, joined bool, seen class) bool {
	next, then := byte(0), byte(0)
	if p.at < len(p.in) {
		next = p.in[p.at]
	}
	if p.at+1 < len(p.in) {
		then = p.in[p.at+1]
	}
	if p.kept > 0 && len(w) <= 5 && p.follows(w, begin, number) {
		return true
	}
	if number && len(w) == 1 && p.sense >= status && !p.path && enhanced(p.in[begin:]) {
		return true
	}
	if next == '.' && isDigit(then) { // a part of a decimal number, of a version, of an address
		return false
	}
	if !number {
		switch p.sense {
		case sqlState:
			return len(w) == 5 && !joined
		case code, failure, failed, exact:
			if len(w) > 2 && len(w) <= 10 && w[0] == '0' && w[1]|0x20 == 'x' {
				return true
			}
		}
		if w[0] == '0' {
			return knownResult(w)
		}
		return seen&capital != 0 && (knownCode(w, p.sense >= status || begin == 0 || p.sense != identity && begin > 1 && p.in[begin-2:begin] == ": ") || len(w) == 5 && p.alone(begin, next, then) && knownState(w))
	}
	switch n := len(w); p.sense {
	case status:
		if n <= 3 {
			return true
		}
	case answered:
		if n == 3 && (w[0] == '4' || w[0] == '5') && endsClause(p.in[p.at:]) {
			return true
		}
	case code:
		if n <= 3 || p.behindSign(n) && (n == 4 || n == 5 && w[:2] == "11") || n == 5 && w == "11000" { // MongoDB's are longer
			return true
		}
	case failure:
		if n <= 5 {
			return true
		}
	case failed:
		if n <= 5 && (next == 0 || strings.IndexByte(":,;.)(]-", next) >= 0 || next == ' ' && then == '(') {
			return true
		}
	case exact:
		if n <= 10 {
			return true
		}
	case sqlState:
		if n == 5 {
			return true
		}
	}
	switch n := len(w); {
	case n == 3:
		switch {
		case begin == 0 && next == ' ' && enhanced(p.in[p.at+1:]):
			return true
		case p.sense == identity || !knownStatus(w):
			return false
		case next == ' ':
			return classes[then]&capital != 0 && p.fresh(begin)
		case begin == 0 && next == 0:
			return true
		}
		return p.web && (next == 0 || strings.IndexByte(":,;.)]", next) >= 0)
	case n == 4 && next == ',' && then == ' ' && begin > 0 && p.in[begin-1] == '(':
		return p.at+2 < len(p.in) && (p.in[p.at+2] == '"' || p.in[p.at+2] == '\'') // a tuple, as PyMySQL raises it
	case n == 4 && p.state:
		return p.fresh(begin)
	case n == 5:
		return p.alone(begin, next, then) && knownState(w)
	}
	return false
}

// follows says whether a number belongs to the code before it, as in "Error 1213 (40001)" and "550 5.1.1".
func (p *patterner) follows(w string, begin int, number bool) bool {
	if begin-p.kept > 3 || !number && !knownState(w) {
		return false
	}
	switch between := p.in[p.kept:begin]; between {
	case " (", "(", " [", "] [", "][", "/", ".":
		return true
	case " ", "-":
		return len(w) == 1 && enhanced(p.in[begin:])
	}
	return false
}

// enhanced says whether a text begins with a code such as 5.1.1 of RFC 3463.
func enhanced(s string) bool {
	return len(s) >= 5 && (s[0] == '2' || s[0] == '4' || s[0] == '5') && s[1] == '.' && isDigit(s[2]) && s[3] == '.' && isDigit(s[4]) &&
		(len(s) == 5 || !isWord(s[5]) && (s[5] != '.' || len(s) == 6 || !isDigit(s[6])))
}

// fresh says whether a word begins the text, or a part of it.
func (p *patterner) fresh(begin int) bool {
	if begin == 0 {
		return true
	}
	c := p.in[begin-1]
	if c == ' ' && begin > 1 {
		c = p.in[begin-2]
		return c == ':' || c == '>' || c == '-' || c == ','
	}
	return strings.IndexByte("([{\"'`", c) >= 0
}

// alone says whether a word begins the text and a colon follows, or stands alone in brackets.
func (p *patterner) alone(begin int, next, then byte) bool {
	if begin == 0 {
		return next == ':' && then == ' '
	}
	switch p.in[begin-1] {
	case '(':
		return next == ')'
	case '[':
		return next == ']'
	case ' ':
		return next == ':' && then == ' ' && begin > 1 && p.in[begin-2] == ':'
	}
	return false
}

// endsClause says whether nothing that is counted comes next: "returned 503 from shop" is a status, "returned 412 rows" is none.
func endsClause(s string) bool {
	if len(s) < 2 || s[0] != ' ' {
		return true
	}
	if classes[s[1]]&small == 0 {
		return true
	}
	word := s[1:min(len(s), 9)]
	if end := strings.IndexAny(word, " ,.;:"); end > 0 {
		word = word[:end]
	}
	switch word {
	case "from", "for", "on", "when", "after", "while", "by", "at", "in", "instead", "but", "and", "with", "to", "during", "because", "is":
		return true
	}
	return false
}

// knownCode says whether a word is a code of a program that numbers its errors: its name, a dash or an underscore if there is one, the number, and
// the letter of a severity if there is one. Names of one or two letters are numbers of articles as well: apart says that the word does not
// stand where these stand.
func knownCode(w string, apart bool) bool {
	n := 0
	for n < len(w) && classes[w[n]]&capital != 0 {
		n++
	}
	number := w[n:]
	if n == 0 || number == "" {
		return false
	}
	if number[0] == '-' || number[0] == '_' {
		number = number[1:]
	}
	digits := 0
	for digits < len(number) && isDigit(number[digits]) {
		digits++
	}
	if digits == 0 || digits > 6 || digits < len(number)-1 || digits == len(number)-1 && classes[number[digits]]&capital == 0 {
		return false
	}
	switch w[:n] {
	case "ORA", "TNS", "PLS", "RMAN", "DPY", "DPI", "UCP", "SQL", "DSNT", "AMQ", "JMSCC", "CWWKE", "CWPKI", "DFHAC", // Oracle, Db2, IBM
		"AADSTS", "PGRST", "HHH", "WFLYEJB", "WFLYCTL", "WFLYJCA", "ARJUNA", "JBAS", "BEA",
		"MSB",
		"ERR", "ERROR", "HTTP", "HTTPS", "SMTP", "EXC":
		return true
	case "E": // MongoDB, npm
		return digits == 5 && number[:2] == "11" || apart
	case "CS", "NU", "TS": // Microsoft's compilers and packages
		return apart
	case "P": // Prisma
		return apart && digits == 4 && number[0] == '2'
	}
	return false
}

// knownState says whether a word is an SQLSTATE that databases often answer with.
func knownState(w string) bool {
	switch w {
	case "08000", "08001", "08003", "08004", "08006", "08007", "08S01", "0A000", "21S01", "22001", "22003", "22007", "22008", "22012", "22023", "22P02",
		"23000", "23001", "23502", "23503", "23505", "23514", "23P01", "25006", "25P02", "25P03", "28000", "28P01", "3D000", "3F000",
		"40001", "40002", "40003", "40P01", "42000", "42501", "42601", "42703", "42710", "42804", "42883", "42P01", "42P07", "42S02", "42S22",
		"53000", "53100", "53200", "53300", "53400", "54000", "55000", "55006", "55P03", "57014", "57P01", "57P02", "57P03", "58030", "70100",
		"HY000", "HY001", "HYT00", "HYT01", "P0001", "P0002", "XX000", "XX001":
		return true
	}
	return false
}

// knownResult says whether a hexadecimal number is an HRESULT of the usual kinds or an NTSTATUS.
func knownResult(w string) bool {
	if len(w) != 10 || w[1]|0x20 != 'x' {
		return false
	}
	switch w[2:6] {
	case "8000", "8001", "8002", "8003", "8004", "8007", "8009", "8013", "800A", "800a", "C000", "c000":
		return true
	}
	return false
}

// knownStatus says whether a number of three digits is a status of HTTP that tells of a failure.
func knownStatus(w string) bool {
	switch w {
	case "400", "401", "402", "403", "404", "405", "406", "407", "408", "409", "410", "411", "412", "413", "414", "415", "416", "417", "418", "421", "422", "423",
		"424", "425", "426", "428", "429", "431", "451", "500", "501", "502", "503", "504", "505", "507", "508", "511":
		return true
	}
	return false
}
