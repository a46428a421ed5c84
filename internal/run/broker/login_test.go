package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"bartleby.mq/internal/core/declare"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/admission"
	"bartleby.mq/internal/wire/amqp091"
)

// oracle is a backend that knows passwords and permits by name.
type oracle struct {
	passwords map[string]string
	tags      []auth.Tag
	deny      *regexp.Regexp // of questions as texts
	disclosed string
	down      error
	asked     []string
}

func (*oracle) Name() string { return "oracle" }

func (o *oracle) Login(_ context.Context, c auth.Credentials) ([]auth.Tag, error) {
	want, known := o.passwords[c.User]
	switch {
	case o.down != nil:
		return nil, o.down
	case !known || !c.Verified && want != c.Password:
		return nil, &admission.Refusal{Reason: "unknown"}
	}
	return o.tags, nil
}

func (o *oracle) Allow(_ context.Context, q admission.Question) error {
	text := string(q.VHost)
	if q.Kind != admission.VHost {
		text = q.Access.String() + " " + q.Resource.String()
	}
	o.asked = append(o.asked, text)
	switch {
	case o.down != nil:
		return o.down
	case o.deny != nil && o.deny.MatchString(text):
		return &admission.Refusal{Reason: o.disclosed, Disclosed: o.disclosed != ""}
	}
	return nil
}

func openWith(t *testing.T, o Options) *Broker {
	t.Helper()
	o.FS, o.Dir = vfs.NewMem(), "data"
	b, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := b.CreateDefault(Default{VHost: "/", User: "guest", Password: "guest", Tags: []string{"administrator"}, Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
		t.Fatal(err)
	}
	return b
}

var loopback = net.IPv4(127, 0, 0, 1)

// Backends are asked in turn; one may say who a client is and another what it may do.
func TestChainsOfBackends(t *testing.T) {
	knows := &oracle{passwords: map[string]string{"ada": "a", "guest": "other"}, tags: []auth.Tag{"management"}}
	broken := &oracle{down: errors.New("down")}
	for _, tt := range []struct {
		name           string
		chain          []AuthBackend
		user, password string
		ok             bool
		tags           []auth.Tag
		elsewhere      bool
	}{
		{"accounts", nil, "guest", "guest", true, []auth.Tag{"administrator"}, false},
		{"a backend, its user", []AuthBackend{{knows, knows}}, "ada", "a", true, []auth.Tag{"management"}, true},
		{"a backend, wrong password", []AuthBackend{{knows, knows}}, "ada", "b", false, nil, false},
		{"a backend, a user of the accounts", []AuthBackend{{knows, knows}}, "guest", "guest", false, nil, false},
		{"then the accounts", []AuthBackend{{knows, knows}, {}}, "guest", "guest", true, []auth.Tag{"administrator"}, false},
		{"the accounts first", []AuthBackend{{}, {knows, knows}}, "guest", "other", true, []auth.Tag{"management"}, true},
		{"one that is down, then the accounts", []AuthBackend{{broken, broken}, {}}, "guest", "guest", true, []auth.Tag{"administrator"}, false},
		{"one that is down", []AuthBackend{{broken, broken}}, "guest", "guest", false, nil, false},
		{"password there, permissions here", []AuthBackend{{knows, nil}}, "guest", "other", true, []auth.Tag{"management", "administrator"}, false},
		{"password there, no account here", []AuthBackend{{knows, nil}}, "ada", "a", false, nil, false},
		{"password here, permissions there", []AuthBackend{{nil, knows}}, "guest", "other", false, nil, false},
		{"password here, permissions by who does not know it", []AuthBackend{{nil, knows}}, "guest", "guest", false, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := openWith(t, Options{AuthBackends: tt.chain})
			id, err := b.Authenticate(context.Background(), auth.Credentials{User: tt.user, Password: tt.password}, loopback)
			if (err == nil) != tt.ok {
				t.Fatalf("got %v, want ok %v", err, tt.ok)
			}
			if err == nil && (id.Name != tt.user || !slices.Equal(id.Tags, tt.tags) || id.Elsewhere() != tt.elsewhere) {
				t.Errorf("got %+v", id)
			}
		})
	}
}

// BR-2.6: a loopback user is one wherever its password is known.
func TestLoopbackUsersOfBackends(t *testing.T) {
	knows := &oracle{passwords: map[string]string{"guest": "g", "ada": "a"}}
	other := &oracle{passwords: knows.passwords}
	for _, backend := range []AuthBackend{{knows, knows}, {knows, other}} {
		b := openWith(t, Options{AuthBackends: []AuthBackend{backend}})
		for user, ok := range map[string]bool{"guest": false, "ada": true} {
			_, err := b.Authenticate(context.Background(), auth.Credentials{User: user, Password: knows.passwords[user]}, net.IPv4(192, 0, 2, 1))
			if (err == nil) != ok {
				t.Errorf("%s: %v", user, err)
			}
		}
	}
}

// BR-3.3, BR-3.4: a backend that knows a client permits its operations. It is asked for exactly what the table of
// permissions says, and errors have the table's texts.
func TestPermissionsOfBackends(t *testing.T) {
	args := amqp091.Table{{Key: "x-dead-letter-exchange", Value: "amq.fanout"}}
	for _, tt := range []struct {
		name string
		do   func(c *Connection) error
		deny string
		asks []string
		text string
	}{
		{"declare", func(c *Connection) error {
			_, err := c.DeclareQueue(topology.QueueDecl{Name: "q"})
			return err
		}, "configure queue 'q'", []string{"configure queue 'q' in vhost '/'"}, "configure access to queue 'q' in vhost '/' refused for user 'ada'"},
		{"declare with a dead letter exchange", func(c *Connection) error {
			_, err := c.DeclareQueue(topology.QueueDecl{Name: "dq", Arguments: args})
			return err
		}, "write exchange", []string{"configure queue 'dq' in vhost '/'", "read queue 'dq' in vhost '/'", "write exchange 'amq.fanout' in vhost '/'"},
			"write access to exchange 'amq.fanout' in vhost '/' refused for user 'ada'"},
		{"bind", func(c *Connection) error {
			_, err := c.Bind(topology.BindingDecl{Source: "amq.topic", Destination: "there", DestinationKind: topology.QueueResource, Key: "k"})
			return err
		}, "read topic", []string{"write queue 'there' in vhost '/'", "read exchange 'amq.topic' in vhost '/'", "read topic 'k' in exchange 'amq.topic' in vhost '/'"},
			"read access to topic 'k' in exchange 'amq.topic' in vhost '/' refused for user 'ada'"},
		{"publish", func(c *Connection) error {
			_, err := c.Route(&Publication{Exchange: []byte("amq.topic"), Key: []byte("k")})
			return err
		}, "write topic", []string{"write exchange 'amq.topic' in vhost '/'", "write topic 'k' in exchange 'amq.topic' in vhost '/'"},
			"write access to topic 'k' in exchange 'amq.topic' in vhost '/' refused for user 'ada'"},
		{"get", func(c *Connection) error {
			_, _, err := c.Get("there", true)
			return err
		}, "read queue", []string{"read queue 'there' in vhost '/'"}, "read access to queue 'there' in vhost '/' refused for user 'ada'"},
		{"passive", func(c *Connection) error {
			_, err := c.PassiveQueue("there")
			return err
		}, "queue", []string{"write queue 'there' in vhost '/'"}, "configure access to queue 'there' in vhost '/' refused for user 'ada'"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := &oracle{passwords: map[string]string{"ada": "a"}}
			b := openWith(t, Options{AuthBackends: []AuthBackend{{o, o}}})
			if _, err := b.AsOperator("op", "/").DeclareQueue(topology.QueueDecl{Name: "there", Durable: true}); err != nil {
				t.Fatal(err)
			}
			id, err := b.Authenticate(context.Background(), auth.Credentials{User: "ada", Password: "a"}, loopback)
			if err != nil {
				t.Fatal(err)
			}
			c := b.For(id, "/")
			if err := tt.do(c); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(o.asked, tt.asks) {
				t.Errorf("asked for %q, want %q", o.asked, tt.asks)
			}
			if err := tt.do(c); err != nil || len(o.asked) != len(tt.asks) {
				t.Errorf("the second time %v, asked for %q", err, o.asked)
			}
			if _, err := b.AsOperator("op", "/").DeleteQueue("dq", false, false); err != nil { // for it to be new
				t.Fatal(err)
			}
			refused := func(want string) {
				t.Helper()
				err := tt.do(b.For(id, "/"))
				var e *topology.Error
				if !errors.As(err, &e) || e.Kind != topology.AccessRefused || e.Text != want {
					t.Errorf("got %v, want %q", err, want)
				}
			}
			o.deny = regexp.MustCompile(tt.deny)
			refused(tt.text)
			o.disclosed = "not today"
			refused(tt.text + " by backend oracle: not today")
			o.down = errors.New("secret details")
			if err := tt.do(b.For(id, "/")); err == nil || !strings.Contains(err.Error(), "refused for user 'ada', backend oracle returned an error") || strings.Contains(err.Error(), "details") {
				t.Errorf("with the backend down: %v", err)
			}
		})
	}
}

// BR-3.5: of many keys each is asked for once, in order up to the first refusal, and a few looks at the publish find
// out which ones are needed.
func TestManyKeysOfBackends(t *testing.T) {
	const keys = 100
	o := &oracle{passwords: map[string]string{"ada": "a"}}
	b := openWith(t, Options{AuthBackends: []AuthBackend{{o, o}}})
	id, err := b.Authenticate(context.Background(), auth.Credentials{User: "ada", Password: "a"}, loopback)
	if err != nil {
		t.Fatal(err)
	}
	p := &Publication{Exchange: []byte("amq.topic"), Key: []byte("k0")}
	asks := []string{"write exchange 'amq.topic' in vhost '/'"}
	for i := range keys {
		key := fmt.Sprint("k", i)
		asks = append(asks, "write topic '"+key+"' in exchange 'amq.topic' in vhost '/'")
		if i > 0 {
			p.cc = append(p.cc, []byte(key))
		}
	}
	c := b.For(id, "/")
	looks := 0
	err = c.decided(func() error {
		looks++
		_, err := c.route(p)
		return err
	})
	if err != nil || !slices.Equal(o.asked, asks) || looks > 3 {
		t.Errorf("%v; %d looks, asked %d times: %q", err, looks, len(o.asked), o.asked)
	}
	o.asked, o.deny = nil, regexp.MustCompile("'k7'")
	if _, err := b.For(id, "/").Route(p); err == nil || !slices.Equal(o.asked, asks[:9]) {
		t.Errorf("%v; asked %q", err, o.asked)
	}
}

// BR-3.6: an answer counts for a few seconds, and routes that depend on it no longer than that.
func TestAnswersOfBackendsGetOld(t *testing.T) {
	o := &oracle{passwords: map[string]string{"ada": "a"}}
	b := openWith(t, Options{AuthBackends: []AuthBackend{{o, o}}})
	id, err := b.Authenticate(context.Background(), auth.Credentials{User: "ada", Password: "a"}, loopback)
	if err != nil {
		t.Fatal(err)
	}
	c := b.For(id, "/")
	p := &Publication{Exchange: []byte("amq.direct"), Key: []byte("k")}
	if _, err := c.Route(p); err != nil {
		t.Fatal(err)
	}
	o.deny = regexp.MustCompile("write")
	if _, err := c.Route(p); err != nil {
		t.Error("the answer does not hold: ", err)
	}
	c.elsewhere.oldest = time.Now().Add(-time.Second)
	if _, err := c.Route(p); err == nil {
		t.Error("an answer that is old still holds")
	}
}

// BR-3.1, BR-3.7: a backend says who may enter a virtual host. A missing virtual host gives the usual error.
func TestVHostsOfBackends(t *testing.T) {
	o := &oracle{passwords: map[string]string{"ada": "a"}}
	b := openWith(t, Options{AuthBackends: []AuthBackend{{o, o}}})
	id, err := b.Authenticate(context.Background(), auth.Credentials{User: "ada", Password: "a"}, loopback)
	if err != nil {
		t.Fatal(err)
	}
	login := Login{Identity: id, User: "ada"}
	if _, err := b.Connect(login, Peer{PeerHost: "127.0.0.1"}, "nope", nil); err == nil || err.Error() != "vhost nope not found" {
		t.Errorf("a virtual host that is not there: %v", err)
	}
	c, err := b.Connect(login, Peer{PeerHost: "127.0.0.1"}, "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.OpenChannel(); err != nil {
		t.Error(err)
	}
	c.CloseChannel()
	c.Disconnect()
	o.deny = regexp.MustCompile("^/$")
	if _, err := b.Connect(login, Peer{}, "/", nil); err == nil || err.Error() != "access to vhost '/' refused for user 'ada'" {
		t.Errorf("refused: %v", err)
	}
}

// BR-3.7: the channels of a node.
func TestChannelsOfTheNode(t *testing.T) {
	b := openWith(t, Options{NodeName: "n@h"})
	b.SetAccountRules(AccountRules{MaxChannels: 2})
	one, two := b.As("guest", "/"), b.As("guest", "/")
	for _, c := range []*Connection{one, two} {
		if err := c.OpenChannel(); err != nil {
			t.Fatal(err)
		}
	}
	if err := one.OpenChannel(); err == nil || err.Error() != "number of channels opened on node 'n@h' has reached the maximum allowed limit of (2)" {
		t.Errorf("a third channel: %v", err)
	}
	two.CloseChannel()
	if err := one.OpenChannel(); err != nil {
		t.Error(err)
	}
}

// BR-2.7: new passwords are hashed as the rules say, and old ones still work.
func TestPasswordRules(t *testing.T) {
	b := openWith(t, Options{})
	b.SetAccountRules(AccountRules{Hashing: auth.Argon2id, MinPassword: 4, PasswordPattern: regexp.MustCompile("[0-9]")})
	for _, bad := range []string{"abc", "abcd", ""} {
		if _, err := b.HashPassword(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	hash, err := b.HashPassword("abcd1")
	if err != nil || hash.Algorithm != auth.Argon2id {
		t.Fatalf("%+v, %v", hash, err)
	}
	if _, err := b.By("").Do(declare.PutUser{Name: "ada", Password: hash, Tags: nil}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []auth.Credentials{{User: "ada", Password: "abcd1"}, {User: "guest", Password: "guest"}, {User: "ada", Password: "abcd1"}} {
		if _, err := b.Authenticate(context.Background(), c, loopback); err != nil {
			t.Error(err)
		}
	}
	next, err := b.HashPassword("other1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.By("").Do(declare.PutUser{Name: "ada", Password: next, Tags: nil}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Authenticate(context.Background(), auth.Credentials{User: "ada", Password: "abcd1"}, loopback); err == nil {
		t.Error("the old password is still remembered")
	}
}

// A login that failed often is answered late; a correct one is not.
func TestLateAnswers(t *testing.T) {
	b := openWith(t, Options{AccountRules: AccountRules{Throttle: admission.ThrottleLimits{Free: 2, Most: 80 * time.Millisecond}}})
	try := func(password string) time.Duration {
		began := time.Now()
		_, err := b.Authenticate(context.Background(), auth.Credentials{User: "guest", Password: password}, loopback)
		if (err == nil) != (password == "guest") {
			t.Errorf("password %q: %v", password, err)
		}
		return time.Since(began)
	}
	for i := range 4 {
		if took := try("wrong"); (took >= 80*time.Millisecond) != (i >= 2) && i >= 2 {
			t.Errorf("failure %d was answered after %v", i+1, took)
		}
	}
	if took := try("guest"); took >= 80*time.Millisecond {
		t.Errorf("the right password was answered after %v", took)
	}
}

// In a flood of guesses from an address, for other names and for the same one, a client with the right password is
// let in from there, even the first time, and one without is not.
func TestTheRightPasswordInAFlood(t *testing.T) {
	b := openWith(t, Options{AccountRules: AccountRules{Throttle: admission.ThrottleLimits{Free: 1, Most: time.Minute}}})
	from, _ := netip.AddrFromSlice(loopback)
	for i := range 1000 {
		name := "guest"
		if i%10 > 0 {
			name = fmt.Sprint("user", i%100)
		}
		attempt, _ := b.throttle.Begin(from.Unmap(), name)
		_ = attempt.Failed() // and its answer is held back as long as the test takes
	}
	for i := range 32 {
		if _, err := b.Authenticate(context.Background(), auth.Credentials{User: "guest", Password: "guest"}, loopback); err != nil {
			t.Errorf("login %d: %v", i+1, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // nobody waits for the answer
	if _, err := b.Authenticate(ctx, auth.Credentials{User: "guest", Password: "wrong"}, loopback); err == nil {
		t.Error("a wrong password is let in")
	}
}

// A login counts as failed, too, if the accounts have refused it and the backend after them gives no answer, or if
// the client has left meanwhile.
func TestLoginsWithoutAnAnswerCount(t *testing.T) {
	left, leave := context.WithCancel(context.Background())
	leave()
	for name, ctx := range map[string]context.Context{"a backend that is down": context.Background(), "a client that has left": left} {
		t.Run(name, func(t *testing.T) {
			down := &oracle{down: errors.New("down")}
			b := openWith(t, Options{AuthBackends: []AuthBackend{{}, {down, down}}, AccountRules: AccountRules{Throttle: admission.ThrottleLimits{Free: 1, Most: time.Millisecond}}})
			for range 2 {
				if _, err := b.Authenticate(ctx, auth.Credentials{User: "guest", Password: "wrong"}, loopback); err == nil {
					t.Fatal("a wrong password is let in")
				}
			}
			from, _ := netip.AddrFromSlice(loopback)
			attempt, _ := b.throttle.Begin(from, "guest")
			if attempt.Failed() == 0 {
				t.Error("the third guess is answered at once")
			}
		})
	}
}

// The standing of a waiting client is reported to code that may need its place.
func TestHowClientsStand(t *testing.T) {
	b := openWith(t, Options{AccountRules: AccountRules{Throttle: admission.ThrottleLimits{Free: 1, Most: time.Millisecond}}})
	from, _ := netip.AddrFromSlice(loopback)
	login := func(password string) (stood []Standing) {
		_, _ = b.AuthenticateTelling(context.Background(), auth.Credentials{User: "guest", Password: password}, loopback, func(s Standing) { stood = append(stood, s) })
		return stood
	}
	if got := login("wrong"); !slices.Equal(got, []Standing{Refused}) {
		t.Error(got)
	}
	b.SetAccountRules(AccountRules{Throttle: admission.ThrottleLimits{Free: 1, Most: time.Minute}})
	for range 10 {
		attempt, _ := b.throttle.Begin(from.Unmap(), "guest")
		_ = attempt.Failed()
	}
	_, _ = b.throttle.Begin(from.Unmap(), "guest") // has the turn that is now
	if got := login("guest"); !slices.Equal(got, []Standing{PutOff, Undecided}) {
		t.Error(got)
	}
	if got := login("guest"); len(got) > 0 { // it was let in lately
		t.Error(got)
	}
}

// An account's name is as limited as any other name; a longer one is refused before anybody is asked.
func TestNobodyIsAskedAboutLongNames(t *testing.T) {
	long := strings.Repeat("u", 256)
	o := &oracle{passwords: map[string]string{long: "p", long[1:]: "p"}}
	b := openWith(t, Options{AuthBackends: []AuthBackend{{o, o}}})
	for _, c := range []struct {
		given auth.Credentials
		let   bool
	}{
		{auth.Credentials{User: long, Password: "p"}, false},
		{auth.Credentials{User: long[1:], Password: "p"}, true},
		{auth.Credentials{User: long, Verified: true}, true}, // a certificate's
	} {
		_, err := b.Authenticate(t.Context(), c.given, loopback)
		if (err == nil) != c.let {
			t.Errorf("a name of %d bytes, by a certificate: %v: %v", len(c.given.User), c.given.Verified, err)
		}
	}
}

// A client that leaves while it waits for a slow hash has no turn and takes none.
func TestWhoGoesAwayHasNoTurn(t *testing.T) {
	b := openWith(t, Options{})
	b.SetAccountRules(AccountRules{Hashing: auth.Argon2id})
	for range runtime.GOMAXPROCS(0) {
		if !b.hashing.Begin(hashingLine{}, nil, nil) {
			t.Fatal("no place")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	guess := auth.Credentials{User: "nobody", Password: "x"}
	if _, err := b.Authenticate(ctx, guess, loopback); !errors.Is(err, context.Canceled) {
		t.Errorf("while there is no place: %v", err)
	}
	for range runtime.GOMAXPROCS(0) {
		b.hashing.End()
	}
	var wrong *auth.LoginError
	if _, err := b.Authenticate(t.Context(), guess, loopback); !errors.As(err, &wrong) {
		t.Errorf("with places: %v", err)
	}
}

// In a flood of guesses from one address a password that was right lately gets the second place that is free, and guesses beyond a number are
// refused without a wait.
func TestAFloodOfGuessesHasALineOfItsOwn(t *testing.T) {
	b := openWith(t, Options{})
	b.SetAccountRules(AccountRules{Hashing: auth.Argon2id})
	hash, err := b.HashPassword("right")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.By("").Do(declare.PutUser{Name: "ada", Password: hash, Tags: nil}); err != nil {
		t.Fatal(err)
	}
	guesses := hashingLine{from: admission.NetworkOf(netip.MustParseAddr("127.0.0.1"))}
	for range runtime.GOMAXPROCS(0) {
		b.hashing.Begin(guesses, nil, nil)
	}
	over := make(chan struct{})
	var flood sync.WaitGroup
	for range mostHashing {
		flood.Go(func() {
			if b.hashing.Begin(guesses, over, nil) {
				<-over
				b.hashing.End()
			}
		})
	}
	inLine := func(l hashingLine, n int) {
		for b.hashing.Line(l) != n {
			runtime.Gosched()
		}
	}
	inLine(guesses, mostHashing)
	var refused *auth.LoginError
	if _, err := b.Authenticate(t.Context(), auth.Credentials{User: "ada", Password: "guess"}, loopback); !errors.As(err, &refused) || !strings.Contains(err.Error(), "too many passwords") {
		t.Errorf("a guess beyond the line: %v", err)
	}
	b.recent.Is("ada", "", "right")
	known := make(chan error)
	go func() {
		_, err := b.Authenticate(t.Context(), auth.Credentials{User: "ada", Password: "right"}, loopback)
		known <- err
	}()
	inLine(hashingLine{guesses.from, true}, 1)
	b.hashing.End()
	b.hashing.End()
	if err := <-known; err != nil {
		t.Errorf("the right password: %v", err)
	}
	close(over)
	flood.Wait()
	for range runtime.GOMAXPROCS(0) - 2 {
		b.hashing.End()
	}
}
