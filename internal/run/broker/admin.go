package broker

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/declare"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/internal/wire/erlterm"
)

// Admin is the broker on behalf of somebody: what it does is told as theirs.
type Admin struct {
	*Broker
	by   string // in events
	doer Doer
	id   *Identity // what becomes theirs, and whose permissions it has; nil: the operator of the node
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
	return Admin{Broker: b, by: user, doer: Doer{Who: user}}
}

// Known is the same for a doer of whom more is known than the name in events.
func (a Admin) Known(d Doer) Admin {
	a.doer = d
	return a
}

// As is the same for an authenticated client, nil being the operator of the node: it owns the parameters that it puts, and may do everything
// in virtual hosts that it makes.
func (a Admin) As(id *Identity) Admin {
	a.id = id
	return a
}

// Do makes a change of what is declared, and all that follows from it. When it returns, the change is on disk and in force. A refusal is a
// *topology.Error; other errors mean that the node is stopping.
func (a Admin) Do(c declare.Command) (r declare.Result, err error) {
	if p, ok := c.(declare.PutParameter); ok {
		if c, err = a.owned(p); err != nil {
			return r, err
		}
	}
	var d aftermath
	for again := true; again && err == nil; again = r.Again {
		err = a.change(func() (err error) {
			r, err = a.carryOut(c, &d)
			return err
		})
	}
	if err != nil {
		return r, err
	}
	if err := a.follow(c, &r, &d); err != nil {
		return r, err
	}
	a.tell(c, &r, &d.vanished)
	return r, nil
}

// owned is a parameter with its owner, if its handler has no objection. A client that a backend knows has no permissions here: the backend
// cannot be asked while the component runs.
func (a Admin) owned(p declare.PutParameter) (declare.PutParameter, error) {
	by := Setter{b: a.Broker, id: a.id}
	p.By, p.Orphaned = by.Name(), false
	if h := a.parameters[p.Component]; h != nil {
		return p, h.Check(p.Parameter, by)
	}
	return p, nil
}

// aftermath is what a command has left to do with the locks open.
type aftermath struct {
	rights    bool // what users may do has changed
	connected []*Connection
	why       string // they are closed
	ended     []endedQueue
	vanished  vanished
}

// endedVHost is a virtual host that was deleted, and by whom.
type endedVHost struct {
	name message.VHost
	by   Doer
}

// endedQueue is a queue that was deleted with its virtual host, and what it held.
type endedQueue struct {
	q    *topology.Queue
	held partition.Counts
}

// carryOut makes the change, and what must happen before anybody sees it. REQUIRES: called within change.
func (a Admin) carryOut(c declare.Command, d *aftermath) (r declare.Result, err error) {
	b, rights := a.Broker, a.users.Revision()
	switch p := c.(type) {
	case declare.PutParameter:
		if a.id != nil && !a.id.stands(b.users) { // otherwise it would run with the permissions of another user of this name
			return r, topology.Refuse(topology.AccessRefused, "%s", auth.UserDeleted(a.id.Name))
		}
	case declare.PutVHost:
		// A creator that a backend knows, or whose account is gone, gets no permissions: an account of the same name is another user.
		if a.id != nil && !a.id.Elsewhere() && a.id.stands(b.users) {
			p.CreatedBy = a.id.Name
			c = p
		}
	case declare.DeleteVHost:
		d.vanished = b.vanishing(p.Name)
	}
	if r, err = b.declared.Apply(c); err != nil {
		return r, err
	}
	d.rights = b.users.Revision() != rights
	switch c := c.(type) {
	case declare.PutVHost:
		if !r.Created && r.After.Profile != r.Before.Profile {
			d.connected, d.why = b.inVHost(c.Name), fmt.Sprintf("the profile of vhost '%s' has changed", c.Name)
		}
	case declare.DeleteVHost:
		b.endedVHosts = append(b.endedVHosts, endedVHost{c.Name, a.doer})
		d.connected, d.why = b.inVHost(c.Name), fmt.Sprintf("vhost '%s' is down", c.Name)
		b.removing()
		for _, q := range r.Ended {
			if n, err := b.node.Delete(runtimeOf(q), nil); err == nil {
				d.ended = append(d.ended, endedQueue{q, n})
			}
		}
	case declare.DeleteUser:
		if r.Existed {
			d.connected, d.why = b.matching(func(o *Connection) bool { return o.User == c.Name }), auth.UserDeleted(c.Name)
		}
	}
	return r, nil
}

// inVHost returns the connections to a virtual host.
func (b *Broker) inVHost(name message.VHost) []*Connection {
	return b.matching(func(c *Connection) bool { return c.VHost == name })
}

// follow does what follows from a change that is in force.
func (a Admin) follow(c declare.Command, r *declare.Result, d *aftermath) (err error) {
	b := a.Broker
	switch c := c.(type) {
	case declare.PutVHost:
		if r.Created {
			err = b.ensureEventExchange()
		}
		if r.Takeover {
			b.takeover(c.Name)
		}
		if r.Before.Tracing && !r.After.Tracing {
			b.traces.flush() // who turns tracing off finds all copies in their queues
		}
	case declare.DeleteVHost:
		for _, e := range d.ended {
			n := b.node.Deleted(runtimeOf(e.q), e.held)
			b.keepStats(e.q.Type, &n.Stats)
		}
		b.node.RetryStranded() // stranded messages of the virtual host end with it
	case declare.PutPolicy:
		if r.Takeover {
			b.takeover(c.VHost)
		}
	case declare.DeletePolicy:
		if r.Takeover {
			b.takeover(c.VHost)
		}
	case declare.PutParameter:
		b.parameterTouched(c.Component)
	case declare.DeleteParameter:
		b.parameterTouched(c.Component)
	}
	if d.rights {
		b.parametersTouched()
	}
	terminate(d.connected, 320, d.why)
	return err
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

// done is an event about an object of the node, with further facts.
func (a Admin) done(key string, facts ...amqp091.Field) {
	a.Notify(key, func() amqp091.Table { return append(facts, doneBy(a.by)) })
}

// tell tells of a change, as RabbitMQ's events do.
func (a Admin) tell(c declare.Command, r *declare.Result, gone *vanished) {
	if !a.told() {
		return
	}
	switch c := c.(type) {
	case declare.PutVHost:
		if r.Created || !c.OnlyNew {
			a.notifyVHost(c.Name, r.Created)
		}
	case declare.DeleteVHost:
		a.notifyVanished(c.Name, gone)
	case declare.SetVHostLimits:
		a.notifyLimits(c.Name)
	case declare.ClearVHostLimit:
		a.notifyLimits(c.Name)
	case declare.PutUser:
		if r.Created {
			a.done("user.created", fact("name", c.Name))
		} else {
			a.done("user.password.changed", fact("name", c.Name))
		}
		if len(c.Tags) > 0 || !r.Created {
			a.done("user.tags.set", fact("name", c.Name), fact("tags", texts(c.Tags)))
		}
	case declare.DeleteUser:
		if r.Existed {
			a.done("user.deleted", fact("name", c.Name))
		}
	case declare.SetUserLimits:
		t := amqp091.Table{fact("name", "limits"), fact("username", c.Name)}
		for _, l := range sortedKeys(c.Limits) {
			t = append(t, fact(string(l), jsonFact(c.Limits[l])))
		}
		a.done("user.limits.set", t...)
	case declare.ClearUserLimit:
		a.done("user.limits.cleared", fact("name", "limits"), fact("username", c.Name))
	case declare.PutPermission:
		a.notifyPermission(&c.Permission)
	case declare.DeletePermission:
		if r.Existed {
			a.about("permission.deleted", c.VHost, fact("user", c.User))
		}
	case declare.PutTopicPermission:
		a.about("topic.permission.created", c.VHost, fact("user", c.User), fact("exchange", string(c.Exchange)), fact("write", c.Write), fact("read", c.Read))
	case declare.DeleteTopicPermissions:
		if r.Existed {
			a.about("topic.permission.deleted", c.VHost, fact("user", c.User))
		}
	case declare.PutPolicy:
		a.notifyPolicy(&c)
	case declare.DeletePolicy:
		switch {
		case r.Existed && c.Operator:
			a.aboutOperatorPolicyCleared(c.VHost, c.Name)
		case r.Existed:
			a.about("policy.cleared", c.VHost, fact("name", c.Name))
		}
	case declare.PutParameter:
		a.about("parameter.set", c.VHost, fact("component", c.Component), fact("name", c.Name), parameterFact(c.Value))
	case declare.DeleteParameter:
		if r.Existed {
			a.about("parameter.cleared", c.VHost, fact("component", c.Component), fact("name", c.Name))
		}
	case declare.PutGlobalParameter:
		a.done("parameter.set", fact("component", "global"), fact("name", c.Name), parameterFact(c.Value))
	case declare.DeleteGlobalParameter:
		if r.Existed {
			a.done("parameter.cleared", fact("component", "global"), fact("name", c.Name))
		}
	}
}

// notifyVHost tells of a virtual host that was made or changed.
func (a Admin) notifyVHost(name message.VHost, created bool) {
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
		if a.id != nil {
			if p, ok := u.Permission(name, a.id.Name); ok {
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
		a.notifyPermission(granted)
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

// notifyVanished tells of a virtual host that was deleted.
func (a Admin) notifyVanished(name message.VHost, list *vanished) {
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

// notifyLimits tells of the limits of a virtual host there are now.
func (a Admin) notifyLimits(name message.VHost) {
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
}

func (a Admin) notifyPermission(p *auth.Permission) {
	a.about("permission.created", p.VHost, fact("user", p.User), fact("configure", p.Configure), fact("write", p.Write), fact("read", p.Read))
}

// notifyPolicy tells of a policy that was put. One of an operator is a parameter too.
func (a Admin) notifyPolicy(c *declare.PutPolicy) {
	d := &c.Policy
	applyTo, priority := cmp.Or(string(d.ApplyTo), "all"), any(int64(0))
	if d.Priority != nil {
		priority = jsonFact(d.Priority)
	}
	value := amqp091.Table{
		fact("pattern", d.Pattern), fact("apply-to", applyTo), fact("definition", jsonFact(map[string]any(d.Definition))), fact("priority", priority),
	}
	if c.Operator {
		a.about("parameter.set", c.VHost, fact("component", "operator_policy"), fact("name", d.Name), fact("value", value))
	}
	a.about("policy.set", c.VHost, append(slices.Clone(value), fact("name", d.Name))...)
}

func parameterFact(text []byte) amqp091.Field {
	v, err := topology.ParseJSON(text)
	if err != nil {
		return fact("value", "")
	}
	return fact("value", jsonFact(v))
}
