// Package expression compiles the regular expressions that users write: in policies, permissions, searches, masks and
// rules. Only this package does (TestExpressionsAreCompiledInOnePlace), because an expression is work that its author
// chooses for others: each byte of what it looks at costs a step for each place in the expression that may be reached.
//
// It owns nothing, and looks at no clock: who matches long texts looks at the clock between two of them.
package expression

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// MaxBytes is how long an expression may be.
	MaxBytes = 4096
	// MaxSteps is how many places of an expression may be reached by the same byte of a text, as steps estimates it. Each takes
	// some 40 ns a byte: 5 ms for a name, which has 255 bytes at most.
	MaxSteps = 512
	// maxFolded is how many characters the ranges of an expression may span if it ignores case: Go looks at each of them for
	// the other case, some 50 ns each time that it parses the expression.
	maxFolded = 1 << 18
)

// TooLarge refuses a valid expression that is too large.
type TooLarge struct{ what string }

func (e *TooLarge) Error() string { return e.what }

// Compile compiles an expression that texts are searched with. The node may keep it as long as it runs, so its size is
// limited: the error is a *TooLarge or from package regexp.
func Compile(text string) (*regexp.Regexp, error) {
	if err := CheckSize(text); err != nil {
		return nil, err
	}
	return regexp.Compile(text)
}

// CheckSize refuses an expression that is too large: the error is a *TooLarge. It accepts one that is wrong in other ways.
func CheckSize(text string) error {
	if len(text) > MaxBytes {
		return &TooLarge{fmt.Sprintf("regular expression of %d bytes, %d at most", len(text), MaxBytes)}
	}
	if folded(text) > maxFolded {
		return &TooLarge{fmt.Sprintf("regular expression that ignores case and has ranges of more than %d characters in all", maxFolded)}
	}
	ahead, rest, ok := lookAhead(text)
	if !ok {
		return checkSteps(text)
	}
	if err := checkSteps(ahead); err != nil {
		return err
	}
	return checkSteps(rest)
}

// Steps is how many places of the expression may be reached by the same byte of a text: what it costs to match it; 0 if it is
// no expression, which compiling it reports.
func Steps(text string) int {
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return 0
	}
	return steps(parsed)
}

func checkSteps(text string) error {
	if Steps(text) > MaxSteps {
		return &TooLarge{fmt.Sprintf("regular expression of too many steps, %d at most (a repetition counts as often as it may repeat)", MaxSteps)}
	}
	return nil
}

// folded is how many characters the ranges of an expression span at most, as far as they have two cases; 0 if the expression cannot
// ignore case. What only looks like a range is counted, too.
func folded(text string) (n int) {
	const last = 0x1e943 // with two cases
	if !strings.Contains(text, "(?") {
		return 0
	}
	for i := 1; i < len(text); i++ {
		if text[i] != '-' {
			continue
		}
		from, _ := utf8.DecodeLastRuneInString(text[:i])
		to, _ := utf8.DecodeRuneInString(text[i+1:])
		if hex, ok := strings.CutPrefix(text[i+1:], `\x{`); ok {
			hex, _, _ = strings.Cut(hex, "}")
			if code, err := strconv.ParseInt(hex, 16, 32); err == nil {
				to = rune(code)
			}
		}
		n += max(0, int(min(to, last)-from))
	}
	return n
}

// Name is an expression that names are matched with: of queues, exchanges, keys. It knows one thing that Go's expressions
// do not: a look-ahead at the beginning, as in ^(?!amq\.).*, which RabbitMQ's users write for "all but".
type Name struct {
	re  *regexp.Regexp
	not *regexp.Regexp // what the name must not begin with; nil: anything goes
}

// CompileName compiles an expression that names are matched with. Its errors are those of Compile.
func CompileName(text string) (*Name, error) {
	if err := CheckSize(text); err != nil {
		return nil, err
	}
	return CompileStored(text)
}

// CompileStored is CompileName for an expression that the node has taken earlier, when its size may have been bounded otherwise: what
// was taken stays in force.
func CompileStored(text string) (*Name, error) {
	if ahead, rest, ok := lookAhead(text); ok {
		not, err := regexp.Compile(ahead)
		if err != nil {
			return nil, err
		}
		re, err := regexp.Compile(rest)
		if err != nil {
			return nil, err
		}
		return &Name{re, not}, nil
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, err
	}
	return &Name{re: re}, nil
}

// MatchString says whether the expression matches, anywhere in the name unless it is anchored.
func (n *Name) MatchString(name string) bool {
	return (n.not == nil || !n.not.MatchString(name)) && n.re.MatchString(name)
}

// Steps is how many places of the expression may be reached by the same byte of a name: what it costs to match it.
func (n *Name) Steps() int {
	total := Steps(n.re.String())
	if n.not != nil {
		total += Steps(n.not.String())
	}
	return total
}

// lookAhead splits ^(?!AHEAD)REST, also behind (?i), into ^(?:AHEAD) and ^REST: the whole matches where the first does not and the second does,
// since both begin where the name begins. It takes no REST with a choice outside of parentheses, of which the look-ahead would
// be a part of one alternative only, none that says how often the look-ahead is made, and no quoting by \Q, which hides parentheses.
func lookAhead(text string) (ahead, rest string, ok bool) {
	const begin = "^(?!"
	flags := ""
	if after, ok := strings.CutPrefix(text, "(?i)"); ok {
		flags, text = "(?i)", after
	}
	after, ok := strings.CutPrefix(text, begin)
	if !ok || strings.Contains(text, `\Q`) {
		return "", "", false
	}
	end, depth := -1, 1
	class, classAt := false, 0
	for i := 0; i < len(after); i++ {
		switch c := after[i]; {
		case c == '\\':
			i++
		case class && strings.HasPrefix(after[i:], "[:") && strings.Contains(after[i+2:], ":]"):
			i += 2 + strings.Index(after[i+2:], ":]") + 1 // as in [[:alpha:]]: this bracket does not end the class
		case class:
			// The first sign of a class is of it, also if it is a bracket.
			class = c != ']' || i == classAt+1 || i == classAt+2 && after[classAt+1] == '^'
		case c == '[':
			class, classAt = true, i
		case c == '(':
			depth++
		case c == ')':
			if depth--; depth == 0 && end < 0 {
				end = i
			}
		case c == '|' && end >= 0 && depth == 0:
			return "", "", false
		}
	}
	if end < 0 || end+1 < len(after) && strings.IndexByte("*+?{", after[end+1]) >= 0 {
		return "", "", false
	}
	return flags + "^(?:" + after[:end] + ")", flags + "^" + after[end+1:], true
}

// steps estimates how many places of an expression one byte of a text may reach. Repetitions are written out, and
// the ranges of a class are stored once. It stops soon after MaxSteps.
//
// A literal in an anchored expression that has nothing of varying length before it is reached at one byte only: it
// counts as one place, so that ^(orders|invoices|…)$ may be as long as MaxBytes allows.
func steps(re *syntax.Regexp) int {
	ranges := 0
	// fixed: what re matches begins at one byte only. It returns whether what follows re does too.
	var count func(re *syntax.Regexp, fixed bool) (n int, after bool)
	count = func(re *syntax.Regexp, fixed bool) (n int, after bool) {
		switch re.Op {
		case syntax.OpBeginText:
			return 1, true
		case syntax.OpLiteral:
			if fixed {
				return 1, true
			}
			return len(re.Rune), false
		case syntax.OpCharClass:
			ranges += len(re.Rune) / 16 // a step is as large as so many
			return 1, fixed
		case syntax.OpConcat, syntax.OpCapture:
			n = 1
			for _, sub := range re.Sub {
				var m int
				if m, fixed = count(sub, fixed); n > MaxSteps {
					return n, false
				}
				n += m
			}
			return n, fixed
		case syntax.OpAlternate:
			// Alternatives are of different lengths as a rule. One byte reaches one place in each.
			for _, sub := range re.Sub {
				m, _ := count(sub, fixed)
				if n += m; n > MaxSteps {
					break
				}
			}
			return n + 1, false
		case syntax.OpRepeat, syntax.OpStar, syntax.OpPlus, syntax.OpQuest:
			n, _ = count(re.Sub[0], fixed && re.Op == syntax.OpQuest)
			if re.Op == syntax.OpRepeat {
				n *= max(re.Min, re.Max, 1)
			}
			return n + 1, false
		}
		return 1, fixed // a sign, or a place in the text
	}
	n, _ := count(re, false)
	return n + ranges
}
