package twodrivers

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"bartleby.mq/internal/wire/amqp091"
)

const (
	connections = 2
	queues      = 3 // whose type differs between the nodes: q0, q1, q2

	// Two more have the same type on both nodes, so that dead letters go from one log to another:
	// here to another and there not, or the other way round.
	sameClassic, sameQuorum = "same-classic", "same-quorum"

	// The channels of each connection.
	confirming    = 1
	plain         = 2
	transactional = 3
	asking        = 4 // for declarations, and what closes channels

	retryHeld       = 3 * time.Second
	consumerTimeout = 10 * time.Second // with ApsaraMQ's profile, where both types have it (DL-22.2)

	// pause follows each operation, so that it makes no difference that a TTL of 0 is 1 ms to
	// quorum queues, which ends when the millisecond after it has passed (DL-8.7).
	pause = 4 * time.Millisecond

	// beside is at which part of a millisecond operations begin, and what workers wait for comes.
	beside    = 500 * time.Microsecond
	largeBody = 4000
	// hanging is longer than any operation takes. Where one waits for ever, the clock goes on
	// by what the nodes do now and then, and would for ever.
	hanging = 2 * time.Minute
)

// episode is what holds for all of a list of operations.
type episode struct {
	priorities bool // queues have levels, and every message a priority
	large      bool // bodies are large and limits in bytes
	retries    bool // returned messages wait
	atLeast    bool // q0 dead-letters at least once
	apsara     bool // the virtual host has ApsaraMQ's profile
	transient  bool // some messages are transient, and nothing is restarted
}

// arguments are a queue's, or a policy's. What is negative or empty is not there.
type arguments struct {
	ttl, expires, maxLength, maxBytes int64
	overflow                          string
	dlx, dlk                          int // 0: none, else one more than an index of deadExchanges, deadKeys
	single                            bool
	atLeast                           bool
	retry                             string
	retryMin, retryMax                int64
}

var (
	deadExchanges = []string{"", "direct", "fanout", "missing"}
	// The keys that the exchange "direct" has bindings for are names of queues, as are those of
	// the default exchange. "twice" leads to two, "nowhere" to none.
	deadKeys = []string{"q1", "q2", sameClassic, sameQuorum, "twice", "nowhere", "q0"}

	exchanges = []string{"", "direct", "fanout"}
	keys      = []string{"q0", "q1", "q2", "twice", "nowhere"}
)

// op is one operation. Which fields mean something depends on its kind; those that name
// what may not be there are taken modulo what is.
type op struct {
	kind            string
	conn, ch, queue int
	n               int
	flag, other     bool
	how             string
	exchange, key   int
	priority        int
	expiration      string
	headers         int
	args            arguments
	wait            time.Duration
}

// GoString is what rapid shows of an operation that it has drawn.
func (o op) GoString() string { return o.String() }

func (o op) String() string {
	var b strings.Builder
	b.WriteString(o.kind)
	say := func(format string, v ...any) { fmt.Fprintf(&b, " "+format, v...) }
	switch o.kind {
	case "declare", "policy":
		say("q%d %s", o.queue, o.args)
	case "redeclare", "bad":
		say("q%d variation %d", o.queue, o.n)
	case "publish":
		say("c%d.%d exchange=%q key=%q n=%d mandatory=%v transient=%v priority=%d expiration=%q headers=%d", o.conn, o.ch, exchanges[o.exchange], keys[o.key], o.n, o.flag, o.other, o.priority, o.expiration, o.headers)
	case "consume":
		say("c%d.%d q%d prefetch=%d no-ack=%v exclusive=%v priority=%d", o.conn, o.ch, o.queue, o.n, o.flag, o.other, o.priority)
	case "get":
		say("c%d.%d q%d no-ack=%v", o.conn, o.ch, o.queue, o.flag)
	case "settle":
		say("c%d.%d %s %d multiple=%v", o.conn, o.ch, o.how, o.n, o.flag)
	case "cancel":
		say("c%d.%d %d", o.conn, o.ch, o.n)
	case "recover", "commit", "rollback", "close channel", "unknown tag":
		say("c%d.%d", o.conn, o.ch)
	case "end", "drop":
		say("c%d", o.conn)
	case "delete":
		say("q%d if-unused=%v if-empty=%v", o.queue, o.flag, o.other)
	case "take":
		say("q%d %s %d", o.queue, o.how, o.n)
	case "advance":
		say("%v", o.wait)
	case "restart":
	default:
		say("q%d", o.queue)
	}
	return b.String()
}

func (a arguments) String() string {
	var parts []string
	for _, f := range a.table() {
		parts = append(parts, fmt.Sprintf("%s=%v", f.Key, f.Value))
	}
	return strings.Join(parts, " ")
}

// none are no arguments.
var none = arguments{ttl: -1, maxLength: -1, maxBytes: -1}

// table are the arguments of a declaration.
func (a arguments) table() (t amqp091.Table) {
	set := func(key string, value any) { t = append(t, amqp091.Field{Key: key, Value: value}) }
	if a.ttl >= 0 {
		set("x-message-ttl", a.ttl)
	}
	if a.expires > 0 {
		set("x-expires", a.expires)
	}
	if a.maxLength >= 0 {
		set("x-max-length", a.maxLength)
	}
	if a.maxBytes >= 0 {
		set("x-max-length-bytes", a.maxBytes)
	}
	if a.overflow != "" {
		set("x-overflow", a.overflow)
	}
	if a.dlx > 0 {
		set("x-dead-letter-exchange", deadExchanges[a.dlx-1])
		if a.dlk > 0 {
			set("x-dead-letter-routing-key", deadKeys[a.dlk-1])
		}
	}
	if a.single {
		set("x-single-active-consumer", true)
	}
	if a.atLeast {
		set("x-dead-letter-strategy", "at-least-once")
	}
	if a.retry != "" {
		set("x-delayed-retry-type", a.retry)
		set("x-delayed-retry-min", a.retryMin)
		if a.retryMax > 0 {
			set("x-delayed-retry-max", a.retryMax)
		}
	}
	return t
}

// definition is what a policy says.
func (a arguments) definition() map[string]any {
	d := map[string]any{}
	for _, f := range a.table() {
		key, _ := strings.CutPrefix(f.Key, "x-")
		d[key] = f.Value
	}
	return d
}

// uniform draws a number below n, each as likely as the others. Rapid's own ranges and
// samples favour small ones so much that most kinds of operations would never come.
func uniform(t *rapid.T, name string, n int) (i int) {
	for bit := 1; bit < 8*n; bit *= 2 {
		if rapid.Bool().Draw(t, name) {
			i |= bit
		}
	}
	return i % n
}

func among[T any](t *rapid.T, name string, list []T) T { return list[uniform(t, name, len(list))] }

func drawArguments(t *rapid.T, e episode, queue int, policy bool) arguments {
	some := func(name string, one int) bool { return one-1 == uniform(t, name, one) }
	a := none
	if some("ttl", 4) {
		a.ttl = among(t, "x-message-ttl", []int64{0, 20, 100, 1000, 1000})
	}
	if some("expires", 16) {
		a.expires = among(t, "x-expires", []int64{1, 50, 1000})
	}
	atLeast := e.atLeast && queue == 0
	if !e.retries && !atLeast && some("limit", 3) {
		a.maxLength = among(t, "x-max-length", []int64{0, 1, 2, 3, 5})
	}
	if e.large && !e.retries && !atLeast && some("limit in bytes", 2) {
		a.maxBytes = among(t, "messages", []int64{0, 1, 2})*largeBody + largeBody/2
	}
	if (a.maxLength >= 0 || a.maxBytes >= 0) && some("overflow", 2) {
		a.overflow = among(t, "x-overflow", []string{"reject-publish", "drop-head"})
	}
	if !some("no exchange", 4) || atLeast {
		a.dlx = 1 + uniform(t, "x-dead-letter-exchange", len(deadExchanges))
		if !some("no key", 4) {
			a.dlk = 1 + uniform(t, "x-dead-letter-routing-key", len(deadKeys))
		}
	}
	if atLeast {
		a.atLeast, a.overflow = true, "reject-publish"
	}
	if e.retries && !some("no retry", 4) {
		a.retry = among(t, "x-delayed-retry-type", []string{"all", "failed", "returned", "disabled"})
		a.retryMin = among(t, "x-delayed-retry-min", []int64{1, 30, 200})
		if some("growing", 3) {
			a.retryMax = among(t, "x-delayed-retry-max", []int64{200, 500})
		}
	}
	if !policy {
		a.single = some("single", 6)
	}
	return a
}

// kinds are what operations there are, those that are to come often more than once.
var kinds = slices.Concat(
	slices.Repeat([]string{"publish"}, 14),
	slices.Repeat([]string{"settle"}, 14),
	slices.Repeat([]string{"get"}, 6),
	slices.Repeat([]string{"consume"}, 5),
	slices.Repeat([]string{"advance"}, 5),
	slices.Repeat([]string{"declare"}, 4),
	slices.Repeat([]string{"commit", "policy"}, 3),
	slices.Repeat([]string{"recover", "cancel", "close channel", "take", "replay"}, 2),
	slices.Repeat([]string{"meet"}, 8),
	[]string{"redeclare", "bad", "passive", "rollback", "unknown tag", "end", "drop", "purge", "delete", "no policy", "peek", "restart"},
)

func drawOp(e episode) *rapid.Generator[op] {
	return rapid.Custom(func(t *rapid.T) op {
		o := op{kind: among(t, "kind", kinds)}
		o.conn = uniform(t, "connection", connections)
		o.ch = among(t, "channel", []int{plain, confirming, transactional})
		o.queue = uniform(t, "queue", queues)
		switch o.kind {
		case "declare":
			o.args = drawArguments(t, e, o.queue, false)
		case "policy":
			o.args = drawArguments(t, e, o.queue, true)
		case "redeclare", "bad":
			o.n = uniform(t, "variation", 21)
		case "publish":
			o.exchange = among(t, "exchange", []int{0, 0, 0, 1, 2})
			o.key = among(t, "key", []int{0, 0, 0, 1, 1, 2, 3, 4})
			o.n = among(t, "n", []int{1, 1, 2, 3, 5})
			o.flag = uniform(t, "mandatory", 4) == 0
			o.other = e.transient && rapid.Bool().Draw(t, "transient")
			o.priority = among(t, "priority", []int{0, 1, 5, 31})
			o.expiration = among(t, "expiration", []string{"", "", "", "", "", "", "", "", "0", "1", "30", "500", "500", "60000", "60000", "x"})
			o.headers = among(t, "headers", []int{0, 0, 0, 1, 2, 3})
		case "consume":
			o.n = among(t, "prefetch", []int{0, 1, 2, 3})
			o.flag = uniform(t, "no-ack", 4) == 0
			o.other = uniform(t, "exclusive", 8) == 0
			o.priority = among(t, "x-priority", []int{0, 0, 0, 1, -1})
		case "get":
			o.flag = uniform(t, "no-ack", 3) == 0
		case "settle":
			o.how = among(t, "how", []string{"ack", "nack", "nack requeue", "reject", "reject requeue"})
			o.n = uniform(t, "which", 8)
			o.flag = uniform(t, "multiple", 3) == 0
		case "cancel":
			o.n = uniform(t, "which", 4)
		case "delete":
			o.flag, o.other = rapid.Bool().Draw(t, "if-unused"), rapid.Bool().Draw(t, "if-empty")
		case "take":
			o.how = among(t, "how", []string{"ack", "ack requeue", "reject requeue", "reject"})
			o.n = uniform(t, "n", 4)
		case "advance":
			o.wait = among(t, "ms", []time.Duration{1, 10, 30, 100, 250, 1100, 3500, 10500}) * time.Millisecond
		}
		return o
	})
}
