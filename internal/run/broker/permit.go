package broker

import (
	"errors"
	"net/netip"
	"time"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/admission"
)

// permit checks the user's permissions; it is a topology.Permit. REQUIRES: topo is held
// when it is called.
func (c *Connection) permit(a topology.Access, r topology.Resource) error {
	if c.operator {
		return nil
	}
	if c.elsewhere != nil && c.id.stands(c.b.users) {
		return c.elsewhere.check(a, r)
	}
	if err := c.resolve(); err != nil {
		return refusedAccess(a, r, c.User)
	}
	return c.grants.Check(a, r)
}

// anyPermission is what passive declarations need (BR-3.3). REQUIRES: topo is held.
func (c *Connection) anyPermission(r topology.Resource) error {
	switch {
	case c.operator:
		return nil
	case c.elsewhere != nil && c.id.stands(c.b.users):
		var err error
		for _, a := range []topology.Access{topology.Write, topology.Read, topology.Configure} {
			if err = c.elsewhere.check(a, r); err == nil || errors.Is(err, errUndecided) {
				return err
			}
		}
		return err
	}
	if err := c.resolve(); err != nil {
		return c.permit(topology.Configure, r)
	}
	return c.grants.CheckAny(r)
}

// noAccess is the refusal of a whole virtual host (BR-3.1).
func noAccess(vhost message.VHost, user string) error {
	return topology.Refuse(topology.NotAllowed, "access to vhost '%s' refused for user '%s'", vhost, user)
}

func refusedAccess(a topology.Access, r topology.Resource, user string) error {
	return topology.RefuseAccess(a, r, user, "")
}

// answersHold is how long a connection goes by what a backend has answered (BR-3.6).
const answersHold = 5 * time.Second

// maxAnswers is how many answers a connection remembers between two operations.
const maxAnswers = 1000

// elsewhere are the permissions of a client whom a backend knows. A backend cannot be
// asked while the topology is locked: check answers from memory, or notes what it would
// have to know and fails; decided then asks and tries again.
type elsewhere struct {
	by     admission.Backend
	who    admission.Question // as far as all questions are the same
	known  map[admission.Question]answer
	wanted []admission.Question // by the operation at hand, in the order in which it needs them
	oldest time.Time            // when the first of known ceases to hold; zero: none is
}

// answer is what a backend said; nil is yes.
type answer struct {
	err   error
	until time.Time
}

// errUndecided means that a permission must be asked for first. It is an error of no
// operation: nothing has happened yet.
var errUndecided = errors.New("a permission is not known yet")

func (e *elsewhere) check(a topology.Access, r topology.Resource) error {
	q := e.who
	q.Kind, q.Access, q.Resource = admission.Resource, a, r
	if r.Kind == topology.TopicResource {
		q.Kind = admission.Topic
	}
	if known, ok := e.known[q]; ok {
		return known.err
	}
	e.wanted = append(e.wanted, q)
	return errUndecided
}

// forget drops answers that hold no more, and says whether there were any.
func (e *elsewhere) forget(now time.Time) bool {
	if len(e.known) < maxAnswers && (e.oldest.IsZero() || now.Before(e.oldest)) {
		return false
	}
	clear(e.known)
	e.oldest = time.Time{}
	return true
}

// decided runs an operation that asks for permissions, again and again until all that
// it needs are known. REQUIRES: nothing is locked.
func (c *Connection) decided(op func() error) error {
	if c.elsewhere == nil {
		return op()
	}
	c.forgetAnswers()
	for {
		c.elsewhere.wanted = nil
		err := op()
		if !errors.Is(err, errUndecided) {
			return err
		}
		c.elsewhere.ask(c.b)
	}
}

// forgetAnswers drops what rests on answers that hold no more.
func (c *Connection) forgetAnswers() {
	if c.elsewhere != nil && c.elsewhere.forget(time.Now()) {
		c.cache.forget()
	}
}

// ask asks for what was wanted, up to the first no.
func (e *elsewhere) ask(b *Broker) {
	for _, q := range e.wanted {
		if !e.allowed(b, q) {
			return
		}
	}
}

// allowed asks one question. An answer that did not come is a no for this operation.
func (e *elsewhere) allowed(b *Broker, q admission.Question) bool {
	err := e.by.Allow(b.life, q)
	until := time.Now().Add(answersHold)
	if err != nil {
		var refused *admission.Refusal
		if !errors.As(err, &refused) {
			b.Logger.Error("permission not decided", "backend", e.by.Name(), "user", q.User, "error", err)
			until = time.Now()
		}
		err = topology.RefuseAccess(q.Access, q.Resource, q.User, because(e.by, err))
	}
	if e.oldest.IsZero() || until.Before(e.oldest) {
		e.oldest = until
	}
	e.known[q] = answer{err, until}
	return err == nil
}

// because is what RabbitMQ adds to a refusal that a backend gave.
func because(by admission.Backend, err error) string {
	var refused *admission.Refusal
	switch {
	case !errors.As(err, &refused):
		return ", backend " + by.Name() + " returned an error"
	case refused.Disclosed && refused.Reason != "":
		return " by backend " + by.Name() + ": " + refused.Reason
	}
	return ""
}

// MayEnter says whether a client may enter a virtual host, which must be there. What
// the node's own accounts know of it is nil or a refusal with BR-3.1's text too.
func (b *Broker) MayEnter(id *Identity, vhost message.VHost, peer netip.Addr) error {
	b.topo.RLock()
	stands := id.stands(b.users)
	var err error
	if id.authz == nil && stands {
		_, err = b.users.Grants(id.Name, vhost, "")
	}
	b.topo.RUnlock()
	switch {
	case !stands:
		return noAccess(vhost, id.Name)
	case id.authz == nil:
		return err
	}
	q := admission.Question{Kind: admission.VHost, User: id.Name, Tags: tagText(id.Tags), VHost: vhost, Peer: peer.Unmap()}
	if err = id.authz.Allow(b.life, q); err == nil {
		return nil
	}
	var refused *admission.Refusal
	if !errors.As(err, &refused) {
		b.Logger.Error("permission not decided", "backend", id.authz.Name(), "user", id.Name, "error", err)
	}
	return topology.Refuse(topology.NotAllowed, "access to vhost '%s' refused for user '%s'%s", vhost, id.Name, because(id.authz, err))
}
