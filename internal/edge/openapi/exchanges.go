package openapi

import (
	"slices"
	"strings"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/routing"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/wire/amqp091"
)

// createExchange declares a durable exchange. An existing exchange with the same properties
// stays as it is.
func createExchange(c *call) (any, error) {
	f := c.fields()
	vhost := f.vhost()
	d := topology.ExchangeDecl{
		Name: message.ExchangeName(f.unreserved("ExchangeName")), Type: f.exchangeType("ExchangeType"),
		Durable: true, AutoDelete: f.flag("AutoDeleteState"), Internal: f.flag("Internal"),
	}
	if alternate, given := f.optionalName("AlternateExchange"); given {
		d.Arguments = append(d.Arguments, amqp091.Field{Key: "alternate-exchange", Value: alternate})
	}
	if f.err != nil {
		return nil, f.err
	}
	if err := c.findVHost(vhost); err != nil {
		return nil, err
	}
	_, err := c.link(vhost).DeclareExchange(d)
	return nil, err
}

// exchangeType reads a type as documented, such as DIRECT or X_CONSISTENT_HASH. It refuses
// types that the broker does not have.
func (f *fields) exchangeType(parameter string) routing.Kind {
	name := f.required(parameter)
	kind := routing.Kind(strings.ReplaceAll(strings.ToLower(name), "_", "-"))
	if _, err := routing.New(kind, nil); err != nil && name != "" {
		f.refuse(invalid(parameter, "This type is not supported."))
	}
	return kind
}

// typeName is the name of an exchange's type in answers.
func typeName(k routing.Kind) string { return strings.ReplaceAll(strings.ToUpper(string(k)), "-", "_") }

// deleteExchange deletes an exchange with its bindings. It refuses built-in exchanges and
// types that this API must not delete (DL-22.17).
func deleteExchange(c *call) (any, error) {
	f := c.fields()
	vhost, name := f.vhost(), message.ExchangeName(f.required("ExchangeName"))
	if f.err != nil {
		return nil, f.err
	}
	err := c.in(vhost, func(v *topology.VHost) *refusal {
		x, ok := v.Exchange(name)
		switch {
		case !ok:
			return noExchange
		case x.BelongsToNode():
			return invalid("ExchangeName", "Built-in exchanges cannot be deleted.")
		case x.Type == routing.Headers || x.Type == "x-jms-topic":
			return invalid("ExchangeName", "Exchanges of the types headers and x-jms-topic cannot be deleted.")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return nil, c.link(vhost).DeleteExchange(name, false)
}

// exchangeList is a page of exchanges.
type exchangeList struct {
	Exchanges  []exchange
	NextToken  string
	MaxResults int
}

// exchange describes a declared exchange. The time of its creation is not known.
type exchange struct {
	Name            string
	VHostName       string
	ExchangeType    string
	AutoDeleteState bool
	Internal        bool
	Attributes      map[string]any // its arguments
}

func listExchanges(c *call) (any, error) {
	f := c.fields()
	vhost, p := f.vhost(), f.page("MaxResults", maxPage)
	if f.err != nil {
		return nil, f.err
	}
	all := []exchange{}
	var found []*topology.Exchange
	err := c.in(vhost, func(v *topology.VHost) *refusal {
		v.EachExchange(func(x *topology.Exchange) { found = append(found, x) })
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, x := range named(found) {
		all = append(all, exchange{string(x.Name), string(x.VHost), typeName(x.Type), x.AutoDelete, x.Internal, topology.ArgumentsJSON(x.Arguments)})
	}
	some, next := cut(p, all, func(x exchange) string { return x.Name })
	return exchangeList{some, next, p.size}, nil
}

// named leaves the default exchange out, which no request could name.
func named(all []*topology.Exchange) []*topology.Exchange {
	return slices.DeleteFunc(all, func(x *topology.Exchange) bool { return x.Name == "" })
}
