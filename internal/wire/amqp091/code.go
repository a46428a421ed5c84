package amqp091

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// A ReplyCode says why a channel or connection was closed or a message returned.
type ReplyCode uint16

type replyCode struct {
	name string
	hard bool
}

// String returns the code's name, as "NOT_FOUND", or its number if it has none.
func (c ReplyCode) String() string {
	if known, ok := replyCodes[c]; ok {
		return known.name
	}
	return strconv.Itoa(int(c))
}

// Hard reports whether an error of this code closes the connection, not only the
// channel (BR-4.1). Codes that are not known are hard.
func (c ReplyCode) Hard() bool {
	known, ok := replyCodes[c]
	return known.hard || !ok
}

// CodeName returns the name of a reply code (BR-4.2), as "NOT_FOUND", or its number if
// it has none.
func CodeName(code uint16) string { return ReplyCode(code).String() }

// maxShortstr is how many bytes a short string can have.
const maxShortstr = 255

// ReplyText returns "NAME - text" as reply-text carries it, the name alone where there is
// no text. Longer than 255 bytes it is cut and ends in "..." (BR-4.3). RabbitMQ cuts at a
// byte; here no character is cut in two, since clients read the text as UTF-8.
func ReplyText(code uint16, text string) string {
	if text == "" {
		return CodeName(code)
	}
	return ShortText(CodeName(code) + " - " + text)
}

// ShortText returns the text as a short string can carry it, cut as ReplyText says. Text that
// repeats what a client sent may hold any bytes: those that are no UTF-8 are replaced.
func ShortText(text string) string {
	const ellipsis = "..."
	text = strings.ToValidUTF8(text, string(utf8.RuneError))
	if len(text) <= maxShortstr {
		return text
	}
	return cutAtRune(text, maxShortstr-len(ellipsis)) + ellipsis
}

// cutAtRune returns the start of s that has at most n bytes and ends between characters.
func cutAtRune(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for i := n; i > n-utf8.UTFMax && i > 0; i-- {
		if utf8.RuneStart(s[i]) {
			return s[:i]
		}
	}
	return s[:n] // not UTF-8 to begin with
}
