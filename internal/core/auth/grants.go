package auth

import (
	"regexp"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
)

// Grants are the permissions of one client: a user in a virtual host. What they say never changes, so a connection may hold
// them without a lock and get new ones when Users.Revision has moved (BR-3.6). One goroutine at a time asks them.
type Grants struct {
	user       string
	vhost      message.VHost
	clientID   string
	permission *Permission
	topics     map[message.ExchangeName]*TopicPermission

	// The expression with {client_id} that was asked last, and what it is for the client. A message may have any number
	// of keys, all of which are checked with the topology locked.
	open     string
	compiled *regexp.Regexp
}

// Grants resolves the permissions of a user in a virtual host. Without any the virtual host itself is refused (BR-3.1).
// clientID is what {client_id} stands for in topic permissions; "" if the protocol has none.
// REQUIRES: the virtual host exists.
func (u *Users) Grants(user string, vhost message.VHost, clientID string) (*Grants, error) {
	name := grantName{vhost, user}
	p, ok := u.permissions[name]
	if !ok {
		return nil, topology.Refuse(topology.NotAllowed, "access to vhost '%s' refused for user '%s'", vhost, user)
	}
	return &Grants{user: user, vhost: vhost, clientID: clientID, permission: p, topics: u.topics[name]}, nil
}

// defaultExchange is the name by which permissions speak of the exchange "" (BR-3.3, DL-5.2).
const defaultExchange = "amq.default"

// Check answers whether the client may; it is a topology.Permit. The error carries the text of BR-3.4 or BR-3.5.
func (g *Grants) Check(a topology.Access, r topology.Resource) error {
	if r.Kind == topology.TopicResource {
		return g.checkTopic(a, r)
	}
	if r.Kind == topology.ExchangeResource && r.Name == "" {
		r.Name = defaultExchange
	}
	if re := g.permission.patterns[a]; re != nil && re.MatchString(r.Name) {
		return nil
	}
	return refused(a, r, g.user)
}

// CheckAny allows what at least one access allows; passive declarations need no more. The refusal speaks of configure
// (BR-3.3).
func (g *Grants) CheckAny(r topology.Resource) error {
	for _, a := range []topology.Access{topology.Write, topology.Read} {
		if g.Check(a, r) == nil {
			return nil
		}
	}
	return g.Check(topology.Configure, r)
}

func refused(a topology.Access, r topology.Resource, user string) error {
	return topology.RefuseAccess(a, r, user, "")
}
