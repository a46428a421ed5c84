package admission

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/topology"
)

// HTTPOptions configure the service and the requests.
type HTTPOptions struct {
	// UserPath, VHostPath, ResourcePath and TopicPath are the URLs of the four questions.
	UserPath, VHostPath, ResourcePath, TopicPath string
	// Post sends questions as forms; else they are the URL's query.
	Post bool
	// Timeout is for a whole request, ConnectTimeout for its connection; 0: as Timeout.
	Timeout, ConnectTimeout time.Duration
	// Disclose shows clients the service's reason for a refusal.
	Disclose bool
	TLS      *tls.Config // nil: Go's defaults
	Logger   *slog.Logger
}

// HTTP asks a service with the protocol of RabbitMQ's rabbitmq_auth_backend_http: one
// request a question. The answer is "allow", after a login with the user's tags, or "deny",
// with or without a reason.
type HTTP struct {
	HTTPOptions
	// Logins, which may be many and from strangers, use other connections than the questions of logged-in clients.
	logins, questions *http.Client
}

// maxAnswer is how many bytes of an answer are read. Tags are short.
const maxAnswer = 64 << 10

// NewHTTP returns a backend that asks a service. It fails if a path is not a URL.
func NewHTTP(o HTTPOptions) (*HTTP, error) {
	for name, path := range map[string]string{"user": o.UserPath, "vhost": o.VHostPath, "resource": o.ResourcePath, "topic": o.TopicPath} {
		u, err := url.Parse(path)
		if err == nil && (u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
			err = errors.New("must be an http or https URL")
		}
		if err != nil {
			return nil, fmt.Errorf("auth_http.%s_path %q: %w", name, path, err)
		}
	}
	if o.ConnectTimeout == 0 {
		o.ConnectTimeout = o.Timeout
	}
	const (
		idle = 16 // connections kept for the next question
		most = 32 // connections: every login asks, and the node reserves twice as many files for it
	)
	client := func() *http.Client {
		return &http.Client{
			Transport: &http.Transport{
				DialContext: (&net.Dialer{Timeout: o.ConnectTimeout}).DialContext, TLSHandshakeTimeout: o.ConnectTimeout, TLSClientConfig: o.TLS,
				MaxIdleConnsPerHost: idle, MaxConnsPerHost: most, IdleConnTimeout: time.Minute,
			},
			Timeout: o.Timeout,
			// A redirect must not send the password elsewhere.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	return &HTTP{o, client(), client()}, nil
}

// Close closes idle connections.
func (h *HTTP) Close() {
	h.logins.CloseIdleConnections()
	h.questions.CloseIdleConnections()
}

// Name implements Backend.
func (h *HTTP) Name() string { return "rabbit_auth_backend_http" }

// Login implements Backend.
func (h *HTTP) Login(ctx context.Context, c auth.Credentials) ([]auth.Tag, error) {
	query := form{{"username", c.User}}
	if !c.Verified {
		query = append(query, field{"password", c.Password})
	}
	answer, err := h.ask(ctx, h.logins, h.UserPath, query)
	if err != nil {
		return nil, err
	}
	rest, allowed := strings.CutPrefix(answer, "allow")
	if !allowed {
		return nil, errAnswer
	}
	return strings.Fields(rest), nil
}

// Allow implements Backend.
func (h *HTTP) Allow(ctx context.Context, q Question) error {
	path, query := h.VHostPath, form{{"username", q.User}, {"vhost", string(q.VHost)}}
	switch q.Kind {
	case VHost:
		ip := ""
		if q.Peer.IsValid() {
			ip = q.Peer.String()
		}
		query = append(query, field{"ip", ip}, field{"tags", q.Tags})
	case Resource, Topic:
		path = h.ResourcePath
		kind := "queue"
		if q.Resource.Kind == topology.ExchangeResource {
			kind = "exchange"
		}
		if q.Kind == Topic {
			path, kind = h.TopicPath, "topic"
		}
		name := q.Resource.Name
		if name == "" && kind == "exchange" {
			name = "amq.default"
		}
		query = append(query, field{"resource", kind}, field{"name", name}, field{"permission", q.Access.String()}, field{"tags", q.Tags})
		if q.Kind == Topic {
			query = append(query, field{"routing_key", q.Resource.Key},
				field{"variable_map.username", q.User}, field{"variable_map.vhost", string(q.VHost)})
		}
	}
	answer, err := h.ask(ctx, h.questions, path, query)
	if err == nil && answer != "allow" {
		err = errAnswer
	}
	return err
}

// errAnswer reports an answer that neither allows nor denies. It does not contain the
// answer, which might be anything.
var errAnswer = errors.New("the answer is neither allow nor deny")

// ask sends one question and returns the answer in lower case, as RabbitMQ reads it. A
// denial is a *Refusal. No error contains the query, which may have a password, or the login of the service.
func (h *HTTP) ask(ctx context.Context, by *http.Client, path string, query form) (string, error) {
	method, target, body := http.MethodGet, path, io.Reader(http.NoBody)
	switch {
	case h.Post:
		method, body = http.MethodPost, strings.NewReader(query.encode())
	case strings.Contains(path, "?"):
		target += "&" + query.encode()
	default:
		target += "?" + query.encode()
	}
	r, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return "", errors.New("cannot send the request") // the error names the URL
	}
	if h.Post {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	answer, err := by.Do(r)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // without the URL
		}
		return "", fmt.Errorf("%s: %w", shown(path), err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return "", fmt.Errorf("%s: %w", shown(path), err)
	}
	if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusCreated {
		return "", fmt.Errorf("%s: %s", shown(path), answer.Status)
	}
	said := strings.TrimSpace(string(text))
	lower := strings.ToLower(said)
	if reason, denied := strings.CutPrefix(said, "deny "); denied {
		return "", &Refusal{Reason: reason, Disclosed: h.Disclose}
	}
	if lower == "deny" {
		return "", &Refusal{}
	}
	return lower, nil
}

// shown is a path for errors: without a login and a query, which may have a secret.
func shown(path string) string {
	u, err := url.Parse(path)
	if err != nil {
		return "the address" // it was checked at the start
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// form is a query whose fields keep their order, as RabbitMQ sends them.
type form []field

type field struct{ name, value string }

func (f form) encode() string {
	var b strings.Builder
	for i, f := range f {
		if i > 0 {
			b.WriteByte('&')
		}
		b.WriteString(f.name + "=" + url.QueryEscape(f.value))
	}
	return b.String()
}
