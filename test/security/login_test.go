package security

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// BR-2.4: who guesses learns neither from what is said nor from how long it takes which
// users there are.
func TestWrongPasswords(t *testing.T) {
	for _, hashing := range []string{"rabbit_password_hashing_sha256", "argon2id"} {
		t.Run(hashing, func(t *testing.T) {
			n := start(t, "login_throttle.failures = 0\npassword_hashing_module = "+hashing)
			n.user("ada", "management")
			n.must("PUT", "/users/old", object{"password_hash": "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR", "tags": "management"})
			n.must("PUT", "/users/nobody", object{"password_hash": "", "tags": ""})
			logins := []string{"ada:wrong", "old:wrong", "nobody:wrong", "missing:wrong"}
			said := map[string]bool{}
			errs := make(chan error, len(logins))
			for _, login := range logins {
				status, answer := n.do(login, "GET", "/overview", "")
				said[fmt.Sprint(status, answer)] = true
				go func() { // all at once: each takes 3 s (BR-2.4)
					_, err := n.dial(login, "/")
					errs <- err
				}()
			}
			for range logins {
				var e *amqp.Error
				if err := <-errs; !errors.As(err, &e) {
					t.Error(err)
				} else {
					said[fmt.Sprint("AMQP", e.Code, e.Reason)] = true
				}
			}
			if len(said) != 2 {
				t.Errorf("there are differences: %v", said)
			}
			// Medians of attempts in turn, and the best of some tries: noise is not a leak.
			const tries, rounds = 4, 9
			for try := 1; ; try++ {
				took := map[string][]time.Duration{}
				for range rounds {
					for _, login := range logins {
						began := time.Now()
						n.do(login, "GET", "/whoami", "")
						took[login] = append(took[login], time.Since(began))
					}
				}
				least, most := time.Hour, time.Duration(0)
				for _, list := range took {
					slices.Sort(list)
					least, most = min(least, list[rounds/2]), max(most, list[rounds/2])
				}
				if most < 2*least || most-least < time.Millisecond {
					return
				}
				if try == tries {
					t.Fatalf("it takes from %v to %v: %v", least, most, took)
				}
			}
		})
	}
}

// BR-2.6: guest comes in from loopback only, whatever a proxy says of where that is.
func TestLoopbackOnly(t *testing.T) {
	t.Parallel()
	n := start(t, "proxy_protocol = true")
	for from, ok := range map[string]bool{"127.0.0.1": true, "192.0.2.1": false} {
		c, err := n.dialThrough(from, "guest:guest")
		if (err == nil) != ok {
			t.Errorf("guest from %s: %v", from, err)
		}
		if err == nil {
			_ = c.Close()
		}
	}
}

// After failures in a row answers come late; the right password is taken at once.
func TestThrottledLogins(t *testing.T) {
	n := start(t, "login_throttle.failures = 2\nlogin_throttle.max_delay = 300")
	n.user("ada", "management")
	took := func(login string, want int) time.Duration {
		began := time.Now()
		if status, _ := n.do(login, "GET", "/whoami", ""); status != want {
			t.Errorf("%s: %d, want %d", login, status, want)
		}
		return time.Since(began)
	}
	for range 2 {
		took("ada:wrong", 401)
	}
	if d := took("ada:wrong", 401); d < 250*time.Millisecond {
		t.Errorf("the third failure was answered after %v", d)
	}
	if d := took("ada:ada", 200); d > 250*time.Millisecond {
		t.Errorf("the right password was answered after %v", d)
	}
}

// Nothing that anybody must not know stands in the log, at its most talkative.
func TestNoSecretsInTheLog(t *testing.T) {
	t.Parallel()
	const secret = "s3cretS3cret"
	var asked []string
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.String())
		w.WriteHeader(http.StatusInternalServerError)
	}))
	defer service.Close()
	n := start(t, "auth_backends.1 = internal\nauth_backends.2 = http\nauth_http.user_path = "+service.URL+"/user\nanonymous_login_pass = "+secret+"\ndefault_pass = guest")
	n.must("PUT", "/users/ada", object{"password": secret, "tags": "management"})
	n.permit("ada", "/", ".*", ".*", ".*")
	n.must("POST", "/definitions", object{"users": []object{{"name": "bob", "password": secret, "tags": ""}}})
	n.must("GET", "/auth/hash_password/"+secret, nil)
	n.must("POST", "/control/authenticate", object{"user": "ada", "password": secret})
	n.do("guest:"+secret, "GET", "/overview", "")
	n.do("nobody:"+secret, "GET", "/overview", "")
	n.do("guest:guest", "PUT", "/users/x/"+secret, "{}")
	n.do("guest:guest", "PUT", "/users/x", `{"password":"`+secret+`"`) // no JSON
	n.mustDial("ada:"+secret, "/")
	if c, err := n.dial("guest:"+secret, "/"); err == nil {
		_ = c.Close()
	}
	if err := n.s.Reload(configured(t, "anonymous_login_pass = "+secret+"2")); err != nil {
		t.Fatal(err)
	}
	if shown := n.must("GET", "/config/effective", nil); strings.Contains(shown, secret) || !strings.Contains(shown, "anonymous_login_pass = ****") {
		t.Errorf("the configuration shows %s", shown)
	}
	if len(asked) == 0 {
		t.Fatal("the backend was not asked")
	}
	for line := range strings.Lines(n.log.String()) {
		if strings.Contains(line, secret) || strings.Contains(line, "c3EzY3Jld") {
			t.Errorf("the log has a secret: %s", line)
		}
	}
}

// Administrative actions are noted: who, from where, what and with what result. What is refused
// for want of a login is none: the log has the login that failed.
func TestAudit(t *testing.T) {
	t.Parallel()
	n := start(t, "")
	n.user("ada", "management")
	n.permit("ada", "/", ".*", ".*", ".*")
	n.do("ada:ada", "DELETE", "/users/guest", "")
	n.do("ada:wrong", "PUT", "/queues/%2F/q", "{}")
	n.do("ada:ada", "GET", "/overview", "")
	n.must("POST", "/exchanges/%2F/amq.default/publish", object{"properties": object{}, "routing_key": "x", "payload": "", "payload_encoding": "string"})
	var noted []string
	for line := range strings.Lines(n.log.String()) {
		if _, text, ok := strings.Cut(line, `msg="administrative action" `); ok {
			fields := map[string]string{}
			for f := range strings.FieldsSeq(text) {
				k, v, _ := strings.Cut(f, "=")
				fields[strings.TrimPrefix(k, "audit.")] = v
			}
			if !strings.HasPrefix(fields["peer"], "127.0.0.1:") {
				t.Errorf("the peer is not noted: %s", line)
			}
			noted = append(noted, strings.Join([]string{fields["user"], fields["method"], fields["resource"], fields["object.user"], fields["result"]}, " "))
		}
	}
	want := []string{
		"guest PUT users/{user} ada done", "guest PUT permissions/{vhost}/{user} ada done", "ada DELETE users/{user} guest refused",
	}
	if !slices.Equal(noted, want) {
		t.Errorf("noted is\n%s\nwant\n%s", strings.Join(noted, "\n"), strings.Join(want, "\n"))
	}
	if !strings.Contains(n.log.String(), "management login refused") {
		t.Error("the login that failed is not in the log")
	}
}

// BR-2.1: nobody comes in without a name, unless that is configured, and then as a user
// with that user's rights.
func TestAnonymous(t *testing.T) {
	t.Parallel()
	for text, user := range map[string]string{
		"handshake_timeout = 1000":    "",
		"compatibility.strict = true": "guest",
		"auth_mechanisms.1 = ANONYMOUS\nanonymous_login_user = ada\nanonymous_login_pass = ada":                           "ada",
		"auth_mechanisms.1 = ANONYMOUS\nanonymous_login_user = ada\nanonymous_login_pass = eve\nhandshake_timeout = 1000": "",
	} {
		n := start(t, text)
		n.user("ada", "")
		n.permit("ada", "/", "", "", "")
		c, err := amqp.DialConfig("amqp://"+n.s.Addresses().AMQP[0].String()+"/", amqp.Config{SASL: []amqp.Authentication{anonymous{}}})
		if (err == nil) != (user != "") {
			t.Errorf("%q: %v", text, err)
		}
		if err != nil {
			continue
		}
		if list := n.must("GET", "/connections", nil); !strings.Contains(list, `"user":"`+user+`"`) {
			t.Errorf("%q: connections are %s", text, list)
		}
		_ = c.Close()
	}
}

// anonymous is the mechanism ANONYMOUS.
type anonymous struct{}

func (anonymous) Mechanism() string { return "ANONYMOUS" }
func (anonymous) Response() string  { return "trace" }
