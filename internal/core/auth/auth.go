// Package auth is the machine of accounts: users with their password hashes, tags and limits, their permissions in
// virtual hosts, and the SASL mechanisms for logins.
//
// Users owns the accounts. The package broker calls it and holds a read-write lock around it: methods that change it need
// the lock for writing, all others only read. Users records durable changes in a log for the broker to store. The package
// has no source of randomness (callers pass salts), never keeps a password, and knows virtual hosts and exchanges only by
// name: topology knows whether they exist.
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

// grantName names the user and the virtual host of permissions.
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

// Revision is raised by every change. Grants of an earlier revision may be out of date (BR-3.6).
func (u *Users) Revision() uint64 { return u.revision }

// TakeChanges returns the durable changes since the last call, for the store to keep.
func (u *Users) TakeChanges() []mutation.Change { return u.log.Take() }

// grantsThat lists the chosen keys of a map of grants, sorted, so that no effect depends on the order of a map.
func grantsThat[V any](m map[grantName]V, chosen func(grantName) bool) (list []grantName) {
	for g := range m {
		if chosen(g) {
			list = append(list, g)
		}
	}
	slices.SortFunc(list, grantName.compare)
	return list
}
