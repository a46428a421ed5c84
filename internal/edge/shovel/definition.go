package shovel

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/moment"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/internal/wire/erlterm"
)

// Component is the component of shovels' parameters.
const Component = "shovel"

// definition is the content of a parameter.
type definition struct {
	source, dest end
	ack          ackMode
	// until is when the shovel deletes itself.
	until          until
	reconnectDelay time.Duration // 0: it is not tried again
}

// end is one side of a shovel.
type end struct {
	uris                 []address
	queue, exchange, key string
	hasKey               bool
	arguments            amqp091.Table // for declaring the queue
	predeclared          bool          // the queue must exist
	prefetch             int           // source
	forwardHeaders       bool          // dest: x-shovelled tells of the shovel
	timestampHeader      bool          // dest: x-shovelled-timestamp tells when
	publishProperties    map[string]any
}

type ackMode string

// The acknowledgement modes.
const (
	onConfirm ackMode = "on-confirm"
	onPublish ackMode = "on-publish"
	noAck     ackMode = "no-ack"
)

// until says how many messages a shovel moves.
type until struct {
	never, queueLength bool
	messages           int64 // of neither
}

const (
	defaultPrefetch       = 1000
	defaultReconnectDelay = 5 * time.Second
)

// reader reads a definition and collects complaints, in RabbitMQ's words.
type reader struct {
	name       string
	value      map[string]any
	known      map[string]bool
	complaints []string
}

func (r *reader) complain(format string, args ...any) {
	r.complaints = append(r.complaints, fmt.Sprintf(format, args...))
}

// take returns the first of the keys that is there: later ones are older names of it.
func (r *reader) take(keys ...string) (key string, v any, ok bool) {
	for _, k := range keys {
		r.known[k] = true
	}
	for _, k := range keys {
		if v, ok = r.value[k]; ok {
			return k, v, true
		}
	}
	return keys[0], nil, false
}

func (r *reader) text(keys ...string) (text string, given bool) {
	key, v, ok := r.take(keys...)
	if !ok {
		return "", false
	}
	if text, ok = v.(string); !ok {
		r.complain("%s should be binary, actually was %s", key, erlterm.Format(v))
	}
	return text, true
}

// short reads text that fits into a short string of AMQP: a key, or a name.
func (r *reader) short(key string) (text string, given bool) {
	text, given = r.text(key)
	if err := message.CheckName(key, text); err != nil {
		r.complain("%s", err)
	}
	return text, given
}

// named reads the name of a queue or an exchange in the broker's form, for which permissions are checked.
func (r *reader) named(key string) (name string, given bool) {
	name, given = r.short(key)
	return topology.CleanName(name), given
}

func (r *reader) boolean(keys ...string) bool {
	key, v, ok := r.take(keys...)
	if !ok {
		return false
	}
	b, ok := v.(bool)
	if !ok {
		r.complain("%s should be boolean, actually was %s", key, erlterm.Format(v))
	}
	return b
}

func (r *reader) number(otherwise int64, keys ...string) int64 {
	key, v, ok := r.take(keys...)
	if !ok {
		return otherwise
	}
	n, ok := v.(int64)
	if !ok {
		r.complain("%s should be a number, actually was %s", key, erlterm.Format(v))
	}
	return n
}

func (r *reader) arguments(key string) amqp091.Table {
	_, v, ok := r.take(key)
	if !ok {
		return nil
	}
	object, ok := v.(map[string]any)
	if list, isList := v.([]any); isList && len(list) == 0 {
		ok = true
	}
	if !ok {
		r.complain("%s should be a map, actually was %s", key, erlterm.Format(v))
		return nil
	}
	t, err := topology.ParseArguments(object)
	if err != nil {
		r.complain("%s: %s", key, err)
	}
	return t
}

// parse reads a definition. complaints are RabbitMQ's, in RabbitMQ's order.
func parse(name string, value any) (d definition, complaints []string) {
	object, ok := value.(map[string]any)
	if !ok {
		return d, []string{fmt.Sprintf("Expected an object, actually was %s", erlterm.Format(value))}
	}
	r := &reader{name: name, value: object, known: map[string]bool{}}
	r.protocols()
	d.source, d.dest = r.source(), r.dest()
	d.until = r.until()
	d.ack = r.ack()
	if d.ack == noAck && !d.until.never && !d.until.queueLength {
		r.complain("Cannot specify 'no-ack' and numerical 'delete-after'") // further messages that were sent would be lost
	}
	d.reconnectDelay = moment.Duration(r.number(int64(defaultReconnectDelay/time.Second), "reconnect-delay"), time.Second)
	d.dest.uris, d.source.uris = r.uris("dest-uri"), r.uris("src-uri") // RabbitMQ complains in this order
	var unknown []string
	for k := range object {
		if !r.known[k] {
			unknown = append(unknown, fmt.Sprintf("{%s,%s}", erlterm.Format(k), erlterm.Format(object[k])))
		}
	}
	if unknown != nil {
		slices.Sort(unknown)
		r.complaints = append([]string{fmt.Sprintf("Unrecognised terms [%s] in %s", strings.Join(unknown, ","), name)}, r.complaints...)
	}
	return d, r.complaints
}

func (r *reader) protocols() {
	for _, key := range []string{"src-protocol", "dest-protocol"} {
		if p, given := r.text(key); given && p != "amqp091" && p != "local" {
			r.complain("%s %s is not supported, use amqp091", key, erlterm.Format(p))
		}
	}
	for _, key := range []string{"internal", "internal_owner"} {
		r.take(key)
	}
}

func (r *reader) source() (e end) {
	e.queue, e.exchange, e.key, e.hasKey = r.place("src")
	e.arguments = r.arguments("src-queue-args")
	_ = r.arguments("src-consumer-args")
	e.predeclared = r.boolean("src-predeclared")
	e.prefetch = int(min(max(0, r.number(defaultPrefetch, "src-prefetch-count", "prefetch-count")), 1<<16))
	return e
}

func (r *reader) dest() (e end) {
	e.queue, e.exchange, e.key, e.hasKey = r.place("dest")
	e.arguments = r.arguments("dest-queue-args")
	e.predeclared = r.boolean("dest-predeclared")
	e.forwardHeaders = r.boolean("dest-add-forward-headers", "add-forward-headers")
	e.timestampHeader = r.boolean("dest-add-timestamp-header", "add-timestamp-header")
	if key, v, ok := r.take("dest-publish-properties", "publish-properties"); ok {
		if e.publishProperties, ok = v.(map[string]any); !ok {
			r.complain("%s should be a map, actually was %s", key, erlterm.Format(v))
		}
		for _, name := range slices.Sorted(maps.Keys(e.publishProperties)) {
			text, _ := e.publishProperties[name].(string)
			if err := message.CheckName(name, text); err != nil {
				r.complain("%s: %s", key, err)
			}
		}
	}
	return e
}

// place reads the queue or the exchange of a side.
func (r *reader) place(side string) (queue, exchange, key string, hasKey bool) {
	queue, hasQueue := r.named(side + "-queue")
	exchange, hasExchange := r.named(side + "-exchange")
	key, hasKey = r.short(side + "-exchange-key")
	switch {
	case hasQueue && hasExchange:
		r.complain("Cannot specify '%s-exchange' and '%s-queue'", side, side)
	case side == "src" && !hasQueue && !hasExchange:
		r.complain("Must specify 'src-exchange' or 'src-queue'")
	}
	return queue, exchange, key, hasKey
}

func (r *reader) until() until {
	key, v, ok := r.take("src-delete-after", "delete-after")
	if !ok || v == "never" {
		return until{never: true}
	}
	if v == "queue-length" {
		return until{queueLength: true}
	}
	n, ok := v.(int64)
	if !ok || n < 0 {
		r.complain(`%s should be a number greater than or equal to 0, "never" or "queue-length", actually was %s`, key, erlterm.Format(v))
	}
	return until{messages: n}
}

func (r *reader) ack() ackMode {
	_, v, ok := r.take("ack-mode")
	if !ok {
		return onConfirm
	}
	text, _ := v.(string)
	switch m := ackMode(text); m {
	case onConfirm, onPublish, noAck:
		return m
	}
	r.complain(`ack-mode should be one of [<<"no-ack">>,<<"on-publish">>,<<"on-confirm">>], actually was %s`, erlterm.Format(v))
	return onConfirm
}

// uris reads one address or a list of addresses; each attempt chooses one.
func (r *reader) uris(key string) (list []address) {
	_, v, ok := r.take(key)
	if !ok {
		r.complain("Key %q not found in %s", key, r.name)
		return nil
	}
	var texts []any
	switch v := v.(type) {
	case string:
		texts = []any{v}
	case []any:
		texts = v
	default:
		r.complain("%s should be list, actually was %s", key, erlterm.Format(v))
		return nil
	}
	for _, t := range texts {
		text, ok := t.(string)
		if !ok {
			r.complain("%s should be binary, actually was %s", key, erlterm.Format(t))
			continue
		}
		a, err := parseAddress(text)
		if err != nil {
			r.complain("%q not a valid URI: %s", broker.WithoutLogin(text), err)
			continue
		}
		list = append(list, a)
	}
	if len(texts) == 0 {
		r.complain("At least 1 URI must be provided")
	}
	return list
}

// rights are a user's permissions on this node.
type rights interface {
	Enters(message.VHost) bool
	Permits(topology.Access, topology.Resource) error
	MaySay(userID string) bool
}

// forbidden lists operations that the shovel would do on this node without a password, and for which its
// creator lacks a permission.
func (d *definition) forbidden(loopbackUsers []string, by rights) (complaints []string) {
	for _, v := range d.vhosts(loopbackUsers) {
		if !by.Enters(v) {
			return []string{fmt.Sprintf("user may not connect to vhost %q", v)}
		}
	}
	demand := func(a address, access topology.Access, r topology.Resource) {
		if !a.inside(loopbackUsers) {
			return
		}
		r.VHost = a.vhost
		if err := by.Permits(access, r); err != nil {
			complaints = append(complaints, err.Error())
		}
	}
	ask := func(a address, access topology.Access, kind topology.ResourceKind, name string) {
		demand(a, access, topology.Resource{Kind: kind, Name: name})
	}
	for _, a := range d.source.uris {
		if d.source.exchange != "" {
			ask(a, topology.Read, topology.ExchangeResource, d.source.exchange)
			demand(a, topology.Read, topology.Resource{Kind: topology.TopicResource, Name: d.source.exchange, Key: d.source.key})
			continue
		}
		ask(a, topology.Read, topology.QueueResource, d.source.queue)
		if !d.source.predeclared {
			ask(a, topology.Configure, topology.QueueResource, d.source.queue)
		}
	}
	for _, a := range d.dest.uris {
		switch {
		case d.dest.queue != "":
			ask(a, topology.Write, topology.ExchangeResource, "")
			if !d.dest.predeclared {
				ask(a, topology.Configure, topology.QueueResource, d.dest.queue)
			}
		case d.dest.exchange != "":
			ask(a, topology.Write, topology.ExchangeResource, d.dest.exchange)
			if d.dest.hasKey { // the keys of messages are checked with each message, see passes
				demand(a, topology.Write, topology.Resource{Kind: topology.TopicResource, Name: d.dest.exchange, Key: d.dest.key})
			}
		default: // each message names its exchange: a user who may write to a random name may write to all
			name := broker.RandomName("")
			before := len(complaints)
			ask(a, topology.Write, topology.ExchangeResource, name)
			for i := range complaints[before:] {
				complaints[before+i] = strings.Replace(complaints[before+i], "exchange '"+name+"'", "every exchange", 1)
			}
		}
		if id, ok := d.dest.publishProperties["user_id"].(string); ok && a.inside(loopbackUsers) && !by.MaySay(id) {
			complaints = append(complaints, fmt.Sprintf("user_id property set to '%s', which is another user", id))
		}
	}
	return complaints
}

// inside says whether access to this node is due only to being on it: without a socket, or as a user who
// may log in only from loopback, whose password is not secret.
func (a *address) inside(loopbackUsers []string) bool {
	return a.local || a.loopback && slices.Contains(loopbackUsers, a.user)
}

// vhosts lists the virtual hosts of this node that the shovel enters with such an address.
func (d *definition) vhosts(loopbackUsers []string) (list []message.VHost) {
	for _, a := range append(slices.Clone(d.source.uris), d.dest.uris...) {
		if a.inside(loopbackUsers) {
			list = append(list, a.vhost)
		}
	}
	return list
}
