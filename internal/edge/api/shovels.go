package api

import (
	"encoding/json"

	"bartleby.mq/internal/core/declare"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
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

// getShovel shows the parameter without the passwords of its addresses, as RabbitMQ does: who may set it may read them as a
// parameter.
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
	return withoutLogins(found), nil
}

// withoutLogins is a shown parameter whose addresses have no user, password and query.
func withoutLogins(shown map[string]any) map[string]any {
	text, _ := shown["value"].(json.RawMessage)
	value, err := topology.ParseJSON(text)
	if err != nil { // it was checked when it was set
		value = nil
	}
	shown["value"] = eachText(value, broker.WithoutLogin)
	return shown
}

// eachText puts what f makes of each text in a JSON value into its place.
func eachText(value any, f func(string) string) any {
	switch v := value.(type) {
	case string:
		return f(v)
	case []any:
		for i, e := range v {
			v[i] = eachText(e, f)
		}
	case map[string]any:
		for key, e := range v {
			v[key] = eachText(e, f)
		}
	}
	return value
}

func (s *server) deleteShovel(r *request) (any, error) {
	return r.drop(declare.DeleteParameter{VHost: r.vhost(), Component: shovelComponent, Name: r.params["name"]})
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
