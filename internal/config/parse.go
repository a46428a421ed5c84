package config

import (
	"errors"
	"fmt"
	"strings"
)

// Error is a line that cannot stand.
type Error struct {
	Line int
	Key  string // "" if the line has none
	Text string
}

func (e *Error) Error() string {
	if e.Key == "" {
		return fmt.Sprintf("line %d: %s", e.Line, e.Text)
	}
	return fmt.Sprintf("line %d: %s: %s", e.Line, e.Key, e.Text)
}

// Warning is a line that is legal and does nothing.
type Warning struct {
	Line int
	Key  string
	Text string // why it does nothing
}

// Parse reads the text of a rabbitmq.conf over c: lines "key = value", "#" begins a
// comment, a value in single quotes is taken as it is, a later line wins over an
// earlier one. All lines are read; the error joins an *Error for each that is wrong,
// and c is then not to be used.
func Parse(c *Config, text string) (warnings []Warning, err error) {
	var failed []error
	p := parser{c: c}
	number := 0
	for line := range strings.Lines(text) {
		number++
		key, value, err := split(line)
		if err == nil && key != "" {
			var idle string
			if idle, err = p.set(key, value); err == nil && idle != "" {
				warnings = append(warnings, Warning{number, key, idle})
			}
		}
		if err != nil {
			failed = append(failed, &Error{number, key, err.Error()})
		}
	}
	return warnings, errors.Join(failed...)
}

// parser is what must be known between the lines of a file.
type parser struct {
	c *Config
	// The first line of these replaces the default, the others add to it.
	tagged, permitted bool
}

// split takes a line apart. An empty line or a comment has no key.
func split(line string) (key, value string, err error) {
	line = strings.TrimSpace(line)
	if line == "" || line[0] == '#' {
		return "", "", nil
	}
	key, value, found := strings.Cut(line, "=")
	key, value = strings.TrimSpace(key), strings.TrimSpace(value)
	if !found || strings.Contains(key, "#") {
		return "", "", fmt.Errorf("%q is not of the form key = value", cut(line))
	}
	if key == "" {
		return "", "", errors.New("there is no key before =")
	}
	for _, r := range key {
		if !isKeyRune(r) {
			return "", "", fmt.Errorf("%q cannot be part of a key", r)
		}
	}
	if rest, quoted := strings.CutPrefix(value, "'"); quoted {
		value, rest, closed := strings.Cut(rest, "'")
		if rest = strings.TrimSpace(rest); !closed || rest != "" && rest[0] != '#' {
			return key, "", errors.New("a value that begins with ' must end with ' and have nothing behind it")
		}
		return key, value, nil
	}
	if before, _, comment := strings.Cut(value, "#"); comment {
		value = strings.TrimSpace(before)
	}
	if value == "" {
		return key, "", errors.New("there is no value behind =; write '' if it is to be empty")
	}
	return key, value, nil
}

func isKeyRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-\\/", r) || r > 127
}

// cut shortens a text for a message.
func cut(s string) string {
	const most = 60
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

// set finds what the key means and does it. idle is why it does nothing here.
func (p *parser) set(key, value string) (idle string, err error) {
	segments := segmentsOf(key)
	for i := range keys {
		k := &keys[i]
		name, ok := k.match(segments)
		if !ok {
			continue
		}
		if k.idle != "" {
			return k.idle, nil
		}
		idle, err := k.set(p, name, value)
		if err != nil {
			return "", fmt.Errorf("%q does not do: %w", cut(value), err)
		}
		return idle, nil
	}
	return "", fmt.Errorf("there is no such key; the nearest one is %s", nearest(key))
}

// segmentsOf takes a key apart at its dots. A dot behind a backslash is part of a name.
func segmentsOf(key string) (segments []string) {
	var b strings.Builder
	escaped := false
	for _, r := range key {
		switch {
		case escaped:
			b.WriteRune(r)
			escaped = false
		case r == '\\':
			escaped = true
		case r == '.':
			segments = append(segments, b.String())
			b.Reset()
		default:
			b.WriteRune(r)
		}
	}
	return append(segments, b.String())
}
