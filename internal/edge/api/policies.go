package api

import (
	"bartleby.mq/internal/core/declare"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/definitions"
)

func showPolicy(p *topology.Policy) map[string]any {
	return map[string]any{
		"vhost": string(p.VHost), "name": p.Name, "pattern": p.Pattern, "apply-to": string(p.ApplyTo),
		"definition": p.Definition, "priority": p.Priority,
	}
}

func (s *server) listPolicies(operator bool) func(*request) (any, error) {
	return func(r *request) (any, error) {
		var found []*topology.Policy
		for _, rules := range r.rules() {
			found = append(found, rules.Policies(operator)...)
		}
		return listOf(found, func(p *topology.Policy) string { return p.Name }, showPolicy), nil
	}
}

func (s *server) getPolicy(operator bool) func(*request) (any, error) {
	return func(r *request) (any, error) {
		var p *topology.Policy
		r.eachVHost(func(v *topology.VHost) { p, _ = v.Policy(r.params["policy"], operator) })
		if p == nil {
			return nil, notFound
		}
		return showPolicy(p), nil
	}
}

func (s *server) putPolicy(operator bool) func(*request) (any, error) {
	return func(r *request) (any, error) {
		if err := missingKeys(r.body, "pattern", "definition"); err != nil {
			return nil, err
		}
		if err := s.mustVHost(r.vhost()); err != nil {
			return nil, vhostMissing
		}
		d, err := definitions.Policy(r.params["policy"], r.body)
		if err != nil {
			return nil, err
		}
		return r.put(declare.PutPolicy{VHost: r.vhost(), Policy: d, Operator: operator})
	}
}

func (s *server) deletePolicy(operator bool) func(*request) (any, error) {
	return func(r *request) (any, error) {
		if err := s.mustVHost(r.vhost()); err != nil {
			return nil, err
		}
		return r.drop(declare.DeletePolicy{VHost: r.vhost(), Name: r.params["policy"], Operator: operator})
	}
}
