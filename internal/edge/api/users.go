package api

import (
	"slices"

	"bartleby.mq/internal/core/declare"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/definitions"
)

func listOfUsers(users []*auth.User) list {
	return listOf(auth.SortUsers(users), func(u *auth.User) string { return u.Name }, showUser)
}

func (s *server) listUsers(*request) (any, error) {
	var users []*auth.User
	s.b.Read(func(_ *topology.State, u *auth.Users) { users = u.List() })
	return listOfUsers(users), nil
}

func (s *server) listUsersWithoutPermissions(*request) (any, error) {
	var users []*auth.User
	var permissions []auth.Permission
	s.b.Read(func(_ *topology.State, u *auth.Users) { users, permissions = u.List(), u.Permissions() })
	have := make(map[string]bool, len(permissions))
	for _, p := range permissions {
		have[p.User] = true
	}
	return listOfUsers(slices.DeleteFunc(users, func(u *auth.User) bool { return have[u.Name] })), nil
}

func showUser(u *auth.User) map[string]any {
	limits := map[string]any{}
	for l, n := range u.Limits() {
		limits[string(l)] = n
	}
	return map[string]any{
		"name": u.Name, "password_hash": u.Password.Hash, "hashing_algorithm": string(u.Password.Algorithm),
		"tags": tagList(u.Tags), "limits": limits,
	}
}

// tagList is never null in JSON.
func tagList(tags []auth.Tag) []string {
	if tags == nil {
		return []string{}
	}
	return tags
}

func (s *server) user(name string) (user *auth.User, err error) {
	s.b.Read(func(_ *topology.State, u *auth.Users) {
		var ok bool
		if user, ok = u.User(name); !ok {
			err = notFound
		}
	})
	return user, err
}

func (s *server) getUser(r *request) (any, error) {
	u, err := s.user(r.params["user"])
	if err != nil {
		return nil, err
	}
	return showUser(u), nil
}

// protectedTag keeps a user from being changed or deleted over HTTP. His permissions and limits can be changed, and definitions
// with him imported, as in RabbitMQ.
const protectedTag = "protected"

var protected = badRequest("Protected users cannot be modified via the HTTP API")

// isProtected says whether a request may not change a user. The owner of the data directory may, as with RabbitMQ's
// command line.
func (s *server) isProtected(r *request, name string) bool {
	u, err := s.user(name)
	return err == nil && !r.local && slices.Contains(u.Tags, protectedTag)
}

func (s *server) putUser(r *request) (any, error) {
	if _, ok := r.body["tags"]; !ok {
		return nil, badRequest("tags_not_present")
	}
	if s.isProtected(r, r.params["user"]) {
		return nil, protected
	}
	tags, err := definitions.Tags(r.body["tags"])
	if err != nil {
		return nil, err
	}
	hash, err := definitions.Password(s.b, r.body)
	if err != nil {
		return nil, err
	}
	return r.put(declare.PutUser{Name: r.params["user"], Password: hash, Tags: tags})
}

func (s *server) deleteUser(r *request) (any, error) {
	if s.isProtected(r, r.params["user"]) {
		return nil, protected
	}
	return r.drop(declare.DeleteUser{Name: r.params["user"]})
}

func (s *server) deleteUsers(r *request) (any, error) {
	if err := missingKeys(r.body, "users"); err != nil {
		return nil, err
	}
	names, ok := r.body["users"].([]any)
	if !ok {
		return nil, badRequest("users must be a list of names")
	}
	for _, n := range names { // all, before the first is deleted
		if _, ok := n.(string); !ok {
			return nil, badRequest("not_string", n)
		}
	}
	for _, n := range names {
		if s.isProtected(r, n.(string)) {
			continue // without a word, as RabbitMQ
		}
		if _, err := r.admin().Do(declare.DeleteUser{Name: n.(string)}); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func (s *server) whoami(r *request) (any, error) {
	return map[string]any{"name": r.user, "tags": tagList(r.tags), "is_internal_user": r.identity == nil || !r.identity.Elsewhere()}, nil
}

func (s *server) hashPassword(r *request) (any, error) {
	hash, err := s.b.HashPassword(r.params["password"])
	if err != nil {
		return nil, err
	}
	return map[string]any{"ok": hash.Hash}, nil
}
