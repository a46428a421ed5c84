package api

import (
	"net/http"
	"strings"

	"bartleby.mq/internal/core/declare"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/topology"
)

func (s *server) listVHostLimits(r *request) (any, error) {
	items := []map[string]any{}
	r.eachVHost(func(v *topology.VHost) {
		if limits := v.Limits(); len(limits) > 0 {
			items = append(items, map[string]any{"vhost": string(v.Name), "value": limits})
		}
	})
	return objects(items), nil
}

func (s *server) putVHostLimit(r *request) (any, error) {
	if err := missingKeys(r.body, "value"); err != nil {
		return nil, err
	}
	if err := s.mustVHost(r.vhost()); err != nil {
		return nil, vhostMissing
	}
	return r.set(declare.SetVHostLimits{Name: r.vhost(), Limits: map[topology.Limit]any{topology.Limit(r.params["limit"]): r.body["value"]}})
}

func (s *server) deleteVHostLimit(r *request) (any, error) {
	if err := s.mustVHost(r.vhost()); err != nil {
		return nil, vhostMissing
	}
	return r.set(declare.ClearVHostLimit{Name: r.vhost(), Limit: topology.Limit(r.params["limit"])})
}

func (s *server) listUserLimits(r *request) (any, error) {
	name, one := r.params["user"]
	if one && name != r.user && !r.may(monitoring) { // in strict mode users see their own
		return nil, notAuthorised(accessTexts[policies])
	}
	items := []map[string]any{}
	var users []*auth.User
	s.b.Read(func(_ *topology.State, u *auth.Users) {
		if !one {
			users = u.List()
		} else if user, ok := u.User(name); ok {
			users = append(users, user)
		}
	})
	if one && len(users) == 0 {
		return nil, notFound
	}
	for _, user := range auth.SortUsers(users) {
		if limits := user.Limits(); len(limits) > 0 {
			items = append(items, map[string]any{"user": user.Name, "value": limits})
		}
	}
	return objects(items), nil
}

func (s *server) putUserLimit(r *request) (any, error) {
	if err := missingKeys(r.body, "value"); err != nil {
		return nil, err
	}
	if _, err := s.user(r.params["user"]); err != nil {
		return nil, badRequest("no_such_user", r.params["user"])
	}
	_, err := r.admin().Do(declare.SetUserLimits{Name: r.params["user"], Limits: map[auth.Limit]any{auth.Limit(r.params["limit"]): r.body["value"]}})
	if f := asFailureOrNil(err); f != nil && f.status == http.StatusBadRequest {
		// Limits of users are not parameters: RabbitMQ returns only the complaint.
		return nil, badRequest(strings.TrimSpace(strings.TrimPrefix(f.Error(), "Validation failed")))
	}
	return nil, err
}

func (s *server) deleteUserLimit(r *request) (any, error) {
	if _, err := s.user(r.params["user"]); err != nil {
		return nil, vhostMissing // as RabbitMQ
	}
	return r.set(declare.ClearUserLimit{Name: r.params["user"], Limit: auth.Limit(r.params["limit"])})
}
