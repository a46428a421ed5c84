package openapi

import (
	"strings"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/routing"
	"bartleby.mq/internal/core/topology"
)

// reservedPrefix is the prefix of names that are reserved for the broker.
const reservedPrefix = "amq."

// maxName is the maximal length of a name or a key, in bytes (DL-22.13).
const maxName = 255

const nameRule = "It may have letters, digits and - _ . # / @ only, and must be 1 to 255 characters long."

// validName says whether this API accepts the name of a queue, an exchange, a virtual host,
// or a dead letter routing key (DL-22.13), whatever the profile of the virtual host.
func validName(name string) bool { return topology.CheckName(deadletter.ApsaraMQ, name) == nil }

// made says whether a text has the length of a name, and only letters, digits and others.
func made(text, others string) bool {
	if text == "" || len(text) > maxName {
		return false
	}
	return strings.IndexFunc(text, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(others, r))
	}) < 0
}

const (
	plainKeyRule = "It may have letters, digits and - _ . / @ only, and must be at most 255 characters long."
	topicKeyRule = "It may have letters, digits and - _ * . # / @ only, must be at most 255 characters long, must not begin or end with a period, and # and * must stand alone between periods."
)

// checkKey refuses a binding key that the reference of CreateBinding forbids for the type
// of the exchange. An empty key counts as missing.
func checkKey(kind routing.Kind, key string) *refusal {
	if key == "" {
		return nil
	}
	if kind != routing.Topic {
		if !made(key, "-_./@") {
			return invalid("BindingKey", plainKeyRule)
		}
		return nil
	}
	if !made(key, "-_*.#/@") || strings.HasPrefix(key, ".") || strings.HasSuffix(key, ".") {
		return invalid("BindingKey", topicKeyRule)
	}
	for word := range strings.SplitSeq(key, ".") {
		if len(word) > 1 && strings.ContainsAny(word, "#*") {
			return invalid("BindingKey", topicKeyRule)
		}
	}
	return nil
}
