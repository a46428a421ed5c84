// Package openapi is the administrative API of ApsaraMQ for RabbitMQ, version 2019-12-12,
// so that Alibaba Cloud's own clients declare queues, exchanges, bindings and virtual
// hosts here with nothing but their endpoint and their keys changed (DL-22.16, DL-22.17).
//
// A Handler translates signed requests into operations of package broker, on behalf of
// the user whom an access key belongs to. It owns nothing but the nonces it has seen
// lately: declarations and accounts are the broker's, keys the configuration's. It opens
// no listener, publishes and consumes nothing, and knows no other of Alibaba's APIs:
// instances, accounts and white lists are not there.
package openapi

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"time"

	"bartleby.mq/internal/run/broker"
)

// version is the one that requests must name.
const version = "2019-12-12"

// Options configure the API. Broker, Access and Next are required.
type Options struct {
	Broker *broker.Broker
	// Access tells who may ask, as of now.
	Access func() Access
	// Next answers what is no request of this API.
	Next http.Handler
	// Logger is told of refused logins and of faults; nil: nobody is.
	Logger *slog.Logger
	// Audit is told of what was asked to be changed, by whom and with what result; nil:
	// nobody is.
	Audit *slog.Logger
	// Known is told of each request, by its context, that is signed by a key that is right; nil:
	// nobody is.
	Known func(context.Context)
	// Now is the clock that requests' times are compared with; nil: the machine's.
	Now func() time.Time
}

// Access says who may ask, and for what.
type Access struct {
	// InstanceID is the only instance there is; "": whatever requests call it.
	InstanceID string
	Keys       []Key // none: the API is off
}

// Key is an access key.
type Key struct {
	ID     string
	Secret string
	User   string // whose permissions the requests have that it signs
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

// New returns a handler that serves requests of the API, and hands all others on.
func New(o Options) http.Handler {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Audit = cmp.Or(o.Audit, slog.New(slog.DiscardHandler))
	if o.Known == nil {
		o.Known = func(context.Context) {}
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

// addressed says whether a request is meant for this API: it goes to the root and
// names an action, in the query, in a header or in a form.
func addressed(r *http.Request) bool {
	if r.URL.Path != "/" && r.URL.Path != "" {
		return false
	}
	return r.Header.Get(actionHeader) != "" || r.URL.Query().Has("Action") || r.Method == http.MethodPost && isForm(r)
}
