package peer

import (
	"math"
	"slices"
	"strings"

	"bartleby.mq/internal/wire/amqp091"
)

// choices are the bytes that everything is chosen by. Behind their end all are 0.
type choices struct {
	rest     []byte
	promises *promises
}

func (c *choices) over() bool { return len(c.rest) == 0 }

func (c *choices) next() byte {
	if c.over() {
		return 0
	}
	b := c.rest[0]
	c.rest = c.rest[1:]
	return b
}

// below chooses a number below n.
func (c *choices) below(n int) int { return int(c.next()) % n }

// once is true once in n times; never behind the end.
func (c *choices) once(n int) bool { return c.below(n) == n-1 }

func pick[T any](c *choices, from []T) T { return from[c.below(len(from))] }

// long are 255 bytes, as many as a short string has.
var long = strings.Repeat("0123456789abcde", 17)

// wide are 255 bytes of two-byte characters, and one that has one byte.
var wide = "-" + strings.Repeat("é", 127)

// numbers are the extremes of the integers.
var numbers = []int64{
	0, 1, -1, 2, 7, 127, 128, -128, 255, 256, 257, 1000, 32767, 32768, -32768, 65535, 65536,
	math.MaxInt32 - 1, math.MaxInt32, math.MaxInt32 + 1, math.MinInt32, math.MaxUint32 - 1, math.MaxUint32, math.MaxUint32 + 1,
	1 << 53, 1<<53 + 1, 1 << 62, math.MaxInt64 / 1000, math.MaxInt64/1000 + 1, math.MaxInt64 / 1_000_000, math.MaxInt64/1_000_000 + 1,
	math.MaxInt64 - 1_800_000_000_000, math.MaxInt64 - 1, math.MaxInt64, math.MinInt64,
}

// floats are the extremes of those.
var floats = []float64{0, 1, 2, 1.5, 0.5, -1, math.NaN(), math.Inf(1), math.Inf(-1), 1e300, -1e300, 5e-324, math.MaxFloat64, math.Copysign(0, -1), 1e18, 1e19}

// texts are strings that somebody might compare, parse, cut or count.
var texts = []string{
	"", "c", "q", "d", "e", long, wide, "0", "-1", "1", "255", "256", "4294967295", "4294967296", "9223372036854775807", "9223372036854775808",
	"18446744073709551616", "1e300", "NaN", "1.5", " ", "1 ", "\x00", "é", "#", "*", "a.b.c", "a.#.*.#", strings.Repeat("#.", 120), strings.Repeat(".", 255),
	"amq.rabbitmq.reply-to", "amq.rabbitmq.reply-to.g1h2AAAAAA", "amq.gen-x", "amq.topic", "guest", "100D", "1Y", "\xff\xfe",
}

// integer chooses one and the type in which it comes, most often one that holds all. The
// largest, behind which sums wrap, are the likeliest.
func (c *choices) integer() any {
	n := pick(c, numbers)
	if c.once(2) {
		n = pick(c, numbers[len(numbers)-10:])
	}
	switch c.below(12) {
	case 1:
		return int32(n)
	case 2:
		return int16(n)
	case 3:
		return int8(n)
	case 4:
		return uint8(n)
	case 5:
		return uint16(n)
	case 6:
		return uint32(n)
	}
	return n
}

// value chooses one of any type.
func (c *choices) value() any {
	switch c.below(16) {
	case 0, 1, 2, 3, 4:
		return c.integer()
	case 5, 6:
		return pick(c, floats)
	case 7:
		return float32(pick(c, floats))
	case 8, 9:
		return pick(c, texts)
	case 10:
		return []byte(pick(c, texts))
	case 11:
		return c.once(2)
	case 12:
		return amqp091.Timestamp(pick(c, numbers))
	case 13:
		return amqp091.Decimal{Scale: uint8(pick(c, numbers)), Value: uint32(pick(c, numbers))}
	case 14:
		return c.nested()
	}
	return nil
}

// nested chooses a table or an array with something in it.
func (c *choices) nested() any {
	switch c.below(6) {
	case 0:
		return amqp091.Table{}
	case 1:
		return amqp091.Array{}
	case 2:
		return amqp091.Table{{Key: pick(c, texts), Value: c.integer()}}
	case 3:
		return amqp091.Array{pick(c, texts), c.integer()}
	case 4: // as deep as may be, or too deep
		v := any(c.integer())
		for range amqp091.MaxDepth - 3 + c.below(5) {
			if c.once(2) {
				v = amqp091.Array{v}
			} else {
				v = amqp091.Table{{Key: "t", Value: v}}
			}
		}
		return v
	}
	return c.names()
}

// names chooses a list of names, as CC has: some that differ, then the last of them again
// and again, at times as many of the longest as a frame holds.
func (c *choices) names() amqp091.Array {
	var list amqp091.Array
	n := []int{1, 2, 3, 20, 256, 300}[c.below(6)]
	name := long
	for i := range n {
		if i < 3 && !c.once(4) {
			name = pick(c, texts)
		}
		list = append(list, name)
	}
	if c.once(4) {
		for i := range list {
			list[i] = long
		}
	}
	return list
}

// An argument is a key of a table with what good clients say.
type argument struct {
	key  string
	good []any
}

// together are arguments that mean something only beside each other, or compete.
var together = [][]argument{
	known("x-delayed-retry-type", "x-delayed-retry-min", "x-delayed-retry-max", "x-delayed-retry-multiplier", "x-delayed-retry-jitter"),
	known("x-message-ttl", "x-expires", "x-consumer-timeout", "x-consumer-disconnected-timeout"),
	known("x-max-length", "x-max-length-bytes", "x-overflow", "x-max-priority"),
	known("x-dead-letter-exchange", "x-dead-letter-routing-key", "x-dead-letter-strategy", "x-overflow", "x-delivery-limit"),
}

// known finds arguments of queues by their keys.
func known(keys ...string) (found []argument) {
	for _, key := range keys {
		i := slices.IndexFunc(queueArguments, func(a argument) bool { return a.key == key })
		found = append(found, queueArguments[i])
	}
	return found
}

func ints(n ...int32) (all []any) {
	for _, v := range n {
		all = append(all, v)
	}
	return all
}

func anyOf(s ...string) (all []any) {
	for _, v := range s {
		all = append(all, v)
	}
	return all
}

// queueArguments are what queues know.
var queueArguments = []argument{
	{"x-queue-type", anyOf("quorum", "classic", "stream", "QUORUM")},
	{"x-dead-letter-exchange", anyOf("", "e", "amq.topic", "none")},
	{"x-dead-letter-routing-key", anyOf("d", "c", "q", long)},
	{"x-dead-letter-strategy", anyOf("at-least-once", "at-most-once")},
	{"x-overflow", anyOf("reject-publish", "drop-head", "reject-publish-dlx")},
	{"x-max-length", ints(0, 1, 3)},
	{"x-max-length-bytes", ints(0, 1, 5000)},
	{"x-message-ttl", ints(0, 1, 100_000)},
	{"x-expires", ints(1, 20, 100_000)},
	{"x-max-priority", ints(0, 1, 10, 255)},
	{"x-delivery-limit", ints(-1, 0, 1, 3)},
	{"x-delayed-retry-type", anyOf("all", "failed", "all", "returned", "all", "disabled")},
	{"x-delayed-retry-min", ints(0, 1, 50)},
	{"x-delayed-retry-max", ints(0, 1, 100)},
	{"x-delayed-retry-multiplier", []any{2.0, int32(1), 1.5}},
	{"x-delayed-retry-jitter", []any{0.5, int32(1), int32(0)}},
	{"x-consumer-timeout", ints(1, 100, 60_000)},
	{"x-consumer-disconnected-timeout", ints(1, 60_000)},
	{"x-single-active-consumer", []any{true, false}},
	{"x-initial-cluster-size", ints(1, 3)},
	{"x-quorum-initial-group-size", ints(1, 3)},
	{"x-queue-leader-locator", anyOf("client-local", "balanced")},
	{"x-queue-master-locator", anyOf("client-local", "min-masters")},
	{"x-queue-mode", anyOf("lazy", "default")},
	{"x-queue-version", ints(1, 2)},
	{"x-max-in-memory-length", ints(0, 10)},
	{"x-max-in-memory-bytes", ints(0, 10)},
	{"x-max-age", anyOf("1D", "1Y")},
	{"x-stream-max-segment-size-bytes", ints(1000)},
	{"x-stream-filter-size-bytes", ints(16)},
}

// exchangeArguments are what exchanges know.
var exchangeArguments = []argument{
	{"alternate-exchange", anyOf("e", "amq.fanout", "none")},
	{"hash-header", anyOf("h", "CC")},
	{"hash-property", anyOf("message_id", "correlation_id", "timestamp")},
	{"x-delayed-type", anyOf("direct", "topic")},
}

// bindingArguments are what bindings know: for headers, hashes and JMS.
var bindingArguments = []argument{
	{"x-match", anyOf("all", "any", "all-with-x", "any-with-x")},
	{"h", []any{int32(1), "v", nil, 1.5}},
	{"CC", anyOf("c")},
	{"x-jms-selector", anyOf("a = 1")},
}

// consumerArguments are what consumers know.
var consumerArguments = []argument{
	{"x-priority", ints(0, 1, -1, 10)},
	{"x-consumer-timeout", ints(1, 60_000)},
	{"x-cancel-on-ha-failover", []any{true}},
	{"x-stream-offset", anyOf("first", "next")},
	{"x-credit", []any{amqp091.Table{{Key: "credit", Value: int64(10)}, {Key: "drain", Value: true}}}},
}

// clientProperties are what a client says of itself.
var clientProperties = []argument{
	{"capabilities", []any{
		amqp091.Table{{Key: "consumer_cancel_notify", Value: true}, {Key: "basic.nack", Value: true}, {Key: "connection.blocked", Value: true}},
		amqp091.Table{{Key: "authentication_failure_close", Value: true}, {Key: "publisher_confirms", Value: int32(1)}},
	}},
	{"connection_name", anyOf("a name", long)},
	{"product", anyOf("peer")},
	{"version", anyOf("1")},
}

// deaths are the tables that x-death has.
var deaths = []argument{
	{"count", []any{int64(1), int64(2)}},
	{"queue", anyOf("c", "q", "d", long)},
	{"reason", anyOf("rejected", "expired", "maxlen", "delivery_limit")},
	{"exchange", anyOf("", "e", long)},
	{"routing-keys", []any{amqp091.Array{"c"}, amqp091.Array{}, amqp091.Array{"c", long}, amqp091.Array{""}}},
	{"time", []any{amqp091.Timestamp(1_700_000_000), amqp091.Timestamp(math.MaxUint64)}},
	{"original-expiration", anyOf("0", "1000")},
}

// headers are those with a meaning.
var headers = []argument{
	{"CC", []any{amqp091.Array{"c", "q"}, amqp091.Array{"d", "none"}, amqp091.Array{"q", "q"}}},
	{"BCC", []any{amqp091.Array{"c"}, amqp091.Array{"q", "d"}}},
	{"x-death", nil},
	{"x-death-total", []any{int64(1)}},
	{"x-first-death-queue", anyOf("c", "q")},
	{"x-first-death-reason", anyOf("rejected")},
	{"x-first-death-exchange", anyOf("", "e")},
	{"x-last-death-queue", anyOf("c", "q")},
	{"x-last-death-reason", anyOf("expired")},
	{"x-last-death-exchange", anyOf("", "e")},
	{"x-delay", ints(0, 1, 1000)},
	{"delay", []any{int32(1), "5", "1000"}},
	{"x-delivery-count", ints(0, 1)},
	{"x-acquired-count", ints(0, 1)},
	{"x-replayed-from", anyOf("d")},
	{"x-original-exchange", anyOf("", "e")},
	{"x-original-routingKey", anyOf("c")},
	{"x-shovelled", []any{amqp091.Array{amqp091.Table{{Key: "src-queue", Value: "c"}}}}},
	{"x-stream-filter-value", anyOf("f")},
	{"h", []any{int32(1), "v", nil, 1.5}},
}

// table chooses some of what is known, with values that are good or not, and at times keys
// that nobody knows, or the same twice.
func (c *choices) table(known []argument, most int) amqp091.Table {
	t := amqp091.Table{}
	for range c.below(most + 1) {
		a := pick(c, known)
		t = append(t, amqp091.Field{Key: a.key, Value: c.argument(a)})
	}
	if c.once(16) {
		t = append(t, amqp091.Field{Key: pick(c, texts), Value: c.value()})
	}
	return t
}

// family chooses arguments that belong together, of which at most two are not what a good
// client says, so that many are let in.
func (c *choices) family(quorum bool) (t amqp091.Table) {
	all := pick(c, together)
	if quorum && c.once(2) {
		all = together[0] // which only those have
	}
	odd, another := c.below(len(all)+1), c.below(3*len(all))
	for i, a := range all {
		switch {
		case i == odd || i == another:
			t = append(t, amqp091.Field{Key: a.key, Value: c.extreme(a)})
		case !c.once(6):
			t = append(t, amqp091.Field{Key: a.key, Value: pick(c, a.good)})
		}
	}
	return t
}

// queueTable chooses the arguments of a queue but for the first, its type.
func (c *choices) queueTable(quorum bool, most int) amqp091.Table {
	if !c.once(3) {
		return c.family(quorum)
	}
	return c.table(queueArguments[1:], most)
}

func (c *choices) argument(a argument) any {
	if c.below(5) < 3 {
		if a.key == "x-death" {
			return c.history()
		}
		return pick(c, a.good)
	}
	return c.extreme(a)
}

// extreme chooses a value that a good client would not, mostly of the type of a good one.
func (c *choices) extreme(a argument) any {
	if !c.once(3) && len(a.good) > 0 {
		switch a.good[0].(type) {
		case int32, int64:
			return c.integer()
		case float64:
			return pick(c, floats)
		case string:
			return pick(c, texts)
		case amqp091.Array:
			return c.names()
		}
	}
	if c.once(2) {
		return c.integer() // most are about numbers, and have the most to say about them
	}
	return c.value()
}

func (c *choices) history() any {
	var h amqp091.Array
	for range c.below(4) {
		h = append(h, c.table(deaths, len(deaths)))
	}
	return h
}
