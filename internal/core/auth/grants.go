package auth

import (
	"bartleby.mq/internal/core/expression"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
)

// Grants are the permissions of one client: a user in a virtual host. They never change, so a connection may hold them
// without a lock. It gets new ones when Users.Revision has changed (BR-3.6). One goroutine at a time uses them.
type Grants struct {
	user       string
	vhost      message.VHost
	clientID   string
	permission *Permission
	topics     map[message.ExchangeName]*TopicPermission

	// The last expression with {client_id} and its compiled form for this client. A message may have any number of keys,
	// and all are checked with the topology locked.
	open     string
	compiled *expression.Name
}

// Grants resolves the permissions of a user in a virtual host. Without permissions the virtual host itself is refused
// (BR-3.1). clientID replaces {client_id} in topic permissions; "" if the protocol has none.
// REQUIRES: the virtual host exists.
func (u *Users) Grants(user string, vhost message.VHost, clientID string) (*Grants, error) {
	name := grantName{vhost, user}
	p, ok := u.permissions[name]
	if !ok {
		return nil, topology.Refuse(topology.NotAllowed, "access to vhost '%s' refused for user '%s'", vhost, user)
	}
	return &Grants{user: user, vhost: vhost, clientID: clientID, permission: p, topics: u.topics[name]}, nil
}

// defaultExchange is the name of the exchange "" in permissions (BR-3.3, DL-5.2).
const defaultExchange = "amq.default"

// Check checks an access of the client; it is a topology.Permit. The error has the text of BR-3.4 or BR-3.5.
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

// CheckAny allows a resource if the client has at least one access to it, as passive declarations need. The refusal
// mentions configure (BR-3.3).
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
