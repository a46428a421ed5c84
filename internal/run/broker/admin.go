package broker

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/internal/wire/erlterm"
)

// Admin is the broker on behalf of a user: its methods do what those of Broker do, and publish an event that names the user.
type Admin struct {
	*Broker
	by   string
	doer Doer
}

// Doer is who does something, for records of it: a user, and the address that the request came from. Both are empty if the node does it.
type Doer struct{ Who, Peer string }

// operatorName is RabbitMQ's name of whoever uses its command line.
const operatorName = "rmq-cli"

// By is the broker on behalf of a user, "" being whoever runs the node.
func (b *Broker) By(user string) Admin {
	if user == "" {
		user = operatorName
	}
	return Admin{b, user, Doer{Who: user}}
}

// Known is the same for a doer of whom more is known than the name in events.
func (a Admin) Known(d Doer) Admin {
	a.doer = d
	return a
}

func sortedKeys[K ~string, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

func texts[T ~string](list []T) amqp091.Array {
	a := amqp091.Array{}
	for _, s := range list {
		a = append(a, string(s))
	}
	return a
}

// about is an event about an object of a virtual host, with further facts.
func (a Admin) about(key string, vhost message.VHost, facts ...amqp091.Field) {
	a.Notify(key, func() amqp091.Table { return append(facts, fact("vhost", string(vhost)), doneBy(a.by)) })
}

// ReviseVHost is that of Broker.
func (a Admin) ReviseVHost(name message.VHost, revise func(topology.Metadata) topology.Metadata, creator *Identity) (created bool, err error) {
	created, err = a.Broker.ReviseVHost(name, revise, creator)
	if err == nil {
		a.notifyVHost(name, created, creator)
	}
	return created, err
}

// CreateVHost is that of Broker.
func (a Admin) CreateVHost(name message.VHost, m topology.Metadata, creator *Identity) (created bool, err error) {
	created, err = a.Broker.CreateVHost(name, m, creator)
	if created && err == nil {
		a.notifyVHost(name, true, creator)
	}
	return created, err
}

// notifyVHost tells of a virtual host that was made or changed.
func (a Admin) notifyVHost(name message.VHost, created bool, creator *Identity) {
	if !a.told() {
		return
	}
	var facts amqp091.Table
	var exchanges []topology.ExchangeDecl
	var granted *auth.Permission
	protected := false
	a.Read(func(s *topology.State, u *auth.Users) {
		v, ok := s.VHost(name)
		if !ok {
			return
		}
		m, queueType := v.Metadata, string(s.DefaultQueueType(v))
		protected = m.Protected
		facts = amqp091.Table{
			fact("name", string(name)), fact("tracing", m.Tracing), fact("cluster_state", amqp091.Table{fact(message.CutName(a.NodeName), "running")}), fact("description", m.Description),
			fact("tags", texts(m.Tags)), fact("default_queue_type", queueType), fact("protected_from_deletion", m.Protected), doneBy(a.by),
			fact("metadata", fmt.Sprintf("#{description => %s,tags => [%s],default_queue_type => %s}", erlterm.Format(m.Description), strings.Join(m.Tags, ","), erlterm.Format(queueType))),
		}
		for _, x := range v.Exchanges() {
			exchanges = append(exchanges, x.ExchangeDecl)
		}
		if creator != nil {
			if p, ok := u.Permission(name, creator.Name); ok {
				granted = &p
			}
		}
	})
	if !created {
		a.Notify("vhost.updated", func() amqp091.Table { return append(facts, fact("deletion_protection", protected)) })
		return
	}
	for i := range exchanges {
		a.notifyExchange(&exchanges[i], a.by)
	}
	a.Notify("vhost.created", func() amqp091.Table { return facts })
	if granted != nil {
		a.notifyPermission(*granted)
	}
}

// vanished is what goes with a virtual host, for the events about it.
type vanished struct {
	permissions []auth.Permission
	topics      []auth.TopicPermission
	removed     topology.Removed
	queues      []*topology.Queue
	rules       *topology.RuleSet // nil: nobody listens
}

// vanishing notes what goes with a virtual host, if anybody listens. REQUIRES: topo is held.
func (b *Broker) vanishing(name message.VHost) (list vanished) {
	v, ok := b.state.VHost(name)
	if !ok || !b.told() {
		return list
	}
	for _, p := range b.users.Permissions() {
		if p.VHost == name {
			list.permissions = append(list.permissions, p)
		}
	}
	for _, p := range b.users.TopicPermissions() {
		if p.VHost == name {
			list.topics = append(list.topics, p)
		}
	}
	list.rules, list.queues, list.removed.Exchanges = v.RuleSet(), v.Queues(), v.Exchanges()
	for _, x := range list.removed.Exchanges {
		list.removed.Bindings = append(list.removed.Bindings, x.BindingsFrom()...)
	}
	return list
}

// DeleteVHost is that of Broker.
func (a Admin) DeleteVHost(name message.VHost) error { return a.vanish(name, nil) }

// DeleteEmptyVHost is that of Broker.
func (a Admin) DeleteEmptyVHost(name message.VHost) error { return a.vanish(name, onlyEmpty(name)) }

func (a Admin) vanish(name message.VHost, check func(*topology.VHost) error) error {
	var list vanished
	err := a.deleteVHost(name, a.doer, check, func() { list = a.vanishing(name) })
	if err != nil {
		return err
	}
	for _, p := range list.permissions {
		a.about("permission.deleted", name, fact("user", p.User))
	}
	for _, p := range list.topics {
		a.about("topic.permission.deleted", name, fact("user", p.User))
	}
	a.notifyRemoved(topology.Removed{Bindings: list.removed.Bindings}, internalUser)
	for _, q := range list.queues {
		a.notifyRemoved(topology.Removed{Queue: q}, a.by)
	}
	a.notifyRemoved(topology.Removed{Exchanges: list.removed.Exchanges}, a.by)
	a.cleared(list.rules)
	a.Notify("vhost.deleted", func() amqp091.Table { return amqp091.Table{fact("name", string(name)), doneBy(a.by)} })
	return nil
}

// cleared tells of the parameters, limits and policies that went with a virtual host.
func (a Admin) cleared(r *topology.RuleSet) {
	if r == nil {
		return
	}
	for _, p := range r.Parameters("") {
		a.about("parameter.cleared", r.VHost, fact("component", p.Component), fact("name", p.Name))
	}
	if len(r.Limits) > 0 {
		a.about("parameter.cleared", r.VHost, fact("component", "vhost-limits"), fact("name", "limits"))
		a.about("vhost.limits.cleared", r.VHost, fact("name", "limits"))
	}
	for _, p := range r.Policies(true) {
		a.aboutOperatorPolicyCleared(r.VHost, p.Name)
	}
	for _, p := range r.Policies(false) {
		a.about("policy.cleared", r.VHost, fact("name", p.Name))
	}
}

// aboutOperatorPolicyCleared tells of an operator policy that is gone: it is a parameter too.
func (a Admin) aboutOperatorPolicyCleared(vhost message.VHost, name string) {
	a.about("parameter.cleared", vhost, fact("component", "operator_policy"), fact("name", name))
	a.about("operator.policy.cleared", vhost, fact("name", name))
}

// SetVHostLimit is that of Broker.
func (a Admin) SetVHostLimit(name message.VHost, l topology.Limit, value any) error {
	return a.limited(name, a.Broker.SetVHostLimit(name, l, value))
}

// SetVHostLimits is that of Broker.
func (a Admin) SetVHostLimits(name message.VHost, limits map[topology.Limit]any, only bool) error {
	return a.limited(name, a.Broker.SetVHostLimits(name, limits, only))
}

// ClearVHostLimit is that of Broker.
func (a Admin) ClearVHostLimit(name message.VHost, l topology.Limit) error {
	return a.limited(name, a.Broker.ClearVHostLimit(name, l))
}

// limited tells of the limits of a virtual host there are now.
func (a Admin) limited(name message.VHost, err error) error {
	if err != nil || !a.told() {
		return err
	}
	value := amqp091.Table{}
	a.Read(func(s *topology.State, _ *auth.Users) {
		if v, ok := s.VHost(name); ok {
			limits := v.Limits()
			for _, l := range sortedKeys(limits) {
				value = append(value, fact(string(l), limits[l]))
			}
		}
	})
	var shown any = value
	if len(value) == 0 {
		shown = amqp091.Array{} // as RabbitMQ shows an empty object
	}
	a.about("parameter.set", name, fact("component", "vhost-limits"), fact("name", "limits"), fact("value", shown))
	a.about("vhost.limits.set", name, append(value, fact("name", "limits"))...)
	return nil
}

// PutUser is that of Broker.
func (a Admin) PutUser(name string, password auth.PasswordHash, tags []auth.Tag) (created bool, err error) {
	if created, err = a.Broker.PutUser(name, password, tags); err != nil {
		return created, err
	}
	key := "user.password.changed"
	if created {
		key = "user.created"
	}
	a.Notify(key, func() amqp091.Table { return amqp091.Table{fact("name", name), doneBy(a.by)} })
	if len(tags) > 0 || !created {
		a.Notify("user.tags.set", func() amqp091.Table {
			return amqp091.Table{fact("name", name), fact("tags", texts(tags)), doneBy(a.by)}
		})
	}
	return created, nil
}

// DeleteUser is that of Broker.
func (a Admin) DeleteUser(name string) (existed bool, err error) {
	if existed, err = a.Broker.DeleteUser(name); existed && err == nil {
		a.Notify("user.deleted", func() amqp091.Table { return amqp091.Table{fact("name", name), doneBy(a.by)} })
	}
	return existed, err
}

// SetUserLimits is that of Broker.
func (a Admin) SetUserLimits(name string, limits map[auth.Limit]any) error {
	if err := a.Broker.SetUserLimits(name, limits); err != nil {
		return err
	}
	a.Notify("user.limits.set", func() amqp091.Table {
		t := amqp091.Table{fact("name", "limits"), fact("username", name), doneBy(a.by)}
		for _, l := range sortedKeys(limits) {
			t = append(t, fact(string(l), jsonFact(limits[l])))
		}
		return t
	})
	return nil
}

// ClearUserLimit is that of Broker.
func (a Admin) ClearUserLimit(name string, l auth.Limit) error {
	if err := a.Broker.ClearUserLimit(name, l); err != nil {
		return err
	}
	a.Notify("user.limits.cleared", func() amqp091.Table {
		return amqp091.Table{fact("name", "limits"), fact("username", name), doneBy(a.by)}
	})
	return nil
}

// PutPermission is that of Broker.
func (a Admin) PutPermission(p auth.Permission) (created bool, err error) {
	if created, err = a.Broker.PutPermission(p); err == nil {
		a.notifyPermission(p)
	}
	return created, err
}

func (a Admin) notifyPermission(p auth.Permission) {
	a.about("permission.created", p.VHost, fact("user", p.User), fact("configure", p.Configure), fact("write", p.Write), fact("read", p.Read))
}

// DeletePermission is that of Broker.
func (a Admin) DeletePermission(vhost message.VHost, user string) (existed bool, err error) {
	if existed, err = a.Broker.DeletePermission(vhost, user); existed && err == nil {
		a.about("permission.deleted", vhost, fact("user", user))
	}
	return existed, err
}

// PutTopicPermission is that of Broker.
func (a Admin) PutTopicPermission(p auth.TopicPermission) (created bool, err error) {
	if created, err = a.Broker.PutTopicPermission(p); err == nil {
		a.about("topic.permission.created", p.VHost, fact("user", p.User), fact("exchange", string(p.Exchange)), fact("write", p.Write), fact("read", p.Read))
	}
	return created, err
}

// DeleteTopicPermissions is that of Broker.
func (a Admin) DeleteTopicPermissions(vhost message.VHost, user string, exchange *message.ExchangeName) (existed bool, err error) {
	if existed, err = a.Broker.DeleteTopicPermissions(vhost, user, exchange); existed && err == nil {
		a.about("topic.permission.deleted", vhost, fact("user", user))
	}
	return existed, err
}

// PutPolicy is that of Broker.
func (a Admin) PutPolicy(vhost message.VHost, d topology.PolicyDecl, operator bool) (created bool, err error) {
	if created, err = a.Broker.PutPolicy(vhost, d, operator); err != nil || !a.told() {
		return created, err
	}
	applyTo, priority := cmp.Or(string(d.ApplyTo), "all"), any(int64(0))
	if d.Priority != nil {
		priority = jsonFact(d.Priority)
	}
	value := amqp091.Table{
		fact("pattern", d.Pattern), fact("apply-to", applyTo), fact("definition", jsonFact(map[string]any(d.Definition))), fact("priority", priority),
	}
	if operator {
		a.about("parameter.set", vhost, fact("component", "operator_policy"), fact("name", d.Name), fact("value", value))
	}
	a.about("policy.set", vhost, append(slices.Clone(value), fact("name", d.Name))...)
	return created, err
}

// DeletePolicy is that of Broker.
func (a Admin) DeletePolicy(vhost message.VHost, name string, operator bool) (existed bool, err error) {
	if existed, err = a.Broker.DeletePolicy(vhost, name, operator); !existed || err != nil {
		return existed, err
	}
	if !operator {
		a.about("policy.cleared", vhost, fact("name", name))
		return existed, err
	}
	a.aboutOperatorPolicyCleared(vhost, name)
	return existed, err
}

// PutParameterFor is that of Broker.
func (a Admin) PutParameterFor(p topology.Parameter, id *Identity) (created bool, err error) {
	if created, err = a.Broker.PutParameterFor(p, id); err == nil && a.told() {
		a.about("parameter.set", p.VHost, fact("component", p.Component), fact("name", p.Name), parameterFact(p.Value))
	}
	return created, err
}

func parameterFact(text []byte) amqp091.Field {
	v, err := topology.ParseJSON(text)
	if err != nil {
		return fact("value", "")
	}
	return fact("value", jsonFact(v))
}

// DeleteParameter is that of Broker.
func (a Admin) DeleteParameter(vhost message.VHost, component, name string) (existed bool, err error) {
	if existed, err = a.Broker.DeleteParameter(vhost, component, name); existed && err == nil {
		a.about("parameter.cleared", vhost, fact("component", component), fact("name", name))
	}
	return existed, err
}

// DeleteThisParameter is that of Broker.
func (a Admin) DeleteThisParameter(p topology.Parameter) (existed bool, err error) {
	if existed, err = a.Broker.DeleteThisParameter(p); existed && err == nil {
		a.about("parameter.cleared", p.VHost, fact("component", p.Component), fact("name", p.Name))
	}
	return existed, err
}

// PutGlobalParameter is that of Broker.
func (a Admin) PutGlobalParameter(p topology.GlobalParameter) (created bool, err error) {
	if created, err = a.Broker.PutGlobalParameter(p); err == nil && a.told() {
		value := parameterFact(p.Value)
		a.Notify("parameter.set", func() amqp091.Table {
			return amqp091.Table{fact("component", "global"), fact("name", p.Name), value, doneBy(a.by)}
		})
	}
	return created, err
}

// DeleteGlobalParameter is that of Broker.
func (a Admin) DeleteGlobalParameter(name string) (existed bool, err error) {
	if existed, err = a.Broker.DeleteGlobalParameter(name); existed && err == nil {
		a.Notify("parameter.cleared", func() amqp091.Table {
			return amqp091.Table{fact("component", "global"), fact("name", name), doneBy(a.by)}
		})
	}
	return existed, err
}
