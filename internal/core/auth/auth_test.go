package auth

import (
	"crypto/md5"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/mutation"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/wire/amqp091"
)

var salt = [saltSize]byte{1, 2, 3, 4}

// newUsers has guest, from loopback only, and u, both with the password "pw".
func newUsers(t *testing.T) *Users {
	t.Helper()
	u := New("guest")
	_, _ = u.PutUser("guest", SHA256.Hash("pw", salt[:]), []Tag{Administrator})
	_, _ = u.PutUser("u", SHA256.Hash("pw", salt[:]), nil)
	return u
}

func expectRefusal(t *testing.T, err error, kind topology.Kind, text string) {
	t.Helper()
	var e *topology.Error
	if !errors.As(err, &e) || e.Kind != kind || e.Text != text {
		t.Errorf("got %v, want the refusal %q", err, text)
	}
}

func TestBR_2_2_Mechanisms(t *testing.T) {
	amqplainResponse := func(fields ...amqp091.Field) string { return string(amqp091.AppendTable(nil, fields)[4:]) }
	for _, c := range []struct {
		mechanism, response string
		user, password      string
		malformed           bool
	}{
		{"PLAIN", "\x00guest\x00pw", "guest", "pw", false},
		{"PLAIN", "authz\x00guest\x00pw", "guest", "pw", false},
		{"PLAIN", "\x00guest\x00", "guest", "", false},
		{"PLAIN", "", "", "", true},
		{"PLAIN", "guest\x00pw", "", "", true},
		{"PLAIN", "\x00a\x00b\x00c", "", "", true},
		{"AMQPLAIN", amqplainResponse(amqp091.Field{Key: "LOGIN", Value: "guest"}, amqp091.Field{Key: "PASSWORD", Value: "pw"}), "guest", "pw", false},
		{"AMQPLAIN", amqplainResponse(amqp091.Field{Key: "LOGIN", Value: "guest"}), "", "", true},
		{"AMQPLAIN", amqplainResponse(amqp091.Field{Key: "LOGIN", Value: int64(1)}, amqp091.Field{Key: "PASSWORD", Value: "pw"}), "", "", true},
		{"AMQPLAIN", "", "", "", true},
	} {
		m, ok := NewMechanism(c.mechanism)
		if !ok || m.Name() != c.mechanism {
			t.Fatalf("no mechanism %s", c.mechanism)
		}
		_, got, err := m.Step([]byte(c.response))
		if c.malformed {
			if err != ErrMalformed {
				t.Errorf("%s %q: %v, want it malformed", c.mechanism, c.response, err)
			}
		} else if err != nil || *got != (Credentials{User: c.user, Password: c.password}) {
			t.Errorf("%s %q: %+v, %v", c.mechanism, c.response, got, err)
		}
	}
	if _, ok := NewMechanism("CRAM-MD5"); ok {
		t.Error("CRAM-MD5 is offered")
	}
}

func TestBR_2_3_External(t *testing.T) {
	u := newUsers(t)
	_, c, err := NewExternal("u").Step(nil)
	if err != nil {
		t.Fatal(err)
	}
	if user, err := u.Authenticate(*c, false); err != nil || user.Name != "u" {
		t.Errorf("got %+v, %v", user, err)
	}
}

func TestBR_2_6_Authenticate(t *testing.T) {
	u := newUsers(t)
	_, _ = u.PutUser("nobody", SHA256.Hash("", salt[:]), nil)
	for _, c := range []struct {
		user, password string
		loopback, ok   bool
	}{
		{"u", "pw", false, true},
		{"u", "wrong", true, false},
		{"u", "", true, false},
		{"guest", "pw", true, true},
		{"guest", "pw", false, false},
		{"nobody", "", true, false},
		{"missing", "pw", true, false},
	} {
		user, err := u.Authenticate(Credentials{User: c.user, Password: c.password}, c.loopback)
		if (err == nil) != c.ok || c.ok && user.Name != c.user {
			t.Errorf("login of %q with %q, loopback %v: %v, want ok %v", c.user, c.password, c.loopback, err, c.ok)
		}
		var login *LoginError
		if err != nil && (!errors.As(err, &login) || login.User != c.user) {
			t.Errorf("the error is %v, want a LoginError", err)
		}
	}
	expectRefusal(t, LoginRefused("PLAIN"), topology.AccessRefused,
		"Login was refused using authentication mechanism PLAIN. For details see the broker logfile.")
}

func TestBR_2_7_PasswordHashes(t *testing.T) {
	// The example of RabbitMQ's documentation: salt 908DC60A, password "test12".
	documented := PasswordHash{"kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR", SHA256}
	if got := SHA256.Hash("test12", []byte{0x90, 0x8d, 0xc6, 0x0a}); got != documented {
		t.Errorf("the hash is %+v, want %+v", got, documented)
	}
	salted := append(salt[:], "pw"...)
	sum512, sumMD5 := sha512.Sum512(salted), md5.Sum(salted)
	for a, sum := range map[Algorithm][]byte{SHA512: sum512[:], MD5: sumMD5[:]} {
		h, err := ImportHash(base64.StdEncoding.EncodeToString(append(salt[:], sum...)), a)
		if err != nil || !h.Matches("pw") || h.Matches("pW") {
			t.Errorf("%s: %v, matches %v", a, err, h.Matches("pw"))
		}
	}
	if _, err := ImportHash("", "rot13"); err == nil {
		t.Error("an unknown algorithm was accepted")
	}
	if _, err := ImportHash("%", ""); err == nil {
		t.Error("a hash that is not base64 was accepted")
	}
	if h, err := ImportHash("", ""); err != nil || h.Matches("") {
		t.Errorf("the empty hash: %v, matches %v", err, h.Matches(""))
	}
}

func TestBR_3_1_NoPermission(t *testing.T) {
	u := newUsers(t)
	_, err := u.Grants("u", "v", "")
	expectRefusal(t, err, topology.NotAllowed, "access to vhost 'v' refused for user 'u'")
	_, err = u.PutPermission(Permission{VHost: "v", User: "missing"})
	expectRefusal(t, err, topology.Invalid, "vhost_or_user_not_found")
}

func grants(t *testing.T, u *Users, p Permission) *Grants {
	t.Helper()
	p.VHost, p.User = "v", "u"
	if _, err := u.PutPermission(p); err != nil {
		t.Fatal(err)
	}
	g, err := u.Grants("u", "v", "client.1")
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func queue(name string) topology.Resource {
	return topology.Resource{VHost: "v", Kind: topology.QueueResource, Name: name}
}

func exchange(name string) topology.Resource {
	return topology.Resource{VHost: "v", Kind: topology.ExchangeResource, Name: name}
}

func TestBR_3_2_Expressions(t *testing.T) {
	u := newUsers(t)
	for _, c := range []struct {
		expression, name string
		want             bool
	}{
		{".*", "q", true},
		{"orders", "my-orders-1", true},
		{"^orders$", "my-orders", false},
		{"", "q", false},
		{"^$", "q", false},
		{"(", "q", false},
		{"(", "(", false},
	} {
		g := grants(t, u, Permission{Read: c.expression})
		if got := g.Check(topology.Read, queue(c.name)) == nil; got != c.want {
			t.Errorf("%q allows %q: %v, want %v", c.expression, c.name, got, c.want)
		}
	}
	g := grants(t, u, Permission{Write: "^amq.default$"})
	if err := g.Check(topology.Write, exchange("")); err != nil {
		t.Error(err)
	}
}

func TestBR_3_4_Texts(t *testing.T) {
	g := grants(t, newUsers(t), Permission{})
	expectRefusal(t, g.Check(topology.Configure, queue("q")), topology.AccessRefused, "configure access to queue 'q' in vhost 'v' refused for user 'u'")
	expectRefusal(t, g.Check(topology.Write, exchange("x")), topology.AccessRefused, "write access to exchange 'x' in vhost 'v' refused for user 'u'")
	expectRefusal(t, g.Check(topology.Write, exchange("")), topology.AccessRefused, "write access to exchange 'amq.default' in vhost 'v' refused for user 'u'")
	expectRefusal(t, g.CheckAny(queue("q")), topology.AccessRefused, "configure access to queue 'q' in vhost 'v' refused for user 'u'")
	if err := grants(t, newUsers(t), Permission{Write: "q"}).CheckAny(queue("q")); err != nil {
		t.Error(err)
	}
}

func TestBR_3_5_TopicPermissions(t *testing.T) {
	u := newUsers(t)
	topic := func(exchange, key string) topology.Resource {
		return topology.Resource{VHost: "v", Kind: topology.TopicResource, Name: exchange, Key: key}
	}
	if _, err := u.PutTopicPermission(TopicPermission{VHost: "v", User: "u", Exchange: "t", Write: "^a", Read: `^{username}\.{vhost}\.{client_id}$`}); err != nil {
		t.Fatal(err)
	}
	g := grants(t, u, Permission{})
	for _, c := range []struct {
		access        topology.Access
		exchange, key string
		want          string
	}{
		{topology.Write, "t", "a.1", ""},
		{topology.Write, "t", "b.1", "write access to topic 'b.1' in exchange 't' in vhost 'v' refused for user 'u'"},
		{topology.Write, "other", "b.1", ""},
		{topology.Read, "t", "u.v.client.1", ""},
		{topology.Read, "t", "u.v.clientX1", "read access to topic 'u.v.clientX1' in exchange 't' in vhost 'v' refused for user 'u'"},
	} {
		err := g.Check(c.access, topic(c.exchange, c.key))
		if c.want != "" {
			expectRefusal(t, err, topology.AccessRefused, c.want)
		} else if err != nil {
			t.Error(err)
		}
	}
	if !u.DeleteTopicPermissions("v", "u", nil) || u.DeleteTopicPermissions("v", "u", nil) {
		t.Error("deleting topic permissions says the wrong thing")
	}
	if g.Check(topology.Write, topic("t", "b")) == nil {
		t.Error("grants resolved earlier have changed")
	}
}

func TestBR_3_7_UserLimits(t *testing.T) {
	u := newUsers(t)
	for l, n := range map[Limit]int64{MaxConnections: 1, MaxChannels: 2} {
		if err := u.SetLimits("u", map[Limit]any{l: n}); err != nil {
			t.Fatal(err)
		}
	}
	user, _ := u.User("u")
	if err := user.CheckConnections(0); err != nil {
		t.Error(err)
	}
	expectRefusal(t, user.CheckConnections(1), topology.NotAllowed, "connection refused for user 'u': user connection limit (1) is reached")
	expectRefusal(t, user.CheckChannels(2), topology.NotAllowed, "number of channels opened for user 'u' has reached the maximum allowed user limit of 2")
	if err := u.ClearLimit("u", MaxConnections); err != nil {
		t.Fatal(err)
	}
	if err := u.SetLimits("u", map[Limit]any{MaxChannels: int64(-1)}); err != nil {
		t.Fatal(err)
	}
	user, _ = u.User("u")
	if err := errors.Join(user.CheckConnections(99), user.CheckChannels(99)); err != nil {
		t.Error(err)
	}
	expectRefusal(t, u.SetLimits("u", map[Limit]any{"bogus": int64(1)}), topology.Invalid, "Validation failed\n\nUnrecognised terms [{<<\"bogus\">>,1}] in user-limits\n")
	u.TakeChanges()
	if err := u.SetLimits("u", map[Limit]any{MaxConnections: int64(7), "bogus": int64(1)}); err == nil || len(u.TakeChanges()) != 0 {
		t.Error("one of several limits is refused, and another is set")
	}
	if err := u.SetLimits("u", map[Limit]any{MaxConnections: int64(7), MaxChannels: int64(8)}); err != nil || len(u.TakeChanges()) != 1 {
		t.Errorf("two limits are not one change: %v", err)
	}
}

func TestBR_3_10_Tags(t *testing.T) {
	u := newUsers(t)
	guest, _ := u.User("guest")
	other, _ := u.User("u")
	if !guest.MayManage() || other.MayManage() || guest.HasTag(Impersonator) {
		t.Error("tags say the wrong thing")
	}
	if got := ParseTags(" administrator, mine,,"); len(got) != 2 || got[1] != "mine" {
		t.Errorf("tags are %q", got)
	}
}

func TestAccountsSurviveARestart(t *testing.T) {
	u := newUsers(t)
	for _, vhost := range []message.VHost{"/", "gone"} {
		if _, err := u.PutPermission(Permission{VHost: vhost, User: "u", Configure: "a", Write: "b", Read: "c"}); err != nil {
			t.Fatal(err)
		}
		if _, err := u.PutTopicPermission(TopicPermission{VHost: vhost, User: "u", Exchange: "t", Write: "a", Read: "b"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := u.SetLimits("u", map[Limit]any{MaxChannels: int64(5)}); err != nil {
		t.Fatal(err)
	}
	_, _ = u.PutUser("deleted", PasswordHash{}, nil)
	u.DeleteUser("deleted")
	u.DeleteVHost("gone")

	store := map[string][]byte{"topology/other": nil}
	for key, value := range mutation.All(u.TakeChanges()) {
		if value == nil {
			delete(store, string(key))
		} else {
			store[string(key)] = value
		}
	}
	v, err := Load(func(yield func(k, v []byte) bool) {
		for k, v := range store {
			if !yield([]byte(k), v) {
				return
			}
		}
	}, "guest")
	if err != nil {
		t.Fatal(err)
	}
	user, ok := v.User("u")
	if n, limited := user.Limit(MaxChannels); !ok || !limited || n != 5 || len(v.List()) != 2 {
		t.Errorf("users came back as %+v", v.List())
	}
	if _, err := v.Authenticate(Credentials{User: "guest", Password: "pw"}, true); err != nil {
		t.Error(err)
	}
	if p := v.Permissions(); len(p) != 1 || p[0].Configure != "a" || p[0].patterns[topology.Read] == nil {
		t.Errorf("permissions came back as %+v", p)
	}
	if p := v.TopicPermissions(); len(p) != 1 || p[0].Write != "a" {
		t.Errorf("topic permissions came back as %+v", p)
	}
	if UserDeleted("u") != "user 'u' is deleted" {
		t.Error("BR-2.8: wrong text")
	}
}

// An earlier version let in a user whose name is not UTF-8; its record has another name, its key has not.
func TestUsersThatAreNotTextAreReadFromTheirKeys(t *testing.T) {
	u, err := Load(func(yield func(key, value []byte) bool) {
		yield([]byte(userKey("u\xff")), []byte(`{"v":1,"name":"u\ufffd","password_hash":"","hashing_algorithm":"rabbit_password_hashing_sha256"}`))
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := u.User("u\ufffd"); ok {
		t.Error("it became another user")
	}
	if !u.DeleteUser("u\xff") {
		t.Fatal("the user is not there")
	}
	changes := u.TakeChanges()
	if len(changes) != 1 || changes[0].Value != nil || string(changes[0].Key) != "auth/user/u%FF" {
		t.Errorf("deleted: %v", changes)
	}
}

func TestUserNamesAreChecked(t *testing.T) {
	u := New()
	for _, name := range []string{"u\xff", strings.Repeat("u", 256)} {
		if _, err := u.PutUser(name, PasswordHash{}, nil); err == nil || len(u.TakeChanges()) != 0 {
			t.Errorf("%q became a user", name)
		}
	}
}
