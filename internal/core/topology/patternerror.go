package topology

import (
	"errors"
	"regexp/syntax"
	"strconv"
	"strings"

	"bartleby.mq/internal/core/expression"
	"bartleby.mq/internal/wire/erlterm"
)

const invalidPattern = "pattern should be regular expression but is invalid: "

// patternComplaint says what is wrong with a pattern as RabbitMQ does: in the words of PCRE, with the number of bytes
// that PCRE has read (DL-4.3). For syntax that only PCRE knows, such as look-ahead, it uses Go's words: RabbitMQ
// would accept the pattern.
func patternComplaint(pattern string, err error) string {
	if tooLarge := (*expression.TooLarge)(nil); errors.As(err, &tooLarge) {
		return "pattern is too large: " + tooLarge.Error()
	}
	what, read := "", 0
	var e *syntax.Error
	if errors.As(err, &e) {
		what, read = inPCREWords(pattern, e)
	}
	if what == "" {
		return invalidPattern + err.Error() + " (this broker takes the regular expressions of Go, RE2, which have neither look-ahead nor back references)"
	}
	return invalidPattern + erlterm.Tagged(len(invalidPattern), erlterm.String(what), strconv.Itoa(read))
}

// inPCREWords returns PCRE's words, or "" if PCRE accepts the pattern or reports another fault.
func inPCREWords(pattern string, e *syntax.Error) (what string, read int) {
	end := strings.Index(pattern, e.Expr) + len(e.Expr)
	switch e.Code {
	case syntax.ErrMissingParen:
		return "missing closing parenthesis", len(pattern)
	case syntax.ErrUnexpectedParen:
		return "unmatched closing parenthesis", unmatched(pattern)
	case syntax.ErrMissingBracket:
		return "missing terminating ] for character class", len(pattern)
	case syntax.ErrTrailingBackslash:
		return `\ at end of pattern`, len(pattern)
	case syntax.ErrMissingRepeatArgument:
		return "quantifier does not follow a repeatable item", unrepeatable(pattern)
	case syntax.ErrInvalidCharRange:
		switch {
		case strings.HasPrefix(e.Expr, "[:"):
			return "unknown POSIX class name", end
		case strings.HasPrefix(e.Expr, `\`):
			return `unknown property after \P or \p`, end
		}
		return "range out of order in character class", end
	case syntax.ErrInvalidRepeatSize:
		least, most, _ := strings.Cut(strings.Trim(e.Expr, "{}"), ",")
		a, _ := strconv.Atoi(least)
		b, _ := strconv.Atoi(most)
		switch {
		case max(a, b) > maxPCRERepeat:
			return "number too big in {} quantifier", end - 1
		case most != "" && a > b:
			return "numbers out of order in {} quantifier", end - 1
		}
	}
	return "", 0
}

// maxPCRERepeat is the largest repetition that PCRE accepts; Go's is 1000.
const maxPCRERepeat = 65535

// unmatched returns the end of the first parenthesis that closes nothing.
func unmatched(pattern string) (end int) {
	depth := 0
	eachSign(pattern, func(i int) bool {
		switch pattern[i] {
		case '(':
			depth++
		case ')':
			depth--
		}
		end = i + 1
		return depth >= 0
	})
	return end
}

// unrepeatable returns the end of the first quantifier that has nothing to repeat.
func unrepeatable(pattern string) (end int) {
	last := -1
	eachSign(pattern, func(i int) bool {
		nothing := i == 0 || last == i-1 && strings.IndexByte("(|", pattern[last]) >= 0
		if end = i + 1; strings.IndexByte("*+?", pattern[i]) >= 0 && nothing {
			return false
		}
		last = i
		return true
	})
	return end
}

// eachSign calls f with the index of each byte that is neither escaped nor in a class, until f returns false.
func eachSign(pattern string, f func(i int) bool) {
	class := false
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c == '\\':
			i++
		case class:
			class = c != ']'
		case c == '[':
			class = true
		case !f(i):
			return
		}
	}
}
