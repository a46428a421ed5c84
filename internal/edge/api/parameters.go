package api

import (
	"fmt"

	"bartleby.mq/internal/core/declare"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/definitions"
)

// Policies and limits of virtual hosts are parameters to RabbitMQ (BR-16.2): see also
// definitions.OperatorPolicyComponent.
const (
	policyComponent = "policy"
	vhostLimitsName = "limits"
)

// keptComponents are RabbitMQ's other components; unknown ones are refused, as in RabbitMQ.
var keptComponents = map[string]bool{"federation": true, "federation-upstream": true, "federation-upstream-set": true, "shovel": true}

// upstreamComponent is stored without effect: there is no federation.
const upstreamComponent = "federation-upstream"

func hasURI(value any) bool {
	object, ok := value.(map[string]any)
	return ok && object["uri"] != nil
}

func showParameter(vhost, component, name string, value any) map[string]any {
	return map[string]any{"vhost": vhost, "component": component, "name": name, "value": value}
}

// rules returns the rule sets of the virtual hosts of the request.
func (r *request) rules() (taken []*topology.RuleSet) {
	r.eachVHost(func(v *topology.VHost) { taken = append(taken, v.RuleSet()) })
	return taken
}

// parametersOf lists the parameters of a component in a virtual host, or of all components
// for "", where RabbitMQ leaves policies out.
func parametersOf(v *topology.RuleSet, component string) (items []map[string]any) {
	name := string(v.VHost)
	if component == policyComponent {
		for _, p := range v.Policies(false) {
			items = append(items, showParameter(name, policyComponent, p.Name, policyValue(p)))
		}
	}
	if limits := v.Limits; len(limits) > 0 && (component == "" || component == definitions.VHostLimitsComponent) {
		items = append(items, showParameter(name, definitions.VHostLimitsComponent, vhostLimitsName, limits))
	}
	if component == "" || component == definitions.OperatorPolicyComponent {
		for _, p := range v.Policies(true) {
			items = append(items, showParameter(name, definitions.OperatorPolicyComponent, p.Name, policyValue(p)))
		}
	}
	for _, p := range v.Parameters(component) {
		items = append(items, showParameter(name, p.Component, p.Name, p.Value))
	}
	return items
}

func policyValue(p *topology.Policy) map[string]any {
	return map[string]any{"pattern": p.Pattern, "definition": p.Definition, "priority": p.Priority, "apply-to": string(p.ApplyTo)}
}

func (s *server) listParameters(r *request) (any, error) {
	items := []map[string]any{}
	for _, rules := range r.rules() {
		items = append(items, parametersOf(rules, r.params["component"])...)
	}
	return objects(items), nil
}

func (s *server) getParameter(r *request) (any, error) {
	var found map[string]any
	for _, rules := range r.rules() {
		for _, p := range parametersOf(rules, r.params["component"]) {
			if p["name"] == r.params["name"] && (s.b.Strict || p["component"] != policyComponent) {
				found = p
			}
		}
	}
	if found == nil {
		return nil, notFound
	}
	return found, nil
}

func (s *server) putParameter(r *request) (any, error) {
	if err := missingKeys(r.body, "value"); err != nil {
		return nil, err
	}
	if err := s.mustVHost(r.vhost()); err != nil {
		return nil, vhostMissing
	}
	component, name, value := r.params["component"], r.params["name"], r.body["value"]
	switch {
	case component == policyComponent:
		return nil, badRequest("policies may not be set using this method")
	case component == definitions.OperatorPolicyComponent:
		if !r.may(administers) {
			return nil, notAuthorised(accessTexts[administers])
		}
		body, err := definitions.Object(value, "value")
		if err != nil {
			return nil, err
		}
		if err := missingKeys(body, "pattern", "definition"); err != nil {
			return nil, err
		}
		if r.keepsOperatorPolicies() {
			return nil, operatorPoliciesStay
		}
		d, err := definitions.Policy(name, body)
		if err != nil {
			return nil, err
		}
		return r.put(declare.PutPolicy{VHost: r.vhost(), Policy: d, Operator: true})
	case component == definitions.VHostLimitsComponent:
		if !r.may(administers) {
			return nil, notAuthorised(accessTexts[administers])
		}
		return nil, definitions.SetVHostLimits(r.admin(), r.vhost(), value)
	case s.b.Strict && component != shovelComponent: // RabbitMQ's other components belong to plugins
		return nil, badRequest(fmt.Sprintf("Validation failed\n\ncomponent %s not found\n", component))
	case component == upstreamComponent && !hasURI(value):
		return nil, badRequest(fmt.Sprintf("Validation failed\n\nKey \"uri\" not found in %s\n", name))
	case !keptComponents[component]:
		return nil, badRequest(fmt.Sprintf("Validation failed\n\ncomponent %s not found\n", component))
	}
	text, err := definitions.Encode(value)
	if err != nil {
		return nil, err
	}
	return r.put(declare.PutParameter{Parameter: topology.Parameter{VHost: r.vhost(), Component: component, Name: name, Value: text}})
}

func (s *server) deleteParameter(r *request) (any, error) {
	if err := s.mustVHost(r.vhost()); err != nil {
		return nil, err
	}
	component, name := r.params["component"], r.params["name"]
	switch component {
	case policyComponent:
		return nil, badRequest("policies may not be set using this method")
	case definitions.OperatorPolicyComponent:
		if !r.may(administers) {
			return nil, notAuthorised(accessTexts[administers])
		}
		if r.keepsOperatorPolicies() {
			return nil, operatorPoliciesStay
		}
		return r.drop(declare.DeletePolicy{VHost: r.vhost(), Name: name, Operator: true})
	case definitions.VHostLimitsComponent:
		if !r.may(administers) {
			return nil, notAuthorised(accessTexts[administers])
		}
		return nil, definitions.SetVHostLimits(r.admin(), r.vhost(), nil)
	}
	return r.drop(declare.DeleteParameter{VHost: r.vhost(), Component: component, Name: name})
}

func (s *server) listGlobalParameters(r *request) (any, error) {
	return objects(r.globalParameters()), nil
}

// globalParameters are for policymakers too, and set by administrators: others see addresses in them without login.
func (r *request) globalParameters() []map[string]any {
	items := r.s.globalParameters()
	if !r.may(administers) {
		for _, p := range items[1:] { // the first is the name of the cluster
			withoutLogins(p)
		}
	}
	return items
}

func (s *server) globalParameters() []map[string]any {
	items := []map[string]any{{"name": clusterNameParameter, "value": s.clusterName()}}
	s.b.Read(func(state *topology.State, _ *auth.Users) {
		for _, p := range state.GlobalParameters() {
			if p.Name != clusterNameParameter {
				items = append(items, map[string]any{"name": p.Name, "value": p.Value})
			}
		}
	})
	return items
}

func (s *server) getGlobalParameter(r *request) (any, error) {
	for _, p := range r.globalParameters() {
		if p["name"] == r.params["name"] {
			return p, nil
		}
	}
	return nil, notFound
}

func (s *server) putGlobalParameter(r *request) (any, error) {
	if err := missingKeys(r.body, "value"); err != nil {
		return nil, err
	}
	return r.putGlobal(r.params["name"], r.body["value"])
}

func (r *request) putGlobal(name string, value any) (any, error) {
	text, err := definitions.Encode(value)
	if err != nil {
		return nil, err
	}
	return r.put(declare.PutGlobalParameter{GlobalParameter: topology.GlobalParameter{Name: name, Value: text}})
}

func (s *server) deleteGlobalParameter(r *request) (any, error) {
	return r.drop(declare.DeleteGlobalParameter{Name: r.params["name"]})
}
