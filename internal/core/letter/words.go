package letter

import "strings"

// class is what a byte is in a text.
type class uint16

const (
	digit class = 1 << iota
	capital
	small
	under
	hexadecimal // a digit of a hexadecimal number
	beyond      // a character of a word that is none
	encoding    // of base64
	mark        // a character that may begin something to be read as a whole
	passing     // a mark between a word and the number that it speaks of
	foreign     // of another alphabet

	wordy = digit | capital | small | under
)

var classes = func() (t [256]class) {
	for c := '0'; c <= '9'; c++ {
		t[c] = digit | hexadecimal | encoding
	}
	for c := 'a'; c <= 'z'; c++ {
		t[c], t[c-'a'+'A'] = small|encoding, capital|encoding
	}
	for c := 'a'; c <= 'f'; c++ {
		t[c] |= hexadecimal
		t[c-'a'+'A'] |= hexadecimal
	}
	for c := 'g'; c <= 'z'; c++ {
		t[c] |= beyond
		t[c-'a'+'A'] |= beyond
	}
	t['_'] |= under | beyond
	for _, c := range "\"`'(:/+?" {
		t[c] |= mark
	}
	for _, c := range " =:([{\"'`-></" {
		t[c] |= passing
	}
	t['+'] |= encoding
	t['/'] |= encoding
	return t
}()

// latin says whether a letter of two bytes begins at a place: Latin, Greek or Cyrillic, which write words with spaces between them.
func latin(s string, at int) bool {
	return 0xc3 <= s[at] && s[at] <= 0xd5 && at+1 < len(s) && s[at+1]&0xc0 == 0x80
}

// sense is what a word says of a number that comes after it.
type sense uint8

const (
	silent   sense = iota // nothing: it is a value
	identity              // it is an id, and so may be a word of letters
	personal              // so it is, and a quotation is a value whatever it says
	ending                // it is a value, but a code behind "code" is one of an end: "failed with code 1100"
	method                // a method of HTTP: a status may come behind the path
	status                // a status, of at most three digits
	answered              // a status of a failure, if nothing is counted
	code                  // a code of at most four digits
	failure               // a code of at most five digits
	failed                // so it is behind a colon, if the clause ends with it
	exact                 // a code, of any length
	sqlState              // an SQLSTATE
)

// senseOf is what a word says of a number behind it, after what the words before it have said.
func senseOf(word string, before sense) sense {
	const longest = 24
	if len(word) > longest {
		return silent
	}
	var room [longest]byte
	lower := room[:len(word)]
	for i := range len(word) {
		lower[i] = word[i] | 0x20 // "_" becomes a character that is in no word
	}
	switch string(lower) {
	case "is", "was", "with", "of", "number", "no", "nr", "the", "value", "to", "by", "a", "non", "zero", "non-zero", "nonzero",
		"does", "not", "indicate", "success": // .NET's "Response status code does not indicate success: 503"
		if (before == identity || before == personal) && word != "with" { // "no product with code 4711"
			return silent
		}
		return before
	case "get", "post", "put", "delete", "patch", "head", "options":
		switch {
		case classes[word[len(word)-1]]&capital != 0:
			return method
		case string(lower) == "post": // "post code"
			return identity
		}
	case "code", "codes":
		switch before {
		case identity, personal:
			return identity
		case code, failure, failed, ending:
			return exact
		case answered:
			return status
		case status, exact, sqlState:
			return before
		}
		return code
	case "status", "http", "https", "smtp", "ftp", "sip", "alert":
		if before == exact {
			return exact
		}
		return status
	case "returned", "responded", "response", "replied", "answered", "got", "received", "gave", "reply":
		if before == status {
			return status
		}
		return answered
	case "error", "err", "fehler", "erreur", "curl", "msg":
		if before == status {
			return status
		}
		return failure
	case "failed", "fails", "failure", "died", "crashed", "aborted", "terminated", "finished", "ended", "killed", "stopped":
		return ending
	case "exit", "exited", "errno", "signal", "rc", "ret", "hresult", "mqrc", "winerror":
		return exact
	case "reason":
		return code
	case "close", "closed": // of a WebSocket, with a reason
		return failed
	case "sqlstate":
		return sqlState
	case "customer", "user", "username", "entry", "string":
		return personal
	case "id", "ids", "uuid", "guid", "token", "session", "cursor", "nonce", "hash", "digest", "checksum", "commit", "key", "ref", "reference",
		"sku", "article", "item", "part", "product", "order", "booking", "coupon", "voucher", "promo", "discount", "gift",
		"pod", "document", "object", "transaction", "charge", "trace", "request", "upload", "job", "event", "link",
		"postal", "zip", "bar", "country", "area", "region", "language", "currency", "tracking", "verification", "activation", "security":
		return identity
	}
	return senseOfEnd(word, lower, before)
}

// speaksOfCode says whether a Chinese text ends with the word for the code of an error, a status, an answer or an exit.
func speaksOfCode(s string) bool {
	for _, word := range [...]string{"错误码", "状态码", "返回码", "响应码", "退出码"} {
		if strings.HasSuffix(s, word) {
			return true
		}
	}
	return false
}

// senseOfEnd is the sense of a word such as errorCode, exit_status, order_id.
func senseOfEnd(word string, lower []byte, before sense) sense {
	n := len(lower)
	if n < 4 {
		return silent
	}
	end := ""
	switch lower[n-1] {
	case 'd':
		if lower[n-2] == 'i' && (classes[word[n-2]]&capital != 0 || word[n-3] == '_' || word[n-3] == '-') { // not "invalid"
			return identity
		}
	case 'o':
		if string(lower[n-4:]) == "rrno" {
			return exact
		}
	case 'e':
		switch {
		case string(lower[n-4:]) == "code":
			end = "code"
		case n >= 8 && string(lower[n-5:]) == "state" && string(lower[:3]) == "sql":
			return sqlState
		}
	case 's':
		if n > 6 && string(lower[n-6:]) == "status" {
			end = "status"
		}
	case 'n':
		if n >= 9 && string(lower[n-9:]) == "exception" {
			return failure
		}
	case 'r':
		if n > 5 && string(lower[n-5:]) == "error" {
			end = "error"
		}
	}
	stem := n - len(end)
	if end == "" || stem == 0 {
		return silent
	}
	if string(lower[:stem]) == "sql" {
		return exact
	}
	if c := word[stem-1]; c == '_' || c == '-' {
		stem--
	}
	return senseOf(end, senseOf(word[:stem], before))
}

// telling says whether what a key of JSON names tells causes apart.
func telling(key string) bool {
	var room [24]byte
	if len(key) > len(room) {
		return false
	}
	lower := room[:len(key)]
	for i := range len(key) {
		lower[i] = key[i]
		if classes[key[i]]&capital != 0 {
			lower[i] |= 0x20
		}
	}
	for _, end := range [...]string{"code", "error", "type", "status", "reason", "message", "msg", "kind", "class", "exception", "event", "state", "field", "property",
		"path", "param", "parameter", "column", "constraint", "rule", "title", "detail", "method", "operation", "service"} {
		if n := len(lower) - len(end); n >= 0 && string(lower[n:]) == end {
			return true
		}
	}
	return false
}

// isUnit says whether a word behind a number belongs to it.
func isUnit(w string) bool {
	switch w {
	case "ns", "us", "ms", "s", "sec", "secs", "second", "seconds", "m", "min", "mins", "minute", "minutes", "h", "hr", "hrs", "hour", "hours",
		"d", "day", "days", "week", "weeks", "millis", "millisecond", "milliseconds", "microseconds", "nanoseconds",
		"B", "byte", "bytes", "Byte", "Bytes", "k", "K", "M", "G", "kB", "KB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB",
		"AM", "PM", "am", "pm", "UTC", "GMT", "CET", "CEST", "EST", "EDT", "CST", "PST", "PDT", "BST", "IST", "JST", "MSK":
		return true
	}
	return currency(w)
}

// currency says whether w is one of the currencies that are traded most, by their names in ISO 4217.
func currency(w string) bool {
	switch w {
	case "USD", "EUR", "GBP", "JPY", "CNY", "CHF", "AUD", "CAD", "HKD", "SGD", "SEK", "NOK", "DKK", "PLN", "CZK", "HUF", "INR", "KRW", "BRL", "MXN", "ZAR", "TRY", "RUB":
		return true
	}
	return false
}

// partOfDate says whether w names a month or a day of the week.
func partOfDate(w string) bool {
	if len(w) < 3 || len(w) > 9 || classes[w[0]]&capital == 0 {
		return false
	}
	switch w {
	case "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
		"January", "February", "March", "April", "June", "July", "August", "September", "October", "November", "December",
		"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday":
		return true
	}
	return false
}

// technical says whether a word with a digit is a name that everybody knows.
func technical(w string) bool {
	var room [10]byte
	if len(w) > len(room) {
		return false
	}
	lower := room[:len(w)]
	for i := range len(w) {
		lower[i] = w[i]
		if classes[w[i]]&capital != 0 {
			lower[i] |= 0x20
		}
	}
	switch string(lower) {
	case "utf8", "utf-8", "utf16", "utf-16", "utf32", "utf-32", "latin1", "base32", "base58", "base64", "i18n", "l10n", "k8s",
		"md5", "sha1", "sha-1", "sha224", "sha-224", "sha256", "sha-256", "sha384", "sha-384", "sha512", "sha-512", "sha3",
		"aes128", "aes-128", "aes192", "aes256", "aes-256", "hs256", "hs384", "hs512", "rs256", "rs384", "rs512", "es256", "es384", "es512", "ps256",
		"ed25519", "x25519", "x509", "p256", "p384", "argon2", "pbkdf2", "crc32", "pkcs1", "pkcs8", "pkcs12",
		"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64", "decimal128", "i32", "i64", "u8", "u16", "u32", "u64", "f32", "f64",
		"http1", "http2", "http3", "h2", "h2c", "ipv4", "ipv6", "oauth1", "oauth2", "saml2", "socks4", "socks5", "tlsv1", "sslv2", "sslv3",
		"s3", "ec2", "db2", "neo4j", "r2dbc", "log4j", "slf4j", "boto3", "urllib3", "psycopg2", "sqlite3", "python2", "python3", "log4j2",
		"x86", "x64", "amd64", "arm64", "win32", "win64", "1xx", "2xx", "3xx", "4xx", "5xx", "p2p", "b2b", "b2c", "mp3", "mp4":
		return true
	}
	return false
}

// nameWithDigit says whether a word is a name such as AmazonS3Exception or OrderPlacedV2: its only digits are few, and a word
// follows them or they are a version.
func nameWithDigit(w string) bool {
	first := 0
	for first < len(w) && !isDigit(w[first]) {
		first++
	}
	if rest := len(w) - first; rest > 0 && rest <= 2 && first >= 4 && w[first-1] == 'V' && classes[w[first-2]]&small != 0 && allDigits(w[first:]) {
		return !unlike(w[:first-1], 0)
	}
	after := first
	for after < len(w) && isDigit(w[after]) {
		after++
	}
	if first == 0 || first < 4 && classes[w[0]]&small != 0 || after-first > 2 || len(w)-after < 4 || classes[w[after]]&capital == 0 {
		return false
	}
	// Behind the digits stand words of three letters or more, which ids hardly ever have.
	part := 3
	for i := after; i < len(w); i++ {
		switch k := classes[w[i]]; {
		case k&small != 0:
			part++
		case k&capital == 0 || part < 3:
			return false
		default:
			part = 1
		}
	}
	return part >= 3 && !unlike(w[after:], 0) && (first < 4 || !unlike(w[:first], 0))
}

func allDigits(s string) bool {
	for i := range len(s) {
		if !isDigit(s[i]) {
			return false
		}
	}
	return true
}

// technicalParts says whether a word is a name such as ERR_HTTP2_PROTOCOL_ERROR: its parts with digits are names.
func technicalParts(w string) bool {
	digits := 0
	for begin := 0; begin < len(w); {
		end, has := begin, false
		for ; end < len(w) && w[end] != '_'; end++ {
			has = has || isDigit(w[end])
		}
		if has {
			digits++
			if !technical(w[begin:end]) {
				return false
			}
		} else if end-begin >= 5 && unlike(w[begin:end], 0) {
			return false
		}
		begin = end + 1
	}
	return digits == 1
}

// severalOf is the plural of a word behind the number one, if it is a word that is often counted: "1 attempt" and "2 attempts" are one text.
func severalOf(w string) string {
	switch w {
	case "attempt", "item", "row", "record", "time", "message", "error", "line", "event", "file", "result", "argument", "element", "connection", "failure",
		"order", "replica", "retry", "try", "entry", "field", "parameter", "worker", "node", "consumer":
		if w[len(w)-1] == 'y' {
			return w[:len(w)-1] + "ies"
		}
		return w + "s"
	}
	return w
}
