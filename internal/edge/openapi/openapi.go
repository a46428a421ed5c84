// Package openapi is the administrative API of ApsaraMQ for RabbitMQ, version 2019-12-12.
// Alibaba Cloud's own clients can declare queues, exchanges, bindings and virtual hosts here;
// only their endpoint and their access keys change (DL-22.16, DL-22.17).
//
// The server uses its handler. It translates signed requests into operations of package
// broker, as the user of an access key. It owns only the recent nonces: declarations and
// accounts are the broker's, keys the configuration's. It never opens a listener, publishes
// or consumes, and has no other API of Alibaba: no instances, accounts and white lists.
package openapi

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"time"

	"bartleby.mq/internal/run/broker"
)

// version is the API version that requests must name.
const version = "2019-12-12"

// Options configure the API. Broker, Access and Next are required.
type Options struct {
	Broker *broker.Broker
	// Access returns the current access keys.
	Access func() Access
	// Next handles requests that are not for this API.
	Next http.Handler
	// Logger logs refused logins and faults; nil: none.
	Logger *slog.Logger
	// Audit logs each request that changes something, with its user and result; nil: none.
	Audit *slog.Logger
	// Known, if not nil, is called with the context of each request when its signature is verified, and says whether there is room for a request
	// of the user.
	Known func(ctx context.Context, user string) bool
	// Now is the clock for checking the times of requests; nil: the machine's.
	Now func() time.Time
}

// Access holds the access keys and the instance.
type Access struct {
	// InstanceID is the only valid instance; "": any.
	InstanceID string
	Keys       []Key // none: the API is off
}

// Key is an access key.
type Key struct {
	ID     string
	Secret string
	User   string // the user of its requests
}

// find returns the key of an ID.
func (a *Access) find(id string) (k Key, ok bool) {
	for _, k := range a.Keys {
		if k.ID == id {
			return k, true
		}
	}
	return Key{}, false
}

// server answers requests. It is safe for use by many goroutines.
type server struct {
	Options
	b      *broker.Broker
	nonces nonces
}

// New returns a handler that serves requests of the API, and passes all others to Next.
func New(o Options) http.Handler {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Audit = cmp.Or(o.Audit, slog.New(slog.DiscardHandler))
	if o.Known == nil {
		o.Known = func(context.Context, string) bool { return true }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &server{Options: o, b: o.Broker}
}

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if addressed(r) {
		if access := s.Access(); len(access.Keys) > 0 {
			s.serve(w, r, access)
			return
		}
	}
	s.Next.ServeHTTP(w, r)
}

// addressed says whether a request is for this API: its path is the root, and it names an
// action in the query, in a header or in a form.
func addressed(r *http.Request) bool {
	if r.URL.Path != "/" && r.URL.Path != "" {
		return false
	}
	return r.Header.Get(actionHeader) != "" || r.URL.Query().Has("Action") || r.Method == http.MethodPost && isForm(r)
}
