package broker

import (
	"errors"
	"net/netip"
	"time"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/admission"
)

// permit checks the user's permissions; it is a topology.Permit. REQUIRES: topo is held.
func (c *Connection) permit(a topology.Access, r topology.Resource) error {
	if c.operator {
		return nil
	}
	if c.b.hasEvents(a, r) && !c.mayMonitor() {
		return refusedAccess(a, r, c.User)
	}
	if c.elsewhere != nil && c.id.stands(c.b.users) {
		return c.elsewhere.check(a, r)
	}
	if err := c.resolve(); err != nil {
		return refusedAccess(a, r, c.User)
	}
	return c.grants.Check(a, r)
}

// anyPermission checks what passive declarations need (BR-3.3). REQUIRES: topo is held.
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

// answersHold is how long a connection uses a backend's answer (BR-3.6).
const answersHold = 5 * time.Second

// maxAnswers is how many answers a connection remembers between two operations.
const maxAnswers = 1000

// elsewhere has the permissions of a client that a backend knows. A backend cannot be asked while the topology is
// locked. So check answers from memory, or notes the question and fails; then decided asks and tries again.
type elsewhere struct {
	by     admission.Backend
	who    admission.Question // the common part of all questions
	known  map[admission.Question]answer
	wanted []admission.Question // asked by the present operation, in its order
	oldest time.Time            // when the first of known expires; zero: known is empty
}

// answer is a backend's answer; err is nil for yes.
type answer struct {
	err   error
	until time.Time
}

// errUndecided means that a backend must be asked first. No operation returns it to its caller: nothing has happened
// yet.
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

// forget drops expired answers, and says whether there were any.
func (e *elsewhere) forget(now time.Time) bool {
	if len(e.known) < maxAnswers && (e.oldest.IsZero() || now.Before(e.oldest)) {
		return false
	}
	clear(e.known)
	e.oldest = time.Time{}
	return true
}

// decided runs an operation that needs permissions until all of them are known. REQUIRES: nothing is locked.
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

// forgetAnswers drops expired answers and everything derived from them.
func (c *Connection) forgetAnswers() {
	if c.elsewhere != nil && c.elsewhere.forget(time.Now()) {
		c.cache.forget()
	}
}

// ask asks the noted questions, up to the first no.
func (e *elsewhere) ask(b *Broker) {
	for _, q := range e.wanted {
		if !e.allowed(b, q) {
			return
		}
	}
}

// allowed asks one question. A missing answer counts as no for this operation.
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

// because is what RabbitMQ adds to a backend's refusal.
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

// MayEnter says whether a client may enter an existing virtual host. For a client of the node's own accounts, the
// error may be a refusal with the text of BR-3.1.
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
