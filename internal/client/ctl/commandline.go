package ctl

import "strings"

// SplitCommandLine divides the command line of a Windows process into its arguments, by
// the rules that Microsoft documents for C programs, which Erlang's tools follow: within
// quotes "" is a quote, and the quotation continues. Go's os.Args follows the rules before
// 2008, ends the quotation there, and reads this differently:
//
//	rabbitmqctl set_policy DLX ".*" "{""dead-letter-exchange"":""my-dlx""}" --apply-to queues
//
// RabbitMQ's guide writes JSON for Windows like this. The first argument, the program, has no
// escapes.
func SplitCommandLine(line string) []string {
	program, rest := cutProgram(line)
	args := []string{program}
	for {
		rest = strings.TrimLeft(rest, " \t")
		if rest == "" {
			return args
		}
		var arg string
		arg, rest = cutArgument(rest)
		args = append(args, arg)
	}
}

// cutProgram cuts the program's path off: up to a blank that is not in quotes.
func cutProgram(line string) (program, rest string) {
	quoted := false
	end := strings.IndexFunc(line, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return !quoted && (r == ' ' || r == '\t')
	})
	if end < 0 {
		end = len(line)
	}
	return strings.ReplaceAll(line[:end], `"`, ""), line[end:]
}

// cutArgument cuts one argument off a line that begins with it. Backslashes are escapes
// before a quote only: two are one, and an odd one makes the quote a letter.
func cutArgument(line string) (argument, rest string) {
	var b strings.Builder
	quoted := false
	for i := 0; i < len(line); i++ {
		c := line[i]
		if !quoted && (c == ' ' || c == '\t') {
			return b.String(), line[i:]
		}
		if c != '\\' && c != '"' {
			b.WriteByte(c)
			continue
		}
		slashes := len(line[i:]) - len(strings.TrimLeft(line[i:], `\`))
		i += slashes
		if i == len(line) || line[i] != '"' {
			b.WriteString(strings.Repeat(`\`, slashes))
			i--
			continue
		}
		b.WriteString(strings.Repeat(`\`, slashes/2))
		switch {
		case slashes%2 == 1:
			b.WriteByte('"')
		case quoted && strings.HasPrefix(line[i+1:], `"`):
			b.WriteByte('"')
			i++
		default:
			quoted = !quoted
		}
	}
	return b.String(), ""
}
