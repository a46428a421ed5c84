package session091

import (
	"crypto/rand"
	"fmt"
	"strings"

	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/wire/amqp091"
)

// involved has the names for an error in ApsaraMQ's style (DL-22.15).
type involved struct{ queue, exchange, key string }

// involvedIn reads the names from a method.
func involvedIn(m amqp091.Method) (i involved) {
	switch m := m.(type) {
	case *amqp091.ExchangeDeclare:
		i.exchange = m.Exchange
	case *amqp091.ExchangeDelete:
		i.exchange = m.Exchange
	case *amqp091.ExchangeBind:
		i.exchange, i.key = m.Source, m.RoutingKey
	case *amqp091.ExchangeUnbind:
		i.exchange, i.key = m.Source, m.RoutingKey
	case *amqp091.QueueDeclare:
		i.queue = m.Queue
	case *amqp091.QueueBind:
		i.queue, i.exchange, i.key = m.Queue, m.Exchange, m.RoutingKey
	case *amqp091.QueueUnbind:
		i.queue, i.exchange, i.key = m.Queue, m.Exchange, m.RoutingKey
	case *amqp091.QueuePurge:
		i.queue = m.Queue
	case *amqp091.QueueDelete:
		i.queue = m.Queue
	case *amqp091.BasicConsume:
		i.queue = m.Queue
	case *amqp091.BasicGet:
		i.queue = m.Queue
	}
	return i
}

// styled says whether errors on the channel have ApsaraMQ's style.
func (ch *channel) styled() bool {
	a := ch.c.link.Apsara()
	return a != nil && a.ErrorStyle
}

// inStyle gives a failure ApsaraMQ's code and text, if ApsaraMQ has them.
func (ch *channel) inStyle(f *failure, i involved) *failure {
	if f.refused == nil || !ch.styled() {
		return f
	}
	code, name := apsaraError(f.refused)
	if name == "" {
		return f
	}
	var id [12]byte
	_, _ = rand.Read(id[:]) // never fails
	f.code = code
	f.said = fmt.Sprintf("%s, ReqId:%X, ErrorHelp[dstQueue=%s,srcExchange=%s,routingKey=%s,%s]",
		name, id, i.queue, i.exchange, i.key, ch.c.link.Apsara().ErrorHelp)
	return f
}

// apsaraError returns ApsaraMQ's code and name for a refusal, "" if it has none.
func apsaraError(e *topology.Error) (code uint16, name string) {
	switch {
	case e.Fault == topology.TooLarge:
		return amqp091.CodeContentTooLarge, "MessageBodyLengthExceeded"
	case e.Fault == topology.Denied:
		return amqp091.CodeAccessRefused, "AccessDeniedByRamPolicy"
	case e.Fault == topology.Differs && e.Resource.Kind == topology.QueueResource:
		return amqp091.CodePreconditionFailed, "QueueHasDiffField"
	case e.Fault == topology.Differs:
		return amqp091.CodePreconditionFailed, "ExchangeHasDiffFields[" + differences(e.Differences) + "]"
	case e.Fault == topology.BadName:
		return amqp091.CodePreconditionFailed, badName(e.Resource)
	case e.Kind == topology.NotFound && e.Resource.Kind == topology.QueueResource:
		return amqp091.CodeNotFound, "QueueNotExist"
	case e.Kind == topology.NotFound && e.Resource.Name != "":
		return amqp091.CodeNotFound, "ExchangeNotExist"
	case e.Kind == topology.ResourceLocked:
		return amqp091.CodeResourceLocked, "QueueExclusive"
	}
	return 0, ""
}

// badName returns the name of the field with a bad name. The documents have none for a non-empty exchange name, so it
// gets that of the others.
func badName(r topology.Resource) string {
	switch {
	case r.Kind == topology.TopicResource:
		return "BindingNameInvalid"
	case r.Kind == topology.QueueResource:
		return "QueueConsumerNameInvalid"
	case r.Name == "":
		return "ExchangeNameEmpty"
	}
	return "ExchangeNameInvalid"
}

// differences lists the fields that differ: O is the existing value, N the declared one.
func differences(list []topology.Difference) string {
	var b strings.Builder
	for _, d := range list {
		field := camel(d.Property)
		fmt.Fprintf(&b, "O%s=%s&N%s=%s;", field, strings.Trim(d.Current, "'"), field, strings.Trim(d.Declared, "'"))
	}
	return b.String()
}

// camel turns auto_delete into AutoDelete.
func camel(property string) string {
	var b strings.Builder
	for _, word := range strings.FieldsFunc(property, func(r rune) bool { return r == '_' || r == '-' }) {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String()
}

// ApsaraMQ's code and text for returning a mandatory message without a route.
const (
	apsaraReturnCode = 200
	apsaraReturnText = "no route has mandatory"
)

// noRoute is the code and the text of a basic.return (BR-8.2).
func (ch *channel) noRoute() (code uint16, text string) {
	if ch.styled() {
		return apsaraReturnCode, apsaraReturnText
	}
	return amqp091.CodeNoRoute, "NO_ROUTE"
}
