package session10

import (
	"strings"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/wire/amqp10"
)

// Addresses are RabbitMQ's version 2:
//
//	/queues/:queue                     a source, or a target
//	/exchanges/:exchange               a target
//	/exchanges/:exchange/:routing-key  a target
//
// Names are percent-encoded. Those of version 1 are refused, as RabbitMQ 4.3 does unless it is told otherwise.
const (
	queuesPrefix    = "/queues/"
	exchangesPrefix = "/exchanges/"
)

// target is where messages of a publisher go.
type target struct {
	anonymous bool   // each message says it itself, in its property to
	exchange  string // else to this exchange, "" for the default one
	key       string
	queue     bool // the address was that of a queue, which key names
}

// parseTarget reads the address of a target. ok is false for what is none of version 2.
func parseTarget(address string) (t target, ok bool) {
	if rest, is := strings.CutPrefix(address, queuesPrefix); is {
		t.queue = true
		t.key, ok = unescape(rest)
		return t, ok && t.key != ""
	}
	rest, is := strings.CutPrefix(address, exchangesPrefix)
	if !is {
		return target{}, false
	}
	name, key, _ := strings.Cut(rest, "/")
	if name == "" || name == "amq.default" || strings.Contains(key, "/") {
		return target{}, false
	}
	var ok2 bool
	t.exchange, ok = unescape(name)
	t.key, ok2 = unescape(key)
	return t, ok && ok2
}

// parseSource reads the address of a source.
func parseSource(address string) (queue message.QueueName, ok bool) {
	rest, is := strings.CutPrefix(address, queuesPrefix)
	if !is {
		return "", false
	}
	name, ok := unescape(rest)
	return message.QueueName(name), ok
}

// isVersion2 says whether an address looks like one of version 2.
func isVersion2(address string) bool {
	return strings.HasPrefix(address, queuesPrefix) || strings.HasPrefix(address, exchangesPrefix)
}

// isPlain says whether a character of an address may stand as it is: those of a segment of a path (RFC 3986, 3.3).
func isPlain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("!$&'()*+,-.:;=@_~", c) >= 0
}

// unescape decodes percent-encoded characters (RFC 3986, 2.1). All that are not plain must be encoded.
func unescape(s string) (string, bool) {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '%':
			if i+2 >= len(s) {
				return "", false
			}
			high, ok := hexDigit(s[i+1])
			low, ok2 := hexDigit(s[i+2])
			if !ok || !ok2 {
				return "", false
			}
			b = append(b, high<<4|low)
			i += 2
		default:
			if !isPlain(c) {
				return "", false
			}
			b = append(b, c)
		}
	}
	return string(b), true
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

// erlangBinary writes a text as RabbitMQ's errors have one.
func erlangBinary(s []byte) string { return "<<\"" + string(s) + "\">>" }

// refuseVersion1 is the failure of a link with an address of version 1.
func refuseVersion1(address []byte) *failure {
	return failLink(amqp10.ConditionInvalidField, "Attach refused: {amqp_address_v1_not_permitted,{utf8,%s}}", erlangBinary(address))
}
