package auth

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/wire/erlterm"
)

// Tag is a role of a user in the management API; any other text is allowed too (BR-3.10).
type Tag = string

// The tags with a meaning.
const (
	Administrator Tag = "administrator"
	Monitoring    Tag = "monitoring"
	PolicyMaker   Tag = "policymaker"
	Management    Tag = "management"
	Impersonator  Tag = "impersonator" // may publish with another's user-id (BR-8.13)
	Reveal        Tag = "reveal"       // may see what the masks of the Dead Letter Office hide: ours
)

// Limit names a limit of a user (BR-3.7).
type Limit string

// The limits.
const (
	MaxConnections Limit = "max-connections"
	MaxChannels    Limit = "max-channels"
)

// User is an account. It never changes; setting it again makes a new one.
type User struct {
	Name     string
	Password PasswordHash
	Tags     []Tag

	limits  map[Limit]int64
	account *account
}

// account is the identity of an account from its creation to its deletion.
type account struct{ _ byte } // with a size, so that no two have the same address

// Same says whether two Users are the same account at different times. An account that was made after the other was
// deleted is a different one, even with the same name.
func (u *User) Same(other *User) bool { return u.account == other.account }

// HasTag says whether the user has a tag.
func (u *User) HasTag(t Tag) bool { return slices.Contains(u.Tags, t) }

// MayManage says whether the user may use the management API at all (BR-15.3).
func (u *User) MayManage() bool { return MayManage(u.Tags) }

// MayManage says whether tags allow the use of the management API (BR-15.3).
func MayManage(tags []Tag) bool {
	return slices.ContainsFunc(tags, func(t Tag) bool {
		return t == Administrator || t == Monitoring || t == PolicyMaker || t == Management
	})
}

// Limit returns a limit that is in force; a negative one means no limit (BR-3.7).
func (u *User) Limit(l Limit) (n int64, ok bool) {
	n, ok = u.limits[l]
	return n, ok && n >= 0
}

// Limits returns all limits as they were set, negative ones included.
func (u *User) Limits() map[Limit]int64 { return maps.Clone(u.limits) }

// CheckConnections refuses a further connection when this many are open (BR-3.7).
func (u *User) CheckConnections(open int64) error {
	if limit, ok := u.Limit(MaxConnections); ok && open >= limit {
		return topology.Refuse(topology.NotAllowed, "connection refused for user '%s': user connection limit (%d) is reached", u.Name, limit)
	}
	return nil
}

// CheckChannels refuses a further channel when this many are open (BR-3.7).
func (u *User) CheckChannels(open int64) error {
	if limit, ok := u.Limit(MaxChannels); ok && open >= limit {
		return topology.Refuse(topology.NotAllowed,
			"number of channels opened for user '%s' has reached the maximum allowed user limit of %d", u.Name, limit)
	}
	return nil
}

// ParseTags splits tags written as one text with commas, as old exports have them (BR-16.6).
func ParseTags(text string) []Tag {
	var tags []Tag
	for _, t := range strings.Split(text, ",") {
		if t = strings.TrimSpace(t); t != "" {
			tags = append(tags, t)
		}
	}
	return tags
}

// User finds a user.
func (u *Users) User(name string) (*User, bool) {
	user, ok := u.users[name]
	return user, ok
}

// List lists the users in no order, so that the lock is held for less time: see SortUsers.
func (u *Users) List() []*User {
	list := make([]*User, 0, len(u.users))
	for _, user := range u.users {
		list = append(list, user)
	}
	return list
}

// SortUsers sorts users by name. It needs no lock.
func SortUsers(list []*User) []*User {
	slices.SortFunc(list, func(a, b *User) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// PutUser creates a user, or replaces the password and the tags of an existing one; limits and permissions stay.
// An invalid name is Invalid, and so are tags that are too large.
func (u *Users) PutUser(name string, password PasswordHash, tags []Tag) (created bool, err error) {
	old, exists := u.users[name]
	if err := message.CheckName("user", name); err != nil && !exists {
		return false, topology.Refuse(topology.Invalid, "%s", err)
	}
	if err := topology.CheckMetadataSize(fmt.Sprintf("tags of user '%s'", name), "", tags); err != nil {
		return false, err
	}
	user := &User{Name: name, Password: password, Tags: slices.Clone(tags), account: new(account)}
	if exists {
		user.limits, user.account = old.limits, old.account
	}
	u.put(user)
	return !exists, nil
}

func (u *Users) put(user *User) {
	u.set(user)
	u.revision++
	u.logUser(user)
}

// set puts a user in place and keeps count.
func (u *Users) set(user *User) {
	u.unset(user.Name)
	u.users[user.Name] = user
	if user.Password.Algorithm == Argon2id {
		u.argon++
	}
}

func (u *Users) unset(name string) {
	if old, ok := u.users[name]; ok && old.Password.Algorithm == Argon2id {
		u.argon--
	}
	delete(u.users, name)
}

// DeleteUser deletes a user and its permissions and says whether there was one. The caller closes the user's connections
// with the text of UserDeleted (BR-2.8).
func (u *Users) DeleteUser(name string) bool {
	if _, ok := u.users[name]; !ok {
		return false
	}
	u.unset(name)
	u.log.Delete(userKey(name))
	u.dropGrants(func(g grantName) bool { return g.user == name })
	u.revision++
	return true
}

// UserDeleted is the text with which a deleted user's connections are closed (BR-2.8).
func UserDeleted(name string) string { return fmt.Sprintf("user '%s' is deleted", name) }

// DeleteVHost removes all permissions in a virtual host that is being deleted.
func (u *Users) DeleteVHost(vhost message.VHost) {
	u.dropGrants(func(g grantName) bool { return g.vhost == vhost })
	u.revision++
}

// dropGrants removes the chosen permissions and topic permissions.
func (u *Users) dropGrants(chosen func(grantName) bool) {
	for _, g := range grantsThat(u.permissions, chosen) {
		delete(u.permissions, g)
		u.log.Delete(permissionKey(g))
	}
	for _, g := range grantsThat(u.topics, chosen) {
		for _, x := range slices.Sorted(maps.Keys(u.topics[g])) {
			u.log.Delete(topicPermissionKey(g, x))
		}
		delete(u.topics, g)
	}
}

// SetLimits sets limits of a user to JSON values, which must be integers: all of them, or none if one is refused.
func (u *Users) SetLimits(name string, limits map[Limit]any) error {
	numbers := map[Limit]int64{}
	for _, l := range slices.Sorted(maps.Keys(limits)) {
		value := limits[l]
		switch l {
		case MaxConnections, MaxChannels:
		default:
			return topology.Refuse(topology.Invalid, "Validation failed\n\nUnrecognised terms %s in user-limits\n",
				erlterm.Format([]erlterm.Pair{{Key: string(l), Value: value}}))
		}
		n, ok := value.(int64)
		if !ok {
			return topology.Refuse(topology.Invalid, "Validation failed\n\n%s should be a number, actually was %s\n", l, erlterm.Format(value))
		}
		numbers[l] = n
	}
	return u.changeLimits(name, func(limits map[Limit]int64) { maps.Copy(limits, numbers) })
}

// ClearLimit removes a user's limit. It is not an error if the limit was not set.
func (u *Users) ClearLimit(name string, l Limit) error {
	return u.changeLimits(name, func(limits map[Limit]int64) { delete(limits, l) })
}

func (u *Users) changeLimits(name string, change func(map[Limit]int64)) error {
	old, ok := u.users[name]
	if !ok {
		return topology.Refuse(topology.NotFound, "no user '%s'", name)
	}
	user := *old
	user.limits = map[Limit]int64{}
	maps.Copy(user.limits, old.limits)
	change(user.limits)
	u.put(&user)
	return nil
}
