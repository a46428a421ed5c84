package broker

import (
	"net/netip"
	"slices"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
)

// Visibility says which virtual hosts a user of the management API may see: an administrator all, others those where
// they have permissions (BR-15.3). It never changes.
type Visibility struct {
	user string
	all  bool
	// enters are the virtual hosts that a client known to a backend may enter; nil for other clients.
	enters map[message.VHost]bool
}

// AllVisible is the visibility of the operator of the node.
var AllVisible = Visibility{all: true}

// VisibilityOf returns what a client sees. If a backend knows the client, it is asked about every virtual host now,
// because it cannot be asked later with the topology locked.
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

// Sees says whether a virtual host is visible. REQUIRES: called within Read.
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
