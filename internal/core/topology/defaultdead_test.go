package topology

import (
	"strings"
	"testing"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
)

func (f *fixture) setDefault(d string) {
	f.t.Helper()
	if _, _, err := f.PutVHost(vh, Metadata{DefaultDeadLetter: d}); err != nil {
		f.t.Fatal(err)
	}
	for t := f.Takeover(vh); t.Match(t.Rules(), 100, func() bool { return false }); {
		f.Apply(t)
	}
}

// leads is where dead letters of a queue go by the default, "" if it does not apply. It checks that the exchange and the key
// in force say the same.
func leads(t *testing.T, q *Queue) string {
	t.Helper()
	e := q.Effective
	to := string(e.DefaultDeadLetter)
	if to != "" && (e.DeadLetterExchange == nil || *e.DeadLetterExchange != "" || e.DeadLetterRoutingKey == nil || *e.DeadLetterRoutingKey != to) {
		t.Errorf("%s: the default is %q, exchange and key are others", q.Name, to)
	}
	return to
}

// The default of a virtual host leads the dead letters of queues without a dead-letter exchange, and of no others. It holds
// at once for queues that there are, and after a restart.
func TestDefaultDeadLetter(t *testing.T) {
	f := newFixture(t, Options{})
	want := map[string]string{"orders": "orders.dead", "q": "q.dead", "orders.dead": "", "dead": "dead.dead", ".dead": ".dead.dead", "bartleby.archive": "", "mine": "", "keyed": "keyed.dead", "ruled": "", "quorum": "quorum.dead"}
	for name := range want {
		switch name {
		case "mine":
			f.queue(durableQueue(name, arg("x-dead-letter-exchange", "dlx")))
		case "quorum":
			f.queue(quorumQueue(name))
		default:
			f.queue(durableQueue(name))
		}
	}
	exclusive := f.queue(QueueDecl{VHost: vh, Name: "exclusive", Exclusive: true, Owner: "c1"})
	for name, d := range map[string]Definition{"ruled": {"dead-letter-exchange": "dlx"}, "keyed": {"dead-letter-routing-key": "k"}} {
		if _, err := f.PutPolicy(vh, PolicyDecl{Name: name, Pattern: "^" + name + "$", Definition: d}, false); err != nil {
			t.Fatal(err)
		}
	}
	for t := f.Takeover(vh); t.Match(t.Rules(), 100, func() bool { return false }); {
		f.Apply(t)
	}
	check := func(f *fixture, on bool) {
		t.Helper()
		for name, to := range want {
			q, ok := f.vhost().Queue(message.QueueName(name))
			if !ok {
				t.Fatalf("%s is missing", name)
			}
			if got := leads(t, q); on && got != to || !on && got != "" {
				t.Errorf("default %v: %s leads to %q, want %q", on, name, got, to)
			}
		}
	}
	check(f, false)
	f.setDefault("%q.dead")
	check(f, true)
	if to := leads(t, exclusive); to != "" {
		t.Errorf("an exclusive queue leads to %q", to)
	}
	check(f.restart(), true)
	if later := f.queue(durableQueue("later")); leads(t, later) != "later.dead" {
		t.Errorf("a later queue leads to %q", leads(t, later))
	}
	for name := range want {
		want[name] = map[bool]string{true: "dead", false: ""}[want[name] != "" || name == "orders.dead"]
	}
	want["dead"] = ""
	f.setDefault("dead")
	check(f, true)
	f.setDefault("")
	check(f, false)
}

// In strict mode the default has no effect.
func TestStrictQueuesHaveNoDefaultDeadLetter(t *testing.T) {
	f := newFixture(t, Options{Strict: true})
	f.setDefault("%q.dead")
	if to := leads(t, f.queue(durableQueue("q"))); to != "" {
		t.Errorf("it leads to %q", to)
	}
}

// Defaults that make no sense are refused: they would send letters round, or to names that nobody may declare.
func TestDefaultDeadLettersThatAreRefused(t *testing.T) {
	f := newFixture(t, Options{})
	for _, d := range []string{"%q", "%q.%q", "amq.%q", "bartleby.%q", "bartleby.archive", strings.Repeat("a", 256), "a\xff"} {
		if _, _, err := f.PutVHost(vh, Metadata{DefaultDeadLetter: d}); err == nil || err.(*Error).Kind != Invalid {
			t.Errorf("%q: %v, want it refused", d, err)
		}
	}
	if _, _, err := f.PutVHost("apsara", Metadata{Profile: deadletter.ApsaraMQ, DefaultDeadLetter: "dead"}); err == nil {
		t.Error("it is accepted in the profile apsaramq")
	}
	if d := f.vhost().Metadata.DefaultDeadLetter; d != "" {
		t.Errorf("it is %q", d)
	}
}
