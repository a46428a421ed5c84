package admission

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/topology"
)

// service answers as it is told, and notes what it was asked.
type service struct {
	*httptest.Server
	answer string
	status int
	asked  []string
}

func serve(t *testing.T) *service {
	t.Helper()
	s := &service{status: http.StatusOK}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.asked = append(s.asked, r.Method+" "+r.URL.RequestURI()+" "+string(body))
		w.WriteHeader(s.status)
		_, _ = io.WriteString(w, s.answer)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *service) backend(t *testing.T, change func(*HTTPOptions)) *HTTP {
	t.Helper()
	o := HTTPOptions{UserPath: s.URL + "/user", VHostPath: s.URL + "/vhost", ResourcePath: s.URL + "/resource", TopicPath: s.URL + "/topic", Timeout: 5 * time.Second}
	if change != nil {
		change(&o)
	}
	h, err := NewHTTP(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

// The requests are those of rabbitmq_auth_backend_http 4.3.6, field by field.
func TestRequests(t *testing.T) {
	s := serve(t)
	s.answer = "allow"
	ctx := context.Background()
	queue := topology.Resource{VHost: "/", Kind: topology.QueueResource, Name: "a b"}
	for _, post := range []bool{false, true} {
		h := s.backend(t, func(o *HTTPOptions) { o.Post = post })
		for want, ask := range map[string]func() error{
			"/user username=ada&password=p%26+w": func() error {
				_, err := h.Login(ctx, auth.Credentials{User: "ada", Password: "p& w"})
				return err
			},
			"/user username=CN%3Dada": func() error {
				_, err := h.Login(ctx, auth.Credentials{User: "CN=ada", Verified: true})
				return err
			},
			"/vhost username=ada&vhost=%2F&ip=127.0.0.1&tags=administrator+mine": func() error {
				return h.Allow(ctx, Question{Kind: VHost, User: "ada", Tags: "administrator mine", VHost: "/", Peer: netip.MustParseAddr("127.0.0.1")})
			},
			"/resource username=ada&vhost=%2F&resource=queue&name=a+b&permission=configure&tags=": func() error {
				return h.Allow(ctx, Question{Kind: Resource, User: "ada", VHost: "/", Access: topology.Configure, Resource: queue})
			},
			"/resource username=ada&vhost=%2F&resource=exchange&name=amq.default&permission=write&tags=": func() error {
				return h.Allow(ctx, Question{Kind: Resource, User: "ada", VHost: "/", Access: topology.Write, Resource: topology.Resource{VHost: "/"}})
			},
			"/topic username=ada&vhost=%2F&resource=topic&name=amq.topic&permission=read&tags=&routing_key=a.b&variable_map.username=ada&variable_map.vhost=%2F": func() error {
				return h.Allow(ctx, Question{Kind: Topic, User: "ada", VHost: "/", Access: topology.Read,
					Resource: topology.Resource{VHost: "/", Kind: topology.TopicResource, Name: "amq.topic", Key: "a.b"}})
			},
		} {
			s.asked = nil
			if err := ask(); err != nil {
				t.Errorf("%s: %v", want, err)
			}
			path, query, _ := strings.Cut(want, " ")
			line := "GET " + path + "?" + query + " "
			if post {
				line = "POST " + path + " " + query
			}
			if len(s.asked) != 1 || s.asked[0] != line {
				t.Errorf("asked %q, want %q", s.asked, line)
			}
		}
	}
}

// The answers as rabbitmq_auth_backend_http reads them.
func TestAnswers(t *testing.T) {
	s := serve(t)
	h := s.backend(t, nil)
	for _, tt := range []struct {
		status        int
		answer        string
		tags          string // of a login that is allowed
		login, access string // "": yes; what the error has in it
	}{
		{200, "allow", "", "", ""},
		{201, " Allow ", "", "", ""},
		{200, "allow administrator mine", "administrator mine", "", "neither"},
		{200, "deny", "", "refused", "refused"},
		{200, "DENY", "", "refused", "refused"},
		{200, "deny out of hours", "", "refused: out of hours", "refused: out of hours"},
		{200, "", "", "neither", "neither"},
		{200, "yes", "", "neither", "neither"},
		{403, "allow", "", "403", "403"},
		{500, "allow", "", "500", "500"},
		{302, "allow", "", "302", "302"},
	} {
		s.status, s.answer = tt.status, tt.answer
		tags, err := h.Login(context.Background(), auth.Credentials{User: "ada", Password: "s3cret"})
		check := func(what string, err error, want string) {
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%d %q: %s is %v, want %q", tt.status, tt.answer, what, err, want)
			}
			if err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the password is in the error: %v", err)
			}
			var refusal *Refusal
			if errors.As(err, &refusal) != strings.HasPrefix(want, "refused") {
				t.Errorf("%d %q: %s is %T", tt.status, tt.answer, what, err)
			}
		}
		check("login", err, tt.login)
		if strings.Join(tags, " ") != tt.tags {
			t.Errorf("%q: tags %q", tt.answer, tags)
		}
		check("access", h.Allow(context.Background(), Question{Kind: VHost, User: "ada"}), tt.access)
	}
	s.Close()
	if _, err := h.Login(context.Background(), auth.Credentials{User: "ada", Password: "s3cret"}); err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("without a service: %v, want an error without the password", err)
	}
}

// An address may have the login of the service, and a key in its query: neither is in an error, which is logged.
func TestErrorsHaveNoLoginOfTheService(t *testing.T) {
	s := serve(t)
	s.status = http.StatusInternalServerError
	path := strings.Replace(s.URL, "://", "://ada:marker@", 1) + "/path?key=marker"
	for _, method := range []bool{false, true} {
		h, err := NewHTTP(HTTPOptions{UserPath: path, VHostPath: path, ResourcePath: path, TopicPath: path, Post: method})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := h.Login(context.Background(), auth.Credentials{User: "ada", Password: "x"}); err == nil || strings.Contains(err.Error(), "marker") || !strings.Contains(err.Error(), "/path") {
				t.Errorf("the error is %v", err)
			}
			s.Close() // and without a service
		}
		h.Close()
	}
}

func TestServiceThatHangs(t *testing.T) {
	stop := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-stop }))
	defer s.Close()
	defer close(stop)
	h, err := NewHTTP(HTTPOptions{UserPath: s.URL, VHostPath: s.URL, ResourcePath: s.URL, TopicPath: s.URL, Timeout: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	var refusal *Refusal
	if err := h.Allow(context.Background(), Question{}); err == nil || errors.As(err, &refusal) {
		t.Errorf("got %v, want an error that is no refusal", err)
	}
}

func TestPathsThatAreNone(t *testing.T) {
	for _, path := range []string{"", "localhost:8000", "file:///etc/passwd", "http://", "http://a b"} {
		if _, err := NewHTTP(HTTPOptions{UserPath: path, VHostPath: path, ResourcePath: path, TopicPath: path}); err == nil {
			t.Errorf("%q is taken", path)
		}
	}
}

// counted is a backend that counts questions.
type counted struct {
	logins, doors int
	err           error
}

func (c *counted) Name() string { return "counted" }

func (c *counted) Login(context.Context, auth.Credentials) ([]auth.Tag, error) {
	c.logins++
	return []auth.Tag{fmt.Sprint("t", c.logins)}, c.err
}

func (c *counted) Allow(context.Context, Question) error {
	c.doors++
	return c.err
}

// Answers hold for a while, refusals only if they are to, errors never.
func TestCache(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		err      error
		refusals bool
		kept     bool
	}{
		{nil, false, true}, {&Refusal{}, false, false}, {&Refusal{}, true, true}, {errors.New("down"), true, false},
	} {
		b := &counted{err: tt.err}
		c := NewCache(b, b, time.Second, tt.refusals)
		c.now = func() time.Time { return now }
		ask := func(password, queue string) {
			_, err := c.Login(context.Background(), auth.Credentials{User: "u", Password: password})
			if !errors.Is(err, tt.err) {
				t.Errorf("login: %v, want %v", err, tt.err)
			}
			if err := c.Allow(context.Background(), Question{Kind: Resource, User: "u", Resource: topology.Resource{Name: queue}}); !errors.Is(err, tt.err) {
				t.Errorf("access: %v, want %v", err, tt.err)
			}
		}
		ask("p", "q")
		ask("p", "q")
		want := 1
		if !tt.kept {
			want = 2
		}
		if b.logins != want || b.doors != want {
			t.Errorf("%v: asked %d and %d times, want %d", tt.err, b.logins, b.doors, want)
		}
		b.logins, b.doors = 0, 0
		ask("other", "other")
		if b.logins != 1 || b.doors != 1 {
			t.Errorf("%v: others were asked for %d and %d times", tt.err, b.logins, b.doors)
		}
		now = now.Add(time.Second)
		ask("other", "other")
		if b.logins != 2 || b.doors != 2 {
			t.Errorf("%v: answers that are old still hold", tt.err)
		}
	}
}

// A login by certificate is not taken for one with an empty password.
func TestCacheKeepsProofsApart(t *testing.T) {
	b := &counted{}
	c := NewCache(b, b, time.Minute, false)
	_, _ = c.Login(context.Background(), auth.Credentials{User: "u", Verified: true})
	_, _ = c.Login(context.Background(), auth.Credentials{User: "u"})
	if b.logins != 2 {
		t.Errorf("asked %d times, want 2", b.logins)
	}
}

func TestCacheIsBounded(t *testing.T) {
	b := &counted{}
	c := NewCache(b, b, time.Hour, false)
	for i := range 2*maxAnswers + 1 {
		_ = c.Allow(context.Background(), Question{User: fmt.Sprint(i)})
	}
	if n := c.doors.Len(); n != maxAnswers {
		t.Errorf("%d answers are kept, want %d", n, maxAnswers)
	}
	b.doors = 0
	_ = c.Allow(context.Background(), Question{User: fmt.Sprint(2 * maxAnswers)})
	_ = c.Allow(context.Background(), Question{User: fmt.Sprint(0)})
	if b.doors != 1 {
		t.Errorf("of the newest answer and the oldest, %d are asked again, want the oldest", b.doors)
	}
}

// What was right holds until it is old, or the hash is another.
func TestVerified(t *testing.T) {
	v := NewVerified(time.Minute)
	now := time.Now()
	v.now = func() time.Time { return now }
	v.Is("u", "hash", "p")
	for _, tt := range []struct {
		user, hash, password string
		want                 bool
	}{{"u", "hash", "p", true}, {"u", "hash", "x", false}, {"u", "new", "p", false}, {"v", "hash", "p", false}, {"uh", "ash", "p", false}} {
		if got := v.Was(tt.user, tt.hash, tt.password); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
	now = now.Add(time.Minute)
	if v.Was("u", "hash", "p") {
		t.Error("it is still remembered")
	}
	for i := range 2*maxAnswers + 1 {
		v.Is(fmt.Sprint(i), "", "")
	}
	if n := v.marks.Len(); n != maxAnswers {
		t.Errorf("%d are remembered, want %d", n, maxAnswers)
	}
}

// Strangers who log in take none of the connections by which those who are let in are asked about: a question that waits for
// them too long is a no.
func TestLoginsAndQuestionsDoNotWaitForEachOther(t *testing.T) {
	const logins = 100 // more than there are connections
	asked, release := make(chan struct{}, logins), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/user" {
			asked <- struct{}{}
			<-release
		}
		_, _ = io.WriteString(w, "allow")
	}))
	defer s.Close()
	h, err := NewHTTP(HTTPOptions{UserPath: s.URL + "/user", VHostPath: s.URL + "/vhost", ResourcePath: s.URL + "/resource", TopicPath: s.URL + "/topic", Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	var all sync.WaitGroup
	for range logins {
		all.Go(func() {
			if _, err := h.Login(t.Context(), auth.Credentials{User: "u", Password: "p"}); err != nil {
				t.Error(err)
			}
		})
	}
	for range 32 { // as many as are under way at once
		<-asked
	}
	if err := h.Allow(t.Context(), Question{Kind: VHost, User: "u", VHost: "/"}); err != nil {
		t.Error(err)
	}
	if n := len(asked); n > 0 {
		t.Errorf("%d logins more than there are connections", n)
	}
	close(release)
	all.Wait()
}
