package broker

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"unicode/utf8"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/routing"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/internal/wire/erlterm"
)

// Publication is a message that a client publishes.
type Publication struct {
	Exchange, Key []byte
	// Raw are the properties as the client sent them, Props their values.
	Raw   []byte
	Props amqp091.Props
	// Sections are what the message's own protocol has around the body, if that is not AMQP 0-9-1: nil if it is. Raw
	// and Props are its properties then as AMQP 0-9-1 would have them: all that the broker reads of them.
	Sections *message.Sections
	// Body is the content, in as many pieces as it arrived.
	Body [][]byte
	Size int // of all pieces, in bytes
	// Whole is the size of the message as it came, if that counts as its size in metrics; 0: Size does.
	Whole int
	// Channel is the number of the client's channel, 0 if it has none.
	Channel uint16

	// Set by Check.
	ttl    int64
	delay  int64 // milliseconds (DL-22.12)
	flat   bool  // its priority does not count (DL-22.14)
	cc     [][]byte
	bcc    []byte // short strings
	edit   amqp091.PropsEdit
	edited bool
	// FromAnother says that Check refused it because of its user-id.
	FromAnother bool
}

// HasMoreKeys says whether CC or BCC have routing keys. REQUIRES: Check.
func (p *Publication) HasMoreKeys() bool { return len(p.cc)+len(p.bcc) > 0 }

// MoreKeys are the routing keys of CC and BCC, with repetitions.
func (p *Publication) MoreKeys() [][]byte {
	return append(append([][]byte{}, p.cc...), message.ShortStrings(p.bcc)...)
}

// DistinctKeys are all routing keys, each once.
func (p *Publication) DistinctKeys() [][]byte { return distinctKeys(p.Key, p.MoreKeys()) }

func distinctKeys(first []byte, more [][]byte) [][]byte {
	return append([][]byte{first}, routing.DistinctKeys(first, more)...)
}

// maxTTL is ten years in milliseconds (DL-8.3).
const maxTTL = 315360000000

// Check validates the message itself, in RabbitMQ's order: expiration (DL-8.3), CC and BCC (BR-8.5), user-id
// (BR-8.13). It does not route.
func (c *Connection) Check(p *Publication) error {
	p.ttl, p.delay, p.flat, p.edited, p.edit, p.FromAnother = -1, 0, false, false, amqp091.PropsEdit{}, false
	p.cc, p.bcc = p.cc[:0], p.bcc[:0]
	if err := p.checkNames(); err != nil {
		return err
	}
	if p.Props.Has(amqp091.FlagExpiration) {
		if err := p.checkExpiration(); err != nil {
			return err
		}
	}
	if p.Size > c.MaxMessageSize() {
		return c.TooLarge(uint64(p.Size)) // a session has checked this before it took the body
	}
	if a := c.apsara; a != nil {
		p.delay, p.flat = a.delay(p.Props.Headers), !a.Priorities
	}
	if p.Props.Headers != nil {
		if err := p.checkExtraKeys(); err != nil {
			return err
		}
	}
	if p.Props.Has(amqp091.FlagUserID) && string(p.Props.UserID) != c.User && !c.operator && !c.Impersonates() {
		p.FromAnother = true
		return topology.Refuse(topology.PreconditionFailed, "user_id property set to '%s' but authenticated user was '%s'", p.Props.UserID, c.User)
	}
	return nil
}

// checkNames refuses names that a record has no room for. Names from the wire fit; an exchange of an earlier version
// may have a longer one.
func (p *Publication) checkNames() error {
	if len(p.Exchange) <= message.MaxName && len(p.Key) <= message.MaxName {
		return nil
	}
	if err := message.CheckName("exchange", string(p.Exchange)); err != nil {
		return topology.Refuse(topology.PreconditionFailed, "%s", err)
	}
	return topology.Refuse(topology.PreconditionFailed, "%s", message.CheckName("routing_key", string(p.Key)))
}

func (p *Publication) checkExpiration() error {
	text := string(p.Props.Expiration)
	where := fmt.Sprintf("invalid expiration '%s': ", text)
	ttl, reason := parseExpiration(text, utf8.RuneCountInString(where))
	if reason != "" {
		return topology.Refuse(topology.PreconditionFailed, "%s", where+reason)
	}
	p.ttl = ttl
	if normal := strconv.FormatInt(ttl, 10); normal != text {
		p.edit.Expiration, p.edited = &normal, true
	}
	return nil
}

// parseExpiration reads the property as RabbitMQ does: an integer and nothing after it. A reason means a refusal.
// column is where the reason is written in its line.
func parseExpiration(text string, column int) (ttl int64, reason string) {
	n := 0
	if n < len(text) && (text[n] == '+' || text[n] == '-') {
		n++
	}
	digits := n
	for n < len(text) && text[n] >= '0' && text[n] <= '9' {
		n++
	}
	if n == digits {
		return 0, "no_integer"
	}
	if n < len(text) {
		return 0, erlterm.Tagged(column, "leftover_string", erlterm.CharList(text[n:]))
	}
	number := text
	if number[0] == '+' {
		number = number[1:]
	}
	ttl, err := strconv.ParseInt(number, 10, 64)
	switch {
	case err != nil && number[0] == '-':
		return 0, erlterm.Tagged(column, "value_negative", number)
	case err != nil:
		return 0, erlterm.Tagged(column, "value_too_large", trimZeros(number))
	case ttl < 0:
		return 0, erlterm.Tagged(column, "value_negative", strconv.FormatInt(ttl, 10))
	case ttl > maxTTL:
		return 0, erlterm.Tagged(column, "value_too_large", strconv.FormatInt(ttl, 10))
	}
	return ttl, ""
}

func trimZeros(digits string) string {
	for len(digits) > 1 && digits[0] == '0' {
		digits = digits[1:]
	}
	return digits
}

// checkExtraKeys reads the keys of the CC and BCC headers, and removes BCC from the message.
func (p *Publication) checkExtraKeys() error {
	keys := func(name string, add func(key []byte)) (bool, error) {
		kind, value, ok := amqp091.HeaderField(p.Props.Headers, name)
		if !ok {
			return false, nil
		}
		decoded, err := amqp091.DecodeValue(kind, value)
		if err != nil {
			return false, topology.Refuse(topology.PreconditionFailed, "invalid message: header %s is malformed", name)
		}
		list, ok := decoded.(amqp091.Array)
		if !ok {
			return false, topology.Refuse(topology.PreconditionFailed, "invalid message: {unacceptable_type_in_header,\"%s\",%s}", name, amqp091.TypeName(decoded))
		}
		for _, v := range list {
			if s, ok := v.(string); ok && len(s) <= message.MaxName {
				add([]byte(s))
			}
		}
		return true, nil
	}
	if _, err := keys("CC", func(k []byte) { p.cc = append(p.cc, k) }); err != nil {
		return err
	}
	has, err := keys("BCC", func(k []byte) {
		p.bcc = append(append(p.bcc, byte(len(k))), k...)
	})
	if err != nil {
		return err
	}
	if len(p.bcc) > message.MaxBCC {
		return topology.Refuse(topology.PreconditionFailed, "invalid message: header BCC has keys of %d bytes, at most %d are possible", len(p.bcc), message.MaxBCC)
	}
	if has {
		p.edit.Remove, p.edited = removeBCC, true
	}
	return nil
}

var removeBCC = []string{"BCC"}

// SetReplyTo replaces the reply-to property (BR-12.2).
func (p *Publication) SetReplyTo(name string) { p.edit.ReplyTo, p.edited = &name, true }

// Canonical are the properties as they are stored and delivered.
func (p *Publication) Canonical() []byte {
	if p.edited || !amqp091.Canonical(&p.Props) {
		return amqp091.AppendProps(nil, p.Raw, &p.Props, &p.edit)
	}
	return p.Raw
}

// Store stores the message and returns the only reference to it.
func (c *Connection) Store(p *Publication) message.Ref {
	e := c.envelope(p)
	ref, b := c.b.bodies.Alloc(e.Size())
	body := e.Put(b)
	for _, piece := range p.Body {
		body = body[copy(body, piece):]
	}
	if e.Persistent { // other messages are sealed when they are written to disk
		message.Record(b).Seal()
	}
	return ref
}

// Record is the record of a checked message, with these BCC keys (as in a record) unless its headers have some. Nothing is stored.
func (c *Connection) Record(p *Publication, bcc []byte) (message.Record, error) {
	if len(p.bcc) == 0 {
		p.bcc = bcc
	}
	e := c.envelope(p)
	if err := e.Check(); err != nil {
		return nil, topology.Refuse(topology.PreconditionFailed, "%v", err)
	}
	rec := message.Record(make([]byte, e.Size()))
	rest := e.Put(rec)
	for _, piece := range p.Body {
		rest = rest[copy(rest, piece):]
	}
	rec.Seal()
	return rec, nil
}

func (c *Connection) envelope(p *Publication) message.Envelope {
	return message.Envelope{
		Serial: c.nextSerial(), Exchange: p.Exchange, Key: p.Key, BCC: p.bcc, Properties: p.Canonical(), Sections: p.Sections, BodySize: p.Size,
		Persistent: p.Props.DeliveryMode == 2, HasHeaders: p.Props.Headers != nil, HasCC: len(p.cc) > 0,
		HasExpiration: p.ttl >= 0, HasPriority: p.Priority() >= 0, Priority: p.Props.Priority,
	}
}

// Op is the publish operation of a checked and routed message. It stores the message.
func (c *Connection) Op(p *Publication, targets []*partition.Queue) partition.Op {
	return partition.Op{Kind: partition.Publish, Targets: targets, Body: c.Store(p), TTL: p.ttl, Priority: p.Priority(), Delay: p.delay}
}

// Priority is the message's priority property, -1 if it has none or if priorities do not count in the virtual host.
func (p *Publication) Priority() int {
	if p.Props.Has(amqp091.FlagPriority) && !p.flat {
		return int(p.Props.Priority)
	}
	return -1
}

// routes caches where keys lead, until a declaration changes.
type routes struct {
	revision uint64
	byKey    map[string]routed
	// The last route, for publishers that always use the same one.
	exchange, key []byte
	last          routed
	valid         bool
	scratch       []byte
	targets       int // in all of byKey
	// onForget, if not nil, is called when routes are forgotten, to take what was counted on them.
	onForget func()
}

// routed is where an exchange sends a key.
type routed struct {
	exchange *ExchangeStats
	counts   *routeCounts // nil: the route is not kept
	targets  []*partition.Queue
}

// routesLimit is how many keys are cached, targetsLimit how many queues they lead to in all: a client may use ever
// new keys with a fanout to ten thousand queues.
const routesLimit, targetsLimit = 4096, 1 << 16

func (r *routes) find(revision uint64, exchange, key []byte) (routed, bool) {
	r.since(revision)
	if r.valid && bytes.Equal(r.exchange, exchange) && bytes.Equal(r.key, key) {
		return r.last, true
	}
	r.scratch = appendRoute(r.scratch[:0], exchange, key)
	to, ok := r.byKey[string(r.scratch)]
	if ok {
		r.remember(exchange, key, to)
	}
	return to, ok
}

// since empties the cache if declarations have changed.
func (r *routes) since(revision uint64) {
	if r.revision != revision {
		r.forget()
		r.revision = revision
	}
}

// forget empties the cache.
func (r *routes) forget() {
	clear(r.byKey)
	r.valid, r.targets = false, 0
	if r.onForget != nil {
		r.onForget()
	}
}

func (r *routes) remember(exchange, key []byte, to routed) {
	r.exchange, r.key = append(r.exchange[:0], exchange...), append(r.key[:0], key...)
	r.last, r.valid = to, true
}

func (r *routes) keep(exchange, key []byte, to routed) {
	if r.byKey == nil {
		r.byKey = map[string]routed{}
	}
	if r.targets += len(to.targets); len(r.byKey) >= routesLimit || r.targets > targetsLimit {
		r.forget()
		r.targets = len(to.targets)
	}
	r.scratch = appendRoute(r.scratch[:0], exchange, key)
	r.byKey[string(r.scratch)] = to
	r.remember(exchange, key, to)
}

// appendRoute appends a unique form of an exchange and a key. Both may contain any byte; Check has made sure that a
// name's length fits into one byte.
func appendRoute(b, exchange, key []byte) []byte {
	return append(append(append(b, byte(len(exchange))), exchange...), key...)
}

// Route returns the queues that the message goes to, after checking that the client may publish there (BR-8.1,
// BR-3.3, BR-3.5, BR-5.11). The slice must not be changed.
func (c *Connection) Route(p *Publication) (targets []*partition.Queue, err error) {
	if c.elsewhere == nil {
		targets, err = c.route(p)
	} else {
		err = c.decided(func() error {
			targets, err = c.route(p)
			return err
		})
	}
	if err != nil {
		err = cmp.Or(c.b.awaitAll(), err)
	} else if c.Traced() {
		c.tracePublish(p, targets)
	}
	return targets, err
}

func (c *Connection) route(p *Publication) ([]*partition.Queue, error) {
	plain := len(p.cc) == 0 && len(p.bcc) == 0
	if plain {
		if to, ok := c.cache.find(c.b.revision.Load(), p.Exchange, p.Key); ok {
			c.passed(to.exchange, len(to.targets), cmp.Or(p.Whole, p.Size))
			c.tally(to.counts, p.Channel)
			return to.targets, nil
		}
	}
	c.b.topo.RLock()
	defer c.b.topo.RUnlock()
	revision := c.b.revision.Load()
	v, x, err := c.publishable(p)
	if err != nil {
		return nil, err
	}
	m := routing.Message{
		Key: p.Key, Headers: p.Props.Headers, MessageID: p.Props.MessageID, CorrelationID: p.Props.CorrelationID,
		Timestamp: p.Props.Timestamp, HasTimestamp: p.Props.Has(amqp091.FlagTimestamp), Chance: rand.Uint64(), Pause: c.b.onPause,
	}
	if !plain {
		m.More = p.MoreKeys()
	}
	found := c.router.Route(v, x, &m, nil)
	if err := c.router.BadDelay; err != nil {
		return nil, topology.Refuse(topology.PreconditionFailed, "%s", err)
	}
	targets := make([]*partition.Queue, len(found))
	for i, q := range found {
		targets[i] = runtimeOf(q)
	}
	to := routed{exchange: c.b.statsOf(x), targets: targets}
	c.passed(to.exchange, len(targets)-c.router.Delaying, cmp.Or(p.Whole, p.Size))
	if plain && c.router.ByKeys {
		to.counts = &routeCounts{exchange: x.Name, targets: targets}
		c.cache.since(revision)
		c.cache.keep(p.Exchange, p.Key, to)
		c.tally(to.counts, p.Channel)
	} else {
		c.countLoose(x.Name, p.Channel, targets)
	}
	return targets, nil
}

// MayPublish checks that the exchange of a publish exists and that the client may write to it. Topics and the message
// are checked by MayUseTopics and Check.
func (c *Connection) MayPublish(p *Publication) error {
	return c.decided(func() error {
		c.b.topo.RLock()
		defer c.b.topo.RUnlock()
		_, _, err := c.exchangeOf(p)
		return err
	})
}

// MayUseTopics checks the permissions on the routing keys of a publish to an existing topic exchange (BR-3.5).
func (c *Connection) MayUseTopics(p *Publication) error {
	return c.decided(func() error {
		c.b.topo.RLock()
		defer c.b.topo.RUnlock()
		_, _, err := c.publishable(p)
		return err
	})
}

// publishable returns the exchange of a publish, if the client may make it. REQUIRES: topo is held for reading, and
// nothing else is held. It may let others in.
func (c *Connection) publishable(p *Publication) (*topology.VHost, *topology.Exchange, error) {
	for {
		v, x, err := c.exchangeOf(p)
		if err != nil || x.Acts() != routing.Topic {
			return v, x, err
		}
		paused, err := c.permitKeys(x, p.Key, p.MoreKeys())
		if err != nil {
			return nil, nil, err
		}
		if !paused || c.still(v, x) {
			return v, x, nil
		}
	}
}

// still says whether this exchange still exists. REQUIRES: topo is held.
func (c *Connection) still(v *topology.VHost, x *topology.Exchange) bool {
	if now, ok := c.b.state.VHost(c.VHost); !ok || now != v {
		return false
	}
	now, ok := v.Exchange(x.Name)
	return ok && now == x
}

// keysAtOnce is how many bytes of keys are compared with permissions before others are let in. For each byte, a
// comparison may take as many steps as the permission has.
const keysAtOnce = 256

// permitKeys checks whether the client may publish with these keys; only topic exchanges have such permissions
// (BR-3.5). paused says that others were let in. REQUIRES: topo is held for reading, and nothing else is held.
func (c *Connection) permitKeys(x *topology.Exchange, first []byte, more [][]byte) (paused bool, err error) {
	if x.Acts() != routing.Topic {
		return false, nil
	}
	compared := 0
	var undecided error
	for _, key := range distinctKeys(first, more) {
		if compared += 1 + len(key); compared > keysAtOnce {
			c.b.onPause()
			compared, paused = 0, true
		}
		r := topology.Resource{VHost: c.VHost, Kind: topology.TopicResource, Name: string(x.Name), Key: string(key)}
		switch err := c.permit(topology.Write, r); {
		case errors.Is(err, errUndecided):
			undecided = err // go on: the backend is then asked about the others as well
		case err != nil:
			return paused, cmp.Or(undecided, err) // the first refusal counts
		}
	}
	return paused, undecided
}

// internalExchange is the refusal of a client's publish to an internal exchange (BR-5.11).
func internalExchange(x *topology.Exchange) error {
	return topology.Refuse(topology.AccessRefused, "cannot publish to internal %s", x.Resource())
}

// exchangeOf returns the exchange of a publish, if the client may write to it. REQUIRES: topo is held.
func (c *Connection) exchangeOf(p *Publication) (*topology.VHost, *topology.Exchange, error) {
	name := message.ExchangeName(p.Exchange)
	v, ok := c.b.state.VHost(c.VHost)
	if !ok {
		return nil, nil, topology.NoExchange(c.VHost, name)
	}
	if err := c.permit(topology.Write, topology.Resource{VHost: c.VHost, Kind: topology.ExchangeResource, Name: string(name)}); err != nil {
		return nil, nil, err
	}
	x, ok := v.Exchange(name)
	if !ok {
		return nil, nil, topology.NoExchange(c.VHost, name)
	}
	if x.Internal {
		return nil, nil, internalExchange(x)
	}
	return v, x, nil
}

// PublishOne publishes one message and waits until it is durable. It is for callers without a session, such as the
// management API.
func (c *Connection) PublishOne(p *Publication) (routed bool, err error) {
	if err := c.Check(p); err != nil {
		return false, err
	}
	targets, err := c.Route(p)
	if err != nil {
		return false, err
	}
	if len(targets) == 0 {
		return false, c.Await(partition.Receipt{})
	}
	op := []partition.Op{c.Op(p, targets)}
	err = c.Enter(op)
	return err == nil && !op[0].Refused, err
}
