package broker

import (
	"cmp"
	"errors"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/routing"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/partition"
)

// FindExchange says whether there is an exchange of this name, and refuses if the client may not publish to it. Keys are not asked about.
func (c *Connection) FindExchange(name message.ExchangeName) (found bool, err error) {
	err = c.decided(func() error {
		var x *topology.Exchange
		ticket := c.b.glance(func() { _, x, err = c.seeWritable(name) })
		if found = x != nil; found || errors.Is(err, errUndecided) {
			return err
		}
		return cmp.Or(c.b.AwaitStored(ticket), err)
	})
	return found, err
}

// Route is where a message goes.
type Route struct {
	Queues     []*partition.Queue
	NoExchange bool   // there is no such exchange
	ByKeys     bool   // another message with the same keys goes to the same queues
	Ticket     uint64 // an answer that depends on the route leaves after AwaitStored
}

// RouteAgain returns the queues that a message which is there already would go to if the client published it to this exchange. An error
// has a ticket too.
func (c *Connection) RouteAgain(exchange message.ExchangeName, m *routing.Message) (r Route, err error) {
	err = c.decided(func() error {
		r.Ticket = c.b.glance(func() { err = c.routeAgain(exchange, m, &r) })
		return err
	})
	return r, err
}

// routeAgain does the work of RouteAgain. REQUIRES: topo is held for reading, and nothing else is held. It may let others in.
func (c *Connection) routeAgain(exchange message.ExchangeName, m *routing.Message, r *Route) error {
	v, x, err := c.seeWritable(exchange)
	if r.NoExchange = err == nil && x == nil; err != nil || x == nil {
		return err
	}
	paused, err := c.permitKeys(x, m.Key, m.More)
	switch {
	case err != nil:
		return err
	case paused && !c.still(v, x):
		return c.routeAgain(exchange, m, r)
	}
	m.Pause = c.b.onPause
	for _, q := range c.router.Route(v, x, m, nil) {
		r.Queues = append(r.Queues, runtimeOf(q))
	}
	r.ByKeys = c.router.ByKeys && c.router.Delaying == 0 && c.router.BadDelay == nil
	return nil
}

// seeWritable returns an exchange that the client may publish to, nil if there is none. REQUIRES: topo is held.
func (c *Connection) seeWritable(name message.ExchangeName) (*topology.VHost, *topology.Exchange, error) {
	if err := c.permit(topology.Write, topology.Resource{VHost: c.VHost, Kind: topology.ExchangeResource, Name: string(name)}); err != nil {
		return nil, nil, err
	}
	v, ok := c.b.state.VHost(c.VHost)
	if !ok {
		return nil, nil, topology.Refuse(topology.NotFound, "vhost '%s' is gone", c.VHost)
	}
	x, ok := v.Exchange(name)
	switch {
	case !ok:
		return v, nil, nil
	case x.Internal:
		return nil, nil, internalExchange(x)
	}
	return v, x, nil
}
