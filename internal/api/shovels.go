package api

import (
	"bartleby.mq/internal/message"
	"bartleby.mq/internal/topology"
)

// shovelComponent is the component of parameters that are shovels.
const shovelComponent = "shovel"

// Shovels is who runs the shovels that parameters describe.
type Shovels interface {
	// Shown are their states by RabbitMQ's field names, in order.
	Shown() []map[string]any
	// Restart stops a shovel and starts it again; it says whether there is one.
	Restart(vhost message.VHost, name string) bool
}

func (s *server) listShovels(r *request) (any, error) {
	seen := map[string]bool{}
	r.eachVHost(func(v *topology.VHost) { seen[string(v.Name)] = true })
	items := []map[string]any{}
	if s.Shovels == nil {
		return objects(items), nil
	}
	for _, o := range s.Shovels.Shown() {
		if v, _ := o["vhost"].(string); seen[v] {
			items = append(items, o)
		}
	}
	return objects(items), nil
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
	return deleteDone(s.b.DeleteParameter(r.vhost(), shovelComponent, r.params["name"]))
}

func (s *server) restartShovel(r *request) (any, error) {
	if s.Shovels == nil || !s.Shovels.Restart(r.vhost(), r.params["name"]) {
		return nil, notFound
	}
	return nil, nil
}

// listFederationLinks: there is no federation, and tools ask for its links.
func (s *server) listFederationLinks(*request) (any, error) { return objects([]map[string]any{}), nil }
