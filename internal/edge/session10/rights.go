package session10

import (
	"errors"
	"maps"
	"net/netip"
	"slices"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp10"
)

// reviewRights ends the sessions that have a link without the right to it, and the connection if its user has lost the virtual host. A
// client asks for that by a token on the session by, as in RabbitMQ, whatever the token says. What the session by has lost is returned.
func (c *conn) reviewRights(by *session) error {
	host, _ := netip.ParseAddr(c.peer.PeerHost) // the zero value if there is none
	if err := c.broker.MayEnter(c.login.Identity, c.link.VHost, host); err != nil {
		return fail(amqp10.ConditionUnauthorizedAccess, "access to vhost %s failed for new credential: %s", c.link.VHost, err)
	}
	var lost error
	for _, s := range c.sortedSessions() {
		err := s.checkRights()
		switch {
		case err == nil:
		case s == by:
			lost = err
		default:
			c.flushOps()
			c.confirm()
			c.endSession(s, asFailure(err))
		}
	}
	return lost
}

// checkRights is what the client lacks for one of the session's links. Rights to topics are left to the next message.
func (s *session) checkRights() error {
	for _, handle := range slices.Sorted(maps.Keys(s.publishers)) {
		if p := s.publishers[handle]; !p.to.anonymous {
			if err := s.c.link.MayPublish(&broker.Publication{Exchange: []byte(p.to.exchange), Key: []byte(p.to.key)}); isDenied(err) {
				return err
			}
		}
	}
	s.mu.Lock()
	consumers := maps.Clone(s.consumers)
	s.mu.Unlock()
	for _, handle := range slices.Sorted(maps.Keys(consumers)) {
		if _, err := s.c.link.Find(message.QueueName(consumers[handle].queueName()), topology.Read); isDenied(err) {
			return err
		}
	}
	return nil
}

// isDenied says whether an error is a lacking permission: whatever else there is against a link, it was attached.
func isDenied(err error) bool {
	var e *topology.Error
	return errors.As(err, &e) && e.Fault == topology.Denied
}
