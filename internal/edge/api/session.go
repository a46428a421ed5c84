package api

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
)

// Sessions are for the console: a browser logs in once and then shows a cookie. The cookie is a random secret, of which only the
// hash is kept. A session ends when its account is deleted or gets another password or other tags, so a cookie is never worth more
// than the password it was made with; nor than what a login backend says now, which is asked again (standing.go). All end with the process.
//
// A browser sends a cookie with every request to the node's host, also with those that a page of another site makes. Therefore a
// request that changes something also needs sessionHeader, which such a page cannot set, and must come from the node's own pages.

// sessionHeader marks requests of the console. A request with it uses its cookie and nothing else: a browser may also send a
// password that it once asked for.
const sessionHeader = "X-Bartleby-Session"

const (
	sessionIdle = time.Hour
	sessionLife = 12 * time.Hour
	// maxSessions is how many sessions a node keeps, maxUserSessions how many of one user. The one that was not used for longest makes
	// room for a new one.
	maxSessions     = 1000
	maxUserSessions = 20
)

// sessions are the open sessions. It is safe for use by many goroutines.
type sessions struct {
	life time.Duration // of a session, if it is in use; 0: sessionLife

	mu   sync.Mutex                     // guards open
	open map[[sha256.Size]byte]*session // by the hash of the secret
}

// session is one login.
type session struct {
	identity    *broker.Identity
	loopback    bool   // it was opened from this machine, as some accounts demand; it does not work from elsewhere
	password    []byte // sealed; nil if no backend is to be asked again
	began, used time.Time
	asked       time.Time // when what was true at the login was last true
}

// isDue says whether the backend is asked again before a request.
func (s *session) isDue(now time.Time, change bool) bool {
	return s.identity.Asked() && (change || now.Sub(s.asked) >= askAgain)
}

// begin opens a session and returns its secret.
func (s *sessions) begin(id *broker.Identity, password string, loopback bool, now time.Time) (secret string) {
	random := make([]byte, 32)
	_, _ = rand.Read(random) // it cannot fail
	secret = base64.RawURLEncoding.EncodeToString(random)
	o := &session{identity: id, loopback: loopback, began: now, used: now, asked: now}
	if id.Asked() {
		o.password = sealed(secret, password)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.makeRoom(id.Name, now)
	if s.open == nil {
		s.open = map[[sha256.Size]byte]*session{}
	}
	s.open[sha256.Sum256([]byte(secret))] = o
	return secret
}

// makeRoom ends what is over, then the sessions that were not used for longest, until there may be one more.
func (s *sessions) makeRoom(user string, now time.Time) {
	all, mine := 0, 0
	var oldest, oldestMine [sha256.Size]byte
	for key, o := range s.open {
		if s.isOver(o, now) {
			delete(s.open, key)
			continue
		}
		if all++; all == 1 || o.used.Before(s.open[oldest].used) {
			oldest = key
		}
		if o.identity.Name != user {
			continue
		}
		if mine++; mine == 1 || o.used.Before(s.open[oldestMine].used) {
			oldestMine = key
		}
	}
	switch {
	case mine >= maxUserSessions:
		delete(s.open, oldestMine)
	case all >= maxSessions:
		delete(s.open, oldest)
	}
}

func (s *sessions) isOver(o *session, now time.Time) bool {
	return now.Sub(o.used) >= sessionIdle || now.Sub(o.began) >= cmp.Or(s.life, sessionLife)
}

// isTrue notes that what was true at the login still is.
func (s *sessions) isTrue(secret string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.open[sha256.Sum256([]byte(secret))]; o != nil {
		o.asked = now
	}
}

// use returns a copy of the session of a secret, nil if there is none. Its idle time begins anew.
func (s *sessions) use(secret string, now time.Time) *session {
	key := sha256.Sum256([]byte(secret))
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.open[key]
	if o == nil {
		return nil
	}
	if s.isOver(o, now) {
		delete(s.open, key)
		return nil
	}
	o.used = now
	shown := *o
	return &shown
}

// end ends the session of a secret.
func (s *sessions) end(secret string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, sha256.Sum256([]byte(secret)))
}

// endAll ends all sessions of a user.
func (s *sessions) endAll(user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, o := range s.open {
		if o.identity.Name == user {
			delete(s.open, key)
		}
	}
}

// sessionCookie is the name of the cookie. Browsers share cookies between the ports of a host, so the port is part of the name:
// who looks at two nodes on one machine stays logged in to both.
func sessionCookie(r *http.Request) string {
	_, port, err := net.SplitHostPort(r.Host)
	if n, bad := strconv.ParseUint(port, 10, 16); err == nil && bad == nil {
		return "bartleby-session-" + strconv.FormatUint(n, 10)
	}
	return "bartleby-session"
}

// secretOf is the secret in a request's cookie, "" if there is none.
func secretOf(r *http.Request) string {
	c, err := r.Cookie(sessionCookie(r))
	if err != nil {
		return ""
	}
	return c.Value
}

// cookie is the session's cookie with a secret; "" removes it from the browser.
func cookie(r *http.Request, secret string) *http.Cookie {
	c := &http.Cookie{
		Name: sessionCookie(r), Value: secret, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https",
	}
	if secret == "" {
		c.MaxAge = -1
	}
	return c
}

// withCookie is an answer that sets a cookie; a nil body is 204.
type withCookie struct {
	cookie *http.Cookie
	body   any
}

// usesSession says whether a request is authenticated by its cookie. A request with a password is not, unless it says that it is the
// console's.
func usesSession(r *http.Request) bool {
	if r.Header.Get(sessionHeader) != "" {
		return true
	}
	return r.Header.Get("Authorization") == "" && secretOf(r) != ""
}

// sameSite refuses requests that another site's page may have made.
var sameSite = http.NewCrossOriginProtection()

var (
	sessionOver    = &failure{http.StatusUnauthorized, "not_authorized", "the session is over: log in again"}
	sessionForeign = &failure{http.StatusForbidden, "forbidden", "a request with a session's cookie that changes something needs the header " +
		sessionHeader + ": 1 and must come from this node's own pages"}
)

// changes says whether the request may change something.
func (r *request) changes() bool { return r.Method != http.MethodGet && r.Method != http.MethodHead }

// mayChange checks that the console itself makes a request that may change something.
func (r *request) mayChange() *failure {
	if !r.changes() {
		return nil
	}
	if r.Header.Get(sessionHeader) != "1" || sameSite.Check(r.Request) != nil {
		return sessionForeign
	}
	return nil
}

// resume authenticates a request by its cookie.
func (r *request) resume() *failure {
	secret, now := secretOf(r.Request), time.Now()
	o := r.s.sessions.use(secret, now)
	if o == nil {
		return sessionOver
	}
	peer := r.from()
	if !r.s.b.StillStands(o.identity) || o.loopback && !peer.IsLoopback() {
		r.s.sessions.end(secret)
		return sessionOver
	}
	if err := r.mayChange(); err != nil {
		return err
	}
	r.identity, r.user, r.proof.asked = o.identity, o.identity.Name, o.asked
	if o.identity.Asked() {
		r.proof.password = opened(secret, o.password)
	}
	if o.isDue(now, r.changes()) {
		switch err := r.askAgain(); err {
		case nil:
			r.s.sessions.isTrue(secret, now)
			r.proof.asked = now
		case outOfDate:
			r.s.sessions.end(secret)
			return sessionOver
		default:
			return err
		}
	}
	return r.welcome(o.identity)
}

// logInSession opens a session and sets its cookie. A session that the browser had ends: the new one has another secret.
func (s *server) logInSession(r *request) (any, error) {
	if sameSite.Check(r.Request) != nil {
		return nil, sessionForeign
	}
	if s.NoBasicAuth {
		return nil, noPasswords
	}
	if err := missingKeys(r.body, "username", "password"); err != nil {
		return nil, err
	}
	name, err := r.text("username")
	if err != nil {
		return nil, err
	}
	password, err := r.text("password")
	if err != nil {
		return nil, err
	}
	if err := r.logIn(name, password); err != nil {
		return nil, err
	}
	if !s.Known(r.Context(), r.user) {
		return nil, noRoom
	}
	if old := secretOf(r.Request); old != "" {
		s.sessions.end(old)
	}
	secret := s.sessions.begin(r.identity, password, r.from().IsLoopback(), time.Now())
	return withCookie{cookie(r.Request, secret), s.showSession(r)}, nil
}

// getSession shows who is logged in, and to what.
func (s *server) getSession(r *request) (any, error) {
	return withStatus{http.StatusOK, s.showSession(r)}, nil
}

func (s *server) showSession(r *request) map[string]any {
	vhosts := []string{}
	r.s.b.Read(func(state *topology.State, u *auth.Users) {
		for _, v := range state.VHosts() {
			if r.may(monitoring) || r.visible.Sees(u, v.Name) {
				vhosts = append(vhosts, string(v.Name))
			}
		}
	})
	slices.Sort(vhosts)
	return map[string]any{
		"name": r.user, "tags": tagList(r.tags), "vhosts": vhosts, "node": s.NodeName, "cluster_name": s.clusterName(),
		"product": s.Product, "product_version": s.ProductVersion, "rabbitmq_version": s.Version, "strict": s.b.Strict,
	}
}

// logOutSession ends the browser's session, or with ?everywhere=true all sessions of its user. It is no error if there is none.
func (s *server) logOutSession(r *request) (any, error) {
	if err := r.mayChange(); err != nil {
		return nil, err
	}
	secret := secretOf(r.Request)
	if o := s.sessions.use(secret, time.Now()); o != nil {
		r.identity, r.user = o.identity, o.identity.Name
		if r.flag("everywhere") {
			s.sessions.endAll(r.user)
		}
	}
	s.sessions.end(secret)
	return withCookie{cookie(r.Request, ""), nil}, nil
}

// welcome takes an authenticated client as the request's user.
func (r *request) welcome(id *broker.Identity) *failure {
	r.identity, r.user, r.tags = id, id.Name, id.Tags
	if !id.MayManage() {
		return notAuthorised("Not management user")
	}
	peer, _ := netip.AddrFromSlice(peerIP(r.Request))
	r.visible = r.s.b.VisibilityOf(id, peer)
	return nil
}
