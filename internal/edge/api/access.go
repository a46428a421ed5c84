package api

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
)

// operator is the user of requests through Local: the node's operator. RabbitMQ uses the same
// name for its command line.
const operator = "rmq-cli"

// admit checks that the user may make the request.
func (r *request) admit() *failure {
	if r.rt.access == open {
		return nil
	}
	if r.rt.pattern == operatorPolicy && r.keepsOperatorPolicies() {
		return operatorPoliciesStay // who asks does not matter, as in RabbitMQ
	}
	if err := r.authenticate(); err != nil {
		return err
	}
	return r.authorise()
}

// authenticate authenticates the user (BR-15.1, BR-15.2).
func (r *request) authenticate() *failure {
	if isLocal(r.Request) {
		r.user, r.tags, r.local, r.visible = operator, []auth.Tag{auth.Administrator}, true, broker.AllVisible
		return nil
	}
	if usesSession(r.Request) {
		return r.resume()
	}
	name, password, ok := r.BasicAuth()
	switch {
	case r.s.NoBasicAuth && ok:
		return noPasswords
	case r.s.NoBasicAuth:
		return noBearer
	}
	if !ok && r.s.b.Strict && r.Header.Get("Authorization") == "" {
		return noCredentials
	}
	if !ok {
		return wrongPassword
	}
	return r.logIn(name, password)
}

// The refusals of requests with a password, and without one, where no password opens the API. Neither asks a browser for one.
var (
	noPasswords = notAuthorised("HTTP access denied: basic auth disabled")
	noBearer    = notAuthorised("HTTP access denied: no credentials")
)

// Guard lets those requests reach next whose user may monitor the node; realm is what others are asked to log in to. It takes
// passwords also where the API takes none.
func (s *server) Guard(realm string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, hr *http.Request) {
		out := &responder{ResponseWriter: w}
		r := &request{Request: hr, s: s, rt: &route{access: monitoring}}
		name, password, ok := hr.BasicAuth()
		err := noCredentials
		if ok {
			if err = r.logIn(name, password); err == nil && !r.may(monitoring) {
				err = notAuthorised(accessTexts[monitoring])
			}
		}
		if err != nil {
			if !ok || err == wrongPassword {
				out.Header().Set("WWW-Authenticate", `Basic realm="`+realm+`"`)
			}
			out.fail(err)
			return
		}
		if !s.Known(hr.Context(), r.user) {
			out.fail(noRoom)
			return
		}
		next.ServeHTTP(w, hr)
	})
}

// noRoom is the answer to a user who has so many requests under way that there is no room for another.
var noRoom = &failure{http.StatusServiceUnavailable, "too_many_requests", "all connections have requests under way, and nobody has two more than you: send fewer at once"}

// logIn logs a user in for the request.
func (r *request) logIn(name, password string) *failure {
	id, err := r.s.b.Authenticate(r.Context(), auth.Credentials{User: name, Password: password}, r.from())
	r.s.b.Totals.Logins[broker.LoginHTTP].Note(err == nil)
	if err != nil {
		foreign := r.foreignHost(err)
		if foreign != nil {
			err = fmt.Errorf("the Host of the request is no name of this machine: %w", err)
		}
		r.s.Logger.Warn("management login refused", "peer", r.RemoteAddr, "host", r.Host, "error", err)
		return cmp.Or(foreign, wrongPassword)
	}
	r.proof.asked = time.Now()
	if id.Asked() {
		r.proof.password = password
	}
	return r.welcome(id)
}

// isLocal says whether a request came through Local.
func isLocal(r *http.Request) bool {
	local, _ := r.Context().Value(localKey{}).(bool)
	return local
}

// keepsOperatorPolicies says whether the request cannot change operator policies, whoever makes it.
func (r *request) keepsOperatorPolicies() bool {
	return r.s.KeepOperatorPolicies && !isLocal(r.Request)
}

var operatorPoliciesStay = &failure{http.StatusMethodNotAllowed, "method_not_allowed", "Broker settings disallow editing of operator policies."}

// peerIP is the client's address; one that cannot be read counts as remote.
func peerIP(r *http.Request) net.IP {
	if a, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		return a.Addr().Unmap().AsSlice()
	}
	return net.IPv4zero
}

// may says whether the user's tags allow it (BR-15.3).
func (r *request) may(a access) bool {
	has := func(t auth.Tag) bool { return slices.Contains(r.tags, t) }
	switch a {
	case administers:
		return has(auth.Administrator)
	case monitoring:
		return has(auth.Administrator) || has(auth.Monitoring)
	case policies:
		return has(auth.Administrator) || has(auth.PolicyMaker)
	}
	return true
}

var accessTexts = map[access]string{
	administers: "Not administrator user",
	monitoring:  "Not monitor user",
	policies:    "User not authorised to access object",
}

// authorise checks the tags, then the virtual host in the path.
func (r *request) authorise() *failure {
	if !r.may(r.needs()) {
		return notAuthorised(r.refusal())
	}
	v, named := r.params["vhost"]
	if !named {
		return nil
	}
	// A user who may not see a virtual host must not learn whether it exists.
	exists, visible := false, false
	r.s.b.Read(func(s *topology.State, u *auth.Users) {
		_, exists = s.VHost(message.VHost(v))
		visible = r.visible.Sees(u, message.VHost(v))
	})
	switch {
	case exists && !visible:
		return notVisible
	case !exists && r.rt.access != administers && r.needsVHost():
		if r.Method == http.MethodPut || r.Method == http.MethodPost {
			return vhostMissing
		}
		return notFound
	}
	return nil
}

// eachVHost calls f for the virtual host in the path, or without one for all virtual
// hosts that the user may list, by name. f runs with everything locked for reading: see
// broker.Broker.Read.
func (r *request) eachVHost(f func(v *topology.VHost)) {
	name, named := r.params["vhost"]
	r.s.b.Read(func(s *topology.State, u *auth.Users) {
		if named {
			if v, ok := s.VHost(message.VHost(name)); ok {
				f(v)
			}
			return
		}
		for _, v := range s.VHosts() {
			if r.may(monitoring) || r.visible.Sees(u, v.Name) {
				f(v)
			}
		}
	})
}

// checkPassword checks the credentials in the body, as if their user connected from this machine. It answers
// 403 if they are wrong, so that this is not mistaken for a refusal of the request itself.
func (r *request) checkPassword() error {
	name, err := r.text("user")
	if err != nil {
		return err
	}
	password, err := r.text("password")
	if err != nil {
		return err
	}
	if _, err := r.s.b.Authenticate(r.Context(), auth.Credentials{User: name, Password: password}, nil); err != nil {
		return &failure{http.StatusForbidden, "forbidden", "invalid credentials"}
	}
	return nil
}
