package broker

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/admission"
)

// AuthBackend is a pair of backends: Authn knows who a client is, Authz what it may do. nil means the node's own
// accounts.
type AuthBackend struct{ Authn, Authz admission.Backend }

// AccountRules are the rules for logins and passwords. They may change at any time.
type AccountRules struct {
	// Hashing is the algorithm for new passwords; "": SHA256 (BR-2.7).
	Hashing auth.Algorithm
	// MinPassword and PasswordPattern are requirements for new passwords; 0 and nil require nothing.
	MinPassword     int
	PasswordPattern *regexp.Regexp
	Throttle        admission.ThrottleLimits
	// MaxChannels limits the open channels of the node; 0: no limit.
	MaxChannels int64
}

// SetAccountRules changes the rules from now on.
func (b *Broker) SetAccountRules(r AccountRules) {
	if r.Hashing == "" {
		r.Hashing = auth.SHA256
	}
	b.rules.Store(&r)
	b.throttle.SetLimits(r.Throttle)
}

// Identity is an authenticated client. It never changes.
type Identity struct {
	Name  string
	Tags  []auth.Tag
	authz admission.Backend // nil: the node's accounts
	// account is the node's account that the client has proven to own, or that says what it may do; nil: none, or
	// whichever account has its name.
	account *auth.User
	by      AuthBackend // that has said who it is, and what it may do
}

// Asked says that a backend has said something of the client, so that AskAgain needs its password.
func (i *Identity) Asked() bool { return i.by != AuthBackend{} }

// AskAgain returns nil if what was true at a client's login still is. If not, the error is an *auth.LoginError. Other errors say that a
// backend cannot tell now. given is what the client showed then.
func (b *Broker) AskAgain(ctx context.Context, i *Identity, given auth.Credentials, peer net.IP) error {
	if !b.StillStands(i) {
		return &auth.LoginError{User: i.Name, Reason: "has another account, password or tags than at the login"}
	}
	if !i.Asked() {
		return nil
	}
	from, remote := netip.AddrFromSlice(peer)
	// The others are not asked: that they do not know the client says nothing when this one gives no answer.
	now, err := b.identifyBy(ctx, i.by, given, loginOrigin{from, !remote || peer.IsLoopback()})
	if err == nil && !slices.Equal(now.Tags, i.Tags) {
		err = &auth.LoginError{User: i.Name, Reason: "has other tags than at the login"}
	}
	return err
}

// stands says whether the account that the client logged in with still exists. REQUIRES: topo is held.
func (i *Identity) stands(u *auth.Users) bool {
	if i.account == nil {
		return true
	}
	now, ok := u.User(i.Name)
	return ok && now.Same(i.account)
}

// StillStands says whether a client that was authenticated earlier would be the same now: its account still exists, with the same
// password and tags. Of a client that a backend knows it is not known.
func (b *Broker) StillStands(i *Identity) bool {
	if i.account == nil {
		return true
	}
	b.topo.RLock()
	defer b.topo.RUnlock()
	now, ok := b.users.User(i.Name)
	return ok && now.Same(i.account) && now.Password == i.account.Password && slices.Equal(now.Tags, i.account.Tags)
}

// AccountMark is a text that stands for an account of this node and its password: an account that is made anew under the
// same name has another one. It is "" if there is no account, and tells nothing of the password.
func (b *Broker) AccountMark(user string) string {
	b.topo.RLock()
	defer b.topo.RUnlock()
	u, ok := b.users.User(user)
	if !ok {
		return ""
	}
	sum := sha256.Sum256([]byte("account\x00" + u.Name + "\x00" + u.Password.Hash))
	return base64.RawURLEncoding.EncodeToString(sum[:18])
}

// MayManage says whether the client may use the management API at all (BR-15.3).
func (i *Identity) MayManage() bool { return auth.MayManage(i.Tags) }

// Elsewhere says that a backend, not the node's accounts, knows what the client may do.
func (i *Identity) Elsewhere() bool { return i.authz != nil }

// Standing says how far a client's login is. Others may need its place while it waits.
type Standing uint8

// The standings.
const (
	Undecided Standing = iota
	PutOff             // in a flood of guesses: its password is not checked yet
	Refused            // refused, and will be told later
)

// Authenticate checks a client's credentials. peer is its address; nil is the node itself. The error is for the log:
// clients get the same text for every reason (BR-2.4, BR-2.6). After several failures the answer to the next one is
// delayed; see admission.Throttle.
func (b *Broker) Authenticate(ctx context.Context, given auth.Credentials, peer net.IP) (*Identity, error) {
	return b.AuthenticateTelling(ctx, given, peer, func(Standing) {})
}

// AuthenticateTelling is Authenticate, and calls stands whenever the client's standing changes.
func (b *Broker) AuthenticateTelling(ctx context.Context, given auth.Credentials, peer net.IP, stands func(Standing)) (*Identity, error) {
	login := func(from loginOrigin) (*Identity, error) { return b.identify(ctx, given, from) }
	if given.Verified || given.Password == "" {
		return b.throttled(ctx, given.User, peer, false, stands, login)
	}
	id, err := b.throttled(ctx, given.User, peer, b.recent.Was(given.User, "", given.Password), stands, login)
	if err == nil {
		b.recent.Is(given.User, "", given.Password)
	}
	return id, err
}

// AuthenticateKey is Authenticate for a request that is signed with a key and shows no password. prove checks the
// signature and returns the owner of the key. If it fails, that counts as a failed login.
func (b *Broker) AuthenticateKey(ctx context.Context, key string, peer net.IP, prove func() (user string, err error)) (*Identity, error) {
	return b.throttled(ctx, key, peer, false, func(Standing) {}, func(from loginOrigin) (*Identity, error) {
		user, err := prove()
		if err != nil {
			return nil, err
		}
		return b.identify(ctx, auth.Credentials{User: user, Verified: true}, from)
	})
}

// loginOrigin is the origin of a login.
type loginOrigin struct {
	netip.Addr      // zero: the node itself
	loopback   bool // also true for the node itself
}

// throttled runs identify, and delays the answer to a client that has failed too often. In a flood of guesses, a
// client that logged in lately with the same password is checked before the guesses.
func (b *Broker) throttled(ctx context.Context, name string, peer net.IP, lately bool, stands func(Standing), identify func(loginOrigin) (*Identity, error)) (*Identity, error) {
	from, remote := netip.AddrFromSlice(peer)
	if !remote {
		return identify(loginOrigin{loopback: true})
	}
	attempt, wait := b.throttle.Begin(from, name)
	if !lately && wait > 0 {
		stands(PutOff)
		if err := b.pause(ctx, wait); err != nil {
			return nil, err
		}
		stands(Undecided)
	}
	id, err := identify(loginOrigin{from, peer.IsLoopback()})
	if err == nil {
		attempt.Succeeded()
		return id, nil
	}
	if b.life.Err() != nil {
		return nil, err
	}
	// A failure without an answer counts too, as when a backend did not answer or the client left: another backend
	// may have checked the password.
	stands(Refused)
	_ = b.pause(ctx, attempt.Failed()) // the result is the same if the pause is cut short
	return nil, err
}

// pause waits for d. It returns an error if the client or the node ends before.
func (b *Broker) pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-b.life.Done():
		return b.life.Err()
	}
}

// identify asks the backends in turn until one knows the client. No client may have the name "": parameters under
// that name were set by the operator (PutParameter).
func (b *Broker) identify(ctx context.Context, given auth.Credentials, from loginOrigin) (id *Identity, err error) {
	if given.User == "" {
		return nil, &auth.LoginError{Reason: "has no name"}
	}
	if len(given.User) > message.MaxName && !given.Verified { // a certificate's name may be long, and only backends may know it
		return nil, &auth.LoginError{User: given.User, Reason: "has a name that is too long"}
	}
	if len(b.AuthBackends) == 0 {
		return b.identifyBy(ctx, AuthBackend{}, given, from)
	}
	for _, backend := range b.AuthBackends {
		if id, err = b.identifyBy(ctx, backend, given, from); err == nil {
			return id, nil
		}
	}
	return nil, err
}

func (b *Broker) identifyBy(ctx context.Context, by AuthBackend, given auth.Credentials, from loginOrigin) (*Identity, error) {
	id := &Identity{Name: given.User, authz: by.Authz, by: by}
	if by.Authn == nil {
		user, err := b.checkPassword(ctx, given, from)
		if err != nil {
			return nil, err
		}
		id.Tags, id.account = user.Tags, user
	} else {
		tags, err := by.Authn.Login(ctx, given)
		if err != nil {
			return nil, loginFailed(by.Authn, given.User, err)
		}
		id.Tags = tags
	}
	if by.Authz != nil && !from.loopback && slices.Contains(b.LoopbackUsers, given.User) { // otherwise the account says so
		return nil, &auth.LoginError{User: given.User, Reason: auth.LoopbackOnly}
	}
	if by.Authz == by.Authn {
		return id, nil
	}
	// The backend that decides what the client may do must know it, too.
	if by.Authz != nil {
		if _, err := by.Authz.Login(ctx, given); err != nil {
			return nil, loginFailed(by.Authz, given.User, err)
		}
		return id, nil
	}
	b.topo.RLock()
	candidate := b.users.Candidate(given.User, false)
	b.topo.RUnlock()
	user, err := candidate.Known(from.loopback)
	if err != nil {
		return nil, err
	}
	id.Tags, id.account = append(slices.Clone(id.Tags), user.Tags...), user
	return id, nil
}

// loginFailed returns an *auth.LoginError if the backend refused the client.
func loginFailed(by admission.Backend, user string, err error) error {
	var refused *admission.Refusal
	if errors.As(err, &refused) {
		return &auth.LoginError{User: user, Reason: by.Name() + ": " + refused.Error()}
	}
	return &unanswered{by.Name(), user, err}
}

// unanswered is a login without an answer from a backend.
type unanswered struct {
	backend, user string
	cause         error
}

func (u *unanswered) Error() string {
	return "user '" + auth.LoggedName(u.user) + "': " + u.backend + " gave no answer: " + u.cause.Error()
}

func (u *unanswered) Unwrap() error { return u.cause }

// hashingLine is a line of passwords that wait for their slow hash. Those that were right lately have one of their own, so that a
// flood of guesses from their address is not before them.
type hashingLine struct {
	from   netip.Prefix
	lately bool
}

// mostHashing is how many passwords of a line wait: with 20 to 40 ms each, for two seconds at most on two processors.
const mostHashing = 64

// checkPassword checks credentials against the node's accounts, with nothing locked.
func (b *Broker) checkPassword(ctx context.Context, given auth.Credentials, from loginOrigin) (*auth.User, error) {
	slow := b.rules.Load().Hashing == auth.Argon2id
	b.topo.RLock()
	candidate := b.users.Candidate(given.User, slow)
	b.topo.RUnlock()
	if given.Verified || !candidate.Slow() {
		return candidate.Check(given, from.loopback)
	}
	if hash := candidate.Hash(); hash != "" && b.verified.Was(given.User, hash, given.Password) {
		return candidate.Known(from.loopback)
	}
	// As many at a time as there are processors: each takes memory and time.
	line := hashingLine{admission.NetworkOf(from.Addr), b.recent.Was(given.User, "", given.Password)}
	if b.hashing.Line(line) >= mostHashing {
		return nil, &auth.LoginError{User: given.User, Reason: "cannot be checked: too many passwords from this address wait"}
	}
	if !b.hashing.Begin(line, ctx.Done(), b.life.Done()) {
		return nil, cmp.Or(ctx.Err(), b.life.Err())
	}
	defer b.hashing.End()
	user, err := candidate.Check(given, from.loopback)
	if err == nil {
		b.verified.Is(given.User, candidate.Hash(), given.Password)
	}
	return user, err
}

// HashPassword hashes a new password with a new salt (BR-2.7). A password that does not meet the rules is refused as
// Invalid.
func (b *Broker) HashPassword(password string) (auth.PasswordHash, error) {
	rules := b.rules.Load()
	if len([]rune(password)) < rules.MinPassword {
		return auth.PasswordHash{}, topology.Refuse(topology.Invalid, "minimum required password length: %d", rules.MinPassword)
	}
	if rules.PasswordPattern != nil && !rules.PasswordPattern.MatchString(password) {
		return auth.PasswordHash{}, topology.Refuse(topology.Invalid, "provided password does not match the validator regular expression")
	}
	return hashPassword(rules.Hashing, password), nil
}

func hashPassword(a auth.Algorithm, password string) auth.PasswordHash {
	return a.Hash(password, salt(a.SaltSize()))
}

// tagText is a client's tags in the form that backends get.
func tagText(tags []auth.Tag) string { return strings.Join(tags, " ") }

// AsAccount is As for the account that AccountMark once gave this mark for. It is false if that account is gone or has another
// password. The connection has no rights once the account is deleted, even if there is another one of its name.
func (b *Broker) AsAccount(user, mark string, vhost message.VHost) (*Connection, bool) {
	if mark == "" || mark != b.AccountMark(user) {
		return nil, false
	}
	b.topo.RLock()
	u, ok := b.users.User(user)
	b.topo.RUnlock()
	if !ok {
		return nil, false
	}
	return b.For(&Identity{Name: user, account: u}, vhost), true
}
