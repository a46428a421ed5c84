package main

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"bartleby.mq/internal/wire/amqp10"
)

const (
	attachFields = "name handle role snd-settle-mode rcv-settle-mode source target unsettled incomplete-unsettled initial-delivery-count max-message-size offered-capabilities desired-capabilities properties"
	flowFields   = "next-incoming-id incoming-window next-outgoing-id outgoing-window handle delivery-count link-credit available drain echo properties"
	bodyFields   = "header delivery-annotations message-annotations properties application-properties data amqp-value amqp-sequence footer"
)

func init() {
	kinds = map[string]kind{
		// Octets and frames as the scenario has them.
		"socket": {openSocket, "conn"},
		"header": {sendHeader, "of conn"},
		"bytes":  {sendBytes, "hex conn text"},
		"frame":  {sendFrame, "of conn s channel type doff fields payload body size"},
		"expect": {expect, "of conn s link count only"},
		"quiet":  {quiet, "ms conn only"},
		"eof":    {eof, "conn"},
		"drop":   {drop, "conn"},

		// The connection, its sessions and links.
		"sasl":     {sasl, "mechanism conn user password response hostname"},
		"connect":  {connect, "conn user password vhost open only brief"},
		"begin":    {begin, "s conn brief fields only"},
		"attach":   {attach, "link s credit as " + attachFields},
		"sender":   {attachSender, "link s " + attachFields},
		"receiver": {attachReceiver, "link s credit as " + attachFields},
		"detach":   {detach, "link closed error"},
		"end":      {endSession, "s error"},
		"close":    {closeConnection, "conn error"},
		"flow":     {flow, "link s " + flowFields},

		// Messages.
		"publish":     {publish, "body link count settled frames wait delivery-tag message-format sections size delivery-id state rcv-settle-mode aborted " + bodyFields},
		"outcomes":    {outcomes, "link count"},
		"receive":     {receive, "link count brief frames sorted ms"},
		"accept":      {settle("accepted"), "of to settled"},
		"release":     {settle("released"), "of to settled"},
		"reject":      {settle("rejected"), "of to settled error"},
		"modify":      {settle("modified"), "of to settled delivery-failed undeliverable-here message-annotations"},
		"disposition": {disposition, "of to s link role first last settled state batchable"},
		"request":     {request, "method s path body properties application-properties only as"},

		// AMQP 0-9-1.
		"exchange":     {declareExchange, "name type durable auto_delete internal args"},
		"queue":        {declareQueue, "name durable exclusive auto_delete args as"},
		"delete_queue": {deleteQueue, "name"},
		"purge":        {purge, "name"},
		"bind":         {bind, "queue exchange key args"},
		"publish091":   {publish091, "body exchange key count props headers size"},
		"get091":       {get091, "queue no_ack count as"},
		"ack091":       {settle091("ack"), "of"},
		"reject091":    {settle091("reject"), "of requeue"},
		"nack091":      {settle091("nack"), "of requeue multiple"},
		"close091":     {close091, "conn"},

		// The management API.
		"wait":          {wait, "queue ready consumers"},
		"sleep":         {sleep, "ms"},
		"policy":        {setPolicy, "name pattern definition apply_to priority"},
		"delete_policy": {deletePolicy, "name"},
		"user":          {createUser, "name password tags"},
		"permit":        {permit, "user configure write read"},
		"topic_permit":  {topicPermit, "user exchange write read"},
		"mgmt":          {manage, "path method content fields until"},
		"restart":       {restart, "conn"},
	}
}

// --- octets and frames

func openSocket(p *player, a *args) ([]string, error) {
	c, err := dial(p.address(), p.timeout)
	if err == nil {
		p.clients[a.text("conn", "main")] = c
	}
	return nil, err
}

// protocolHeaders are what a header step can name.
var protocolHeaders = map[string]string{"amqp": amqp10.ProtocolHeader, "sasl": amqp10.ProtocolHeaderSASL, "tls": amqp10.ProtocolHeaderTLS}

func sendHeader(p *player, a *args) ([]string, error) {
	c, err := p.client(a)
	if err != nil {
		return nil, err
	}
	h, ok := protocolHeaders[a.text("of", "")]
	if !ok {
		return nil, fmt.Errorf("there is no header %q", a.text("of", ""))
	}
	c.write([]byte(h))
	return nil, nil
}

func sendBytes(p *player, a *args) ([]string, error) {
	c, err := p.client(a)
	if err != nil {
		return nil, err
	}
	b := []byte(a.text("text", ""))
	if a.has("hex") {
		if b, err = hex.DecodeString(strings.ReplaceAll(a.text("hex", ""), " ", "")); err != nil {
			return nil, err
		}
	}
	c.write(b)
	return nil, nil
}

// sendFrame sends one frame with just the fields that the scenario gives it.
func sendFrame(p *player, a *args) ([]string, error) {
	c, err := p.client(a)
	if err != nil {
		return nil, err
	}
	channel, typ := 0, amqp10.FrameAMQP
	if s := p.sessions[a.text("s", "s")]; s != nil && s.client == c {
		channel = int(s.channel)
	}
	var body []byte
	switch {
	case a.has("of"):
		name := a.text("of", "")
		if strings.HasPrefix(name, "sasl-") {
			typ = amqp10.FrameSASL
		}
		t := compositeNamed(name)
		if t == nil {
			return nil, fmt.Errorf("there is no performative %q", name)
		}
		fields := a.nodes["fields"]
		if fields == nil {
			fields = &yaml.Node{Kind: yaml.MappingNode}
		}
		if body, err = p.encoder().composite(nil, t, fields); err != nil {
			return nil, err
		}
	case a.has("body"):
		if body, err = hex.DecodeString(strings.ReplaceAll(a.text("body", ""), " ", "")); err != nil {
			return nil, err
		}
	}
	if a.has("payload") {
		payload, err := hex.DecodeString(strings.ReplaceAll(a.text("payload", ""), " ", ""))
		if err != nil {
			return nil, err
		}
		body = append(body, payload...)
	}
	channel, typ = a.number("channel", channel), a.number("type", typ)
	b := binary.BigEndian.AppendUint32(nil, uint32(a.number("size", 8+len(body))))
	b = append(b, byte(a.number("doff", 2)), byte(typ))
	b = binary.BigEndian.AppendUint16(b, uint16(channel))
	c.write(append(b, body...))
	return nil, nil
}

// expect waits for frames and shows them: the next one, or the next of a kind, of a link. The message of a transfer is
// shown with its last frame.
func expect(p *player, a *args) ([]string, error) {
	c, err := p.client(a)
	if err != nil {
		return nil, err
	}
	kind := a.text("of", "")
	var s *session
	if a.has("s") {
		if s, err = p.session(a); err != nil {
			return nil, err
		}
	}
	var lines []string
	for i, n := 0, a.number("count", 1); i < n; i++ {
		it := c.take(p.timeout, func(it *item) bool {
			return (it.kind == kind || kind == "" && it.kind != "empty") && (s == nil || it.session == s) &&
				(!a.has("link") || it.link != nil && it.link.name == a.text("link", ""))
		})
		if it == nil {
			return append(lines, c.nothing(n-i)), nil
		}
		lines = append(lines, it.lines(a.words("only"))...)
		if it.kind == "transfer" {
			lines = append(lines, p.pieces(it)...)
		}
	}
	return lines, nil
}

// nothing tells that so many frames did not come.
func (c *client) nothing(missing int) string {
	if c.hasEnded() {
		return "the broker closed the connection"
	}
	return fmt.Sprintf("%d did not come", missing)
}

// pieces collects what transfers carry, and shows the message when it is whole.
func (p *player) pieces(it *item) []string {
	whole := p.collect(it)
	if whole == nil {
		return nil
	}
	return indent(showMessage(whole))
}

func indent(lines []string) []string {
	for i := range lines {
		lines[i] = "  " + lines[i]
	}
	return lines
}

// collect adds a transfer to the delivery under way on its link, and returns the payload of it when it is whole.
func (p *player) collect(it *item) []byte {
	var t amqp10.Transfer
	l := it.link
	if l == nil || t.Decode(it.value) != nil {
		return it.payload
	}
	if l.partial == nil {
		l.partialID, l.partialSettled = t.DeliveryID.Value, t.Settled.Value
	}
	l.partial = append(l.partial, it.payload...)
	if l.partial == nil {
		l.partial = []byte{}
	}
	if t.More {
		return nil
	}
	whole := l.partial
	l.partial = nil
	if name := nameOf(whole); name != "" {
		p.deliveries[name] = &delivery{l, l.partialID}
	}
	return whole
}

// quiet shows what comes within ms milliseconds, what came before and was not expected included.
func quiet(p *player, a *args) ([]string, error) {
	c, err := p.client(a)
	if err != nil {
		return nil, err
	}
	end := time.Now().Add(time.Duration(max(200, a.number("ms", 0))) * time.Millisecond)
	var lines []string
	for {
		it := c.take(time.Until(end), func(it *item) bool { return it.kind != "empty" })
		if it == nil {
			break
		}
		lines = append(lines, it.lines(a.words("only"))...)
		if it.kind == "transfer" {
			lines = append(lines, p.pieces(it)...)
		}
	}
	if c.hasEnded() {
		lines = append(lines, "the broker closed the connection")
	}
	if len(lines) == 0 {
		lines = []string{"nothing came"}
	}
	return lines, nil
}

func eof(p *player, a *args) ([]string, error) {
	c, err := p.client(a)
	if err != nil {
		return nil, err
	}
	if until(p.timeout, c.hasEnded) {
		return []string{"the broker closed the connection"}, nil
	}
	return []string{"the connection is still open"}, nil
}

// drop cuts the connection without a word to the broker.
func drop(p *player, a *args) ([]string, error) {
	c, err := p.client(a)
	if err == nil {
		c.stop()
	}
	return nil, err
}

// --- connections, sessions, links

// perform sends a performative with fields: those of the defaults, unless the scenario has others. An explicit null
// leaves a default out.
func (p *player) perform(c *client, channel uint16, name string, defaults, given map[string]*yaml.Node, payload []byte) error {
	t := compositeNamed(name)
	fields := &yaml.Node{Kind: yaml.MappingNode}
	for _, f := range t.fields {
		v := given[f.name]
		if v == nil {
			v = defaults[f.name]
		}
		if v != nil {
			fields.Content = append(fields.Content, word(f.name), v)
		}
	}
	dst, start := amqp10.BeginFrame(nil, amqp10.FrameAMQP, channel)
	if strings.HasPrefix(name, "sasl-") {
		dst, start = amqp10.BeginFrame(nil, amqp10.FrameSASL, 0)
	}
	dst, err := p.encoder().composite(dst, t, fields)
	if err != nil {
		return err
	}
	c.write(amqp10.EndFrame(append(dst, payload...), start))
	return nil
}

func word(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s} }

func numeral[N int | uint16 | uint32](n N) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: fmt.Sprint(n)}
}

// mapping returns the arguments that a map under one name has.
func (a *args) mapping(name string) map[string]*yaml.Node {
	m := map[string]*yaml.Node{}
	if n := a.nodes[name]; n != nil {
		for i := 0; i+1 < len(n.Content); i += 2 {
			m[n.Content[i].Value] = n.Content[i+1]
		}
	}
	return m
}

// sasl goes through the SASL dialog of a connection, opening a socket if there is none, and shows how it ends.
func sasl(p *player, a *args) ([]string, error) {
	name := a.text("conn", "main")
	if p.clients[name] == nil {
		if _, err := openSocket(p, a); err != nil {
			return nil, err
		}
	}
	c := p.clients[name]
	c.write([]byte(amqp10.ProtocolHeaderSASL))
	for _, kind := range []string{"header", "sasl-mechanisms"} {
		it := c.take(p.timeout, func(*item) bool { return true })
		if it == nil {
			return []string{c.nothing(1)}, nil
		}
		if it.kind != kind {
			return it.lines(nil), nil
		}
	}
	mechanism := a.text("mechanism", amqp10.MechanismPlain)
	user, password := p.credentials(a.text("user", ""), a.text("password", ""))
	fields := map[string]*yaml.Node{"mechanism": word(mechanism)}
	if mechanism == amqp10.MechanismPlain {
		fields["initial-response"] = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!hex", Value: hex.EncodeToString(amqp10.AppendPlain(nil, "", user, password))}
	}
	if a.has("response") {
		fields["initial-response"] = a.nodes["response"]
	}
	if err := p.perform(c, 0, "sasl-init", fields, a.nodes, nil); err != nil {
		return nil, err
	}
	return p.answer(c, func(*item) bool { return true })
}

// connect opens a connection by SASL, and shows the open frame that the broker answers with unless it is brief.
func connect(p *player, a *args) ([]string, error) {
	if name := a.text("conn", "main"); p.clients[name] != nil {
		p.clients[name].stop()
		delete(p.clients, name)
	}
	nodes := map[string]*yaml.Node{}
	for _, name := range []string{"conn", "user", "password"} {
		if n := a.nodes[name]; n != nil {
			nodes[name] = n
		}
	}
	seen, err := sasl(p, &args{p: p, nodes: nodes})
	if err != nil || len(seen) == 0 || seen[len(seen)-1] != "sasl-outcome code=ok" {
		return seen, err
	}
	c := p.clients[a.text("conn", "main")]
	c.write([]byte(amqp10.ProtocolHeader))
	open := a.mapping("open")
	defaults := map[string]*yaml.Node{"container-id": word("conformance"), "hostname": word("vhost:" + a.text("vhost", p.vhost))}
	if n := open["max-frame-size"]; n != nil && tag(n) == "" {
		c.mu.Lock()
		c.maxFrame = uint32((&args{p: p, nodes: open}).number("max-frame-size", 0))
		c.mu.Unlock()
	}
	if err := p.perform(c, 0, "open", defaults, open, nil); err != nil {
		return nil, err
	}
	var lines []string
	for _, kind := range []string{"header", "open"} {
		it := c.take(p.timeout, func(*item) bool { return true })
		if it == nil {
			return append(lines, c.nothing(1)), nil
		}
		if it.kind != kind || kind == "open" && !a.is("brief", !a.has("only")) {
			lines = append(lines, it.lines(a.words("only"))...)
		}
		if it.kind != kind {
			return lines, nil
		}
	}
	return lines, nil
}

// begin begins a session, and shows the answer unless it is brief.
func begin(p *player, a *args) ([]string, error) {
	c, err := p.client(a)
	if err != nil {
		return nil, err
	}
	s := c.newSession()
	p.sessions[a.text("s", "s")] = s
	fields := a.mapping("fields")
	if n := fields["incoming-window"]; n != nil {
		s.window = uint32((&args{p: p, nodes: fields}).number("incoming-window", 0))
	}
	if n := fields["next-outgoing-id"]; n != nil {
		s.nextOut = uint32((&args{p: p, nodes: fields}).number("next-outgoing-id", 0))
	}
	defaults := map[string]*yaml.Node{"next-outgoing-id": numeral(uint32(0)), "incoming-window": numeral(s.window), "outgoing-window": numeral(uint32(100_000))}
	if err := p.perform(c, s.channel, "begin", defaults, fields, nil); err != nil {
		return nil, err
	}
	it := c.take(p.timeout, func(it *item) bool { return it.kind == "begin" && it.session == s || it.failed(s, nil) })
	switch {
	case it == nil:
		return []string{c.nothing(1)}, nil
	case it.kind == "begin" && a.is("brief", false):
		return nil, nil
	}
	return it.lines(a.words("only")), nil
}

// attach attaches a link and shows the whole answer: attach, and the first flow to a sender.
func attach(p *player, a *args) ([]string, error) { return p.attach(a, a.text("role", ""), false) }

// attachSender and attachReceiver say nothing when all goes well.
func attachSender(p *player, a *args) ([]string, error)   { return p.attach(a, "sender", true) }
func attachReceiver(p *player, a *args) ([]string, error) { return p.attach(a, "receiver", true) }

func (p *player) attach(a *args, role string, brief bool) ([]string, error) {
	s, err := p.session(a)
	if err != nil {
		return nil, err
	}
	receives := role == "receiver"
	l := s.newLink(a.text("name", a.text("link", "")), receives)
	p.links[a.text("link", "")] = l
	defaults := map[string]*yaml.Node{"name": word(l.name), "handle": numeral(l.handle), "role": word(role),
		"source": {Kind: yaml.MappingNode}, "target": {Kind: yaml.MappingNode}}
	if !receives {
		defaults["initial-delivery-count"] = numeral(uint32(0))
	}
	if err := p.perform(s.client, s.channel, "attach", defaults, a.nodes, nil); err != nil {
		return nil, err
	}
	var lines []string
	wanted := []string{"attach"}
	if !receives {
		wanted = append(wanted, "flow")
	}
	for _, kind := range wanted {
		it := s.client.take(p.timeout, func(it *item) bool { return it.kind == kind && it.link == l || it.failed(s, l) })
		if it == nil {
			return append(lines, s.client.nothing(1)), nil
		}
		if !brief || it.kind != kind {
			lines = append(lines, it.lines(nil)...)
		}
		if it.kind != kind {
			return lines, nil
		}
		if kind == "attach" {
			p.saveAddress(a, it)
		}
		if kind == "attach" && receives && refused(it) {
			if brief {
				lines = append(lines, it.lines(nil)...)
			}
			seen, err := p.answer(s.client, func(it *item) bool { return it.failed(s, l) })
			return append(lines, seen...), err
		}
	}
	if n := a.number("credit", 0); n > 0 {
		return lines, p.sendFlow(s, l, map[string]*yaml.Node{"link-credit": numeral(n)})
	}
	return lines, nil
}

// refused reports whether an attach has no source: then a detach follows that says why (2.6.3).
func refused(it *item) bool {
	var at amqp10.Attach
	return at.Decode(it.value) == nil && at.Source.IsNull()
}

// saveAddress keeps the address of the source in an attach, which the broker may have made up.
func (p *player) saveAddress(a *args, it *item) {
	var at amqp10.Attach
	var source amqp10.Source
	if a.has("as") && at.Decode(it.value) == nil && source.Decode(at.Source) == nil {
		p.vars[a.text("as", "")] = string(source.Address)
	}
}

func detach(p *player, a *args) ([]string, error) {
	l, err := p.link(a)
	if err != nil {
		return nil, err
	}
	s := l.session
	defaults := map[string]*yaml.Node{"handle": numeral(l.handle), "closed": {Kind: yaml.ScalarNode, Tag: "!!bool", Value: "true"}}
	if err := p.perform(s.client, s.channel, "detach", defaults, a.nodes, nil); err != nil {
		return nil, err
	}
	return p.answer(s.client, func(it *item) bool { return it.kind == "detach" && it.link == l || it.failed(s, l) })
}

func endSession(p *player, a *args) ([]string, error) {
	s, err := p.session(a)
	if err != nil {
		return nil, err
	}
	if err := p.perform(s.client, s.channel, "end", nil, a.nodes, nil); err != nil {
		return nil, err
	}
	return p.answer(s.client, func(it *item) bool { return it.failed(s, nil) })
}

func closeConnection(p *player, a *args) ([]string, error) {
	c, err := p.client(a)
	if err != nil {
		return nil, err
	}
	if err := p.perform(c, 0, "close", nil, a.nodes, nil); err != nil {
		return nil, err
	}
	return p.answer(c, func(it *item) bool { return it.kind == "close" || it.kind == "broken" })
}

func (p *player) answer(c *client, match func(*item) bool) ([]string, error) {
	it := c.take(p.timeout, match)
	if it == nil {
		return []string{c.nothing(1)}, nil
	}
	return it.lines(nil), nil
}

// flow sends a flow of a link, or of a session if no link is named.
func flow(p *player, a *args) ([]string, error) {
	if a.has("link") {
		l, err := p.link(a)
		if err != nil {
			return nil, err
		}
		return nil, p.sendFlow(l.session, l, a.nodes)
	}
	s, err := p.session(a)
	if err != nil {
		return nil, err
	}
	return nil, p.sendFlow(s, nil, a.nodes)
}

func (p *player) sendFlow(s *session, l *link, given map[string]*yaml.Node) error {
	s.client.mu.Lock()
	defaults := map[string]*yaml.Node{"next-incoming-id": numeral(s.nextIn), "incoming-window": numeral(s.window),
		"next-outgoing-id": numeral(s.nextOut), "outgoing-window": numeral(uint32(100_000))}
	if l != nil {
		defaults["handle"] = numeral(l.handle)
		if l.receives {
			defaults["delivery-count"] = numeral(l.deliveryCount)
		}
	}
	s.client.mu.Unlock()
	return p.perform(s.client, s.channel, "flow", defaults, given, nil)
}

// --- messages

// sectionOrder is the order in which a message has its sections, by their names in scenarios.
var sectionOrder = strings.Fields(bodyFields)

// message makes the payload of a publish step: its sections in the order of the standard, or as "sections" lists them.
func (p *player) message(a *args, body string) ([]byte, error) {
	e := p.encoder()
	var b []byte
	var err error
	if n := a.nodes["sections"]; n != nil {
		for _, c := range n.Content {
			if tag(c) == "raw" {
				b, err = e.value(b, c)
			} else if len(c.Content) == 2 {
				b, err = e.section(b, c.Content[0].Value, c.Content[1])
			}
			if err != nil {
				return nil, err
			}
		}
		return b, nil
	}
	hasBody := a.has("data") || a.has("amqp-value") || a.has("amqp-sequence")
	for _, name := range sectionOrder {
		switch n := a.nodes[name]; {
		case n != nil:
			if b, err = e.section(b, name, n); err != nil {
				return nil, err
			}
		case name == "data" && !hasBody:
			if size := a.number("size", 0); size > len(body) {
				body += strings.Repeat(".", size-len(body))
			}
			b = amqp10.AppendData(b, []byte(body))
		}
	}
	return b, nil
}

// publish sends one message, or count of them (m1, m2, ...), in one transfer each, or in as many as frames has sizes, and
// shows their outcomes unless they are settled or wait is false.
func publish(p *player, a *args) ([]string, error) {
	l, err := p.link(a)
	if err != nil {
		return nil, err
	}
	bodies := []string{a.text("body", "m1")}
	if n := a.number("count", 0); n > 0 {
		bodies = nil
		for i := range n {
			bodies = append(bodies, fmt.Sprintf("m%d", i+1))
		}
	}
	settled := a.is("settled", false)
	var lines []string
	for _, body := range bodies {
		payload, err := p.message(a, body)
		if err != nil {
			return nil, err
		}
		if err := p.transfer(l, a, payload, settled); err != nil {
			return nil, err
		}
		if settled || !a.is("wait", true) {
			continue
		}
		seen, ok := p.outcome(l, 1)
		lines = append(lines, seen...)
		if !ok {
			break
		}
	}
	return lines, nil
}

// transfer sends one delivery.
func (p *player) transfer(l *link, a *args, payload []byte, settled bool) error {
	s := l.session
	var sizes []int
	if n := a.nodes["frames"]; n != nil {
		for _, c := range n.Content {
			var size int
			if err := c.Decode(&size); err != nil {
				return err
			}
			sizes = append(sizes, size)
		}
	} else {
		room := int(s.client.peerMax) - 64
		for left := len(payload); left > room; left -= room {
			sizes = append(sizes, room)
		}
	}
	s.client.mu.Lock()
	id := s.nextID
	s.nextID++
	l.nextTag++
	if !settled {
		l.unsettled = append(l.unsettled, id)
	}
	s.client.mu.Unlock()
	defaults := map[string]*yaml.Node{"handle": numeral(l.handle), "delivery-id": numeral(id), "delivery-tag": word(fmt.Sprintf("t%d", l.nextTag)),
		"message-format": numeral(uint32(0))}
	for i := 0; ; i++ {
		piece := payload
		more := i < len(sizes)
		if more {
			piece = payload[:min(sizes[i], len(payload))]
		}
		payload = payload[len(piece):]
		given := map[string]*yaml.Node{}
		if i == 0 {
			for _, name := range []string{"settled", "delivery-tag", "message-format", "delivery-id", "state", "rcv-settle-mode"} {
				given[name] = a.nodes[name]
			}
		}
		if more {
			given["more"] = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: "true"}
		} else if a.has("aborted") {
			given["aborted"] = a.nodes["aborted"]
		}
		s.client.mu.Lock()
		s.nextOut++
		s.client.mu.Unlock()
		if err := p.perform(s.client, s.channel, "transfer", defaults, given, piece); err != nil {
			return err
		}
		if !more {
			return nil
		}
		defaults = map[string]*yaml.Node{"handle": numeral(l.handle)}
	}
}

// outcome waits until the broker has settled the link's n first unsettled deliveries, and shows how. It is false if
// something else came: the link, the session or the connection ended.
func (p *player) outcome(l *link, n int) ([]string, bool) {
	s := l.session
	var lines []string
	for range n {
		if len(l.unsettled) == 0 {
			return append(lines, "nothing is unsettled"), false
		}
		id := l.unsettled[0]
		l.unsettled = l.unsettled[1:]
		var last uint32
		it := s.client.take(p.timeout, func(it *item) bool {
			if it.failed(s, l) {
				return true
			}
			var d amqp10.Disposition
			if it.kind != "disposition" || it.session != s || d.Decode(it.value) != nil || d.Role != amqp10.RoleReceiver {
				return false
			}
			last = d.First
			if d.Last.Set {
				last = d.Last.Value
			}
			return id-d.First <= last-d.First
		})
		if it == nil {
			return append(lines, s.client.nothing(1)), false
		}
		if it.kind != "disposition" {
			return append(lines, it.lines(nil)...), false
		}
		if id != last { // it is about later ones too
			s.client.putBack(it)
		}
		lines = append(lines, showOutcome(it))
	}
	return lines, true
}

// showOutcome writes what a disposition says of one delivery.
func showOutcome(it *item) string {
	var d amqp10.Disposition
	if err := d.Decode(it.value); err != nil {
		return "broken: " + err.Error()
	}
	line := showField("state", d.State)
	if !d.Settled {
		line += " unsettled"
	}
	return line
}

// outcomes waits for the outcomes of messages that were published without waiting.
func outcomes(p *player, a *args) ([]string, error) {
	l, err := p.link(a)
	if err != nil {
		return nil, err
	}
	lines, _ := p.outcome(l, a.number("count", 1))
	return lines, nil
}

// receive waits for count messages on a link and shows them; brief shows their bodies only, frames their transfers too.
// With ms it does not wait longer than that.
func receive(p *player, a *args) ([]string, error) {
	l, err := p.link(a)
	if err != nil {
		return nil, err
	}
	limit := p.timeout
	if a.has("ms") {
		limit = time.Duration(a.number("ms", 0)) * time.Millisecond
	}
	c := l.session.client
	var lines []string
	for i, n := 0, a.number("count", 1); i < n; {
		it := c.take(limit, func(it *item) bool { return it.kind == "transfer" && it.link == l || it.failed(l.session, l) })
		if it == nil {
			return append(lines, c.nothing(n-i)), nil
		}
		if it.kind != "transfer" {
			return append(lines, it.lines(nil)...), nil
		}
		if a.is("frames", false) {
			lines = append(lines, it.lines(nil)...)
		}
		whole := p.collect(it)
		if whole == nil {
			continue
		}
		i++
		if a.is("brief", false) {
			lines = append(lines, showBytes([]byte(nameOf(whole))))
			continue
		}
		head := "message"
		if l.partialSettled {
			head = "message, settled"
		}
		lines = append(append(lines, head), indent(showMessage(whole))...)
	}
	return lines, nil
}

// between returns the deliveries that a step names: of one message, to another.
func (p *player) between(a *args) (from, to *delivery, err error) {
	if from = p.deliveries[a.text("of", "")]; from == nil {
		return nil, nil, fmt.Errorf("no message %q was received", a.text("of", ""))
	}
	to = from
	if a.has("to") {
		if to = p.deliveries[a.text("to", "")]; to == nil {
			return nil, nil, fmt.Errorf("no message %q was received", a.text("to", ""))
		}
	}
	return from, to, nil
}

// settle settles what was received, of one message, or from it to another, with an outcome.
func settle(outcome string) func(*player, *args) ([]string, error) {
	return func(p *player, a *args) ([]string, error) {
		fields := &yaml.Node{Kind: yaml.MappingNode}
		for _, f := range compositeNamed(outcome).fields {
			if n := a.nodes[f.name]; n != nil {
				fields.Content = append(fields.Content, word(f.name), n)
			}
		}
		state := &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{word(outcome), fields}}
		return nil, p.dispose(a, map[string]*yaml.Node{"state": state})
	}
}

// disposition sends any disposition; of and to name messages, first and last give numbers.
func disposition(p *player, a *args) ([]string, error) {
	if a.has("of") {
		return nil, p.dispose(a, nil)
	}
	s, err := p.session(a)
	if err != nil {
		return nil, err
	}
	return nil, p.perform(s.client, s.channel, "disposition", map[string]*yaml.Node{"role": word("receiver")}, a.nodes, nil)
}

func (p *player) dispose(a *args, defaults map[string]*yaml.Node) error {
	from, to, err := p.between(a)
	if err != nil {
		return err
	}
	if defaults == nil {
		defaults = map[string]*yaml.Node{}
	}
	defaults["role"] = word("receiver")
	defaults["first"] = numeral(from.id)
	defaults["settled"] = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: "true"}
	if a.has("to") {
		defaults["last"] = numeral(to.id)
	}
	s := from.link.session
	return p.perform(s.client, s.channel, "disposition", defaults, a.nodes, nil)
}

// request sends a request to the node /management of a session and shows the answer.
func request(p *player, a *args) ([]string, error) {
	s, err := p.session(a)
	if err != nil {
		return nil, err
	}
	name := a.text("s", "s")
	pair := "$pair-" + name
	if !p.pairs[name] {
		paired := &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{word("paired"), {Kind: yaml.ScalarNode, Tag: "!!bool", Value: "true"}}}
		for _, role := range []string{"receiver", "sender"} {
			nodes := map[string]*yaml.Node{"link": word(pair + role), "name": word("pair"), "s": word(name), "source": word("/management"), "target": word("/management"),
				"snd-settle-mode": word("settled"), "properties": paired}
			if role == "receiver" {
				nodes["credit"] = numeral(100)
			}
			seen, err := p.attach(&args{p: p, nodes: nodes}, role, true)
			if err != nil || len(seen) > 0 {
				return seen, err
			}
		}
		p.pairs[name] = true
	}
	path, method := a.text("path", ""), a.text("method", "GET")
	properties := &yaml.Node{Kind: yaml.MappingNode}
	defaults := map[string]*yaml.Node{"message-id": {Kind: yaml.ScalarNode, Tag: "!ulong", Value: "1"}, "to": word(path), "subject": word(method), "reply-to": word("$me")}
	given := a.mapping("properties")
	for _, f := range compositeNamed("properties").fields {
		v := given[f.name]
		if v == nil {
			v = defaults[f.name]
		}
		if v != nil {
			properties.Content = append(properties.Content, word(f.name), v)
		}
	}
	nodes := map[string]*yaml.Node{"properties": properties, "amqp-value": a.nodes["body"]}
	if nodes["amqp-value"] == nil {
		nodes["amqp-value"] = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
	}
	if n := a.nodes["application-properties"]; n != nil {
		nodes["application-properties"] = n
	}
	out := &args{p: p, nodes: nodes}
	payload, err := p.message(out, "")
	if err != nil {
		return nil, err
	}
	out.nodes = map[string]*yaml.Node{"settled": {Kind: yaml.ScalarNode, Tag: "!!bool", Value: "true"}}
	if err := p.transfer(p.links[pair+"sender"], out, payload, true); err != nil {
		return nil, err
	}
	in := p.links[pair+"receiver"]
	it := s.client.take(p.timeout, func(it *item) bool { return it.kind == "transfer" && it.link == in || it.failed(s, in) })
	if it == nil {
		return []string{s.client.nothing(1)}, nil
	}
	if it.kind != "transfer" {
		return it.lines(nil), nil
	}
	p.save(a, it.payload)
	return showAnswer(it.payload, a.words("only")), nil
}

// save keeps where the first element of a list of /management is, for later steps.
func (p *player) save(a *args, payload []byte) {
	m, err := amqp10.ParseMessage(payload)
	if err != nil || !a.has("as") {
		return
	}
	if _, v, _, err := amqp10.NextSection(m.Body); err == nil {
		if location, ok := v.Underlying().At(0).Lookup("location"); ok {
			s, _ := location.Text()
			p.vars[a.text("as", "")] = string(s)
		}
	}
}

// showAnswer shows an answer of /management; only names the entries of its body to show.
func showAnswer(payload []byte, only []string) []string {
	var lines []string
	for _, line := range showMessage(payload) {
		if len(only) > 0 && strings.HasPrefix(line, "value map ") {
			m, err := amqp10.ParseMessage(payload)
			if err != nil {
				return append(lines, err.Error())
			}
			_, v, _, err := amqp10.NextSection(m.Body)
			if err != nil {
				return append(lines, err.Error())
			}
			for _, key := range only {
				if e, ok := v.Underlying().Lookup(key); ok {
					lines = append(lines, "value "+key+" = "+show(e))
				}
			}
			continue
		}
		lines = append(lines, line)
	}
	return lines
}
