package api

import (
	"slices"

	"bartleby.mq/internal/core/declare"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
)

func (s *server) permissions(chosen func(auth.Permission) bool) list {
	var all []auth.Permission
	s.b.Read(func(_ *topology.State, u *auth.Users) { all = u.Permissions() })
	found := slices.DeleteFunc(all, func(p auth.Permission) bool { return !chosen(p) })
	return listOf(auth.SortPermissions(found), func(p auth.Permission) string { return p.User }, showPermission)
}

func showPermission(p auth.Permission) map[string]any {
	return map[string]any{"user": p.User, "vhost": string(p.VHost), "configure": p.Configure, "write": p.Write, "read": p.Read}
}

func (s *server) listPermissions(*request) (any, error) {
	return s.permissions(func(auth.Permission) bool { return true }), nil
}

func (s *server) listVHostPermissions(r *request) (any, error) {
	if err := s.mustVHost(r.vhost()); err != nil {
		return nil, err
	}
	return s.permissions(func(p auth.Permission) bool { return p.VHost == r.vhost() }), nil
}

func (s *server) listUserPermissions(r *request) (any, error) {
	if _, err := s.user(r.params["user"]); err != nil {
		return nil, err
	}
	return s.permissions(func(p auth.Permission) bool { return p.User == r.params["user"] }), nil
}

// mustVHost checks the virtual host in routes of administrators: there a missing virtual
// host is reported only after the rest of the request was checked.
func (s *server) mustVHost(name message.VHost) (err error) {
	s.b.Read(func(state *topology.State, _ *auth.Users) {
		if _, ok := state.VHost(name); !ok {
			err = notFound
		}
	})
	return err
}

func (s *server) getPermission(r *request) (any, error) {
	var p auth.Permission
	found := false
	s.b.Read(func(_ *topology.State, u *auth.Users) { p, found = u.Permission(r.vhost(), r.params["user"]) })
	if !found {
		return nil, notFound
	}
	return showPermission(p), nil
}

func (s *server) putPermission(r *request) (any, error) {
	if err := missingKeys(r.body, "configure", "write", "read"); err != nil {
		return nil, err
	}
	p := auth.Permission{VHost: r.vhost(), User: r.params["user"]}
	if err := r.patterns(map[string]*string{"configure": &p.Configure, "write": &p.Write, "read": &p.Read}); err != nil {
		return nil, err
	}
	return r.put(declare.PutPermission{Permission: p})
}

func (s *server) deletePermission(r *request) (any, error) {
	return r.drop(declare.DeletePermission{VHost: r.vhost(), User: r.params["user"]})
}
