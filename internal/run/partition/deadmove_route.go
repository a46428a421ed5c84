package partition

import (
	"slices"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/wire/amqp091"
)

// lastRoute is where the last death went, if that depends only on the exchange and the keys.
type lastRoute struct {
	known    bool
	exchange string
	keys     []string
	targets  []*Queue
}

// find returns where a death goes; mostly that is where the last one went. The caller may change targets.
func (l *lastRoute) find(m *deadmove, exchange string, keys []string, rec message.Record, h *deadletter.History) (targets []*Queue, exists, byKeys bool) {
	if l.known && l.exchange == exchange && slices.Equal(l.keys, keys) {
		return slices.Clone(l.targets), true, true
	}
	targets, exists, byKeys = m.n.Router.RouteDead(m.q, exchange, keys, rec, h, nil)
	if l.known = exists && byKeys; l.known {
		l.exchange, l.keys, l.targets = exchange, keys, slices.Clone(targets)
	}
	return targets, exists, byKeys
}

// keysOf returns the keys that the message was published with: its routing key and those of its CC header.
func keysOf(rec message.Record) []string {
	keys := []string{string(rec.Key())}
	if !rec.HasCC() {
		return keys
	}
	p, err := amqp091.ParseProps(rec.Properties())
	if err != nil {
		return keys
	}
	return AppendCC(keys, p.Headers)
}

// AppendCC appends the keys of the CC header to keys (BR-8.5). It skips elements that are not strings.
func AppendCC(keys []string, headers []byte) []string {
	kind, value, ok := amqp091.HeaderField(headers, "CC")
	if !ok || kind != 'A' {
		return keys
	}
	list, err := amqp091.DecodeValue(kind, value)
	if err != nil {
		return keys
	}
	for _, v := range list.(amqp091.Array) {
		if s, ok := v.(string); ok {
			keys = append(keys, s)
		}
	}
	return keys
}

func appendShortStrings(keys []string, b []byte) []string {
	for len(b) > 0 {
		n := int(b[0])
		if 1+n > len(b) {
			break
		}
		keys = append(keys, string(b[1:1+n]))
		b = b[1+n:]
	}
	return keys
}
