package broker

import (
	"bytes"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/routing"
	"bartleby.mq/internal/core/topology"
)

// ParameterHandler gives parameters of one component a meaning. Its methods are
// called with nothing locked.
type ParameterHandler interface {
	// Check refuses a value with an error of kind Invalid. by is whoever sets it.
	Check(p topology.Parameter, by Setter) error
	// Changed is called after each change that may have been of the component, or of what users may do.
	Changed()
}

// Setter is on whose behalf a parameter is set.
type Setter struct {
	b    *Broker
	id   *Identity // nil: whoever runs the node, who may do everything
	gone bool      // its account; one of the same name is somebody else's
}

// Setter is whoever has set a parameter as it is. REQUIRES: the topology is read.
func (b *Broker) Setter(p topology.Parameter, users *auth.Users) Setter {
	if p.By == "" {
		return Setter{b: b}
	}
	account, ok := users.User(p.By)
	return Setter{b: b, id: &Identity{Name: p.By, account: account}, gone: p.Orphaned || !ok}
}

// Same says whether two that Setter has returned are one, and have an account or none alike.
func (s Setter) Same(other Setter) bool {
	if s.gone || other.gone || s.id == nil || other.id == nil {
		return s.gone == other.gone && s.Name() == other.Name()
	}
	return s.Name() == other.Name() && s.id.account.Same(other.id.account)
}

// Name is the user, "" for whoever runs the node.
func (s Setter) Name() string {
	if s.id == nil {
		return ""
	}
	return s.id.Name
}

// Known says whether the user is still there.
func (s Setter) Known() bool {
	if s.id == nil {
		return true
	}
	s.b.topo.RLock()
	defer s.b.topo.RUnlock()
	_, ok := s.b.users.User(s.id.Name)
	return ok && s.has()
}

// has says whether the user may have permissions of its account. Whom a backend knows has none: an account of the same
// name is somebody else's. REQUIRES: topo is held.
func (s Setter) has() bool { return !s.gone && !s.id.Elsewhere() && s.id.stands(s.b.users) }

// AccountsRevision changes with whatever a user may do.
func (b *Broker) AccountsRevision() uint64 {
	b.topo.RLock()
	defer b.topo.RUnlock()
	return b.users.Revision()
}

// Enters says whether the setter may enter a virtual host.
func (s Setter) Enters(v message.VHost) bool {
	if s.id == nil {
		return true
	}
	s.b.topo.RLock()
	defer s.b.topo.RUnlock()
	_, ok := s.b.users.Permission(v, s.id.Name)
	return ok && s.has()
}

// Permits is an error where the setter may not use a queue or an exchange so. Of the keys of exchanges only those of
// topic exchanges are asked for (BR-3.5), and of one that is not there: it may become one.
func (s Setter) Permits(a topology.Access, r topology.Resource) error {
	if s.id == nil {
		return nil
	}
	c := s.b.For(s.id, r.VHost) // which looks at the topology itself
	s.b.topo.RLock()
	defer s.b.topo.RUnlock()
	if !s.has() {
		return topology.RefuseAccess(a, r, s.id.Name, "")
	}
	if v, ok := s.b.state.VHost(r.VHost); ok && r.Kind == topology.TopicResource {
		if x, ok := v.Exchange(message.ExchangeName(r.Name)); ok && x.Type != routing.Topic {
			return nil
		}
	}
	return c.permit(a, r)
}

// Publisher asks whether the setter may publish messages in a virtual host, nil being that it may publish all.
// It is for a few messages: what the setter may do changes.
func (s Setter) Publisher(v message.VHost) func(*Publication) error {
	if s.id == nil {
		return nil
	}
	c := s.b.For(s.id, v)
	return func(p *Publication) error {
		if p.Props.Headers != nil {
			if err := p.checkExtraKeys(); err != nil {
				return err
			}
		}
		return c.MayUseTopics(p)
	}
}

// MaySay says whether the setter may publish messages that have this user-id (BR-8.13).
func (s Setter) MaySay(userID string) bool {
	return s.id == nil || userID == s.id.Name || !s.gone && !s.id.Elsewhere() && s.b.For(s.id, "").Impersonates()
}

// HandleParameters has a component's parameters handled. It is called before the
// node serves anybody.
func (b *Broker) HandleParameters(component string, h ParameterHandler) {
	if b.parameters == nil {
		b.parameters = map[string]ParameterHandler{}
	}
	b.parameters[component] = h
}

// HandlesParameters says whether a component's parameters are acted upon.
func (b *Broker) HandlesParameters(component string) bool { return b.parameters[component] != nil }

// PutParameter sets a run-time parameter on behalf of a user, "" being whoever runs
// the node. Parameters that nobody handles are kept for tools that ask.
func (b *Broker) PutParameter(p topology.Parameter, by string) (created bool, err error) {
	if by == "" {
		return b.PutParameterFor(p, nil)
	}
	return b.PutParameterFor(p, &Identity{Name: by})
}

// PutParameterFor is PutParameter for a client that has proven who it is, nil being whoever runs the node. Where a
// backend knows what the client may do it has no permissions here: it is not there to be asked while what it sets runs.
func (b *Broker) PutParameterFor(p topology.Parameter, id *Identity) (created bool, err error) {
	by := Setter{b: b, id: id}
	p.By, p.Orphaned = by.Name(), false
	h := b.parameters[p.Component]
	if h != nil {
		if err := h.Check(p, by); err != nil {
			return false, err
		}
	}
	err = b.change(func() (err error) {
		if id != nil && !id.stands(b.users) { // it would run with the permissions of whoever is called so now
			return topology.Refuse(topology.AccessRefused, "%s", auth.UserDeleted(id.Name))
		}
		created, err = b.state.PutParameter(p)
		return err
	})
	if h != nil && err == nil {
		h.Changed()
	}
	return created, err
}

// DeleteParameter removes a parameter and says whether there was one.
func (b *Broker) DeleteParameter(vhost message.VHost, component, name string) (existed bool, err error) {
	return b.deleteParameter(vhost, component, name, nil)
}

// DeleteThisParameter is DeleteParameter of one that still has its value.
func (b *Broker) DeleteThisParameter(p topology.Parameter) (existed bool, err error) {
	return b.deleteParameter(p.VHost, p.Component, p.Name, p.Value)
}

// deleteParameter removes a parameter, if it has this value; nil is any.
func (b *Broker) deleteParameter(vhost message.VHost, component, name string, value []byte) (existed bool, err error) {
	err = b.change(func() (err error) {
		if v, ok := b.state.VHost(vhost); ok && value != nil {
			if now, ok := v.Parameter(component, name); !ok || !bytes.Equal(now.Value, value) {
				return nil
			}
		}
		existed, err = b.state.DeleteParameter(vhost, component, name)
		return err
	})
	if h := b.parameters[component]; h != nil && err == nil {
		h.Changed()
	}
	return existed, err
}

// parametersTouched tells all handlers that parameters went with their virtual host, or what users may do has changed.
func (b *Broker) parametersTouched() {
	for _, h := range b.parameters {
		h.Changed()
	}
}

// PutGlobalParameter keeps a parameter of the whole broker.
func (b *Broker) PutGlobalParameter(p topology.GlobalParameter) (created bool, err error) {
	err = b.change(func() (err error) {
		created, err = b.state.PutGlobalParameter(p)
		return err
	})
	return created, err
}

// DeleteGlobalParameter removes a parameter and says whether there was one.
func (b *Broker) DeleteGlobalParameter(name string) (existed bool, err error) {
	err = b.change(func() error {
		existed = b.state.DeleteGlobalParameter(name)
		return nil
	})
	return existed, err
}

// ClusterIDParameter is the global parameter that tells one cluster from all others.
const ClusterIDParameter = "internal_cluster_id"

// clusterIDPrefix is RabbitMQ's.
const clusterIDPrefix = "rabbitmq-cluster-id-"

// EnsureClusterID gives the node its cluster's id, if it has none yet.
func (b *Broker) EnsureClusterID() error {
	if b.ClusterID() != "" {
		return nil
	}
	_, err := b.PutGlobalParameter(topology.GlobalParameter{Name: ClusterIDParameter, Value: []byte(`"` + RandomName(clusterIDPrefix) + `"`)})
	return err
}

// ClusterID is what EnsureClusterID has made, or "".
func (b *Broker) ClusterID() (id string) {
	b.Read(func(s *topology.State, _ *auth.Users) {
		for _, p := range s.GlobalParameters() {
			if p.Name == ClusterIDParameter {
				if v, err := topology.ParseJSON(p.Value); err == nil {
					id, _ = v.(string)
				}
			}
		}
	})
	return id
}
