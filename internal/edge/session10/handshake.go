package session10

import (
	"strings"
	"time"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/serving"
	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/internal/wire/amqp10"
)

// offerMechanisms begins the SASL dialog (5.3.2).
func (c *conn) offerMechanisms() {
	list, _, _ := amqp10.ReadValue(amqp10.AppendSymbols(nil, c.Mechanisms...))
	c.out.Put(func(b []byte) []byte {
		b = append(b, amqp10.ProtocolHeaderSASL...)
		return amqp10.AppendFrame(b, 0, &amqp10.SASLMechanisms{SASLServerMechanisms: list})
	})
	c.out.Flush(true)
}

// sasl handles a frame of the SASL dialog.
func (c *conn) sasl(d amqp10.Descriptor, v amqp10.Value) error {
	switch {
	case d == amqp10.DescriptorSASLInit && c.mechanism == nil:
		var init amqp10.SASLInit
		if err := init.Decode(v); err != nil {
			return undecodable(err)
		}
		m, known := serving.Mechanism(string(init.Mechanism), c.Mechanisms, c.TLS, c.Anonymous)
		if !known {
			c.log.Warn("login refused", "mechanism", printable(init.Mechanism), "error", "the mechanism is not offered")
			return c.refuseLogin(false)
		}
		c.mechanism = m
		return c.step(init.InitialResponse)
	case d == amqp10.DescriptorSASLResponse && c.mechanism != nil:
		var response amqp10.SASLResponse
		if err := response.Decode(v); err != nil {
			return undecodable(err)
		}
		return c.step(response.Response)
	}
	return fail(amqp10.ConditionInternalError, "unexpected frame in the SASL dialog")
}

// step goes on with the client's response.
func (c *conn) step(response []byte) error {
	name := c.mechanism.Name()
	challenge, credentials, err := c.mechanism.Step(response)
	if err != nil {
		c.log.Warn("login refused", "mechanism", name, "error", err)
		return c.refuseLogin(false)
	}
	if credentials == nil {
		c.putFrame(0, &amqp10.SASLChallenge{Challenge: challenge})
		return nil
	}
	id, err := c.authenticate(*credentials)
	c.broker.Totals.Logins[broker.LoginAMQP10].Note(err == nil)
	c.broker.NotifyLogin(credentials.User, name, &c.peer, c.TLS, err == nil)
	if err != nil {
		c.log.Warn("login refused", "mechanism", name, "error", err)
		return c.refuseLogin(true)
	}
	c.login = broker.Login{Identity: id, User: id.Name, Mechanism: name, Protocol: broker.LoginAMQP10}
	c.putFrame(0, &amqp10.SASLOutcome{Code: amqp10.SASLCodeOK})
	c.state = stateHeader
	return nil
}

// maxAhead is how much a client may send during its login; it needs three more frames.
const maxAhead = serving.MaxStranger / 2

// authenticate authenticates the client, while its socket is open and the handshake has not timed out.
func (c *conn) authenticate(given auth.Credentials) (*broker.Identity, error) {
	login := serving.Login{Broker: c.broker, Log: c.log, Socket: c.sock.Conn, Deadline: c.sock.Deadline(), Stands: c.Stands, MaxAhead: maxAhead}
	id, ahead, err := login.Authenticate(given)
	c.broker.Received(len(ahead))
	c.sock.Append(ahead) // the frame at hand comes before them
	return id, err
}

// refuseLogin does not let the client in, after a delay that slows down guessing. It says so to one that told says: whoever
// breaks the dialog, by a mechanism that is not offered or a response without its form, hears nothing more, as in RabbitMQ.
func (c *conn) refuseLogin(told bool) error {
	c.Stands(broker.Refused)
	if !serving.Delay(c.sock.Conn, serving.MaxStranger) && told {
		c.putFrame(0, &amqp10.SASLOutcome{Code: amqp10.SASLCodeAuth})
		c.out.Flush(true)
	}
	return errEnd
}

// header handles the protocol header that follows the SASL dialog.
func (c *conn) header(header []byte) error {
	if string(header) != amqp10.ProtocolHeader {
		c.log.Warn("protocol not supported after the login", "header", header)
		return errEnd
	}
	c.out.Put(func(b []byte) []byte { return append(b, amqp10.ProtocolHeader...) })
	c.state = stateOpen
	return nil
}

// refuse ends a connection that is not open, after a delay and without a word, as RabbitMQ does: its clients in Python and Java take an
// open for a success, and the first dials for ever. The log has the reason.
func (c *conn) refuse(f *failure) error {
	c.log.Warn("connection refused", "condition", f.condition, "reason", f.text, "user", c.login.User)
	c.Stands(broker.Refused)
	c.out.Flush(true)
	serving.Delay(c.sock.Conn, serving.MaxStranger)
	return errEnd
}

// vhostPrefix is what precedes the name of a virtual host in the hostname of open (DL-14.7).
const vhostPrefix = "vhost:"

// open handles open: it lets the client into its virtual host.
func (c *conn) open(o *amqp10.Open) error {
	if err := c.negotiate(o); err != nil {
		return err
	}
	c.container = strings.Clone(letter.Clean(string(o.ContainerID), maxContainer))
	c.vhost = defaultVHost
	if name, ok := strings.CutPrefix(string(o.Hostname), vhostPrefix); ok {
		c.vhost = message.VHost(name) // Connect lists the connection, and others may show it before Connect returns
	}
	c.clientProps = clientProperties(o.Properties)
	c.login.ClientID = c.container
	c.cause = deadletter.Cause{
		Connection: c.peer.Name, User: c.login.User, Name: letter.Clean(c.container, maxClientWord),
		Product: clientWord(c.clientProps, "product"), Version: clientWord(c.clientProps, "version"),
	}
	link, err := c.broker.Connect(c.login, c.peer, c.vhost, c)
	if err != nil {
		return c.refuse(asFailure(openError(err)))
	}
	c.link = link
	c.state = stateRunning
	c.sock.SetDeadline(time.Time{})
	c.putFrame(0, c.opening())
	c.frameMax = c.FrameMax
	c.out.Beat(c.beat)
	c.unalarm = c.broker.OnAlarm(c.sock.Interrupt)
	c.alarmed = c.broker.Alarmed()
	if c.Opened != nil {
		c.Opened()
	}
	c.log.Info("connection opened", "user", c.login.User, "vhost", string(c.vhost), "container", c.container)
	return nil
}

// openError is the error of Connect with the conditions that RabbitMQ has there.
func openError(err error) error {
	f := asFailure(err)
	f.scope = ofConnection
	if f.condition == amqp10.ConditionNotAllowed {
		f.condition = amqp10.ConditionUnauthorizedAccess
		if strings.Contains(f.text, "limit") {
			f.condition = amqp10.ConditionResourceLimitExceeded
		}
	}
	return f
}

const (
	defaultVHost = "/"
	// maxContainer is how many bytes of a client's container-id are kept.
	maxContainer = 255
	// minIdleTimeout is the shortest time-out of a client that is kept, in milliseconds, as in RabbitMQ.
	minIdleTimeout = 1000
)

// negotiate takes what the client says of itself.
func (c *conn) negotiate(o *amqp10.Open) error {
	if o.MaxFrameSize.Value < amqp10.MinMaxFrameSize {
		return fail(amqp10.ConditionFrameSizeTooSmall, "max_frame_size (%d) < minimum maximum frame size (%d)", o.MaxFrameSize.Value, amqp10.MinMaxFrameSize)
	}
	if idle := o.IdleTimeOut.Value; idle > 0 {
		if idle < minIdleTimeout {
			return fail(amqp10.ConditionNotAllowed, "idle-time-out (%d ms) < minimum idle-time-out (%d ms)", idle, minIdleTimeout)
		}
		c.beat = time.Duration(idle) * time.Millisecond
	}
	c.clientMax = o.MaxFrameSize.Value
	c.channelMax = min(o.ChannelMax.Value, uint16(min(c.SessionMax, 1<<16)-1))
	return nil
}

// opening is our open.
func (c *conn) opening() *amqp10.Open {
	product := c.Product
	if product == "" {
		product = "RabbitMQ"
	}
	b, start := amqp10.BeginMap(nil)
	count := 0
	for _, p := range [][2]string{
		{"node", c.broker.NodeName}, {"cluster_name", c.broker.NodeName}, {"copyright", "The Bartleby authors"},
		{"information", "Licensed under Apache-2.0"}, {"platform", "Bartleby " + c.Release}, {"product", product}, {"version", c.Version},
	} {
		b = amqp10.AppendString(amqp10.AppendSymbol(b, p[0]), p[1])
		count += 2
	}
	properties, _, _ := amqp10.ReadValue(amqp10.EndCompound(b, start, count))
	capabilities, _, _ := amqp10.ReadValue(amqp10.AppendSymbols(nil, "LINK_PAIR_V1_0", "ANONYMOUS-RELAY"))
	o := &amqp10.Open{
		ContainerID: []byte(c.broker.NodeName), MaxFrameSize: amqp10.Some(c.FrameMax), ChannelMax: amqp10.Some(c.channelMax),
		OfferedCapabilities: capabilities, Properties: properties,
	}
	if c.IdleTimeout > 0 { // half of what we wait (2.4.5)
		o.IdleTimeOut = amqp10.Some(uint32(c.IdleTimeout / (2 * time.Millisecond)))
	}
	return o
}

const (
	maxProperties    = 24      // of a client that are kept
	maxPropertyBytes = 4 << 10 // of them all
	// maxClientWord is how many bytes the history of a message keeps of each word that its client says about itself.
	maxClientWord = 64
)

// clientProperties are the properties of a client that are kept to be shown.
func clientProperties(v amqp10.Value) amqp091.Table {
	room := maxPropertyBytes
	return keptEntries(v, &room, 0)
}

// maxPropertyDepth is how deep the lists and maps of a property that is kept may lie in each other.
const maxPropertyDepth = 4

// keptEntries are the entries of a map that are kept: those for which there is room, in bytes.
func keptEntries(v amqp10.Value, room *int, depth int) (t amqp091.Table) {
	items := v.Items()
	for len(t) < maxProperties {
		k, ok := items.Next()
		if !ok {
			break
		}
		value, ok := items.Next()
		if !ok {
			break
		}
		key, ok := k.Symbol()
		if !ok {
			key, ok = k.Text()
		}
		if !ok || len(key) > message.MaxName {
			continue
		}
		left := *room - len(key)
		kept, ok := propertyValue(value, &left, depth)
		if !ok || left < 0 {
			continue
		}
		*room = left
		t = append(t, amqp091.Field{Key: string(key), Value: kept})
	}
	return t
}

// propertyValue is a value as AMQP 0-9-1 has it, and takes its size from the room. ok is false if it is not kept.
func propertyValue(v amqp10.Value, room *int, depth int) (kept any, ok bool) {
	*room -= 8 // about
	switch v.Type() {
	case amqp10.TypeNull:
		return nil, true
	case amqp10.TypeBoolean:
		return v.Bool()
	case amqp10.TypeString:
		return octets(v.Text, room)
	case amqp10.TypeSymbol:
		return octets(v.Symbol, room)
	case amqp10.TypeBinary:
		return octets(v.Binary, room)
	case amqp10.TypeTimestamp:
		ms, ok := v.Timestamp()
		return amqp091.Timestamp(max(0, ms) / 1000), ok
	case amqp10.TypeFloat, amqp10.TypeDouble:
		return v.Float64()
	case amqp10.TypeList, amqp10.TypeMap, amqp10.TypeArray:
		if depth == maxPropertyDepth {
			return nil, false
		}
		if v.Type() == amqp10.TypeMap {
			return keptEntries(v, room, depth+1), true
		}
		list := amqp091.Array{}
		items := v.Items()
		for e, more := items.Next(); more && len(list) < maxProperties && *room > 0; e, more = items.Next() {
			if kept, ok := propertyValue(e, room, depth+1); ok {
				list = append(list, kept)
			}
		}
		return list, true
	}
	if n, ok := v.Int64(); ok {
		return n, true
	}
	n, ok := v.Uint64()
	return int64(min(n, 1<<63-1)), ok
}

// octets are a text or octets, if there is room.
func octets(read func() ([]byte, bool), room *int) (any, bool) {
	b, ok := read()
	if *room -= len(b); !ok || *room < 0 {
		return nil, false
	}
	return string(b), true
}

// clientWord is a text from a client's properties, cut.
func clientWord(properties amqp091.Table, name string) string {
	v, _ := properties.Get(name)
	word, _ := v.(string)
	return letter.Clean(word, maxClientWord)
}

// printable is what a client has sent, for a log.
func printable(b []byte) string {
	return letter.Clean(string(b[:min(len(b), 2*maxClientWord)]), maxClientWord)
}
