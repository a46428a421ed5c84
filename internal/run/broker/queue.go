package broker

import (
	"cmp"
	"errors"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
)

// Declared is a queue as declare-ok describes it.
type Declared struct {
	Name      message.QueueName
	Messages  int // number of ready messages (BR-7.1)
	Consumers int
	Created   bool
}

// DeclareQueue declares a queue. An empty name asks the broker for one (BR-7.2).
func (c *Connection) DeclareQueue(d topology.QueueDecl) (Declared, error) {
	d.VHost, d.Owner, d.Name = c.VHost, c.owner, topology.CleanName(d.Name)
	c.b.Totals.QueuesDeclared.Add(1)
	if d.Name == "" {
		c.b.topo.RLock()
		err := c.b.state.CheckServerNamed(d.Arguments)
		c.b.topo.RUnlock()
		if err != nil {
			return Declared{}, err
		}
		d.Name, d.ServerNamed = message.QueueName(RandomName("amq.gen-")), true
	}
	var declared Declared
	err := c.decided(func() (err error) {
		declared, err = c.declareQueue(d)
		return err
	})
	return declared, err
}

func (c *Connection) declareQueue(d topology.QueueDecl) (Declared, error) {
	var q *topology.Queue
	var err error
	near, outdated := uint64(0), false
	ticket := c.b.glance(func() {
		if q, err = c.b.state.CheckQueue(d, c.permit); q == nil && err == nil {
			err = c.b.checkOwn(&d)
			d.Plan = c.b.state.PlanQueue(d)
		}
		outdated = q != nil && err == nil && q.Outdated(d.Arguments)
	})
	if outdated && c.b.outdated.first(string(q.VHost)+"\x00"+string(q.Name)) {
		c.b.Logger.Warn("A queue was declared with arguments that were changed since. The virtual host has lenient_declarations, so the declaration is accepted and changes nothing. This is logged once",
			"vhost", string(q.VHost), "queue", string(q.Name), "connection", c.Name, "user", c.User)
	}
	if q != nil || err != nil {
		if err := cmp.Or(c.b.AwaitStored(ticket), err); err != nil {
			return Declared{}, err
		}
		return c.declared(q, false), nil
	}
	if err := d.EncodeArguments(); err != nil {
		return Declared{}, err
	}
	if d.Plan != nil {
		d.Plan.Match()
		c.b.topo.RLock() // so that others can read the declarations meanwhile
		near = c.b.groupOfDead(d.Plan)
		c.b.topo.RUnlock()
	}
	var created bool
	var e *topology.Settings
	err = c.b.change(func() error {
		if !c.b.state.Numbered() {
			return topology.ErrUnstored
		}
		var err error
		if q, created, err = c.b.state.DeclareQueue(d, c.permit); created {
			c.b.assignGroup(q, near)
			c.b.create(q)
			e = q.Effective
		}
		return err
	})
	if err != nil {
		return Declared{}, err
	}
	if created {
		c.b.Totals.QueuesCreated.Add(1)
		c.b.noteDeclared(q, e)
		c.b.notifyQueue(q, c, c.User)
		if q.Exclusive {
			c.own(q)
		}
	}
	return c.declared(q, created), nil
}

func (c *Connection) declared(q *topology.Queue, created bool) Declared {
	n := c.b.node.Touch(runtimeOf(q))
	return Declared{Name: q.Name, Messages: n.Ready, Consumers: n.Consumers, Created: created}
}

// noteDeclared logs surprises about the settings that the queue was declared with.
func (b *Broker) noteDeclared(q *topology.Queue, e *topology.Settings) {
	if e.DeadLetterExchange != nil {
		b.deadLetters(q)
	}
	log := b.Logger.With("vhost", string(q.VHost), "queue", string(q.Name))
	if q.Type == topology.Quorum {
		_, given := q.Arguments.Get("x-delivery-limit")
		if !given && e.DeliveryLimit != nil && *e.DeliveryLimit == topology.DefaultDeliveryLimit {
			log.Info("delivery_limit not set, defaulting to 20") // DL-11.8
		}
	}
	if e.ConfiguredStrategy == topology.AtLeastOnce && e.Strategy != topology.AtLeastOnce {
		if e.DeadLetterExchange == nil {
			log.Warn("Disabling dead-lettering despite configured dead-letter-strategy 'at-least-once' because dead-letter-exchange is not configured.")
		} else {
			log.Warn("Falling back to dead-letter-strategy at-most-once because configured dead-letter-strategy at-least-once is incompatible with the effective overflow strategy. To enable dead-letter-strategy at-least-once, set overflow strategy to reject-publish.", "overflow", e.Overflow.String()) // DL-13.2
		}
	}
}

// OnDeadLetters calls f with each queue that is declared, or gets another policy, and has a dead-letter exchange then. f must not block.
// It is called once, before the node serves.
func (b *Broker) OnDeadLetters(f func(*topology.Queue)) { b.onDeadLetters.Store(&f) }

// deadLetters tells of a queue with a dead-letter exchange.
func (b *Broker) deadLetters(q *topology.Queue) {
	if f := b.onDeadLetters.Load(); f != nil {
		(*f)(q)
	}
}

// PassiveQueue checks that a queue exists (BR-7.15).
func (c *Connection) PassiveQueue(name message.QueueName) (Declared, error) {
	q, err := c.find(name, func(r topology.Resource) error { return c.anyPermission(r) })
	if err != nil {
		return Declared{}, err
	}
	return c.declared(q, false), nil
}

// Find returns a queue that the connection may use, after checking that the client has the permissions that are needed, in this order.
func (c *Connection) Find(name message.QueueName, needed ...topology.Access) (q QueueInfo, err error) {
	decl, err := c.find(name, func(r topology.Resource) error {
		for _, a := range needed {
			if err := c.permit(a, r); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return q, err
	}
	c.b.glance(func() { q = Describe(decl) })
	return q, nil
}

// find returns a queue that the connection may use, after the permission check.
func (c *Connection) find(name message.QueueName, permit func(topology.Resource) error) (q *topology.Queue, err error) {
	err = c.decided(func() error {
		q, err = c.findDecided(name, permit)
		return err
	})
	return q, err
}

func (c *Connection) findDecided(name message.QueueName, permit func(topology.Resource) error) (q *topology.Queue, err error) {
	unstored := false
	ticket := c.b.glance(func() {
		q, err = c.seeQueue(name, permit)
		unstored = err != nil || q.Unstored()
	})
	if unstored {
		err = cmp.Or(c.b.AwaitStored(ticket), err)
	}
	return q, err
}

// seeQueue does the work of find. REQUIRES: topo is held.
func (c *Connection) seeQueue(name message.QueueName, permit func(topology.Resource) error) (*topology.Queue, error) {
	if err := permit(topology.Resource{VHost: c.VHost, Kind: topology.QueueResource, Name: string(topology.CleanName(name))}); err != nil {
		return nil, err
	}
	return c.b.state.PassiveQueue(c.VHost, name, c.owner)
}

func (c *Connection) readable(r topology.Resource) error { return c.permit(topology.Read, r) }

// DeleteQueue deletes a queue and returns how many ready messages it held (BR-7.9). A missing queue is not an error.
func (c *Connection) DeleteQueue(name message.QueueName, ifUnused, ifEmpty bool) (messages int, err error) {
	q, err := c.find(name, func(r topology.Resource) error { return c.permit(topology.Configure, r) })
	if err != nil {
		if e, ok := err.(*topology.Error); ok && e.Kind == topology.NotFound {
			return 0, nil
		}
		return 0, err
	}
	for _, asked := range []struct {
		set  bool
		flag string
	}{{ifUnused, "if-unused"}, {ifEmpty, "if-empty"}} {
		if asked.set && q.Type == topology.Quorum && c.client != nil { // the API may use these flags
			return 0, topology.Refuse(topology.NotImplemented,
				"cannot delete %s. queue.delete operations with %s flag set are not supported by quorum queues", q.Resource(), asked.flag)
		}
	}
	n, err := c.b.remove(q, c.User, func(n partition.Counts) error {
		switch {
		case ifUnused && n.Consumers > 0:
			return topology.Refuse(topology.PreconditionFailed, "%s in use", q.Resource())
		case ifEmpty && n.Ready+n.Offered > 0: // an offered message may become ready again
			return topology.Refuse(topology.PreconditionFailed, "%s not empty", q.Resource())
		}
		return nil
	})
	if partition.Gone(err) {
		return 0, nil
	}
	return n.Ready + n.Offered, err
}

// errUnsettled means that messages have died in a queue since SettleDeaths: they would be lost with it.
var errUnsettled = errors.New("deaths of the queue are to be routed")

// mostUnsettled is how often a removal waits for such deaths: in some queues there is always another one.
const mostUnsettled = 10

// remove deletes a queue on behalf of a user unless check returns an error: first from the topology, so that nothing is
// routed to it any longer, then from its partition.
func (b *Broker) remove(q *topology.Queue, by string, check func(partition.Counts) error) (n partition.Counts, err error) {
	var removed topology.Removed
	b.node.Settle(runtimeOf(q)) // check must see the client's earlier operations
	for tries := 0; ; tries++ {
		b.node.SettleDeaths(runtimeOf(q))
		err = b.change(func() error {
			if q.Durable {
				b.removing()
			}
			var err error
			n, err = b.node.Delete(runtimeOf(q), func(n partition.Counts) error {
				if n.Unsettled && tries < mostUnsettled {
					return errUnsettled
				}
				if check == nil {
					return nil
				}
				return check(n)
			})
			if err != nil {
				return err
			}
			removed = b.state.DeleteQueue(q)
			return nil
		})
		if !errors.Is(err, errUnsettled) {
			break
		}
	}
	if err == nil {
		n = b.node.Deleted(runtimeOf(q), n)
		b.keepStats(q.Type, &n.Stats)
		b.notifyRemoved(removed, by)
	}
	return n, err
}

// Purge removes the ready messages of a queue (BR-7.10).
func (c *Connection) Purge(name message.QueueName) (int, error) {
	q, err := c.find(name, c.readable)
	if err != nil {
		return 0, err
	}
	n, err := c.b.node.Purge(runtimeOf(q))
	return n, missing(err, q)
}

// ChangeArguments sets some arguments of a queue, takes others away, and puts the result in force at once, as a policy would. It
// returns the arguments that hold now, and those of the queue's declaration.
func (c *Connection) ChangeArguments(name message.QueueName, set amqp091.Table, unset []string) (now, declared amqp091.Table, err error) {
	var q *topology.Queue
	err = c.changing(func() (err error) {
		if q, err = c.b.state.ChangeArguments(c.VHost, name, set, unset, c.owner, c.permit); err == nil {
			now = q.PresentArguments()
		}
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	c.b.policies.Lock() // so that no older settings come to the queue after these
	defer c.b.policies.Unlock()
	c.b.reconfigure([]*topology.Queue{q})
	c.b.Logger.Info("The arguments of a queue were changed", "vhost", string(q.VHost), "queue", string(q.Name), "user", c.User,
		"set", topology.ArgumentsJSON(set), "unset", unset)
	return now, q.Arguments, nil
}
