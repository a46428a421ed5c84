package api

import (
	"slices"
	"strings"

	"bartleby.mq/internal/core/routing"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/definitions"
)

func (s *server) listExchanges(r *request) (any, error) {
	var infos []broker.ExchangeInfo
	r.eachVHost(func(v *topology.VHost) {
		v.EachExchange(func(x *topology.Exchange) { infos = append(infos, s.b.DescribeExchange(x)) })
	})
	return listOf(broker.SortExchanges(infos), func(x broker.ExchangeInfo) string { return string(x.Name) }, r.showExchange), nil
}

func (r *request) showExchange(x broker.ExchangeInfo) map[string]any {
	arguments := topology.ArgumentsJSON(x.Arguments)
	properties := map[string]any{"durable": x.Durable, "auto-delete": x.AutoDelete, "internal": x.Internal}
	object := map[string]any{
		"name": string(x.Name), "vhost": string(x.VHost), "type": string(x.Type), "durable": x.Durable,
		"auto_delete": x.AutoDelete, "internal": x.Internal, "arguments": arguments,
		"features":                  features(properties, arguments, namedPolicy{"Policy", x.Policy}),
		"user_who_performed_action": x.User,
	}
	if n, delays := r.s.b.Delayed(x); delays {
		object["messages_delayed"] = n
	}
	if x.Policy != nil {
		object["policy"] = x.Policy.Name
	}
	if x.OperatorPolicy != nil {
		object["operator_policy"] = x.OperatorPolicy.Name
	}
	if r.without() {
		return object
	}
	r.s.putStats(object, "exchange\x00"+string(x.VHost)+"\x00"+string(x.Name), r.spans(), false,
		statGroup{"publish_in": x.Stats.In.Load(), "publish_out": x.Stats.Out.Load()})
	return object
}

func (r *request) findExchange() (info broker.ExchangeInfo, err error) {
	err = notFound
	r.eachVHost(func(v *topology.VHost) {
		if x, ok := v.Exchange(r.exchangeName()); ok {
			info, err = r.s.b.DescribeExchange(x), nil
		}
	})
	return info, err
}

func (s *server) getExchange(r *request) (any, error) {
	x, err := r.findExchange()
	if err != nil {
		return nil, err
	}
	object := r.showExchange(x)
	if r.without() {
		return object, nil
	}
	object["incoming"], object["outgoing"] = []any{}, []any{}
	return object, nil
}

func (s *server) putExchange(r *request) (any, error) {
	d := topology.ExchangeDecl{Name: r.exchangeName()}
	kind, err := r.text("type")
	if err != nil {
		return nil, err
	}
	if kind == "" {
		kind = string(routing.Direct)
	}
	d.Type = routing.Kind(kind)
	if err := definitions.Flags(r.body, definitions.Flag{Key: "durable", To: &d.Durable}, definitions.Flag{Key: "auto_delete", To: &d.AutoDelete}, definitions.Flag{Key: "internal", To: &d.Internal}); err != nil {
		return nil, err
	}
	arguments, err := r.object("arguments")
	if err != nil {
		return nil, err
	}
	if d.Arguments, err = topology.ParseArguments(arguments); err != nil {
		return nil, badRequest(err.Error())
	}
	declared, err := r.link().DeclareExchange(d)
	if f := asFailureOrNil(err); f != nil && s.b.Strict {
		if name, unknown := strings.CutPrefix(f.Error(), "unknown exchange type "); unknown {
			return nil, badRequest("invalid exchange type " + name)
		}
	}
	return putDone(declared, err)
}

func (s *server) deleteExchange(r *request) (any, error) {
	if _, err := r.findExchange(); err != nil {
		return nil, err
	}
	return nil, r.link().DeleteExchange(r.exchangeName(), r.flag("if-unused"))
}

// purgeExchange drops what waits in an exchange that delays messages. It is ours.
func (s *server) purgeExchange(r *request) (any, error) {
	if _, err := r.findExchange(); err != nil {
		return nil, err
	}
	_, err := r.link().PurgeExchange(r.exchangeName())
	return nil, err
}

func (s *server) listBindingsFrom(r *request) (any, error) {
	var found []*topology.Binding
	var taken *topology.Snapshot
	r.eachVHost(func(v *topology.VHost) {
		if name := r.exchangeName(); name == "" {
			taken = v.Snapshot()
		} else if x, ok := v.Exchange(name); ok {
			found = x.BindingsFrom()
		}
	})
	if taken != nil {
		found = slices.DeleteFunc(taken.Bindings(), func(b *topology.Binding) bool { return b.SourceName() != "" })
	}
	return bindingList(topology.SortBindings(found)), nil
}

func (s *server) listBindingsTo(r *request) (any, error) {
	var found []*topology.Binding
	r.eachVHost(func(v *topology.VHost) {
		if x, ok := v.Exchange(r.exchangeName()); ok {
			found = x.BindingsTo()
		}
	})
	return bindingList(topology.SortBindings(found)), nil
}
