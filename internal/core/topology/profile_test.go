package topology

import (
	"strings"
	"testing"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/routing"
)

func apsaraFixture(t *testing.T) *fixture {
	return newFixture(t, Options{DefaultProfile: deadletter.ApsaraMQ})
}

// wantRefusal checks kind and text of a refusal.
func wantRefusal(t *testing.T, err error, kind Kind, text string) {
	t.Helper()
	if e, ok := err.(*Error); !ok || e.Kind != kind || !strings.Contains(e.Text, text) {
		t.Errorf("refused with %v, want %v: … %s …", err, kind, text)
	}
}

// A virtual host has the server's profile when it is made, unless it is told one, and keeps it whatever the server's
// is later.
func TestProfileOfNewVHost(t *testing.T) {
	f := newFixture(t, Options{})
	if p := f.vhost().Profile(); p != deadletter.RabbitMQ {
		t.Errorf("profile %s", p)
	}
	if _, _, err := f.PutVHost("told", Metadata{Profile: deadletter.ApsaraMQ}); err != nil {
		t.Fatal(err)
	}
	f.options.DefaultProfile = deadletter.ApsaraMQ
	f = f.restart()
	if p := f.vhost().Profile(); p != deadletter.RabbitMQ {
		t.Errorf("after a restart with another default the profile is %s", p)
	}
	told, _ := f.VHost("told")
	if p := told.Profile(); p != deadletter.ApsaraMQ {
		t.Errorf("profile %s, told to be another", p)
	}
	v, _, err := f.PutVHost("new", Metadata{})
	if err != nil || v.Profile() != deadletter.ApsaraMQ {
		t.Errorf("a new one has %s, %v", v.Profile(), err)
	}
	_, _, err = f.PutVHost("odd", Metadata{Profile: "kafka"})
	wantRefusal(t, err, Invalid, "kafka is not a valid profile")
}

// The profile can change only while nothing was made by its rules.
func TestProfileIsFixed(t *testing.T) {
	f := newFixture(t, Options{})
	q := f.queue(durableQueue("q"))
	change := func(p deadletter.Profile) error {
		_, _, err := f.PutVHost(vh, Metadata{Profile: p})
		return err
	}
	wantRefusal(t, change(deadletter.ApsaraMQ), Invalid, "the profile of vhost 'v' is rabbitmq and cannot change: it has 1 queues")
	if err := change(deadletter.RabbitMQ); err != nil {
		t.Error(err)
	}
	f.DeleteQueue(q)
	if _, err := f.PutPolicy(vh, PolicyDecl{Name: "p", Pattern: "", Definition: Definition{"message-ttl": int64(1)}}, false); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, change(deadletter.ApsaraMQ), Invalid, "policy 'p' sets message-ttl")
	if _, err := f.DeletePolicy(vh, "p", false); err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.DeclareExchange(ExchangeDecl{VHost: vh, Name: "two words", Type: routing.Direct}, nil); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, change(deadletter.ApsaraMQ), Invalid, "its exchange 'two words'")
	if _, err := f.DeleteExchange(vh, "two words", false, nil); err != nil {
		t.Fatal(err)
	}
	if err := change(deadletter.ApsaraMQ); err != nil {
		t.Error(err)
	}
	if err := change(""); err != nil || f.vhost().Profile() != deadletter.ApsaraMQ {
		t.Errorf("a change of something else made the profile %s, %v", f.vhost().Profile(), err)
	}
}

// Queues know the profile, also after a restart, and whether they have priorities for ever.
func TestQueueKnowsProfile(t *testing.T) {
	f := newFixture(t, Options{DefaultProfile: deadletter.ApsaraMQ, ApsaraPriorities: true})
	f.queue(durableQueue("with", arg("x-max-priority", int32(5)), arg("x-max-length", int32(1))))
	f.options.ApsaraPriorities = false
	f = f.restart()
	f.queue(durableQueue("without", arg("x-max-priority", int32(5))))
	with, _ := f.vhost().Queue("with")
	if e := with.Effective; with.Profile != deadletter.ApsaraMQ || e.MaxPriority == nil || *e.MaxPriority != 5 || e.MaxLength != nil {
		t.Errorf("profile %s, settings %+v", with.Profile, e)
	}
	if without, _ := f.vhost().Queue("without"); without.Effective.MaxPriority != nil {
		t.Error("a queue has priorities that are switched off")
	}
}

// Policies cannot say what the dead do.
func TestDL_22_4_Policies(t *testing.T) {
	f := apsaraFixture(t)
	put := func(key string, value any, operator bool) error {
		_, err := f.PutPolicy(vh, PolicyDecl{Name: "p", Pattern: ".*", Definition: Definition{key: value}}, operator)
		return err
	}
	for key, value := range map[string]any{
		"dead-letter-exchange": "x", "dead-letter-routing-key": "k", "dead-letter-strategy": "at-least-once", "message-ttl": int64(1),
	} {
		wantRefusal(t, put(key, value, false), Invalid, "Validation failed\n\n"+key+" cannot be set by a policy in vhost 'v', whose profile is apsaramq\n")
	}
	wantRefusal(t, put("message-ttl", int64(1), true), Invalid, "message-ttl cannot be set by a policy")
	if err := put("expires", int64(1000), false); err != nil {
		t.Error(err)
	}
}

// What names may be of.
func TestDL_22_13_CheckName(t *testing.T) {
	long := strings.Repeat("n", 255)
	for _, name := range []string{"a", "Z-9_.#/@", long, "amq.gen-_x"} {
		if err := CheckName(deadletter.ApsaraMQ, name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"", "a b", "a*", "é", "a:b", long + "n"} {
		if CheckName(deadletter.ApsaraMQ, name) == nil {
			t.Errorf("%q was allowed", name)
		}
		if err := CheckName(deadletter.RabbitMQ, name); err != nil {
			t.Error("RabbitMQ's profile: ", err)
		}
	}
	f := apsaraFixture(t)
	_, _, err := f.PutVHost("a b", Metadata{})
	wantRefusal(t, err, Invalid, "vhost name 'a b' must be 1 to 255 letters, digits and characters of -_.#/@")
	if _, _, err := f.PutVHost("a b", Metadata{Profile: deadletter.RabbitMQ}); err != nil {
		t.Error(err)
	}
}

// Binding keys are limited like names; patterns and exchanges that have no use for a key are left alone.
func TestDL_22_13_BindingKeys(t *testing.T) {
	f := apsaraFixture(t)
	f.queue(durableQueue("q"))
	for _, c := range []struct {
		exchange message.ExchangeName
		key      message.RoutingKey
		ok       bool
	}{
		{"amq.direct", "a.b#/@", true}, {"amq.direct", "a*", false}, {"amq.direct", "", false}, {"amq.direct", "a b", false},
		{"amq.topic", "a.*.#", true}, {"amq.topic", "a b", false},
		{"amq.fanout", "", true}, {"amq.fanout", "a b", false}, {"amq.headers", "", true},
	} {
		_, _, err := f.Bind(BindingDecl{VHost: vh, Source: c.exchange, DestinationKind: QueueResource, Destination: "q", Key: c.key}, nil)
		if (err == nil) != c.ok {
			t.Errorf("binding to %s with %q: %v", c.exchange, c.key, err)
		}
	}
}
