package api

import (
	"encoding/base64"
	"net/url"

	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
)

// listAuthAttempts shows the logins of each protocol that had any.
func (s *server) listAuthAttempts(r *request) (any, error) {
	if err := r.mustNode(); err != nil {
		return nil, err
	}
	items := []any{}
	for p := range broker.LoginProtocols {
		l := &s.b.Totals.Logins[p]
		if good, bad := l.Succeeded.Load(), l.Failed.Load(); good+bad > 0 {
			items = append(items, map[string]any{
				"protocol": p.String(), "auth_attempts": good + bad, "auth_attempts_failed": bad, "auth_attempts_succeeded": good,
			})
		}
	}
	return items, nil
}

// listAuthSources returns nothing: attempts are not counted by address, as in RabbitMQ by
// default.
func (s *server) listAuthSources(r *request) (any, error) {
	if err := r.mustNode(); err != nil {
		return nil, err
	}
	return []any{}, nil
}

func (s *server) resetAuthAttempts(r *request) (any, error) {
	if err := r.mustNode(); err != nil {
		return nil, err
	}
	for p := range s.b.Totals.Logins {
		s.b.Totals.Logins[p].Reset()
	}
	return nil, nil
}

// login checks the user name and the password of a form, and returns the authorization to send
// in later requests.
func (s *server) login(r *request) (any, error) {
	form, err := url.ParseQuery(string(r.raw))
	if err != nil {
		return nil, wrongPassword
	}
	name, password := form.Get("username"), form.Get("password")
	if err := r.logIn(name, password); err != nil {
		return nil, err
	}
	return map[string]any{
		"user":  map[string]any{"name": r.user, "tags": tagList(r.tags), "is_internal_user": true},
		"token": map[string]any{"type": "basic", "value": base64.StdEncoding.EncodeToString([]byte(name + ":" + password))},
	}, nil
}

// resetStatistics clears the history of all rates. Counters keep their values.
func (s *server) resetStatistics(r *request) (any, error) {
	if _, one := r.params["node"]; one {
		if err := r.mustNode(); err != nil {
			return nil, err
		}
	}
	s.history.forget()
	return nil, nil
}

// listUserQueues are the queues whose exclusive owner the user is.
func (s *server) listUserQueues(r *request) (any, error) {
	if _, err := s.user(r.params["user"]); err != nil && !s.b.Strict {
		return nil, err
	}
	owned := map[string]bool{}
	for _, c := range s.b.Connections() {
		if c.User == r.params["user"] {
			owned[c.Owner()] = true
		}
	}
	var queues []broker.QueueInfo
	r.eachVHost(func(v *topology.VHost) {
		v.EachQueue(func(q *topology.Queue) {
			if q.Exclusive && owned[q.Owner] {
				queues = append(queues, broker.Describe(q))
			}
		})
	})
	items := []map[string]any{}
	for _, q := range broker.SortQueues(queues) {
		items = append(items, map[string]any{"name": string(q.Decl.Name), "vhost": string(q.Decl.VHost)})
	}
	return objects(items), nil
}
