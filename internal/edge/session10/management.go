package session10

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"bartleby.mq/internal/core/convert"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/routing"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/serving"
	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/internal/wire/amqp10"
	"bartleby.mq/internal/wire/erlterm"
)

// The node /management takes requests to declare, bind and purge, as RabbitMQ's: messages in the form of HTTP requests, whose
// answers are messages on the other link of the same name (linkpair 1.0).

const (
	// maxManagementCredit is how many requests a client may send before it hears of new credit, as in RabbitMQ.
	maxManagementCredit = 8
	// replyToMe is the reply-to of requests on a pair of links (linkpair 2.1).
	replyToMe = "$me"
	// maxUnread is how many bytes of answers may wait for credit or for a window of the client, in all sessions of a connection, before
	// it may request nothing more.
	maxUnread = 1 << 20
)

// manager is a pair of links to the management node. The reader owns it, except gone.
type manager struct {
	name   [sha256.Size]byte // what the client calls it, which may be as long as a frame, is kept as its checksum
	client [sha256.Size]byte // address of the client's terminus, the same for both links, likewise
	shown  string            // of the name, for lists
	held   [][]byte          // answers that wait for credit: clients send it beside their first request

	// The reader writes what follows under session.mu; others read it under that.
	in, out       uint32 // handles
	hasIn, hasOut bool
	inCount       uint32 // delivery-count and credit of the requests
	inCredit      uint32
	outCount      uint32 // and of the answers
	outCredit     uint32
	outMax        uint64 // bytes of an answer that the client takes; 0: any
	gone          bool   // the link for answers has ended
}

// answer is a message from the management node that is not sent yet.
type answer struct {
	m       *manager
	handle  uint32
	payload []byte
}

// managerOf returns the pair that has a link with the handle, nil if none has.
func (s *session) managerOf(handle uint32) *manager {
	for _, m := range s.managers {
		if m.hasIn && m.in == handle || m.hasOut && m.out == handle {
			return m
		}
	}
	return nil
}

// attachManager answers attach of one link of a pair. client is the address of the client's terminus.
func (s *session) attachManager(a *amqp10.Attach, client []byte) error {
	if paired, _ := a.Properties.Lookup("paired"); !isTrue(paired) {
		return failLink(amqp10.ConditionInvalidField, "Link property 'paired' is not set to boolean value 'true'")
	}
	request := a.Role == amqp10.RoleSender
	if request && !settles(a) {
		return failLink(amqp10.ConditionInvalidField, "requests to %s must be settled", managementNode)
	}
	name, terminus := sha256.Sum256(a.Name), sha256.Sum256(client)
	m := s.managers[name]
	if m == nil {
		m = &manager{name: name, client: terminus, shown: printable(a.Name)}
	} else if m.client != terminus || request && m.hasIn || !request && m.hasOut {
		return failLink(amqp10.ConditionPreconditionFailed, "received invalid attach for management link pair '%s'", printable(a.Name))
	}
	s.mu.Lock()
	if s.managers == nil {
		s.managers = map[[sha256.Size]byte]*manager{}
	}
	s.managers[name] = m
	if request {
		m.in, m.hasIn, m.inCount, m.inCredit = a.Handle, true, a.InitialDeliveryCount.Value, maxManagementCredit
	} else {
		m.out, m.hasOut, m.outCount, m.outCredit, m.outMax, m.gone = a.Handle, true, 0, 0, a.MaxMessageSize.Value, false
	}
	s.mu.Unlock()
	c := s.c
	reply := &amqp10.Attach{
		Name: a.Name, Handle: a.Handle, Role: !a.Role, SndSettleMode: amqp10.Some(amqp10.SenderSettleModeSettled), Source: a.Source, Target: a.Target, Properties: a.Properties,
	}
	if request {
		reply.MaxMessageSize = amqp10.Some(uint64(c.link.MaxMessageSize()))
		c.putFrame(s.number, reply)
		s.grantManager(m)
		return nil
	}
	reply.RcvSettleMode, reply.InitialDeliveryCount, reply.MaxMessageSize = a.RcvSettleMode, amqp10.Some[uint32](0), a.MaxMessageSize
	c.putFrame(s.number, reply)
	return nil
}

func isTrue(v amqp10.Value) bool {
	b, ok := v.Bool()
	return ok && b
}

func (s *session) grantManager(m *manager) {
	s.c.putItem(item{kind: itemFlow, s: s, flow: &flow{linked: true, handle: m.in, count: m.inCount, credit: m.inCredit}})
}

// detachManager ends one link of a pair.
func (s *session) detachManager(m *manager, handle uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.hasIn && m.in == handle {
		m.hasIn = false
	} else {
		m.hasOut = false
		m.gone = true
		s.c.putItem(item{kind: itemWindow, s: s})
		replaced := *m // a new link of the pair gets no answer of this one
		s.c.forgetAnswers(m)
		replaced.gone, replaced.held = false, nil
		s.managers[m.name] = &replaced
		m = &replaced
	}
	if !m.hasIn && !m.hasOut {
		delete(s.managers, m.name)
	}
}

// flowManager handles the client's flow for a link of a pair.
func (s *session) flowManager(m *manager, f *amqp10.Flow) {
	if m.hasIn && m.in == f.Handle.Value {
		return
	}
	s.mu.Lock()
	m.outCredit = uint32(max(0, int32(f.DeliveryCount.Value+min(f.LinkCredit.Value, mostCredit)-m.outCount)))
	s.mu.Unlock()
	s.answerHeld(m)
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.Drain {
		m.outCount, m.outCredit = m.outCount+m.outCredit, 0
	}
	if f.Drain || f.Echo {
		s.c.putItem(item{kind: itemFlow, s: s, flow: &flow{linked: true, handle: m.out, count: m.outCount, credit: m.outCredit, drain: f.Drain}})
	}
}

// request answers a request.
func (s *session) request(m *manager, t *amqp10.Transfer, payload []byte) error {
	switch {
	case t.More, t.Aborted:
		return failSession(amqp10.ConditionNotImplemented, "requests to %s in several transfers are not supported", managementNode)
	case !t.Settled.Value:
		return failSession(amqp10.ConditionInvalidField, "requests to %s must be settled", managementNode)
	case m.inCredit == 0:
		return failSession(amqp10.ConditionTransferLimitExceeded, "insufficient credit (0) for management link from client to RabbitMQ")
	case !m.hasOut:
		return failSession(amqp10.ConditionPreconditionFailed, "received transfer on half open management link pair")
	case len(m.held) == maxManagementCredit: // RabbitMQ refuses the first
		return failSession(amqp10.ConditionPreconditionFailed, "insufficient credit (0) for management link from RabbitMQ to client")
	}
	c := s.c
	if unread := c.parkedAnswers.Load() + int64(c.heldAnswers); unread > maxUnread {
		return failSession(amqp10.ConditionResourceLimitExceeded, "%d bytes of answers of %s wait for credit or for a window", unread, managementNode)
	}
	msg, body, err := readRequest(payload)
	if err != nil {
		return failSession(amqp10.ConditionDecodeError, "failed to parse message: %s", err)
	}
	to, okTo := msg.Property(amqp10.PropertyTo).Text()
	method, okMethod := msg.Property(amqp10.PropertySubject).Text()
	if reply, _ := msg.Property(amqp10.PropertyReplyTo).Text(); !okTo || !okMethod || string(reply) != replyToMe {
		return failSession(amqp10.ConditionInvalidField, "a request to %s needs the properties to, subject and reply-to '%s'", managementNode, replyToMe)
	}
	c.flushOps() // what came before is done before
	r := &request{s: s, link: c.link, node: c.broker.NodeName, method: string(method), body: body}
	if err := r.serve(string(to)); err != nil {
		var refused *refusedRequest
		var e *topology.Error
		switch {
		case errors.As(err, &refused):
		case errors.As(err, &e) && e.Fault == topology.Denied:
			return asFailure(err) // it ends the session, as in RabbitMQ
		case errors.As(err, &e):
			refused = &refusedRequest{statusOf(e), e.Text}
		default:
			return err
		}
		c.log.Warn("a request to the management node failed", "method", printable(method), "target", printable(to), "status", refused.status, "reason", refused.text, "user", c.login.User)
		r.status, r.answer = refused.status, amqp10.AppendString(nil, strings.ToValidUTF8(refused.text, "?"))
	}
	m.held = append(m.held, r.response(msg.Property(amqp10.PropertyMessageID)))
	c.heldAnswers += len(m.held[len(m.held)-1])
	s.answerHeld(m)
	s.mu.Lock()
	m.inCredit--
	m.inCount++
	if m.inCredit <= maxManagementCredit/2 {
		m.inCredit = maxManagementCredit
		s.grantManager(m)
	}
	s.mu.Unlock()
	if r.token {
		return c.reviewRights(s)
	}
	return nil
}

// readRequest finds the properties and the value in a request. Its sections may come in any order, as RabbitMQ reads them: its Python
// client sends the value null before the properties.
func readRequest(payload []byte) (m amqp10.Message, body amqp10.Value, err error) {
	for rest := payload; len(rest) > 0; {
		var d amqp10.Descriptor
		var v amqp10.Value
		if d, v, rest, err = amqp10.NextSection(rest); err != nil {
			return m, body, err
		}
		switch d {
		case amqp10.DescriptorProperties:
			m.Properties = v
		case amqp10.DescriptorAMQPValue:
			if err = v.Check(); err != nil {
				return m, body, err
			}
			body = v.Underlying()
		}
	}
	return m, body, m.Check()
}

// answerHeld sends the answers that the client takes.
func (s *session) answerHeld(m *manager) {
	for len(m.held) > 0 && m.outCredit > 0 {
		s.mu.Lock()
		m.outCredit--
		m.outCount++
		s.mu.Unlock()
		s.c.heldAnswers -= len(m.held[0])
		s.c.answer(s, &answer{m: m, handle: m.out, payload: m.held[0]})
		m.held = m.held[1:]
	}
	if len(m.held) == 0 {
		m.held = nil
	}
}

// forgetAnswers forgets those of a pair that are held.
func (c *conn) forgetAnswers(m *manager) {
	for _, a := range m.held {
		c.heldAnswers -= len(a)
	}
	m.held = nil
}

// answer puts an answer into the output. It counts as one that waits: a client that reads none is not read either, nor are requests
// that were read with the one at hand, since answers may be much larger.
func (c *conn) answer(s *session, a *answer) {
	it := item{kind: itemAnswer, s: s, bytes: len(a.payload) + serving.ItemBytes, answer: a}
	c.out.PutItem(&it, it.bytes)
	c.brimming = c.out.Full()
}

// request is a request to the management node.
type request struct {
	s      *session // that it came by
	link   *broker.Connection
	node   string
	method string
	body   amqp10.Value
	query  map[string]any // texts, or true for an entry without a value
	// exclusive says that it declares a queue as exclusive and durable, which here is one of the two.
	exclusive bool
	token     bool // the client's rights are looked at again behind the answer

	status string
	answer []byte // an encoded value
}

// refusedRequest is an answer that tells what is wrong.
type refusedRequest struct{ status, text string }

func (e *refusedRequest) Error() string { return e.status + " " + e.text }

func refuse(status, format string, args ...any) error {
	return &refusedRequest{status, fmt.Sprintf(format, args...)}
}

// statusOf is the status of a refusal.
func statusOf(e *topology.Error) string {
	switch {
	case strings.HasPrefix(e.Text, "invalid property"): // of the type of a queue, which has another status in RabbitMQ
	case e.Fault == topology.Differs, e.Kind == topology.PreconditionFailed:
		return "409"
	case e.Fault == topology.TooMany, e.Kind == topology.AccessRefused:
		return "403"
	case e.Kind == topology.NotFound:
		return "404"
	}
	return "400"
}

// response is the whole answer.
func (r *request) response(id amqp10.Value) []byte {
	b := (&amqp10.Properties{Subject: []byte(r.status), CorrelationID: id}).Append(nil)
	b, start := amqp10.BeginMap(amqp10.AppendDescriptor(b, amqp10.DescriptorApplicationProperties))
	b = amqp10.EndCompound(amqp10.AppendString(amqp10.AppendString(b, "http:response"), "1.1"), start, 2)
	b = amqp10.AppendDescriptor(b, amqp10.DescriptorAMQPValue)
	if r.answer == nil {
		return amqp10.AppendNull(b)
	}
	return append(b, r.answer...)
}

// serve carries the request out.
func (r *request) serve(uri string) error {
	wanted, err := parseRequested(uri)
	if err != nil {
		return err
	}
	r.query = wanted.query
	path := wanted.path
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	kind := segments[0]
	switch {
	case kind == "bindings" && len(segments) == 1 && r.method == "POST":
		return r.bind()
	case kind == "bindings" && len(segments) == 1 && r.method == "GET":
		return r.listBindings()
	case kind == "bindings" && len(segments) == 2 && r.method == "DELETE":
		return r.unbind(segments[1])
	case kind == "auth" && r.method == "PUT" && len(segments) == 2 && segments[1] == "tokens":
		if _, ok := r.body.Binary(); !ok {
			return refuse("400", "the token is no binary")
		}
		r.token = true // as RabbitMQ with a backend that has no tokens
		return r.done(nil)
	}
	if len(segments) < 2 || kind != "queues" && kind != "exchanges" {
		return refuse("404", "no %s %s", r.method, path)
	}
	name, ok := unescape(segments[1])
	if !ok {
		return refuse("400", "bad name '%s'", segments[1])
	}
	switch {
	case kind == "queues" && len(segments) == 3 && segments[2] == "messages" && r.method == "DELETE":
		n, err := r.link.Purge(message.QueueName(name))
		if _, live := r.s.c.broker.Requester(name); live && isMissing(err) {
			err = nil // no reply waits there
		}
		return r.count(n, err)
	case len(segments) != 2:
	case kind == "queues" && r.method == "GET":
		return r.showQueue(name, "200")
	case kind == "queues" && r.method == "PUT":
		return r.declareQueue(name)
	case kind == "queues" && r.method == "DELETE":
		if err := r.noLines(name); err != nil {
			return err
		}
		n, err := r.link.DeleteQueue(message.QueueName(name), false, false)
		return r.count(n, err)
	case kind == "exchanges" && r.method == "PUT":
		return r.declareExchange(name)
	case kind == "exchanges" && r.method == "DELETE":
		if err := r.noLines(name); err != nil {
			return err
		}
		if name == "" {
			return refuse("403", "operation not permitted on the default exchange")
		}
		if err := r.notReserved(topology.ExchangeResource, name); err != nil {
			return err
		}
		return r.done(r.link.DeleteExchange(message.ExchangeName(name), false))
	}
	return refuse("404", "no %s %s", r.method, path)
}

// noLines refuses names with ends of lines, which would vanish.
func (r *request) noLines(name string) error {
	if strings.ContainsAny(name, "\r\n") {
		return refuse("400", "Bad name '%s': line feed and carriage return characters not allowed", name)
	}
	return nil
}

// notReserved refuses names that are the broker's.
func (r *request) notReserved(kind topology.ResourceKind, name string) error {
	if strings.HasPrefix(name, "amq.") {
		return refuse("403", "%s starts with reserved prefix 'amq.'", topology.Resource{VHost: r.link.VHost, Kind: kind, Name: name})
	}
	return nil
}

// done answers a request without a result.
func (r *request) done(err error) error {
	r.status = "204"
	return err
}

// count answers with a number of messages.
func (r *request) count(n int, err error) error {
	if err != nil {
		return err
	}
	b, start := amqp10.BeginMap(nil)
	b = amqp10.AppendUlong(amqp10.AppendString(b, "message_count"), uint64(n))
	r.status, r.answer = "200", amqp10.EndCompound(b, start, 2)
	return nil
}

// fields calls f for each field of the body, which is a map.
func (r *request) fields(what string, f func(key string, v amqp10.Value) (bool, error)) error {
	if r.body.Type() != amqp10.TypeMap {
		return refuse("400", "the body of the request is no map")
	}
	items := r.body.Items()
	for k, ok := items.Next(); ok; k, ok = items.Next() {
		v, _ := items.Next()
		key, known := k.Text()
		if known {
			var err error
			if known, err = f(string(key), v); err != nil {
				return err
			}
		}
		if !known {
			return refuseEntry("bad "+what+" ", k, v)
		}
	}
	return nil
}

// refuseEntry refuses an entry of a map.
func refuseEntry(text string, key, value amqp10.Value) error {
	return refuse("400", "%s%s", text, convert.PrintedPair(len(text), key, value))
}

func setBool(to *bool, v amqp10.Value) (ok bool, err error) {
	*to, ok = v.Bool()
	return ok, nil
}

func setText[S ~string](to *S, v amqp10.Value) (bool, error) {
	s, ok := v.Text()
	*to = S(s)
	return ok, nil
}

func setArguments(to *amqp091.Table, v amqp10.Value) (ok bool, err error) {
	if v.IsNull() {
		return true, nil
	}
	items := v.Items()
	for k, more := items.Next(); more && v.Type() == amqp10.TypeMap; k, more = items.Next() {
		value, _ := items.Next()
		if t := k.Type(); t != amqp10.TypeString && t != amqp10.TypeSymbol {
			return false, refuseEntry("unsupported argument ", k, value)
		}
	}
	*to, ok = tableOf(v, 0)
	return ok, nil
}

func (r *request) declareQueue(name string) error {
	d := topology.QueueDecl{Name: message.QueueName(name), Durable: true}
	err := r.fields("queue property", func(key string, v amqp10.Value) (bool, error) {
		switch key {
		case "durable":
			return setBool(&d.Durable, v)
		case "exclusive":
			return setBool(&d.Exclusive, v)
		case "auto_delete":
			return setBool(&d.AutoDelete, v)
		case "arguments":
			return setArguments(&d.Arguments, v)
		}
		return false, nil
	})
	switch {
	case err != nil:
		return err
	case name == "":
		return refuse("400", "declare queue with empty name not allowed")
	}
	if err := r.noLines(name); err != nil {
		return err
	}
	if err := r.notReserved(topology.QueueResource, name); err != nil {
		return err
	}
	r.exclusive = d.Exclusive && d.Durable
	declared, err := r.link.DeclareQueue(d)
	if err != nil {
		return routingArgument(err, d.Arguments, "x-dead-letter-exchange")
	}
	status := "200"
	if declared.Created {
		status = "201"
	}
	return r.showQueue(name, status)
}

// routingArgument is the refusal of a declaration: RabbitMQ looks first at the exchange that an argument names, and has another text for one of
// a wrong type.
func routingArgument(err error, args amqp091.Table, name string) error {
	var e *topology.Error
	value, ok := args.Get(name)
	if _, text := value.(string); !ok || text || !errors.As(err, &e) || e.Kind != topology.PreconditionFailed || e.Fault == topology.Differs {
		return err
	}
	return refuse("400", "invalid type '%s' for arg '%s'", amqp091.TypeName(value), name)
}

// isMissing says whether an error is that something does not exist.
func isMissing(err error) bool {
	var e *topology.Error
	return errors.As(err, &e) && e.Kind == topology.NotFound
}

// showQueue answers with a queue, or with the node of a requester.
func (r *request) showQueue(name, status string) error {
	declared, q, err := r.link.DescribeQueue(message.QueueName(name))
	here, _, _ := amqp10.ReadValue(amqp10.AppendString(nil, r.node))
	replicas := []amqp10.Value{here}
	switch {
	case isMissing(err) && r.s.seesRequester(name):
		declared = broker.Declared{Consumers: 1}
		q = broker.QueueShape{Name: message.QueueName(name), Type: "rabbit_volatile_queue", AutoDelete: true}
		replicas = nil
	case isMissing(err):
		return refuse("404", "%s not found", topology.Resource{VHost: r.link.VHost, Kind: topology.QueueResource, Name: name})
	case err != nil:
		return err
	}
	b, start := amqp10.BeginMap(nil)
	n := 0
	key := func(key string) []byte {
		n += 2
		return amqp10.AppendString(b, key)
	}
	b = amqp10.AppendString(key("leader"), r.node)
	b = amqp10.AppendUlong(key("message_count"), uint64(declared.Messages))
	b = amqp10.AppendUint(key("consumer_count"), uint32(declared.Consumers))
	b = amqp10.AppendString(key("name"), string(q.Name))
	b = amqp10.AppendString(key("vhost"), string(r.link.VHost))
	b = amqp10.AppendBool(key("durable"), q.Durable || r.exclusive)
	b = amqp10.AppendBool(key("auto_delete"), q.AutoDelete)
	b = amqp10.AppendBool(key("exclusive"), q.Exclusive)
	b = amqp10.AppendString(key("type"), string(q.Type))
	b = appendTable(key("arguments"), q.Arguments)
	if b, err = amqp10.AppendArray(key("replicas"), replicas...); err != nil {
		return err
	}
	r.status, r.answer = status, amqp10.EndCompound(b, start, n)
	return nil
}

func (r *request) declareExchange(name string) error {
	d := topology.ExchangeDecl{Name: message.ExchangeName(name), Type: routing.Direct, Durable: true}
	err := r.fields("exchange property", func(key string, v amqp10.Value) (bool, error) {
		switch key {
		case "durable":
			return setBool(&d.Durable, v)
		case "auto_delete":
			return setBool(&d.AutoDelete, v)
		case "internal":
			return setBool(&d.Internal, v)
		case "type":
			return setText(&d.Type, v)
		case "arguments":
			return setArguments(&d.Arguments, v)
		}
		return false, nil
	})
	switch {
	case err != nil:
		return err
	case name == "":
		return refuse("403", "operation not permitted on the default exchange")
	}
	if err := r.noLines(name); err != nil {
		return err
	}
	_, err = r.link.DeclareExchange(d)
	var e *topology.Error
	switch {
	case !errors.As(err, &e):
	case e.Kind == topology.PreconditionFailed && e.Fault != topology.Differs: // a type, or an alternate exchange, that cannot be
		text, _, _ := strings.Cut(e.Text, " in exchange ")
		err = refuse("400", "%s", text)
	case e.Kind == topology.AccessRefused && e.Fault != topology.Denied: // the exchange does not exist, and cannot be made
		err = cmp.Or(r.notReserved(topology.ExchangeResource, name), err)
	}
	return r.done(err)
}

func (r *request) bind() error {
	d := topology.BindingDecl{DestinationKind: topology.QueueResource}
	err := r.fields("binding field", func(key string, v amqp10.Value) (bool, error) {
		switch key {
		case "source":
			return setText(&d.Source, v)
		case "destination_queue":
			return setText(&d.Destination, v)
		case "destination_exchange":
			d.DestinationKind = topology.ExchangeResource
			return setText(&d.Destination, v)
		case "binding_key":
			return setText(&d.Key, v)
		case "arguments":
			return setArguments(&d.Arguments, v)
		}
		return false, nil
	})
	if err != nil {
		return err
	}
	if err := r.notDefault(&d); err != nil {
		return err
	}
	_, err = r.link.Bind(d)
	return r.done(bindingError(err))
}

// notDefault refuses bindings from and to the default exchange.
func (r *request) notDefault(d *topology.BindingDecl) error {
	if err := cmp.Or(r.noLines(string(d.Source)), r.noLines(d.Destination)); err != nil {
		return err
	}
	if d.Source == "" || d.DestinationKind == topology.ExchangeResource && d.Destination == "" {
		return refuse("403", "operation not permitted on the default exchange")
	}
	return nil
}

// bindingError has the status that RabbitMQ gives all errors of bindings.
func bindingError(err error) error {
	var e *topology.Error
	if errors.As(err, &e) && e.Fault != topology.Denied {
		return refuse("400", "%s", e.Text)
	}
	return err
}

// unbind removes the binding that a location names: see location.
func (r *request) unbind(segment string) error {
	bad := refuse("400", "bad binding path segment '%s'", segment)
	if strings.Contains(segment, "=;dst") || strings.Contains(segment, "=;key=") {
		return bad // an end without a name
	}
	parts := strings.Split(segment, ";")
	if len(parts) != 4 {
		return bad
	}
	d := topology.BindingDecl{DestinationKind: topology.QueueResource}
	hash := ""
	for i, part := range parts {
		key, value, _ := strings.Cut(part, "=")
		text, ok := unescape(value)
		switch {
		case !ok || strings.ContainsFunc(value, notQuoted):
			return bad
		case i == 0 && key == "src":
			d.Source = message.ExchangeName(text)
		case i == 1 && key == "dstq":
			d.Destination = text
		case i == 1 && key == "dste":
			d.DestinationKind, d.Destination = topology.ExchangeResource, text
		case i == 2 && key == "key":
			d.Key = message.RoutingKey(text)
		case i == 3 && key == "args":
			hash = text
		default:
			return bad
		}
	}
	if err := r.notDefault(&d); err != nil {
		return err
	}
	list, err := r.link.BindingsBetween(d.Source, d.DestinationKind, d.Destination)
	if err != nil {
		return err
	}
	for _, b := range list {
		if b.Key == d.Key && b.Hash == hash {
			d.Arguments = b.Arguments
			return r.done(bindingError(r.link.Unbind(d)))
		}
	}
	return r.done(nil) // there is none
}

// notQuoted says that a location has another character for this one.
func notQuoted(r rune) bool { return r >= utf8.RuneSelf || r != '%' && !isUnreserved(byte(r)) }

// listBindings lists the bindings with a key between two ends.
func (r *request) listBindings() error {
	source, _ := r.query["src"].(string)
	d := topology.BindingDecl{Source: message.ExchangeName(source), DestinationKind: topology.QueueResource}
	destination, ok := r.query["dste"]
	if ok {
		d.DestinationKind = topology.ExchangeResource
	} else if destination, ok = r.query["dstq"]; !ok {
		return refuse("400", "missing 'dste' or 'dstq' in query: %s", printedQuery(r.query))
	}
	d.Destination, _ = destination.(string)
	if err := r.notDefault(&d); err != nil {
		return err
	}
	list, err := r.link.BindingsBetween(d.Source, d.DestinationKind, d.Destination)
	if err != nil {
		return err
	}
	kind, field := "q", "destination_queue"
	if d.DestinationKind == topology.ExchangeResource {
		kind, field = "e", "destination_exchange"
	}
	key, keyed := r.query["key"]
	if !keyed {
		key = "" // RabbitMQ fails
	}
	b, start := amqp10.BeginList(nil)
	n := 0
	for i := range list {
		if key != any(string(list[i].Key)) {
			continue
		}
		var entry int
		b, entry = amqp10.BeginMap(b)
		b = amqp10.AppendString(amqp10.AppendString(b, "source"), string(d.Source))
		b = amqp10.AppendString(amqp10.AppendString(b, field), d.Destination)
		b = amqp10.AppendString(amqp10.AppendString(b, "binding_key"), string(list[i].Key))
		b = appendTable(amqp10.AppendString(b, "arguments"), list[i].Arguments)
		b = amqp10.AppendString(amqp10.AppendString(b, "location"), location(string(d.Source), kind, d.Destination, &list[i]))
		b = amqp10.EndCompound(b, entry, 10)
		n++
		if most := r.link.MaxMessageSize(); len(b) > most {
			return refuse("400", "the bindings between %s and %s take more than the largest message, %d bytes", d.Source, d.Destination, most)
		}
	}
	r.status, r.answer = "200", amqp10.EndCompound(b, start, n)
	return nil
}

// printedQuery is a query as RabbitMQ prints it behind the text above: on a line each if one is too short.
func printedQuery(q map[string]any) string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(q)) {
		list = append(list, erlterm.Format(key)+" => "+erlterm.Format(q[key]))
	}
	const column = len("missing 'dste' or 'dstq' in query: ") + len("#{")
	line := strings.Join(list, ",")
	if column+len(line) >= 80 {
		line = strings.Join(list, ",\n"+strings.Repeat(" ", column))
	}
	return "#{" + line + "}"
}

// location is the address of a binding.
func location(source, kind, destination string, b *broker.BindingShape) string {
	quote := func(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }
	return "/bindings/src=" + quote(source) + ";dst" + kind + "=" + quote(destination) + ";key=" + quote(string(b.Key)) + ";args=" + b.Hash
}

// maxArgumentDepth is how deep lists and maps of arguments may lie in each other.
const maxArgumentDepth = 16

// tableOf is a map as arguments.
func tableOf(v amqp10.Value, depth int) (t amqp091.Table, ok bool) {
	if v.Type() != amqp10.TypeMap || depth == maxArgumentDepth {
		return nil, false
	}
	items := v.Items()
	for k, more := items.Next(); more; k, more = items.Next() {
		value, _ := items.Next()
		key, text := k.Text()
		if !text {
			if key, text = k.Symbol(); !text {
				return nil, false
			}
		}
		field, ok := argumentOf(value, depth+1)
		if !ok || len(key) > message.MaxName {
			return nil, false
		}
		t = append(t, amqp091.Field{Key: string(key), Value: field})
	}
	return t, true
}

// argumentOf is a value as an argument.
func argumentOf(v amqp10.Value, depth int) (any, bool) {
	switch v.Type() {
	case amqp10.TypeNull:
		return nil, true
	case amqp10.TypeBoolean:
		return v.Bool()
	case amqp10.TypeUbyte, amqp10.TypeUshort, amqp10.TypeUint, amqp10.TypeUlong:
		n, ok := v.Uint64()
		return unsigned(v.Type(), n), ok && n < 1<<63
	case amqp10.TypeByte, amqp10.TypeShort, amqp10.TypeInt, amqp10.TypeLong:
		n, ok := v.Int64()
		return signed(v.Type(), n), ok
	case amqp10.TypeFloat:
		f, ok := v.Float64()
		return float32(f), ok
	case amqp10.TypeDouble:
		return v.Float64()
	case amqp10.TypeTimestamp:
		ms, ok := v.Timestamp()
		return amqp091.Timestamp(ms / 1000), ok
	case amqp10.TypeBinary:
		b, ok := v.Binary()
		return string(b), ok
	case amqp10.TypeString:
		s, ok := v.Text()
		return string(s), ok
	case amqp10.TypeSymbol:
		s, ok := v.Symbol()
		return string(s), ok
	case amqp10.TypeMap:
		return tableOf(v, depth)
	case amqp10.TypeList:
		if depth == maxArgumentDepth {
			return nil, false
		}
		list := amqp091.Array{}
		items := v.Items()
		for e, more := items.Next(); more; e, more = items.Next() {
			value, ok := argumentOf(e, depth+1)
			if !ok {
				return nil, false
			}
			list = append(list, value)
		}
		return list, true
	}
	return nil, false
}

// unsigned and signed are numbers in the type that RabbitMQ gives them in AMQP 0-9-1.
func unsigned(t amqp10.Type, n uint64) any {
	switch t {
	case amqp10.TypeUbyte:
		return uint8(n)
	case amqp10.TypeUshort:
		return uint16(n)
	case amqp10.TypeUint:
		return uint32(n)
	}
	return int64(n)
}

func signed(t amqp10.Type, n int64) any {
	switch t {
	case amqp10.TypeByte:
		return int8(n)
	case amqp10.TypeShort:
		return int16(n)
	case amqp10.TypeInt:
		return int32(n)
	}
	return n
}

// appendTable appends arguments as a map. What AMQP 1.0 has no type for is left out.
func appendTable(dst []byte, t amqp091.Table) []byte {
	return appendMap(dst, t, amqp10.AppendString[string])
}

// appendKey appends a key of a table within arguments: a symbol, or a string if it cannot be one.
func appendKey(dst []byte, key string) []byte {
	if strings.ContainsFunc(key, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return amqp10.AppendString(dst, key)
	}
	return amqp10.AppendSymbol(dst, key)
}

func appendMap(dst []byte, t amqp091.Table, appendKey func(dst []byte, key string) []byte) []byte {
	dst, start := amqp10.BeginMap(dst)
	n := 0
	for i := range t {
		if out, ok := appendArgument(appendKey(dst, t[i].Key), t[i].Value); ok {
			dst = out
			n += 2
		}
	}
	return amqp10.EndCompound(dst, start, n)
}

func appendArgument(dst []byte, v any) ([]byte, bool) {
	switch v := v.(type) {
	case int8:
		return amqp10.AppendByte(dst, v), true
	case uint8:
		return amqp10.AppendUbyte(dst, v), true
	case int16:
		return amqp10.AppendShort(dst, v), true
	case uint16:
		return amqp10.AppendUshort(dst, v), true
	case int32:
		return amqp10.AppendInt(dst, v), true
	case uint32:
		return amqp10.AppendUint(dst, v), true
	case int64:
		return amqp10.AppendLong(dst, v), true
	case amqp091.Timestamp:
		return amqp10.AppendTimestamp(dst, int64(v)*1000), true
	case nil:
		return amqp10.AppendNull(dst), true
	case bool:
		return amqp10.AppendBool(dst, v), true
	case string:
		return amqp10.AppendString(dst, strings.ToValidUTF8(v, "?")), true
	case []byte:
		return amqp10.AppendBinary(dst, v), true
	case float32:
		return amqp10.AppendFloat(dst, v), true
	case float64:
		return amqp10.AppendDouble(dst, v), true
	case amqp091.Table: // within others, keys are symbols
		return appendMap(dst, v, appendKey), true
	case amqp091.Array:
		dst, start := amqp10.BeginList(dst)
		n := 0
		for _, e := range v {
			if out, ok := appendArgument(dst, e); ok {
				dst = out
				n++
			}
		}
		return amqp10.EndCompound(dst, start, n), true
	}
	return nil, false
}
