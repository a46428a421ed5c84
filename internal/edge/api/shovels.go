package api

import (
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
)

// shovelComponent is the component of shovels' parameters.
const shovelComponent = "shovel"

// Shovels runs the shovels of the parameters.
type Shovels interface {
	// Shown returns the shovels of the virtual hosts for which sees is true, with RabbitMQ's field names, in order.
	Shown(sees func(message.VHost) bool) []map[string]any
	// Restart stops a shovel and starts it again; it says whether there is one.
	Restart(vhost message.VHost, name string) bool
}

func (s *server) listShovels(r *request) (any, error) {
	if s.Shovels == nil {
		return objects(nil), nil
	}
	seen := map[message.VHost]bool{}
	r.eachVHost(func(v *topology.VHost) { seen[v.Name] = true })
	return objects(s.Shovels.Shown(func(v message.VHost) bool { return seen[v] })), nil
}

// getShovel shows the parameter, as RabbitMQ does.
func (s *server) getShovel(r *request) (any, error) {
	var found map[string]any
	r.eachVHost(func(v *topology.VHost) {
		if p, ok := v.Parameter(shovelComponent, r.params["name"]); ok {
			found = showParameter(string(p.VHost), p.Component, p.Name, p.Value)
		}
	})
	if found == nil {
		return nil, notFound
	}
	return found, nil
}

func (s *server) deleteShovel(r *request) (any, error) {
	return deleteDone(r.admin().DeleteParameter(r.vhost(), shovelComponent, r.params["name"]))
}

func (s *server) restartShovel(r *request) (any, error) {
	if s.Shovels == nil || !s.Shovels.Restart(r.vhost(), r.params["name"]) {
		return nil, notFound
	}
	return nil, nil
}

// listFederationLinks: there is no federation, and tools ask for its links.
func (s *server) listFederationLinks(*request) (any, error) {
	if s.Broker.Strict {
		return nil, notFound // as RabbitMQ without the plugin
	}
	return objects([]map[string]any{}), nil
}
