package topology

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/wire/amqp091"
)

type parameterName struct{ component, name string }

// Parameter is a run-time parameter of a virtual host; the broker only keeps it for tools that ask. Policies,
// operator policies and limits of virtual hosts have their own methods.
type Parameter struct {
	VHost     message.VHost
	Component string
	Name      string
	Value     json.RawMessage
	By        string // the user who has set it, "" for the node's operator
	Orphaned  bool   // the account of By is deleted; a new account of that name is another user
}

// GlobalParameter is a run-time parameter of the whole broker.
type GlobalParameter struct {
	Name  string
	Value json.RawMessage
}

// PutParameter creates or replaces a parameter.
func (s *State) PutParameter(p Parameter) (created bool, err error) {
	v, err := s.vhost(p.VHost)
	if err != nil {
		return false, err
	}
	if err := cmp.Or(checkNamed("component", p.Component), checkNamed("parameter name", p.Name), checkNamed("user", p.By)); err != nil {
		return false, err
	}
	if err := checkValue(p.Value); err != nil {
		return false, err
	}
	name := parameterName{p.Component, p.Name}
	_, existed := v.parameters[name]
	p.Value = slices.Clone(p.Value)
	v.parameters[name] = p
	s.revision++
	s.logParameter(p)
	return !existed, nil
}

// How many parameters Orphan marks at once, and about how many bytes of their values.
const (
	orphansAtOnce     = 1000
	orphanBytesAtOnce = 1 << 20
)

// Orphan marks parameters that a deleted user of this name has set, so that a new user of that name does not own them. It
// marks a limited number at a time; while it returns more, the caller must call it again before it makes the user, and lets
// others run in between. The mark has no effect while there is no such user.
func (s *State) Orphan(user string) (more bool) {
	marked, size := 0, 0
	for _, v := range s.vhosts {
		for name, p := range v.parameters { // in no order: there may be very many, and usually none matches
			if p.By != user || p.Orphaned {
				continue
			}
			if marked == orphansAtOnce || size >= orphanBytesAtOnce {
				return true
			}
			marked, size = marked+1, size+len(p.Value)
			p.Orphaned = true
			v.parameters[name] = p
			s.revision++
			s.logParameter(p)
		}
	}
	return false
}

// checkValue refuses a value that is not JSON, or is too deep or too large to be kept.
func checkValue(value json.RawMessage) error {
	switch {
	case !json.Valid(value):
		return validationFailed("value is not JSON")
	case depth(value) > amqp091.MaxDepth:
		return validationFailed(fmt.Sprintf("value is nested more than %d deep", amqp091.MaxDepth))
	case len(value) > maxTable:
		return validationFailed(fmt.Sprintf("value of %d bytes, the limit is %d", len(value), maxTable))
	}
	return nil
}

// DeleteParameter deletes a parameter and says whether it existed.
func (s *State) DeleteParameter(vhost message.VHost, component, name string) (bool, error) {
	v, err := s.vhost(vhost)
	if err != nil {
		return false, err
	}
	if _, ok := v.parameters[parameterName{component, name}]; !ok {
		return false, nil
	}
	delete(v.parameters, parameterName{component, name})
	s.revision++
	s.log.Delete(parameterKey(vhost, component, name))
	return true, nil
}

// Parameters lists the parameters of a component, or of all for "", by component and name.
func (v *VHost) Parameters(component string) []Parameter { return v.RuleSet().Parameters(component) }

// Parameter finds one parameter.
func (v *VHost) Parameter(component, name string) (Parameter, bool) {
	p, ok := v.parameters[parameterName{component, name}]
	return p, ok
}

// PutGlobalParameter creates or replaces a parameter.
func (s *State) PutGlobalParameter(p GlobalParameter) (created bool, err error) {
	if err := checkNamed("global parameter name", p.Name); err != nil {
		return false, err
	}
	if err := checkValue(p.Value); err != nil {
		return false, err
	}
	_, existed := s.parameters[p.Name]
	s.parameters[p.Name] = slices.Clone(p.Value)
	s.revision++
	s.log.Put(globalParameterKey(p.Name), parameterRecord{Version: recordVersion, Name: p.Name, Value: p.Value})
	return !existed, nil
}

// DeleteGlobalParameter deletes a parameter and says whether it existed.
func (s *State) DeleteGlobalParameter(name string) bool {
	if _, ok := s.parameters[name]; !ok {
		return false
	}
	delete(s.parameters, name)
	s.revision++
	s.log.Delete(globalParameterKey(name))
	return true
}

// GlobalParameters lists the global parameters by name.
func (s *State) GlobalParameters() []GlobalParameter {
	var list []GlobalParameter
	for _, name := range slices.Sorted(maps.Keys(s.parameters)) {
		list = append(list, GlobalParameter{name, s.parameters[name]})
	}
	return list
}
