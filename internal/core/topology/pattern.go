package topology

import (
	"fmt"
	"regexp"
	"regexp/syntax"
)

// maxPattern is the maximal length of a user's expression, and the maximal number of steps that it
// compiles to. Both limits are needed: a repeated a{1000} compiles to 150 times as many steps as it
// has bytes, and each step takes a hundred bytes.
const maxPattern = 4096

// PatternTooLarge refuses a valid expression that is too large.
type PatternTooLarge struct{ what string }

func (e *PatternTooLarge) Error() string {
	return fmt.Sprintf("%s, %d at most", e.what, maxPattern)
}

// CompilePattern compiles a user's expression. The node may keep it as long as it runs, so its size is
// limited: the error is a *PatternTooLarge or from package regexp.
func CompilePattern(text string) (*regexp.Regexp, error) {
	if err := CheckPatternSize(text); err != nil {
		return nil, err
	}
	return regexp.Compile(text)
}

// CheckPatternSize refuses an expression that is too large. It accepts one that is wrong in other ways.
func CheckPatternSize(text string) error {
	if len(text) > maxPattern {
		return &PatternTooLarge{fmt.Sprintf("regular expression of %d bytes", len(text))}
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err == nil && steps(parsed) > maxPattern {
		return &PatternTooLarge{"regular expression of more steps than it may be compiled to"}
	}
	return nil //nolint:nilerr // compiling it reports the error
}

// steps estimates the number of steps that an expression compiles to: repetitions are written out, and the
// ranges of a class are stored once. It counts before compiling, and stops soon after maxPattern.
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
