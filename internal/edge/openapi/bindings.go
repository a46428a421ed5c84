package openapi

import (
	"fmt"
	"slices"
	"strings"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/routing"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/wire/amqp091"
)

// ends reads the source and the destination of a binding.
func (f *fields) ends() topology.BindingDecl {
	d := topology.BindingDecl{Source: message.ExchangeName(f.required("SourceExchange"))}
	switch kind := f.required("BindingType"); strings.ToUpper(kind) {
	case "0", "QUEUE":
		d.DestinationKind = topology.QueueResource
	case "1", "EXCHANGE":
		d.DestinationKind = topology.ExchangeResource
	case "":
	default:
		f.refuse(invalid("BindingType", "It is not QUEUE, EXCHANGE, 0 or 1."))
	}
	d.Destination = f.required("DestinationName")
	d.Key = message.RoutingKey(f.p["BindingKey"])
	return d
}

// sourceOf finds the source exchange of a binding, if both ends exist.
func sourceOf(v *topology.VHost, d *topology.BindingDecl) (*topology.Exchange, *refusal) {
	source, ok := v.Exchange(d.Source)
	if !ok {
		return nil, noExchange
	}
	if d.DestinationKind == topology.QueueResource {
		if _, ok := v.Queue(message.QueueName(d.Destination)); !ok {
			return nil, noQueue
		}
	} else if _, ok := v.Exchange(message.ExchangeName(d.Destination)); !ok {
		return nil, noExchange
	}
	return source, nil
}

// createBinding makes a binding between two existing objects; an existing binding stays.
func createBinding(c *call) (any, error) {
	f := c.fields()
	vhost, d := f.vhost(), f.ends()
	if f.err != nil {
		return nil, f.err
	}
	err := c.in(vhost, func(v *topology.VHost) *refusal {
		source, err := sourceOf(v, &d)
		if err != nil {
			return err
		}
		if source.Type == routing.Headers {
			if d.Arguments, err = parseMatch(f.p["Argument"]); err != nil {
				return err
			}
		}
		return checkKey(source.Type, string(d.Key))
	})
	if err != nil {
		return nil, err
	}
	_, failed := c.link(vhost).Bind(d)
	return nil, failed
}

// maxMatch is the maximal number of attributes in a binding.
const maxMatch = 64

// parseMatch reads the arguments of a binding of a headers exchange, such as
// x-match:all;type:report;format:pdf. All values are texts.
func parseMatch(argument string) (t amqp091.Table, err *refusal) {
	if argument == "" {
		return nil, nil
	}
	for pair := range strings.SplitSeq(strings.TrimSuffix(argument, ";"), ";") {
		key, value, ok := strings.Cut(pair, ":")
		_, twice := t.Get(key)
		if !ok || key == "" || len(key) > maxName || twice || len(t) == maxMatch {
			return nil, invalid("Argument", "It does not have the form x-match:all;key:value.")
		}
		t = append(t, amqp091.Field{Key: key, Value: value})
	}
	return t, nil
}

// showMatch is the reverse of parseMatch.
func showMatch(t amqp091.Table) string {
	pairs := make([]string, 0, len(t))
	for _, f := range t {
		pairs = append(pairs, fmt.Sprintf("%s:%v", f.Key, f.Value))
	}
	return strings.Join(pairs, ";")
}

// deleteBinding deletes the bindings with the two ends and the key: a headers exchange may
// have several, which a request cannot distinguish.
func deleteBinding(c *call) (any, error) {
	f := c.fields()
	vhost, d := f.vhost(), f.ends()
	if f.err != nil {
		return nil, f.err
	}
	var found []*topology.Binding
	err := c.in(vhost, func(v *topology.VHost) *refusal {
		if _, err := sourceOf(v, &d); err != nil {
			return err
		}
		found = slices.DeleteFunc(v.BindingsBetween(d.Source, d.DestinationKind, d.Destination), func(b *topology.Binding) bool { return b.Key != d.Key })
		if len(found) == 0 {
			return noBinding
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	link := c.link(vhost)
	for _, b := range found {
		d.Arguments = b.Arguments
		if err := link.Unbind(d); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// bindingList is a page of bindings.
type bindingList struct {
	Bindings   []binding
	NextToken  string
	MaxResults any // a number, or where Alibaba's is a text, a text
}

type binding struct {
	SourceExchange  string
	BindingType     string
	DestinationName string
	BindingKey      string
	Argument        string

	place string
}

func showBinding(b *topology.Binding) binding {
	to := b.Destination()
	shown := binding{
		SourceExchange: string(b.SourceName()), BindingType: "QUEUE", DestinationName: to.Name, BindingKey: string(b.Key), Argument: showMatch(b.Arguments),
	}
	if to.Kind == topology.ExchangeResource {
		shown.BindingType = "EXCHANGE"
	}
	shown.place = strings.Join([]string{shown.SourceExchange, shown.BindingType, shown.DestinationName, b.PropertiesKey()}, "\x00")
	return shown
}

// listOf lists the bindings from found, without those of the default exchange.
func (c *call) listOf(f *fields, find func(v *topology.VHost) (func() []*topology.Binding, *refusal)) (*bindingList, error) {
	vhost, p := f.vhost(), f.page("MaxResults", maxPage)
	if f.err != nil {
		return nil, f.err
	}
	var found func() []*topology.Binding
	err := c.in(vhost, func(v *topology.VHost) (err *refusal) {
		found, err = find(v)
		return err
	})
	if err != nil {
		return nil, err
	}
	all := []binding{}
	for _, b := range found() { // with nothing locked
		if b.SourceName() != "" {
			all = append(all, showBinding(b))
		}
	}
	some, next := cut(p, all, func(b binding) string { return b.place })
	return &bindingList{some, next, p.size}, nil
}

// these are bindings that are yet to be put in order.
func these(list []*topology.Binding) func() []*topology.Binding {
	return func() []*topology.Binding { return topology.SortBindings(list) }
}

// listBindings lists all bindings of a virtual host.
func listBindings(c *call) (any, error) {
	return c.listOf(c.fields(), func(v *topology.VHost) (func() []*topology.Binding, *refusal) { return v.Snapshot().Bindings, nil })
}

// listQueueUpStreamBindings lists the bindings to a queue.
func listQueueUpStreamBindings(c *call) (any, error) {
	f := c.fields()
	name := message.QueueName(f.required("QueueName"))
	list, err := c.listOf(f, func(v *topology.VHost) (func() []*topology.Binding, *refusal) {
		q, ok := v.Queue(name)
		if !ok {
			return nil, noQueue
		}
		return these(q.Bindings()), nil
	})
	if err != nil {
		return nil, err
	}
	list.MaxResults = fmt.Sprint(list.MaxResults) // which is a text in this answer alone
	return list, nil
}

// listExchangeUpStreamBindings lists the bindings to an exchange.
func listExchangeUpStreamBindings(c *call) (any, error) {
	return c.listOfExchange((*topology.Exchange).BindingsTo)
}

// listDownStreamBindings lists the bindings from an exchange.
func listDownStreamBindings(c *call) (any, error) {
	return c.listOfExchange((*topology.Exchange).BindingsFrom)
}

func (c *call) listOfExchange(bindings func(*topology.Exchange) []*topology.Binding) (any, error) {
	f := c.fields()
	name := message.ExchangeName(f.required("ExchangeName"))
	return c.listOf(f, func(v *topology.VHost) (func() []*topology.Binding, *refusal) {
		x, ok := v.Exchange(name)
		if !ok {
			return nil, noExchange
		}
		return these(bindings(x)), nil
	})
}
