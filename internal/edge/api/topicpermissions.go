package api

import (
	"slices"

	"bartleby.mq/internal/core/declare"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
)

func (s *server) topicPermissions(chosen func(auth.TopicPermission) bool) list {
	var all []auth.TopicPermission
	s.b.Read(func(_ *topology.State, u *auth.Users) { all = u.TopicPermissions() })
	found := slices.DeleteFunc(all, func(p auth.TopicPermission) bool { return !chosen(p) })
	return listOf(auth.SortTopicPermissions(found), func(p auth.TopicPermission) string { return p.User }, showTopicPermission)
}

func showTopicPermission(p auth.TopicPermission) map[string]any {
	return map[string]any{
		"user": p.User, "vhost": string(p.VHost), "exchange": string(p.Exchange), "write": p.Write, "read": p.Read,
	}
}

func (s *server) listTopicPermissions(*request) (any, error) {
	return s.topicPermissions(func(auth.TopicPermission) bool { return true }), nil
}

func (s *server) listVHostTopicPermissions(r *request) (any, error) {
	if err := s.mustVHost(r.vhost()); err != nil {
		return nil, err
	}
	return s.topicPermissions(func(p auth.TopicPermission) bool { return p.VHost == r.vhost() }), nil
}

func (s *server) listUserTopicPermissions(r *request) (any, error) {
	if _, err := s.user(r.params["user"]); err != nil {
		return nil, err
	}
	return s.topicPermissions(func(p auth.TopicPermission) bool { return p.User == r.params["user"] }), nil
}

// getTopicPermissions lists a user's entries in a virtual host, or the one for an exchange.
func (s *server) getTopicPermissions(r *request) (any, error) {
	exchange, one := r.params["exchange"]
	l := s.topicPermissions(func(p auth.TopicPermission) bool {
		return p.VHost == r.vhost() && p.User == r.params["user"] && (!one || s.b.Strict || p.Exchange == exchangeName(exchange)) // RabbitMQ does not look at the exchange
	})
	if l.n == 0 {
		return nil, notFound
	}
	return l, nil
}

func (s *server) putTopicPermission(r *request) (any, error) {
	if err := missingKeys(r.body, "exchange", "write", "read"); err != nil {
		return nil, err
	}
	name, err := r.text("exchange")
	if err != nil {
		return nil, err
	}
	p := auth.TopicPermission{VHost: r.vhost(), User: r.params["user"], Exchange: message.ExchangeName(name)}
	if err := r.patterns(map[string]*string{"write": &p.Write, "read": &p.Read}); err != nil {
		return nil, err
	}
	missing := false
	s.b.Read(func(state *topology.State, _ *auth.Users) {
		if v, ok := state.VHost(p.VHost); ok {
			_, exists := v.Exchange(p.Exchange)
			missing = !exists
		}
	})
	if missing {
		return nil, badRequest("no_such_exchange", name)
	}
	return r.put(declare.PutTopicPermission{TopicPermission: p})
}

func (s *server) deleteTopicPermissions(r *request) (any, error) {
	var exchange *message.ExchangeName
	if _, one := r.params["exchange"]; one {
		exchange = new(r.exchangeName())
	}
	return r.drop(declare.DeleteTopicPermissions{VHost: r.vhost(), User: r.params["user"], Exchange: exchange})
}
