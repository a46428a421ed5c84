package auth

import (
	"errors"
	"strings"
	"testing"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
)

// huge stands for a program of a hundred megabytes.
var huge = strings.Repeat("a{1000}", 3000)

func isInvalid(err error) bool {
	var refusal *topology.Error
	return errors.As(err, &refusal) && refusal.Kind == topology.Invalid
}

// BR-3.2, BR-3.5: an expression that would take much memory is not set.
func TestBR_3_2_ExpressionsAreBounded(t *testing.T) {
	u := New()
	if _, err := u.PutUser("user", PasswordHash{}, nil); err != nil {
		t.Fatal(err)
	}
	for place := range 3 {
		expressions := []string{".*", ".*", ".*"}
		expressions[place] = huge
		_, err := u.PutPermission(Permission{VHost: "v", User: "user", Configure: expressions[0], Write: expressions[1], Read: expressions[2]})
		if !isInvalid(err) {
			t.Errorf("a huge expression in place %d: %v", place, err)
		}
	}
	named := "(?:{username}){1000}{1}"
	for _, p := range []TopicPermission{{Write: huge}, {Read: huge}, {Write: strings.Replace(named, "{1}", "(?:{vhost}){1000}", 1)}} {
		p.VHost, p.User, p.Exchange = message.VHost("v"), "user", "t"
		if _, err := u.PutTopicPermission(p); !isInvalid(err) {
			t.Errorf("a huge expression of a topic permission: %v", err)
		}
	}
	if len(u.Permissions())+len(u.TopicPermissions()) != 0 {
		t.Error("something is set")
	}
}

// What was taken when expressions might be larger is in force: it does not deny everything.
func TestStoredExpressionsMayBeLarge(t *testing.T) {
	const large = "^x.{0,999}"
	u := New()
	u.addPermission(Permission{VHost: "v", User: "u", Configure: large, Write: large, Read: large})
	if p, _ := u.Permission("v", "u"); p.patterns[topology.Read] == nil || !p.patterns[topology.Read].MatchString("xy") {
		t.Error("a stored permission denies what it allowed")
	}
	if p := newTopicPattern(large, "v", "u"); p.compiled == nil {
		t.Error("a stored topic permission denies everything")
	}
}

// An id of a client makes no expression large: who calls itself so may nothing.
func TestBR_3_5_ClientIDsAreBounded(t *testing.T) {
	p := newTopicPattern("^(?:{client_id}){100}", "v", "u")
	if p.with("abc") == nil {
		t.Error("a usual client id makes no expression")
	}
	if p.with(strings.Repeat("x", 60_000)) != nil {
		t.Error("an expression of six million steps is compiled")
	}
}

// BR-3.5: an expression that depends on the client is compiled once for the keys of a message, not for each.
func TestBR_3_5_ExpressionsWithAClientIDAreCompiledOnce(t *testing.T) {
	u := newUsers(t)
	for exchange, write := range map[message.ExchangeName]string{"t": `^{client_id}\.`, "other": `^{client_id}$`, "large": "^(?:{client_id}){4000}"} {
		if _, err := u.PutTopicPermission(TopicPermission{VHost: "v", User: "u", Exchange: exchange, Write: write, Read: "^r"}); err != nil {
			t.Fatal(err)
		}
	}
	g := grants(t, u, Permission{})
	allowed := func(a topology.Access, exchange, key string) bool {
		return g.Check(a, topology.Resource{VHost: "v", Kind: topology.TopicResource, Name: exchange, Key: key}) == nil
	}
	if !allowed(topology.Write, "t", "client.1.a") {
		t.Error("a key with the client id is refused")
	}
	first := g.compiled
	if allowed(topology.Write, "t", "clientX1.a") || !allowed(topology.Write, "t", "client.1.b") {
		t.Error("the second and the third key get the wrong answers")
	}
	if first == nil || g.compiled != first {
		t.Error("the expression is compiled for each key")
	}
	if allowed(topology.Write, "other", "client.1.a") || !allowed(topology.Write, "other", "client.1") ||
		allowed(topology.Write, "large", "client.1") || !allowed(topology.Write, "t", "client.1.a") || !allowed(topology.Read, "t", "r") {
		t.Error("the expression of another exchange answers")
	}
}
