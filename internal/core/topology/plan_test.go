package topology

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/routing"
)

// What is declared with a plan goes by the policies of the moment, whatever has happened since the plan was made.
func TestPlansAreCheckedAgain(t *testing.T) {
	f := newFixture(t, Options{})
	rapid.Check(t, func(t *rapid.T) {
		vhost := message.VHost("planned")
		_, _ = f.DeleteVHost(vhost)
		put := func() {
			if _, _, err := f.PutVHost(vhost, Metadata{}); err != nil {
				t.Fatal(err)
			}
		}
		put()
		step := func(i int) {
			d := PolicyDecl{Name: fmt.Sprint("p", rapid.IntRange(0, 2).Draw(t, "policy")), Pattern: rapid.SampledFrom([]string{"a", "b", "."}).Draw(t, "pattern"), Priority: int64(i % 2)}
			operator := rapid.Bool().Draw(t, "operator")
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				_, _ = f.DeleteVHost(vhost)
				put()
			case 1:
				if _, err := f.DeletePolicy(vhost, d.Name, operator); err != nil {
					t.Fatal(err)
				}
			case 2:
				if _, _, err := f.PutVHost(vhost, Metadata{DefaultQueueType: Quorum, DefaultDeadLetter: "dead"}); err != nil {
					t.Fatal(err)
				}
			default:
				d.Definition = Definition{"max-length": int64(i)}
				if !operator {
					d.Definition = Definition{"dead-letter-exchange": fmt.Sprint(i)}
				}
				if _, err := f.PutPolicy(vhost, d, operator); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i := range rapid.IntRange(0, 6).Draw(t, "before") {
			step(i)
		}
		name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")
		q, x := QueueDecl{VHost: vhost, Name: message.QueueName(name), Durable: true}, ExchangeDecl{VHost: vhost, Name: message.ExchangeName(name), Type: routing.Fanout}
		q.Plan, x.Plan = f.PlanQueue(q), f.PlanExchange(x)
		q.Plan.Match()
		x.Plan.Match()
		for i := range rapid.IntRange(0, 3).Draw(t, "after") {
			step(i)
		}
		made, _, err := f.DeclareQueue(q, nil)
		other, _, bad := f.DeclareExchange(x, nil)
		if err := errors.Join(err, bad); err != nil {
			t.Fatal(err)
		}
		r := made.vhostOf(f.State).rules()
		if got, want := (inForce{made.Policy, made.OperatorPolicy, made.byDefault}), r.ofQueue(made); got != want {
			t.Errorf("the queue goes by %+v, want %+v", got, want)
		}
		if got, want := (inForce{policy: other.Policy, operator: other.OperatorPolicy}), r.ofExchange(other); got != want {
			t.Errorf("the exchange goes by %+v, want %+v", got, want)
		}
	})
}

func (q *Queue) vhostOf(s *State) *VHost { return s.vhosts[q.VHost] }

// A planned declaration is not matched again under the lock: here the plan has a policy that does not match.
func TestPlansAreUsed(t *testing.T) {
	f := newFixture(t, Options{})
	f.policy("p", "^other$", 0, `{"dead-letter-exchange":"x"}`)
	p, _ := f.vhost().Policy("p", false)
	q, x := QueueDecl{VHost: vh, Name: "q", Durable: true}, ExchangeDecl{VHost: vh, Name: "x", Type: routing.Fanout}
	q.Plan, x.Plan = f.PlanQueue(q), f.PlanExchange(x)
	q.Plan.Match()
	x.Plan.Match()
	q.Plan.found.policy, x.Plan.found.policy = p, p
	if q, x := f.queue(q), f.exchange(x); q.Policy != p || x.Policy != p || x.Plan != nil {
		t.Errorf("the plans are not used: %v, %v, %v", q.Policy, x.Policy, x.Plan)
	}
	if f.PlanQueue(q) != nil {
		t.Error("a queue that exists is planned")
	}
}

// DL-4.3: what all policies of a virtual host cost each declaration is bounded, and so is their number.
func TestDL_4_3_PoliciesAreBounded(t *testing.T) {
	f := newFixture(t, Options{})
	put := func(name, pattern string, operator bool) error {
		_, err := f.PutPolicy(vh, PolicyDecl{Name: name, Pattern: pattern, Definition: Definition{"max-length": int64(1)}}, operator)
		return err
	}
	refused := func(err error, text string) {
		t.Helper()
		var refusal *Error
		if !errors.As(err, &refusal) || refusal.Kind != Invalid || !strings.Contains(refusal.Text, text) {
			t.Errorf("got %v, want a refusal with %q", err, text)
		}
	}
	for i := range 4 {
		for _, operator := range []bool{false, true} {
			if err := put(fmt.Sprint("p", i), ".{0,400}b$", operator); err != nil {
				t.Fatal(err)
			}
		}
	}
	refused(put("p4", ".{0,400}b$", false), "the patterns of the policies of virtual host '"+string(vh)+"' would have 2")
	refused(put("p4", ".{0,400}b$", true), "operator policies")
	if err := put("p3", ".{0,399}b$", false); err != nil {
		t.Errorf("a smaller one in place of another: %v", err)
	}
	if err := put("few", "^orders\\.", false); err != nil {
		t.Error(err)
	}
	f = newFixture(t, Options{})
	for i := range MaxPolicies {
		if err := put(fmt.Sprint("p", i), "^", false); err != nil {
			t.Fatal(err)
		}
	}
	refused(put("one more", "^", false), "would have 1001 policies, 1000 at most")
	if err := put("p7", "^a", false); err != nil {
		t.Errorf("in place of another: %v", err)
	}
}
