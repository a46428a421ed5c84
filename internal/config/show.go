package config

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Setting is a line of a configuration file for a value in force.
type Setting struct {
	Key, Value string
	// Secret: the value is never shown.
	Secret bool
	// Live: a running node applies a change.
	Live bool
}

// String is the line as in a file, with a secret value masked.
func (s Setting) String() string {
	if s.Secret {
		return s.Key + " = " + Masked
	}
	return s.line()
}

func (s Setting) line() string { return s.Key + " = " + quoted(s.Value) }

// Masked is shown instead of a secret.
const Masked = "********"

// quoted writes a value so that split reads it back.
func quoted(value string) string {
	if value == "" || value[0] == '\'' || strings.ContainsAny(value, "#\n") || strings.Contains(value, "$(") || strings.TrimSpace(value) != value {
		return "'" + value + "'"
	}
	return value
}

// Settings returns all settings of c, in the order of the table of keys. Parsing them over
// the defaults gives c again, except values that only the environment can set.
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

// escaped writes a name so that segmentsOf reads it as one segment.
func escaped(name string) string {
	return strings.NewReplacer(`\`, `\\`, ".", `\.`).Replace(name)
}

// Changed lists the settings in which two configurations differ, with the values of next.
// A removed setting has an empty value.
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

// TakeOver returns old with all settings of next that a running node can change, and the
// changed settings of next that need a restart.
func TakeOver(old, next *Config) (now Config, waiting []Setting, err error) {
	var lines []line
	add := func(c *Config, live bool) {
		for _, s := range c.Settings() {
			if s.Live == live {
				lines = append(lines, line{key: s.Key, value: s.Value})
			}
		}
	}
	add(old, false)
	add(next, true)
	now = Default()
	if _, err = newParser(&now).all(lines); err != nil {
		return Config{}, nil, err // cannot happen: both were read before
	}
	now.NodeName = old.NodeName
	for _, s := range Changed(old, next) {
		if !s.Live {
			waiting = append(waiting, s)
		}
	}
	return now, waiting, nil
}
