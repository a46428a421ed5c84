// Package auth is the machine of accounts: users with their password hashes, tags and limits, what each may do in which
// virtual host, and the SASL mechanisms by which a client says who it is.
//
// Users owns the accounts. Whoever runs it (the broker package) holds a read-write lock around it; methods that change it
// need the lock for writing, everything else only reads. Durable changes are recorded in a log for the caller to store.
// The package has no source of randomness (salts are handed in), keeps no passwords, and knows virtual hosts and exchanges
// only by name: whether they exist is topology's to say.
package auth

import (
	"cmp"
	"slices"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/mutation"
)

// Users is every account of a broker.
type Users struct {
	users       map[string]*User
	permissions map[grantName]*Permission
	topics      map[grantName]map[message.ExchangeName]*TopicPermission
	loopback    map[string]bool
	argon       int // users whose password is hashed by Argon2id
	revision    uint64
	log         mutation.Log
}

// grantName is whose permissions and where.
type grantName struct {
	vhost message.VHost
	user  string
}

func (a grantName) compare(b grantName) int {
	return cmp.Or(cmp.Compare(a.vhost, b.vhost), cmp.Compare(a.user, b.user))
}

// New returns Users without accounts. The named users may log in from loopback addresses only (BR-2.6).
func New(loopbackOnly ...string) *Users {
	u := &Users{
		users:       map[string]*User{},
		permissions: map[grantName]*Permission{},
		topics:      map[grantName]map[message.ExchangeName]*TopicPermission{},
		loopback:    map[string]bool{},
	}
	for _, name := range loopbackOnly {
		u.loopback[name] = true
	}
	return u
}

// Revision is raised by every change; what was resolved under another one may be out of date (BR-3.6).
func (u *Users) Revision() uint64 { return u.revision }

// TakeChanges returns the durable changes since the last call, for the store to keep.
func (u *Users) TakeChanges() []mutation.Change { return u.log.Take() }

// grantsThat lists those keys of a map of grants that are chosen, sorted, so that no map order reaches an effect.
func grantsThat[V any](m map[grantName]V, chosen func(grantName) bool) (list []grantName) {
	for g := range m {
		if chosen(g) {
			list = append(list, g)
		}
	}
	slices.SortFunc(list, grantName.compare)
	return list
}
