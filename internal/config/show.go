package config

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Setting is a line of a configuration file that says what holds.
type Setting struct {
	Key, Value string
	// Secret: the value is to be shown to nobody.
	Secret bool
	// Live: a node takes a change over while it runs.
	Live bool
}

// String is the line as a file has it, with what is secret masked.
func (s Setting) String() string {
	if s.Secret {
		return s.Key + " = " + Masked
	}
	return s.line()
}

func (s Setting) line() string { return s.Key + " = " + quoted(s.Value) }

// Masked is what is shown in place of a secret.
const Masked = "********"

// quoted writes a value so that split reads it back.
func quoted(value string) string {
	if value == "" || value[0] == '\'' || strings.Contains(value, "#") || strings.TrimSpace(value) != value {
		return "'" + value + "'"
	}
	return value
}

// Settings are all of c, in the order of the table of keys. Parsing them over the
// defaults gives c again, but for what only the environment says.
func (c *Config) Settings() (list []Setting) {
	for i := range keys {
		k := &keys[i]
		if k.show == nil {
			continue
		}
		for _, v := range k.show(c) {
			name := strings.Replace(k.pattern, "*", escaped(v.name), 1)
			list = append(list, Setting{name, v.value, k.secret, k.live})
		}
	}
	return list
}

// escaped writes a name so that segmentsOf takes it for one segment.
func escaped(name string) string {
	return strings.NewReplacer(`\`, `\\`, ".", `\.`).Replace(name)
}

// Changed lists the settings in which two configurations differ, as next has them.
// What is gone is listed with an empty value.
func Changed(old, next *Config) (list []Setting) {
	collect := func(c *Config) map[string][]Setting {
		m := map[string][]Setting{}
		for _, s := range c.Settings() {
			m[s.Key] = append(m[s.Key], s)
		}
		return m
	}
	before, after := collect(old), collect(next)
	for _, name := range sortedKeys(after) {
		if !slices.Equal(before[name], after[name]) {
			list = append(list, after[name]...)
		}
	}
	for _, name := range sortedKeys(before) {
		if _, still := after[name]; !still {
			s := before[name][0]
			s.Value = ""
			list = append(list, s)
		}
	}
	return list
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

func isWild(pattern string) bool { return strings.Contains(pattern, "*") }

// TakeOver is old with everything of next that a running node can change, and what
// of next waits for the next start.
func TakeOver(old, next *Config) (now Config, waiting []Setting, err error) {
	var text strings.Builder
	add := func(c *Config, live bool) {
		for _, s := range c.Settings() {
			if s.Live == live {
				text.WriteString(s.line() + "\n")
			}
		}
	}
	add(old, false)
	add(next, true)
	now = Default()
	if _, err = Parse(&now, text.String()); err != nil {
		return Config{}, nil, err // what was read before can be read again
	}
	now.NodeName = old.NodeName
	for _, s := range Changed(old, next) {
		if !s.Live {
			waiting = append(waiting, s)
		}
	}
	return now, waiting, nil
}
