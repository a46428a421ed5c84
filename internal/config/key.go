package config

import "strings"

// key is one of RabbitMQ's keys, or of ours.
type key struct {
	// pattern is the key; a segment * stands for any one name, ** at the end for
	// any number of them.
	pattern string
	value
	// idle, in place of value, is why the key does nothing here.
	idle string
	// live: a change is taken over by a node that runs.
	live bool
	// secret: the value is shown to nobody.
	secret bool
}

// value is what a key does with its value, and how what it did is shown.
type value struct {
	// set takes the value over; name is what * stands for. idle is why it does nothing.
	set func(p *parser, name, value string) (idle string, err error)
	// show is what in c the key stands for, as it would be written; nil shows nothing:
	// another key does.
	show func(c *Config) []named
}

// named is a value and what the * of its key stands for.
type named struct{ name, value string }

// one is the value of a key without *; an empty one is not said.
func one(value string) []named {
	if value == "" {
		return nil
	}
	return []named{{"", value}}
}

// match says whether the key is meant, and what its * stands for.
func (k *key) match(segments []string) (name string, ok bool) {
	pattern := strings.Split(k.pattern, ".")
	for i, want := range pattern {
		if want == "**" {
			return "", len(segments) > i
		}
		if i >= len(segments) {
			return "", false
		}
		switch {
		case want == "*" && segments[i] != "":
			name = segments[i]
		case want != segments[i]:
			return "", false
		}
	}
	return name, len(segments) == len(pattern)
}

// nearest is the known key that is most like one that is not known.
func nearest(unknown string) string {
	best, least := "", -1
	segments := segmentsOf(unknown)
	for i := range keys {
		// What stands for * costs nothing where it stands.
		pattern := strings.Split(strings.TrimSuffix(keys[i].pattern, ".**"), ".")
		for j := range pattern {
			if pattern[j] == "*" && j < len(segments) {
				pattern[j] = segments[j]
			}
		}
		if d := distance(unknown, strings.Join(pattern, ".")); least < 0 || d < least {
			best, least = keys[i].pattern, d
		}
	}
	return best
}

// distance is how many runes must be put in, taken out or changed to make one of the other.
func distance(a, b string) int {
	const most = 100 // of each that count: a key longer than that is like none
	x, y := []rune(a), []rune(b)
	x, y = x[:min(len(x), most)], y[:min(len(y), most)]
	row := make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i, r := range x {
		diagonal := row[0]
		row[0] = i + 1
		for j, s := range y {
			cost := diagonal
			if r != s {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(y)]
}
