package auth

import (
	"cmp"
	"slices"

	"bartleby.mq/internal/core/expression"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
)

// Permission is the permission of a user in a virtual host: an expression for the names of each access (BR-3.2).
type Permission struct {
	VHost     message.VHost
	User      string
	Configure string
	Write     string
	Read      string

	patterns [3]*expression.Name // by topology.Access; nil denies
}

// compile compiles an expression as RabbitMQ does: it may match anywhere in the name; an empty one matches no name; a broken
// one denies everything (BR-3.2). Whoever sets it has called checkSizes.
func compile(text string) *expression.Name {
	if text == "" {
		text = "^$"
	}
	re, err := expression.CompileStored(text)
	if err != nil {
		return nil
	}
	return re
}

// checkSizes refuses expressions that are too large. It is not called for stored ones.
func checkSizes(texts ...string) error {
	for _, text := range texts {
		if err := expression.CheckSize(text); err != nil {
			return topology.Refuse(topology.Invalid, "%s", err)
		}
	}
	return nil
}

// PutPermission sets what a user may do in a virtual host. An unknown user is Invalid (BR-15.9), and so is
// an expression that is too large.
// REQUIRES: the virtual host exists.
func (u *Users) PutPermission(p Permission) (created bool, err error) {
	if err := u.checkUser(p.User); err != nil {
		return false, err
	}
	if err := checkSizes(p.Configure, p.Write, p.Read); err != nil {
		return false, err
	}
	g := grantName{p.VHost, p.User}
	_, existed := u.permissions[g]
	u.addPermission(p)
	u.revision++
	u.log.Put(permissionKey(g), permissionRecord{recordVersion, p.VHost, p.User, p.Configure, p.Write, p.Read})
	return !existed, nil
}

func (u *Users) addPermission(p Permission) {
	p.patterns = [...]*expression.Name{
		topology.Configure: compile(p.Configure), topology.Write: compile(p.Write), topology.Read: compile(p.Read),
	}
	u.permissions[grantName{p.VHost, p.User}] = &p
}

func (u *Users) checkUser(name string) error {
	if _, ok := u.users[name]; !ok {
		return topology.Refuse(topology.Invalid, "vhost_or_user_not_found")
	}
	return nil
}

// DeletePermission deletes a user's permissions in a virtual host and says whether there were any.
func (u *Users) DeletePermission(vhost message.VHost, user string) bool {
	g := grantName{vhost, user}
	if _, ok := u.permissions[g]; !ok {
		return false
	}
	delete(u.permissions, g)
	u.revision++
	u.log.Delete(permissionKey(g))
	return true
}

// Permission finds the permissions of a user in a virtual host.
func (u *Users) Permission(vhost message.VHost, user string) (Permission, bool) {
	p, ok := u.permissions[grantName{vhost, user}]
	if !ok {
		return Permission{}, false
	}
	return *p, true
}

// Permissions lists all permissions in no order: see SortPermissions.
func (u *Users) Permissions() []Permission {
	list := make([]Permission, 0, len(u.permissions))
	for _, p := range u.permissions {
		list = append(list, *p)
	}
	return list
}

// SortPermissions sorts permissions by virtual host and user. It needs no lock.
func SortPermissions(list []Permission) []Permission {
	slices.SortFunc(list, func(a, b Permission) int { return cmp.Or(cmp.Compare(a.VHost, b.VHost), cmp.Compare(a.User, b.User)) })
	return list
}
