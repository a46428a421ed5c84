package broker

import (
	"net/netip"
	"slices"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
)

// Visibility is which virtual hosts somebody who administers may look into: an administrator
// into all, others where they have permissions (BR-15.3). It never changes.
type Visibility struct {
	user string
	all  bool
	// enters are those that a client whom a backend knows may enter; else nil.
	enters map[message.VHost]bool
}

// AllVisible is that of whoever runs the node.
var AllVisible = Visibility{all: true}

// VisibilityOf finds out what a client sees. A backend that knows it is asked of every
// virtual host: later, with the topology locked, nobody can be asked.
func (b *Broker) VisibilityOf(id *Identity, peer netip.Addr) Visibility {
	s := Visibility{user: id.Name, all: slices.Contains(id.Tags, auth.Administrator)}
	if s.all || !id.Elsewhere() {
		return s
	}
	var names []message.VHost
	b.Read(func(state *topology.State, _ *auth.Users) {
		for _, v := range state.VHosts() {
			names = append(names, v.Name)
		}
	})
	s.enters = map[message.VHost]bool{}
	for _, name := range names {
		s.enters[name] = b.MayEnter(id, name, peer) == nil
	}
	return s
}

// Sees says whether a virtual host is to be seen. REQUIRES: called within Read.
func (s Visibility) Sees(u *auth.Users, v message.VHost) bool {
	if s.all {
		return true
	}
	if s.enters != nil {
		return s.enters[v]
	}
	_, ok := u.Permission(v, s.user)
	return ok
}
