package routing

import (
	"bytes"
	"slices"
)

// fewKeys is how many keys are compared with each other one by one before a map is used.
const fewKeys = 32

// DistinctKeys returns more without the keys that stand in it before, and without first: a header has room for
// 26,000 equal ones. It is more itself where nothing is left out of a few.
func DistinctKeys(first []byte, more [][]byte) [][]byte {
	if len(more) > fewKeys {
		return distinctOfMany(first, more)
	}
	for i, key := range more {
		if !isAmong(key, first, more[:i]) {
			continue
		}
		kept := slices.Clone(more[:i])
		for _, key := range more[i+1:] {
			if !isAmong(key, first, kept) {
				kept = append(kept, key)
			}
		}
		return kept
	}
	return more
}

func isAmong(key, first []byte, more [][]byte) bool {
	return bytes.Equal(key, first) || slices.ContainsFunc(more, func(k []byte) bool { return bytes.Equal(k, key) })
}

func distinctOfMany(first []byte, more [][]byte) [][]byte {
	text := string(bytes.Join(more, nil)) // the map's strings are parts of it: one allocation for all
	seen := map[string]struct{}{string(first): {}}
	kept := [][]byte{}
	for _, key := range more {
		n := len(seen)
		seen[text[:len(key)]] = struct{}{}
		text = text[len(key):]
		if len(seen) > n {
			kept = append(kept, key)
		}
	}
	return kept
}

// distinct are the keys of More that DistinctKeys leaves. They are found once for all exchanges that the message reaches.
func (m *Message) distinct() [][]byte {
	if m.kept == nil && len(m.More) > 0 {
		m.kept = DistinctKeys(m.Key, m.More)
	}
	return m.kept
}
