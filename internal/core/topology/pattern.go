package topology

import (
	"fmt"
	"regexp"
	"regexp/syntax"
)

// maxPattern is how long an expression of a user may be, and how many steps it may be compiled to. Both
// are needed: a{1000} again and again is compiled to 150 times as many steps as it has
// bytes, and each takes a hundred bytes.
const maxPattern = 4096

// PatternTooLarge is what is wrong with an expression that is right otherwise.
type PatternTooLarge struct{ what string }

func (e *PatternTooLarge) Error() string {
	return fmt.Sprintf("%s, %d at most", e.what, maxPattern)
}

// CompilePattern compiles an expression that a user sets. It may stay for as long as the node lives, so
// that its size is bounded: the error is a *PatternTooLarge or of package regexp.
func CompilePattern(text string) (*regexp.Regexp, error) {
	if err := CheckPatternSize(text); err != nil {
		return nil, err
	}
	return regexp.Compile(text)
}

// CheckPatternSize is nil for an expression that is wrong in other ways.
func CheckPatternSize(text string) error {
	if len(text) > maxPattern {
		return &PatternTooLarge{fmt.Sprintf("regular expression of %d bytes", len(text))}
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err == nil && steps(parsed) > maxPattern {
		return &PatternTooLarge{"regular expression of more steps than it may be compiled to"}
	}
	return nil //nolint:nilerr // whoever compiles it says so
}

// steps is how much an expression will be compiled to, roughly: repetitions are written out, and the ranges
// of a class are kept once. It is counted before anything is compiled, and not far beyond maxPattern.
func steps(re *syntax.Regexp) int {
	ranges := 0
	var count func(re *syntax.Regexp) int
	count = func(re *syntax.Regexp) int {
		n := 1
		switch re.Op {
		case syntax.OpLiteral:
			n = len(re.Rune)
		case syntax.OpCharClass:
			ranges += len(re.Rune) / 16 // a step is as large as so many
		}
		for _, sub := range re.Sub {
			if n += count(sub); n > maxPattern {
				return n
			}
		}
		if re.Op == syntax.OpRepeat {
			n *= max(re.Min, re.Max, 1)
		}
		return n
	}
	return count(re) + ranges
}
