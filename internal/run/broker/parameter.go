package broker

import (
	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/declare"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/routing"
	"bartleby.mq/internal/core/topology"
)

// ParameterHandler acts on the parameters of one component. Its methods are called with nothing locked.
type ParameterHandler interface {
	// Check refuses a value with an error of kind Invalid. by is who sets it.
	Check(p topology.Parameter, by Setter) error
	// Changed is called after each change that may concern the component, or what users may do.
	Changed()
}

// Setter is the user on whose behalf a parameter is set.
type Setter struct {
	b    *Broker
	id   *Identity // nil: the operator of the node, who may do everything
	gone bool      // its account is gone; one of the same name is another user
}

// Setter returns who set a parameter. REQUIRES: called within Read.
func (b *Broker) Setter(p topology.Parameter, users *auth.Users) Setter {
	if p.By == "" {
		return Setter{b: b}
	}
	account, ok := users.User(p.By)
	return Setter{b: b, id: &Identity{Name: p.By, account: account}, gone: p.Orphaned || !ok}
}

// Same says whether two results of Broker.Setter are the same user, with the same account or both without.
func (s Setter) Same(other Setter) bool {
	if s.gone || other.gone || s.id == nil || other.id == nil {
		return s.gone == other.gone && s.Name() == other.Name()
	}
	return s.Name() == other.Name() && s.id.account.Same(other.id.account)
}

// Name is the user's name, "" for the operator.
func (s Setter) Name() string {
	if s.id == nil {
		return ""
	}
	return s.id.Name
}

// Known says whether the user still exists.
func (s Setter) Known() bool {
	if s.id == nil {
		return true
	}
	s.b.topo.RLock()
	defer s.b.topo.RUnlock()
	_, ok := s.b.users.User(s.id.Name)
	return ok && s.has()
}

// has says whether the user has the permissions of its account. A client that a backend knows does not: an account of
// the same name is another user. REQUIRES: topo is held.
func (s Setter) has() bool { return !s.gone && !s.id.Elsewhere() && s.id.stands(s.b.users) }

// AccountsRevision changes with anything that a user may do.
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

// Permits returns an error if the setter may not use a queue or an exchange in this way. Keys count only for topic
// exchanges (BR-3.5), and for an exchange that does not exist: it may become one.
func (s Setter) Permits(a topology.Access, r topology.Resource) error {
	if s.id == nil {
		return nil
	}
	c := s.b.For(s.id, r.VHost) // takes topo itself
	s.b.topo.RLock()
	defer s.b.topo.RUnlock()
	if !s.has() {
		return topology.RefuseAccess(a, r, s.id.Name, "")
	}
	if v, ok := s.b.state.VHost(r.VHost); ok && r.Kind == topology.TopicResource {
		if x, ok := v.Exchange(message.ExchangeName(r.Name)); ok && x.Acts() != routing.Topic {
			return nil
		}
	}
	return c.permit(a, r)
}

// Publisher returns a check whether the setter may publish a message in a virtual host; nil means that it may publish
// any. Use it for a few messages only, because permissions change.
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

// MaySay says whether the setter may publish messages with this user-id (BR-8.13).
func (s Setter) MaySay(userID string) bool {
	return s.id == nil || userID == s.id.Name || !s.gone && !s.id.Elsewhere() && s.b.For(s.id, "").Impersonates()
}

// HandleParameters registers a component's handler. It is called before the node serves.
func (b *Broker) HandleParameters(component string, h ParameterHandler) {
	if b.parameters == nil {
		b.parameters = map[string]ParameterHandler{}
	}
	b.parameters[component] = h
}

// HandlesParameters says whether a component has a handler.
func (b *Broker) HandlesParameters(component string) bool { return b.parameters[component] != nil }

// parameterTouched calls the handler of a component, if there is one.
func (b *Broker) parameterTouched(component string) {
	if h := b.parameters[component]; h != nil {
		h.Changed()
	}
}

// parametersTouched calls all handlers: parameters went with their virtual host, or what users may do has changed.
func (b *Broker) parametersTouched() {
	for _, h := range b.parameters {
		h.Changed()
	}
}

// ClusterIDParameter is the global parameter with the cluster's unique id.
const ClusterIDParameter = "internal_cluster_id"

// clusterIDPrefix is RabbitMQ's.
const clusterIDPrefix = "rabbitmq-cluster-id-"

// EnsureClusterID gives the cluster an id if it has none.
func (b *Broker) EnsureClusterID() error {
	if b.ClusterID() != "" {
		return nil
	}
	_, err := b.By("").Do(declare.PutGlobalParameter{GlobalParameter: topology.GlobalParameter{Name: ClusterIDParameter, Value: []byte(`"` + RandomName(clusterIDPrefix) + `"`)}})
	return err
}

// ClusterID is the id from EnsureClusterID, or "".
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
