package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"bartleby.mq/internal/wire/erlterm"
)

// Error is a line that is wrong.
type Error struct {
	File string // "" if there is only one file
	Line int
	Key  string // "" if the line has none
	Text string
}

func (e *Error) Error() string {
	text := fmt.Sprintf("line %d: ", e.Line)
	if e.File != "" {
		text = e.File + ": " + text
	}
	if e.Key != "" {
		text += e.Key + ": "
	}
	return text + e.Text
}

// Warning is a valid line that has no effect.
type Warning struct {
	File string // or the variable of the environment
	Line int
	Key  string
	Text string // why it has no effect
}

// File is the text of one configuration file.
type File struct {
	Name, Text string
	// Terms: the text is of Erlang terms, as advanced.config and rabbitmq.config are, and no lines.
	Terms bool
}

// IsTerms says whether a text is of Erlang terms. RabbitMQ goes by the name of a file, and if that says nothing by the text.
func IsTerms(name, text string) bool {
	switch {
	case strings.HasSuffix(name, ".config"):
		return true
	case strings.HasSuffix(name, ".conf"):
		return false
	}
	all, err := erlterm.Read(text)
	return err == nil && len(all) > 0
}

// Parse reads the text of a rabbitmq.conf over c; see ParseFiles.
func Parse(c *Config, text string) (warnings []Warning, err error) {
	return ParseFiles(c, nil, File{Text: text})
}

// ParseFiles reads configuration files over c as if they were one file. Lines have the
// form "key = value"; "#" begins a comment. A value in single quotes is literal; in any
// other value $(NAME) is replaced by getenv(NAME). The last line with a key counts, and
// a setting in a file of Erlang terms replaces all lines before it that belong to it.
// ParseFiles reads all lines and joins an *Error for each wrong one. After an error c
// must not be used.
func ParseFiles(c *Config, getenv func(string) string, files ...File) (warnings []Warning, err error) {
	var failed []error
	var lines []line
	for _, f := range files {
		if f.Terms {
			t := readTerms(f)
			failed, warnings = append(failed, t.failed...), append(warnings, t.warnings...)
			lines = append(slices.DeleteFunc(lines, func(l line) bool { return t.replaced(l.key) }), t.lines...)
			continue
		}
		number := 0
		for text := range strings.Lines(f.Text) {
			number++
			l := line{file: f.Name, number: number}
			var err error
			if l.key, l.value, err = split(text, getenv); err != nil {
				failed = append(failed, &Error{f.Name, number, l.key, err.Error()})
			} else if l.key != "" {
				lines = append(lines, l)
			}
		}
	}
	more, err := newParser(c).all(lines)
	return append(warnings, more...), errors.Join(append(failed, err)...)
}

// all applies lines. The last line with a key counts.
func (p *parser) all(lines []line) (warnings []Warning, err error) {
	last := map[string]int{} // the last line of each key
	for i, l := range lines {
		last[l.key] = i
	}
	var failed []error
	for i, l := range lines {
		if last[l.key] != i {
			continue
		}
		idle, err := p.set(l.key, l.value)
		if err != nil {
			failed = append(failed, &Error{l.file, l.number, l.key, err.Error()})
			continue
		}
		for _, other := range [][2]string{{".relative", ".absolute"}, {".absolute", ".relative"}} {
			if base, is := strings.CutSuffix(l.key, other[0]); is && idle == "" && last[base+other[1]] > i {
				idle = base + other[1] + ", which comes later, counts instead"
			}
		}
		if idle != "" {
			warnings = append(warnings, Warning{l.file, l.number, l.key, idle})
		}
	}
	return warnings, errors.Join(failed...)
}

func newParser(c *Config) *parser { return &parser{c: c, listed: map[*[]string]bool{}} }

// line is a line with a key.
type line struct {
	file       string
	number     int
	key, value string
}

// parser carries what one line of a file leaves for later ones.
type parser struct {
	c *Config
	// tagged: a line has set a tag of the first user. The first such line replaces the
	// default tags, later lines add to them.
	tagged bool
	// backends are the lines auth_backends.N by N.
	backends map[int]AuthBackend
	// listed holds the lists of listeners that a line has already started.
	listed map[*[]string]bool
}

// split splits a line into key and value. An empty line or a comment has no key.
func split(line string, getenv func(string) string) (key, value string, err error) {
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
		return "", "", errors.New("the key before = is missing")
	}
	for _, r := range key {
		if !isKeyRune(r) {
			return "", "", fmt.Errorf("a key cannot contain %q", r)
		}
	}
	if rest, quoted := strings.CutPrefix(value, "'"); quoted {
		value, rest, closed := strings.Cut(rest, "'")
		if rest = strings.TrimSpace(rest); !closed || rest != "" && rest[0] != '#' {
			return key, "", errors.New("a value that begins with ' must end with ', and only a comment may follow")
		}
		return key, value, nil
	}
	if before, _, comment := strings.Cut(value, "#"); comment {
		value = strings.TrimSpace(before)
	}
	if value == "" {
		return key, "", errors.New("the value after = is missing; write '' for an empty value")
	}
	value, err = interpolate(value, getenv)
	return key, value, err
}

// interpolate replaces each $(NAME) by getenv(NAME).
func interpolate(value string, getenv func(string) string) (string, error) {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(value, "$(")
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		name, after, closed := strings.Cut(rest, ")")
		if !closed {
			return "", errors.New("$( has no closing )")
		}
		said := ""
		if getenv != nil {
			said = getenv(name)
		}
		if said == "" {
			return "", fmt.Errorf("the environment variable %s is not set", cut(name))
		}
		b.WriteString(said)
		value = after
	}
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

// set looks the key up and applies the value. idle says why the key has no effect here.
// The error never contains a secret value. Errors of key.set follow the value: "is not
// an integer".
func (p *parser) set(key, value string) (idle string, err error) {
	if k := lookUp(key); k != nil {
		if k.set == nil {
			return k.idle, nil
		}
		name, _ := k.match(segmentsOf(key))
		idle, err := k.set(p, name, value)
		switch {
		case err != nil && k.secret:
			return "", fmt.Errorf("the value %w", err)
		case err != nil:
			return "", fmt.Errorf("%q %w", cut(value), err)
		}
		return idle, nil
	}
	if like := nearest(key); like != "" {
		return "", fmt.Errorf("unknown key; did you mean %s?", like)
	}
	return "", errors.New("unknown key: neither RabbitMQ " + CompatibleVersion + " nor Bartleby has it")
}

// lookUp is the key that a name means; nil if there is none.
func lookUp(name string) *key {
	segments := segmentsOf(name)
	for i := range keys {
		if _, ok := keys[i].match(segments); ok {
			return &keys[i]
		}
	}
	return nil
}

// segmentsOf splits a key at its dots. A dot after a backslash is part of a name.
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
