package session091

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
)

// serverCapabilities are announced in connection.start (BR-1.4).
var serverCapabilities = func() amqp091.Table {
	var t amqp091.Table
	for _, name := range []string{
		"publisher_confirms", "exchange_exchange_bindings", "basic.nack", "consumer_cancel_notify", "connection.blocked",
		"consumer_priorities", "authentication_failure_close", "per_consumer_qos", "direct_reply_to",
	} {
		t = append(t, amqp091.Field{Key: name, Value: true})
	}
	return t
}()

func (c *conn) sendStart() {
	product, version := c.Product, c.Version
	if product == "" {
		product = "RabbitMQ" // kombu, for one, reads the meaning of basic.qos from this name
	}
	properties := amqp091.Table{
		{Key: "capabilities", Value: serverCapabilities},
		{Key: "cluster_name", Value: c.broker.NodeName},
		{Key: "copyright", Value: "The Bartleby authors"},
		{Key: "information", Value: "Licensed under Apache-2.0"},
		{Key: "platform", Value: "Bartleby " + c.Release},
		{Key: "product", Value: product},
		{Key: "version", Value: version},
	}
	c.putMethod(0, amqp091.ConnectionStart{
		VersionMajor: 0, VersionMinor: 9, ServerProperties: properties,
		Mechanisms: strings.Join(c.Mechanisms, " "), Locales: "en_US",
	})
	c.out.Flush(true)
}

// handshake handles a method before the connection is open.
func (c *conn) handshake(m amqp091.Method) error {
	switch m := m.(type) {
	case *amqp091.ConnectionStartOk:
		if c.state == stateStart {
			return c.startOk(m)
		}
	case *amqp091.ConnectionTuneOk:
		if c.state == stateTune {
			return c.tuneOk(m)
		}
	case *amqp091.ConnectionOpen:
		if c.state == stateOpen {
			return c.openVHost(m)
		}
	case *amqp091.ConnectionClose:
		c.putMethod(0, amqp091.ConnectionCloseOk{})
		c.state = stateClosed
		return nil
	}
	return unexpected(m.ID())
}

// takes says whether a state of the handshake accepts a method.
func (s state) takes(id amqp091.MethodID) bool {
	switch id {
	case amqp091.ConnectionStartOkID:
		return s == stateStart
	case amqp091.ConnectionTuneOkID:
		return s == stateTune
	case amqp091.ConnectionOpenID:
		return s == stateOpen
	}
	return id == amqp091.ConnectionCloseID
}

func unexpected(id amqp091.MethodID) error {
	return &failure{code: amqp091.CodeChannelError, text: "unexpected method in connection state starting", method: id}
}

func (c *conn) startOk(m *amqp091.ConnectionStartOk) error {
	c.clientProps = m.ClientProperties
	c.capabilities = readCapabilities(m.ClientProperties)
	mechanism, known := serving.Mechanism(m.Mechanism, c.Mechanisms, c.TLS, c.Anonymous)
	if !known {
		c.log.Warn("login refused", "mechanism", m.Mechanism, "error", "the mechanism is not offered")
		return c.refuse()
	}
	_, credentials, err := mechanism.Step([]byte(m.Response))
	if err != nil || credentials == nil {
		c.log.Warn("login refused", "mechanism", m.Mechanism, "error", err)
		return c.refuse()
	}
	id, err := c.authenticate(*credentials)
	c.broker.Totals.Logins[broker.LoginAMQP091].Note(err == nil)
	c.broker.NotifyLogin(credentials.User, m.Mechanism, &c.peer, c.TLS, err == nil)
	if err != nil {
		c.log.Warn("login refused", "mechanism", m.Mechanism, "error", err)
		if !c.capabilities.authFailureClose {
			return c.refuse()
		}
		return asFailure(auth.LoginRefused(m.Mechanism), 0)
	}
	given, _ := m.ClientProperties.Get("client_id")
	clientID, _ := given.(string)
	c.login = broker.Login{Identity: id, User: id.Name, Mechanism: m.Mechanism, ClientID: clientID}
	c.cause = deadletter.Cause{
		Connection: c.peer.Name, User: id.Name, Name: clientWord(m.ClientProperties, "connection_name"),
		Product: clientWord(m.ClientProperties, "product"), Version: clientWord(m.ClientProperties, "version"),
	}
	heartbeat := max(0, c.Heartbeat)
	tune := amqp091.ConnectionTune{ChannelMax: c.ChannelMax, FrameMax: c.FrameMax, Heartbeat: uint16(heartbeat / time.Second)}
	if c.ChannelMax == NoChannelMax {
		tune.ChannelMax = 0
	}
	if c.FrameMax == NoFrameMax {
		tune.FrameMax = 0
	}
	c.putMethod(0, tune)
	c.state = stateTune
	return nil
}

// authenticate authenticates the client, while its socket is open and the handshake has not timed out.
func (c *conn) authenticate(given auth.Credentials) (*broker.Identity, error) {
	login := serving.Login{Broker: c.broker, Log: c.log, Socket: c.sock.Conn, Deadline: c.sock.Deadline(), Stands: c.Stands, MaxAhead: maxAhead}
	id, ahead, err := login.Authenticate(given)
	c.received(len(ahead))
	c.sock.Append(ahead) // the frame at hand comes before them
	return id, err
}

// maxAhead is how much a client may send during its login; it needs two more frames.
const maxAhead = serving.MaxStranger / 2

// refuse ends the connection without a close frame, after a delay that slows down guessing
// (BR-2.4, BR-2.5, BR-1.8).
func (c *conn) refuse() error {
	c.Stands(broker.Refused)
	serving.Delay(c.sock.Conn, serving.MaxStranger)
	return errEnd
}

// propertyKeeper selects the client's properties to keep: those with a meaning, the usual ones, and a few others.
type propertyKeeper struct{ known, others int }

const (
	maxKnownProperties = 16 // a client may send a property many times
	maxOtherProperties = 8
	maxCapabilities    = 1 << 10 // bytes
)

func (k *propertyKeeper) keep(key []byte, typ byte, content []byte) bool {
	switch string(key) {
	case "capabilities":
		k.known++
		return k.known <= maxKnownProperties && len(content) <= maxCapabilities
	case "product", "version", "platform", "copyright", "information", "connection_name", "client_id":
		k.known++
		return k.known <= maxKnownProperties && typ == 'S'
	}
	if typ == 'F' || typ == 'A' || k.others == maxOtherProperties {
		return false
	}
	k.others++
	return true
}

// maxClientWord is how many bytes the history of a message keeps of each word that its client says about itself.
const maxClientWord = 64

// clientWord is a text from a client's properties, cut.
func clientWord(properties amqp091.Table, name string) string {
	v, _ := properties.Get(name)
	word, _ := v.(string)
	return letter.Clean(word, maxClientWord)
}

func readCapabilities(properties amqp091.Table) (caps capabilities) {
	v, _ := properties.Get("capabilities")
	t, _ := v.(amqp091.Table)
	is := func(name string) bool {
		v, _ := t.Get(name)
		b, _ := v.(bool)
		return b
	}
	return capabilities{is("consumer_cancel_notify"), is("connection.blocked"), is("authentication_failure_close")}
}

func (c *conn) tuneOk(m *amqp091.ConnectionTuneOk) error {
	frameMax, channelMax := m.FrameMax, m.ChannelMax
	if c.ChannelMax == NoChannelMax && channelMax == 0 {
		channelMax = NoChannelMax
	}
	if largest := uint32(max(c.broker.MaxMessageSize, defaultFrameMax) + amqp091.FrameOverhead); c.FrameMax == NoFrameMax && (frameMax == 0 || frameMax > largest) {
		frameMax = largest
	}
	if frameMax < minFrameMax || frameMax > c.FrameMax || channelMax == 0 || channelMax > c.ChannelMax {
		c.log.Warn("negotiation failed", "frame_max", frameMax, "channel_max", channelMax)
		return c.refuse()
	}
	c.frameMax, c.channelMax = int(frameMax), int(channelMax)
	c.heartbeat = time.Duration(m.Heartbeat) * time.Second
	c.state = stateOpen
	return nil
}

func (c *conn) openVHost(m *amqp091.ConnectionOpen) error {
	c.vhost = message.VHost(m.VirtualHost) // Connect lists the connection, and others may show it before Connect returns
	link, err := c.broker.Connect(c.login, c.peer, c.vhost, c)
	if err != nil {
		f := asFailure(err, m.ID())
		f.hard = true
		return f
	}
	c.link = link
	c.state = stateRunning
	c.sock.SetDeadline(time.Time{})
	c.putMethod(0, amqp091.ConnectionOpenOk{})
	c.out.Beat(c.heartbeat)
	if c.Opened != nil {
		c.Opened()
	}
	c.log.Info("connection opened", "user", c.login.User, "vhost", m.VirtualHost)
	return nil
}
