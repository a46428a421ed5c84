package api

import (
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
)

// listFindings shows what may be wrong with declarations: to those who see all, and to those who make policies.
func (s *server) listFindings(r *request) (any, error) {
	if _, err := r.officeQuery(); err != nil {
		return nil, err
	}
	if !r.may(monitoring) && !r.may(policies) {
		return nil, notAuthorised("this needs the tag monitoring or policymaker")
	}
	sees := map[message.VHost]bool{}
	r.eachVHost(func(v *topology.VHost) { sees[v.Name] = true })
	found, err := s.Office.Lint(r.Context(), func(v *topology.VHost) bool { return sees[v.Name] })
	switch {
	case r.Context().Err() != nil:
		return nil, nobodyWaits
	case err != nil:
		return nil, err
	}
	return found, nil
}

// deadLetterMap shows the ways of dead letters, as bindings are shown: to all who may see the virtual host.
func (s *server) deadLetterMap(r *request) (any, error) {
	if _, err := r.officeQuery(); err != nil {
		return nil, err
	}
	m, err := s.Office.Map(r.Context(), r.vhost())
	switch {
	case r.Context().Err() != nil:
		return nil, nobodyWaits
	case err != nil:
		return nil, err
	}
	return m, nil
}
