package declare

import (
	"bytes"
	"encoding/json"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
)

// PutPolicy sets a policy or an operator policy (DL-4). A refusal is Invalid, with the management API's text (DL-4.3).
type PutPolicy struct {
	VHost    message.VHost
	Policy   topology.PolicyDecl
	Operator bool
}

func (c PutPolicy) apply(s *State, r *Result) (err error) {
	r.Created, err = s.Topology.PutPolicy(c.VHost, c.Policy, c.Operator)
	r.Takeover = err == nil
	return err
}

// DeletePolicy deletes a policy or an operator policy.
type DeletePolicy struct {
	VHost    message.VHost
	Name     string
	Operator bool
}

func (c DeletePolicy) apply(s *State, r *Result) (err error) {
	r.Existed, err = s.Topology.DeletePolicy(c.VHost, c.Name, c.Operator)
	r.Takeover = r.Existed && err == nil
	return err
}

// PutParameter sets a run-time parameter.
type PutParameter struct{ topology.Parameter }

func (c PutParameter) apply(s *State, r *Result) (err error) {
	r.Created, err = s.Topology.PutParameter(c.Parameter)
	return err
}

// DeleteParameter deletes a run-time parameter.
type DeleteParameter struct {
	VHost           message.VHost
	Component, Name string
	// Value is the value that it must have; nil: any.
	Value json.RawMessage
}

func (c DeleteParameter) apply(s *State, r *Result) (err error) {
	if v, ok := s.Topology.VHost(c.VHost); ok && c.Value != nil {
		if now, ok := v.Parameter(c.Component, c.Name); !ok || !bytes.Equal(now.Value, c.Value) {
			return nil
		}
	}
	r.Existed, err = s.Topology.DeleteParameter(c.VHost, c.Component, c.Name)
	return err
}

// PutGlobalParameter sets a parameter of the whole broker.
type PutGlobalParameter struct{ topology.GlobalParameter }

func (c PutGlobalParameter) apply(s *State, r *Result) (err error) {
	r.Created, err = s.Topology.PutGlobalParameter(c.GlobalParameter)
	return err
}

// DeleteGlobalParameter deletes a parameter of the whole broker.
type DeleteGlobalParameter struct{ Name string }

func (c DeleteGlobalParameter) apply(s *State, r *Result) error {
	r.Existed = s.Topology.DeleteGlobalParameter(c.Name)
	return nil
}
