package config

import "time"

// Auth configures authentication and authorization.
type Auth struct {
	Mechanisms []string // auth_mechanisms.*; nil: not said (BR-2.1)
	// Backends are the backends in order: auth_backends.*. Never empty.
	Backends []AuthBackend
	HTTP     AuthHTTP
	Cache    AuthCache

	// CertLogin selects the part of a client's certificate that is the user's name (BR-2.3).
	CertLogin CertLogin

	// AnonymousUser and AnonymousPassword are the credentials of ANONYMOUS (BR-2.1).
	AnonymousUser, AnonymousPassword string

	// Hashing is password_hashing_module: the hash of new passwords, by its name in
	// definitions files (BR-2.7).
	Hashing string

	// MinPassword and PasswordPattern are credential_validator.*, the rules for new
	// passwords; 0 and "" mean no rule.
	MinPassword     int
	PasswordPattern string

	Throttle Throttle
}

// AuthBackend is a backend: Authn authenticates clients, Authz authorizes them. Both are
// names of backends.
type AuthBackend struct{ Authn, Authz string }

// The backends.
const (
	InternalBackend = "internal" // the node's own accounts
	HTTPBackend     = "http"     // RabbitMQ's: a service answers allow or deny
	CacheBackend    = "cache"    // caches the answers of another backend
)

// AuthHTTP is auth_http.*.
type AuthHTTP struct {
	Post                                         bool          // http_method = post, else get
	UserPath, VHostPath, ResourcePath, TopicPath string        // URLs
	RequestTimeout                               time.Duration // in ms there
	ConnectTimeout                               time.Duration // connection_timeout, in ms there; 0: as RequestTimeout
	// Disclose shows clients the service's reason for a refusal.
	Disclose bool
	TLS      TLS
	// ServerName is ssl_options.sni; "": the URL's host.
	ServerName string
}

// AuthCache is auth_cache.*.
type AuthCache struct {
	Backend  AuthBackend   // cached_backend; empty: http
	TTL      time.Duration // cache_ttl, in ms there
	Refusals bool          // cache_refusals
}

// CertLogin is ssl_cert_login_*.
type CertLogin struct {
	From     string // distinguished_name, common_name or subject_alternative_name
	SANType  string // dns, ip, email, uri or other_name
	SANIndex int    // which of them, from 0
}

// Throttle slows down password guessing: after Free failures in a row for one user from one
// address the answer to each further failure takes twice as long as the last, up to Most.
type Throttle struct {
	Free int           // login_throttle.failures; 0: no delay
	Most time.Duration // login_throttle.max_delay, in ms there
}

func defaultAuth() Auth {
	return Auth{
		Backends: []AuthBackend{{InternalBackend, InternalBackend}},
		HTTP: AuthHTTP{
			UserPath: "http://localhost:8000/auth/user", VHostPath: "http://localhost:8000/auth/vhost",
			ResourcePath: "http://localhost:8000/auth/resource", TopicPath: "http://localhost:8000/auth/topic",
			RequestTimeout: 15 * time.Second, TLS: TLS{Verify: true, Depth: -1},
		},
		Cache:         AuthCache{TTL: 15 * time.Second},
		CertLogin:     CertLogin{From: "distinguished_name", SANType: "dns"},
		AnonymousUser: "guest", AnonymousPassword: "guest",
		Hashing:  "rabbit_password_hashing_sha256",
		Throttle: Throttle{Free: 5, Most: 8 * time.Second},
	}
}
