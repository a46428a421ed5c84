package api

import (
	"net/url"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
)

func bindingList(found []*topology.Binding) list {
	return listOf(found, func(b *topology.Binding) string { return b.Destination().Name }, showBinding)
}

func showBinding(b *topology.Binding) map[string]any {
	destination := b.Destination()
	return map[string]any{
		"source": string(b.SourceName()), "vhost": string(b.VHost), "destination": destination.Name,
		"destination_type": destinationType(destination.Kind), "routing_key": string(b.Key),
		"arguments": topology.ArgumentsJSON(b.Arguments), "properties_key": b.PropertiesKey(),
	}
}

func defaultBinding(v message.VHost, q message.QueueName) map[string]any {
	return map[string]any{
		"source": "", "vhost": string(v), "destination": string(q), "destination_type": "queue", "routing_key": string(q),
		"arguments": map[string]any{}, "properties_key": url.QueryEscape(string(q)),
	}
}

func destinationType(k topology.ResourceKind) string {
	if k == topology.ExchangeResource {
		return "exchange"
	}
	return "queue"
}

func (s *server) listBindings(r *request) (any, error) {
	var taken []*topology.Snapshot
	r.eachVHost(func(v *topology.VHost) { taken = append(taken, v.Snapshot()) })
	var found []*topology.Binding
	for _, s := range taken {
		found = append(found, s.Bindings()...)
	}
	return bindingList(found), nil
}

// ends are the two ends of a binding in the path.
func (r *request) ends() (source message.ExchangeName, kind topology.ResourceKind, destination string) {
	if q, ok := r.params["queue"]; ok {
		return exchangeName(r.params["source"]), topology.QueueResource, q
	}
	return exchangeName(r.params["source"]), topology.ExchangeResource, string(exchangeName(r.params["destination"]))
}

func (s *server) listBindingsBetween(r *request) (any, error) {
	source, kind, destination := r.ends()
	var found []*topology.Binding
	r.eachVHost(func(v *topology.VHost) { found = v.BindingsBetween(source, kind, destination) })
	return bindingList(topology.SortBindings(found)), nil
}

func (s *server) postBinding(r *request) (any, error) {
	key, err := r.text("routing_key")
	if err != nil {
		return nil, err
	}
	if err := message.CheckName("routing_key", key); err != nil {
		return nil, badRequest(err.Error())
	}
	object, err := r.object("arguments")
	if err != nil {
		return nil, err
	}
	arguments, err := topology.ParseArguments(object)
	if err != nil {
		return nil, badRequest(err.Error())
	}
	d := topology.BindingDecl{Key: message.RoutingKey(key), Arguments: arguments}
	d.Source, d.DestinationKind, d.Destination = r.ends()
	b, err := r.link().BindAs(d)
	if err != nil {
		return nil, err
	}
	return created{escapeSegment(d.Destination) + "/" + url.QueryEscape(b.PropertiesKey())}, nil
}

// findBinding finds the binding in the path, whose last segment is its
// properties_key, encoded as a path or once more as in a Location (BR-15.6).
func (r *request) findBinding() (*topology.Binding, error) {
	source, kind, destination := r.ends()
	var like []*topology.Binding
	r.eachVHost(func(v *topology.VHost) { like = v.BindingsLike(source, kind, destination, r.params["props"]) })
	if b, ok := topology.FindBinding(like, r.params["props"]); ok {
		return b, nil
	}
	return nil, notFound
}

func (s *server) getBinding(r *request) (any, error) {
	b, err := r.findBinding()
	if err != nil {
		return nil, err
	}
	return showBinding(b), nil
}

func (s *server) deleteBinding(r *request) (any, error) {
	b, err := r.findBinding()
	if err != nil {
		return nil, err
	}
	destination := b.Destination()
	return nil, r.link().Unbind(topology.BindingDecl{
		Source: b.SourceName(), DestinationKind: destination.Kind, Destination: destination.Name,
		Key: b.Key, Arguments: b.Arguments,
	})
}
