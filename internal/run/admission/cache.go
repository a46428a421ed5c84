package admission

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"bartleby.mq/internal/core/auth"
)

// Cache is a backend that caches the answers of others: rabbitmq_auth_backend_cache.
type Cache struct {
	login, allow Backend
	ttl          time.Duration
	refusals     bool
	now          func() time.Time
	key          [32]byte // of the marks of passwords, so that no password is kept

	logins *lru.Cache[loginKey, answered]
	doors  *lru.Cache[Question, answered]
}

type loginKey struct {
	user     string
	password [sha256.Size]byte
}

// answered is an answer and its expiry.
type answered struct {
	until time.Time
	tags  []auth.Tag
	err   error
}

// maxAnswers is how many answers of each kind are cached: those used last.
const maxAnswers = 10_000

func remembered[K comparable, V any]() *lru.Cache[K, V] {
	c, _ := lru.New[K, V](maxAnswers) // fails only for a size below 1
	return c
}

// NewCache caches the answers of login and allow for ttl, and refusals too if refusals is
// set. It never caches other errors.
func NewCache(login, allow Backend, ttl time.Duration, refusals bool) *Cache {
	c := &Cache{login: login, allow: allow, ttl: ttl, refusals: refusals, now: time.Now, logins: remembered[loginKey, answered](), doors: remembered[Question, answered]()}
	_, _ = rand.Read(c.key[:]) // never fails
	return c
}

// Name implements Backend.
func (c *Cache) Name() string { return "rabbit_auth_backend_cache" }

// Login implements Backend.
func (c *Cache) Login(ctx context.Context, who auth.Credentials) ([]auth.Tag, error) {
	k := loginKey{who.User, c.mark(who)}
	if a, ok := c.logins.Get(k); ok && c.holds(a) {
		return slices.Clone(a.tags), a.err
	}
	tags, err := c.login.Login(ctx, who)
	if err == nil && c.allow != c.login {
		// As RabbitMQ does: the backend that authorizes a user must know the user too.
		_, err = c.allow.Login(ctx, who)
	}
	k.user = strings.Clone(k.user) // and not all of what it came in
	remember(c, c.logins, k, answered{tags: slices.Clone(tags), err: err})
	return tags, err
}

// mark identifies a password without storing it.
func (c *Cache) mark(who auth.Credentials) (m [sha256.Size]byte) {
	h := hmac.New(sha256.New, c.key[:])
	verified := byte(0)
	if who.Verified {
		verified = 1
	}
	_ = binary.Write(h, binary.BigEndian, verified) // a hash takes all
	h.Write([]byte(who.Password))
	h.Sum(m[:0])
	return m
}

// Allow implements Backend.
func (c *Cache) Allow(ctx context.Context, q Question) error {
	if a, ok := c.doors.Get(q); ok && c.holds(a) {
		return a.err
	}
	err := c.allow.Allow(ctx, q)
	remember(c, c.doors, q.clone(), answered{err: err})
	return err
}

func (c *Cache) holds(a answered) bool { return c.now().Before(a.until) }

func remember[K comparable](c *Cache, answers *lru.Cache[K, answered], k K, a answered) {
	var refused *Refusal
	if a.err != nil && !(c.refusals && errors.As(a.err, &refused)) {
		return
	}
	a.until = c.now().Add(c.ttl)
	answers.Add(k, a)
}
