package broker

import (
	"errors"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/partition"
)

// SettleExchange is where a consumer publishes why it is about to reject a delivery. It is in every virtual host, in no list,
// and no queue gets what is published there: a session keeps it until the rejection. An exchange of that name that was
// declared before there was such a one is what it was.
const SettleExchange message.ExchangeName = "bartleby.settle"

// Settles says whether the client of a publish to this exchange, which was refused, means the SettleExchange.
func (c *Connection) Settles(exchange []byte) (does bool) {
	if !c.b.settles || string(exchange) != string(SettleExchange) {
		return false
	}
	c.b.glance(func() { does = !c.hasExchange(SettleExchange) })
	return does
}

// hasExchange says whether an exchange is declared. REQUIRES: topo is held.
func (c *Connection) hasExchange(name message.ExchangeName) bool {
	v, ok := c.b.state.VHost(c.VHost)
	if ok {
		_, ok = v.Exchange(name)
	}
	return ok
}

// isSettle says whether the name is that of the SettleExchange, and nobody has declared one. REQUIRES: topo is held.
func (c *Connection) isSettle(name message.ExchangeName) bool {
	return c.b.settles && topology.CleanName(name) == SettleExchange && !c.hasExchange(SettleExchange)
}

// bindsSettle says whether a binding is from or to the SettleExchange. REQUIRES: topo is held.
func (c *Connection) bindsSettle(d *topology.BindingDecl) bool {
	return c.isSettle(d.Source) || d.DestinationKind == topology.ExchangeResource && c.isSettle(message.ExchangeName(d.Destination))
}

// errSettle refuses what would make the SettleExchange another one.
func (c *Connection) errSettle() error {
	return topology.Refuse(topology.AccessRefused, "exchange '%s' in vhost '%s' is the broker's own: nobody can declare, delete or bind it", SettleExchange, c.VHost)
}

// MayDeadLetterTo says whether the client may write to the dead-letter exchange of a queue with the given key. Without such an
// exchange there is nothing to write to.
func (c *Connection) MayDeadLetterTo(q *partition.Queue, key string) error {
	return c.decided(func() (err error) {
		c.b.glance(func() { err = c.deadLetterTo(q, key) })
		return err
	})
}

// deadLetterTo does the work of MayDeadLetterTo. REQUIRES: topo is held.
func (c *Connection) deadLetterTo(q *partition.Queue, key string) error {
	v, ok := c.b.state.VHost(c.VHost)
	if !ok {
		return nil
	}
	decl, ok := v.Queue(message.QueueName(q.Name))
	if !ok || runtimeOf(decl) != q || decl.Effective.DeadLetterExchange == nil {
		return nil
	}
	name := message.ExchangeName(*decl.Effective.DeadLetterExchange)
	err := c.permit(topology.Write, topology.Resource{VHost: c.VHost, Kind: topology.ExchangeResource, Name: string(name)})
	if err != nil && !errors.Is(err, errUndecided) {
		return err
	}
	x, ok := v.Exchange(name)
	if !ok {
		return err
	}
	if _, of := c.permitKeys(x, []byte(key), nil); of != nil && (err == nil || !errors.Is(of, errUndecided)) {
		return of
	}
	return err
}
