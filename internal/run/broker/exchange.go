package broker

import (
	"cmp"
	"slices"
	"sync/atomic"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/routing"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/partition"
)

// DeclareExchange declares an exchange (BR-5); created says whether it is new.
func (c *Connection) DeclareExchange(d topology.ExchangeDecl) (created bool, err error) {
	d.VHost, d.User = c.VHost, c.User
	err = c.decided(func() error {
		created, err = c.declareExchange(d)
		return err
	})
	return created, err
}

func (c *Connection) declareExchange(d topology.ExchangeDecl) (created bool, err error) {
	// Most declarations are of existing exchanges: these need no exclusive lock.
	var x *topology.Exchange
	ticket := c.b.glance(func() {
		if x, err = c.b.state.CheckExchange(d, c.permit); x == nil && err == nil {
			d.Plan = c.b.state.PlanExchange(d)
		}
	})
	if x != nil || err != nil {
		return false, cmp.Or(c.b.AwaitStored(ticket), err)
	}
	if c.b.settles && topology.CleanName(d.Name) == SettleExchange {
		return false, c.errSettle()
	}
	if err := d.EncodeArguments(); err != nil {
		return false, err
	}
	d.Plan.Match()
	err = c.b.change(func() error {
		if d.Type == routing.Delayed && !c.b.state.Numbered() {
			return topology.ErrUnstored
		}
		var x *topology.Exchange
		if x, created, err = c.b.state.DeclareExchange(d, c.permit); created && x.Waiting != nil {
			c.b.create(x.Waiting)
		}
		return err
	})
	if created && err == nil {
		c.b.notifyExchange(&d, c.User)
	}
	return created, err
}

// PassiveExchange checks that an exchange exists (BR-5.6).
func (c *Connection) PassiveExchange(name message.ExchangeName) error {
	return c.decided(func() error { return c.passiveExchange(name) })
}

func (c *Connection) passiveExchange(name message.ExchangeName) (err error) {
	failed := c.b.look(func() { err = c.seeExchange(name) })
	return cmp.Or(failed, err)
}

// seeExchange does the work of PassiveExchange. REQUIRES: topo is held.
func (c *Connection) seeExchange(name message.ExchangeName) error {
	name = topology.CleanName(name) // the permission check uses the name that is looked up
	if c.isSettle(name) {
		return nil // so that a client can ask whether there is one
	}
	_, err := c.b.state.PassiveExchange(c.VHost, name)
	if name == "" {
		return err // refused for everybody (BR-5.3)
	}
	if denied := c.anyPermission(topology.Resource{VHost: c.VHost, Kind: topology.ExchangeResource, Name: string(name)}); denied != nil {
		return denied
	}
	return err
}

// DeleteExchange deletes an exchange (BR-5.9).
func (c *Connection) DeleteExchange(name message.ExchangeName, ifUnused bool) error {
	var removed topology.Removed
	err := c.changing(func() (err error) {
		if c.isSettle(name) {
			return c.errSettle()
		}
		removed, err = c.b.state.DeleteExchange(c.VHost, name, ifUnused, c.permit)
		return err
	})
	if err == nil {
		c.b.notifyRemoved(removed, c.User)
	}
	return err
}

// ExchangeStats count what was published to an exchange since it was declared or the node started (BR-15.13).
type ExchangeStats struct {
	In, Out           atomic.Uint64 // messages published to it, and copies it sent to queues
	Dropped, Returned atomic.Uint64 // unroutable messages: without and with mandatory
	told              uint64        // of Dropped, by TakeUnroutable, which alone uses it
}

// statsOf returns the counters of an exchange, and makes them at the first call. REQUIRES: topo is held.
func (b *Broker) statsOf(x *topology.Exchange) *ExchangeStats {
	b.exchangeStats.Lock()
	defer b.exchangeStats.Unlock()
	if x.Runtime == nil {
		x.Runtime = new(ExchangeStats)
	}
	return x.Runtime.(*ExchangeStats)
}

// ExchangeStats returns the counters of an exchange. REQUIRES: called within Read.
func (b *Broker) ExchangeStats(x *topology.Exchange) *ExchangeStats { return b.statsOf(x) }

// ExchangeInfo is an exchange at one moment. The caller may keep it.
type ExchangeInfo struct {
	topology.ExchangeDecl
	// Policy and OperatorPolicy are those in force, or nil.
	Policy, OperatorPolicy *topology.Policy
	Bindings               int // number of bindings from it
	Stats                  *ExchangeStats
	waiting                *partition.Queue // see Broker.Delayed; nil: it delays no messages
}

// DescribeExchange copies an exchange out of the topology. REQUIRES: called within Read.
func (b *Broker) DescribeExchange(x *topology.Exchange) ExchangeInfo {
	d := ExchangeInfo{x.ExchangeDecl, x.Policy, x.OperatorPolicy, x.BindingsFromCount(), b.statsOf(x), nil}
	if x.Waiting != nil {
		d.waiting = runtimeOf(x.Waiting)
	}
	return d
}

// SortExchanges sorts exchanges by virtual host and name.
func SortExchanges(list []ExchangeInfo) []ExchangeInfo {
	slices.SortFunc(list, func(a, b ExchangeInfo) int { return cmp.Or(cmp.Compare(a.VHost, b.VHost), cmp.Compare(a.Name, b.Name)) })
	return list
}

// passage counts what a connection has published to one exchange since it last updated the shared counters. Otherwise
// publishers to the same exchange would share a cache line for each message.
type passage struct {
	to      *ExchangeStats
	in, out uint64
	bytes   uint64
	sizes   [len(SizeBounds) + 1]uint32
}

// passed counts a message of this size that the exchange sent to so many queues.
func (c *Connection) passed(x *ExchangeStats, queues, size int) {
	p := &c.passing
	if p.to != x {
		c.countPassed()
		p.to = x
	}
	p.in++
	p.out += uint64(queues)
	p.bytes += uint64(size)
	p.sizes[sizeClass(size)]++
	if queues == 0 {
		c.countPassed() // no operation follows that would do it
	}
}

// countPassed adds the counts to the shared counters.
func (c *Connection) countPassed() {
	p, t := &c.passing, c.traffic
	if p.in == 0 {
		return
	}
	p.to.In.Add(p.in)
	p.to.Out.Add(p.out)
	t.Published.Add(p.in)
	t.Routed.Add(p.out)
	t.Sizes.Bytes.Add(p.bytes)
	for i, n := range p.sizes {
		if n > 0 {
			t.Sizes.Counts[i].Add(uint64(n))
			p.sizes[i] = 0
		}
	}
	p.in, p.out, p.bytes = 0, 0, 0
}

// Unroutable counts, by exchange, messages without a queue in a transaction: how many are dropped and how many
// returned if it is committed.
type Unroutable map[*ExchangeStats]*[2]uint64

// NoteUnroutable notes the message for which Route has just found no queue.
func (c *Connection) NoteUnroutable(u *Unroutable, returned bool) {
	if *u == nil {
		*u = Unroutable{}
	}
	n := (*u)[c.passing.to]
	if n == nil {
		n = new([2]uint64)
		(*u)[c.passing.to] = n
	}
	if returned {
		n[1]++
	} else {
		n[0]++
	}
}

// CountNoted counts what was noted.
func (c *Connection) CountNoted(u Unroutable) {
	dropped, returned := uint64(0), uint64(0)
	for x, n := range u {
		x.Dropped.Add(n[0])
		x.Returned.Add(n[1])
		dropped, returned = dropped+n[0], returned+n[1]
	}
	c.b.unroutable(c.traffic, dropped)
	c.traffic.UnroutableReturned.Add(returned)
}

// CountUnroutable counts the message for which Route has just found no queue.
func (c *Connection) CountUnroutable(returned bool) {
	x := c.passing.to
	if returned {
		c.traffic.UnroutableReturned.Add(1)
		x.Returned.Add(1)
		return
	}
	x.Dropped.Add(1)
	c.b.unroutable(c.traffic, 1)
}
