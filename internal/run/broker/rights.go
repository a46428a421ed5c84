package broker

import (
	"slices"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
)

// IsOperator says whether the connection is the node's operator's, who needs no account.
func (c *Connection) IsOperator() bool { return c.operator }

// MayRead says whether the client may read a queue, whether or not there is one. The answer of a backend is waited for.
func (c *Connection) MayRead(name message.QueueName) bool {
	err := c.decided(func() (err error) {
		c.b.glance(func() {
			err = c.permit(topology.Read, topology.Resource{VHost: c.VHost, Kind: topology.QueueResource, Name: string(name)})
		})
		return err
	})
	return err == nil
}

// Unreadable returns queues of the virtual host that the client may not read, at most most of them; more says that there may be others. A backend is
// not asked about many queues.
func (c *Connection) Unreadable(most int) (names []message.QueueName, more bool) {
	if c.Administers() {
		return nil, false
	}
	var all []message.QueueName
	there := false
	c.b.glance(func() {
		v, ok := c.b.state.VHost(c.VHost)
		if there = ok; !ok || c.elsewhere != nil && v.QueueCount() > mostAsked {
			there = false
			return
		}
		v.EachQueue(func(q *topology.Queue) { all = append(all, q.Name) })
	})
	for _, name := range all {
		if c.MayRead(name) {
			continue
		}
		if len(names) == most {
			return names, true
		}
		names = append(names, name)
	}
	return names, !there
}

// mostAsked is about how many queues a backend is asked at once.
const mostAsked = 20

// Elsewhere says whether a backend decides what the client may do: then it takes a while to ask.
func (c *Connection) Elsewhere() bool { return c.elsewhere != nil }

// Administers says whether the client is an administrator or the operator of the node.
func (c *Connection) Administers() bool {
	if c.operator {
		return true
	}
	c.b.topo.RLock()
	defer c.b.topo.RUnlock()
	u, ok := c.account()
	if c.elsewhere != nil {
		return ok && slices.Contains(c.id.Tags, auth.Administrator)
	}
	return ok && u.HasTag(auth.Administrator)
}
