package config

import "strings"

// key is a key of RabbitMQ's, or one of ours.
type key struct {
	// pattern is the key; a segment * stands for any one name.
	pattern string
	value
	// idle, instead of value, is why the key has no effect here.
	idle string
	// live: a running node applies a change.
	live bool
	// secret: the value is never shown.
	secret bool
}

// value sets and shows the value of a key.
type value struct {
	// set applies the value; name is the text that * matched. idle is why it has no effect. An
	// error follows the value in a sentence, as in "is not an integer".
	set func(p *parser, name, value string) (idle string, err error)
	// show returns the values of the key in c, as a file would have them; nil: another key
	// shows them.
	show func(c *Config) []named
	// refuses: set returns an error for any value that asks for something, as the node cannot do it and must not ignore it.
	refuses bool
}

// named is a value and the text for the * of its key.
type named struct{ name, value string }

// one is the value of a key without *; an empty value is not set.
func one(value string) []named {
	if value == "" {
		return nil
	}
	return []named{{"", value}}
}

// match says whether the segments match the key, and which text matches its *.
func (k *key) match(segments []string) (name string, ok bool) {
	pattern := strings.Split(k.pattern, ".")
	for i, want := range pattern {
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

// nearest is the known key that is closest to an unknown one; "" if none is so close that a typing error explains it.
func nearest(unknown string) string {
	best, least := "", 1+max(len([]rune(unknown))/4, 1)
	segments := segmentsOf(unknown)
	for i := range keys {
		// The text for * does not count.
		pattern := strings.Split(keys[i].pattern, ".")
		for j := range pattern {
			if pattern[j] == "*" && j < len(segments) {
				pattern[j] = segments[j]
			}
		}
		if d := distance(unknown, strings.Join(pattern, ".")); d < least {
			best, least = keys[i].pattern, d
		}
	}
	return best
}

// distance is the number of runes to insert, delete or replace to turn a into b.
func distance(a, b string) int {
	const most = 100 // runes of each that count: a longer key is close to none
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
