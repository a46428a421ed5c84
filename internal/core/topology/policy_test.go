package topology

import (
	"slices"
	"strings"
	"testing"

	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/routing"
)

func parseDefinition(t *testing.T, text string) Definition {
	t.Helper()
	var d Definition
	if err := d.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return d
}

// policy sets a policy for everything that matches the pattern.
func (f *fixture) policy(name, pattern string, priority int64, definition string) (queues []*Queue, rerouted bool) {
	f.t.Helper()
	if _, err := f.PutPolicy(vh, PolicyDecl{Name: name, Pattern: pattern, Priority: priority, Definition: parseDefinition(f.t, definition)}, false); err != nil {
		f.t.Fatal(err)
	}
	return takeOver(f.State)
}

// takeOver has all there is go by the policies there are.
func takeOver(s *State) (queues []*Queue, rerouted bool) {
	t := s.Takeover(vh)
	t.Order()
	for t.Match(t.Rules(), 2, func() bool { return false }) {
		q, x := s.Apply(t)
		queues, rerouted = append(queues, q...), rerouted || x
	}
	return queues, rerouted
}

func (f *fixture) operatorPolicy(name, pattern string, definition string) {
	f.t.Helper()
	if _, err := f.PutPolicy(vh, PolicyDecl{Name: name, Pattern: pattern, Definition: parseDefinition(f.t, definition)}, true); err != nil {
		f.t.Fatal(err)
	}
	takeOver(f.State)
}

func TestDL_4_3_PolicyErrors(t *testing.T) {
	f := newFixture(t, Options{Strict: true})
	for _, c := range []struct{ definition, want string }{
		{`{"dead-letter-exchange":5}`, "5 is not a valid dead letter exchange name"},
		{`{"dead-letter-routing-key":5}`, "5 is not a valid dead letter routing key"},
		{`{"dead-letter-strategy":"x"}`, `<<"x">> is not a valid dead letter strategy`},
		{`{"message-ttl":-1}`, "-1 is not a valid message TTL"},
		{`{"message-ttl":"soon"}`, `<<"soon">> is not a valid message TTL`},
		{`{"message-ttl":1.5}`, "1.5 is not a valid message TTL"},
		{`{"message-ttl":null}`, "null is not a valid message TTL"},
		{`{"expires":0}`, "0 is not a valid queue expiry"},
		{`{"max-length":-1}`, "-1 is not a valid maximum length"},
		{`{"max-length-bytes":-1}`, "-1 is not a valid maximum length in bytes"},
		{`{"overflow":"x"}`, `<<"x">> is not a valid overflow value`},
		{`{"delivery-limit":"x"}`, `<<"x">> is not a valid delivery limit`},
		{`{"delayed-retry-type":"x"}`, `<<"x">> is not a valid delayed retry type. Must be one of: all, failed, returned, disabled`},
		{`{"delayed-retry-type":"all"}`, "delayed-retry-min is required when delayed-retry-type is all"},
		{`{"delayed-retry-min":0}`, "0 is not a valid delayed retry minimum delay. Must be a positive integer"},
		{`{"delayed-retry-min":100,"delayed-retry-max":10}`, "delayed-retry-max (10) must not be smaller than delayed-retry-min (100)"},
		{`{"bogus":1}`, `[{<<"bogus">>,1}] are not recognised policy settings`},
		{`{"max-priority":1,"single-active-consumer":true}`, `[{<<"max-priority">>,1},{<<"single-active-consumer">>,true}] are not recognised policy settings`},
		{`{"delayed-retry-jitter":0.5}`, `[{<<"delayed-retry-jitter">>,0.5}] are not recognised policy settings`},
		{`{}`, "no policy provided"},
	} {
		_, err := f.PutPolicy(vh, PolicyDecl{Name: "p", Pattern: ".*", Definition: parseDefinition(t, c.definition)}, false)
		expectRefusal(t, err, Invalid, "Validation failed\n\n"+c.want+"\n")
	}
	good := parseDefinition(t, `{"max-length":1}`)
	_, err := f.PutPolicy(vh, PolicyDecl{Name: "p", Pattern: "(", Definition: good}, false)
	if err == nil || !strings.HasPrefix(err.Error(), "Validation failed\n\npattern should be regular expression but is invalid: ") {
		t.Errorf("bad pattern: %v", err)
	}
	_, err = f.PutPolicy(vh, PolicyDecl{Name: "p", Pattern: ".*", ApplyTo: "foo", Definition: good}, false)
	expectRefusal(t, err, Invalid, "Validation failed\n\napply-to 'foo' unrecognised; should be one of: 'queues', 'classic_queues',  'quorum_queues', 'streams', 'exchanges', or 'all'\n")
	_, err = f.PutPolicy(vh, PolicyDecl{Name: "p", Pattern: ".*", Priority: "x", Definition: good}, false)
	expectRefusal(t, err, Invalid, "Validation failed\n\npriority should be a number, actually was <<\"x\">>\n")
	if len(f.vhost().RuleSet().Policies(false)) != 0 {
		t.Error("a refused policy was kept")
	}
}

func TestDL_4_2_OperatorPolicyKeys(t *testing.T) {
	f := newFixture(t, Options{})
	_, err := f.PutPolicy(vh, PolicyDecl{Name: "op", Pattern: ".*", Definition: Definition{"dead-letter-exchange": "dlx"}}, true)
	expectRefusal(t, err, Invalid, "Validation failed\n\n[{<<\"dead-letter-exchange\">>,<<\"dlx\">>}] are not recognised policy settings\n")
	f.operatorPolicy("op", ".*", `{"expires":1,"message-ttl":1,"max-length":1,"max-length-bytes":1,"max-in-memory-length":1,"max-in-memory-bytes":1,
		"delivery-limit":1,"overflow":"drop-head","queue-version":2,"target-group-size":3,"delayed-retry-type":"all","delayed-retry-min":1,"delayed-retry-max":1}`)
}

func TestDL_4_4_OnePolicyApplies(t *testing.T) {
	f := newFixture(t, Options{})
	q := f.queue(durableQueue("my.q"))
	qq := f.queue(quorumQueue("my.qq"))
	expect := func(want, wantQuorum string) {
		t.Helper()
		name := func(p *Policy) string {
			if p == nil {
				return ""
			}
			return p.Name
		}
		if got := name(q.Policy); got != want {
			t.Errorf("the classic queue has policy %q, want %q", got, want)
		}
		if got := name(qq.Policy); got != wantQuorum {
			t.Errorf("the quorum queue has policy %q, want %q", got, wantQuorum)
		}
	}
	f.policy("low", "q", 1, `{"max-length":1}`)
	expect("low", "low")
	f.policy("elsewhere", "^q", 9, `{"max-length":2}`)
	expect("low", "low")
	f.policy("quorum", "my", 5, `{"delivery-limit":3,"max-length":3}`)
	expect("low", "quorum")
	f.policy("tie", "my", 5, `{"max-length":4}`)
	expect("tie", "tie")
	f.policy("quorum", "my", 5, `{"delivery-limit":3}`) // of a tie the last set wins
	expect("tie", "quorum")
	existed, err := f.DeletePolicy(vh, "tie", false)
	if queues, _ := takeOver(f.State); err != nil || !existed || !slices.Equal(queues, []*Queue{q}) {
		t.Errorf("deleting tie affected %v, existed %v, error %v", queues, existed, err)
	}
	expect("low", "quorum")
	if existed, _ := f.DeletePolicy(vh, "tie", false); existed {
		t.Error("tie was there twice")
	}
}

func TestBR_5_8_AlternateExchangeByPolicy(t *testing.T) {
	f := newFixture(t, Options{})
	x := f.exchange(durableExchange("x", routing.Direct))
	own := f.exchange(durableExchange("own", routing.Direct, arg("alternate-exchange", "mine")))
	_, rerouted := f.policy("ae", ".*", 0, `{"alternate-exchange":"ae"}`)
	if x.Alternate == nil || *x.Alternate != "ae" || *own.Alternate != "mine" {
		t.Errorf("alternates are %v and %v", x.Alternate, own.Alternate)
	}
	if !rerouted {
		t.Error("nobody is told that keys lead elsewhere")
	}
	if d, _ := f.vhost().Exchange(""); d.Policy != nil {
		t.Error("the default exchange has a policy")
	}
	if _, err := f.DeletePolicy(vh, "ae", false); err != nil {
		t.Fatal(err)
	}
	if takeOver(f.State); x.Alternate != nil {
		t.Error("the alternate stayed")
	}
}

func TestDL_4_6_ArgumentAndPolicy(t *testing.T) {
	f := newFixture(t, Options{})
	f.policy("classic", "^c", 0, `{"dead-letter-exchange":"pdlx","dead-letter-routing-key":"pkey","message-ttl":50,"max-length":7,
		"overflow":"reject-publish","consumer-timeout":9,"delayed-retry-type":"failed","delayed-retry-min":5,"delayed-retry-max":50}`)
	f.policy("quorum", "^q", 0, `{"overflow":"reject-publish","delivery-limit":5,"dead-letter-strategy":"at-least-once","dead-letter-exchange":"pdlx"}`)

	c := f.queue(durableQueue("c", arg("x-dead-letter-exchange", "adlx"), arg("x-message-ttl", int32(100)), arg("x-max-length", int32(3)),
		arg("x-overflow", "reject-publish-dlx"), arg("x-delayed-retry-type", "all"), arg("x-delayed-retry-min", int32(9)), arg("x-max-priority", int32(4)),
		arg("x-single-active-consumer", true))).Effective
	if *c.DeadLetterExchange != "adlx" || *c.DeadLetterRoutingKey != "pkey" || *c.MessageTTL != 50 || *c.MaxLength != 3 ||
		c.Overflow != queue.RejectPublishDLX || *c.ConsumerTimeout != 9 || c.DelayedRetry != (queue.Retry{Type: queue.RetryFailed, Min: 5, Max: 50}) ||
		*c.MaxPriority != 4 || !c.SingleActiveConsumer || c.DeliveryLimit != nil || c.Expires != nil {
		t.Errorf("classic queue: %+v", c)
	}
	q := f.queue(quorumQueue("q", arg("x-overflow", "drop-head"), arg("x-delivery-limit", int32(-1)))).Effective
	if q.Overflow != queue.RejectPublish || *q.DeliveryLimit != 5 || q.Strategy != AtLeastOnce {
		t.Errorf("quorum queue: %+v", q)
	}
	other := f.queue(quorumQueue("other", arg("x-overflow", "reject-publish-dlx"), arg("x-dead-letter-strategy", "at-least-once"),
		arg("x-dead-letter-exchange", ""), arg("x-delivery-limit", "many"))).Effective
	if other.Overflow != queue.DropHead || *other.DeliveryLimit != DefaultDeliveryLimit || other.Strategy != AtMostOnce || other.ConfiguredStrategy != AtLeastOnce {
		t.Errorf("quorum queue without policy: %+v", other)
	}
}

func TestDL_4_6_DeliveryLimits(t *testing.T) {
	for _, c := range []struct{ a, b, want int64 }{{3, 5, 3}, {5, 3, 3}, {-1, 5, 5}, {5, -1, 5}, {-1, -2, -1}, {0, 5, 0}} {
		if got := mergeDeliveryLimits(c.a, c.b); got != c.want {
			t.Errorf("limits %d and %d come to %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestDL_4_7_PolicyAndOperatorPolicy(t *testing.T) {
	f := newFixture(t, Options{})
	q := f.queue(quorumQueue("q"))
	f.policy("p", ".*", 0, `{"message-ttl":10,"max-length":10,"overflow":"reject-publish","delivery-limit":-1,"dead-letter-exchange":"dlx",
		"delayed-retry-type":"all","delayed-retry-min":5,"delayed-retry-max":100}`)
	f.operatorPolicy("op", ".*", `{"message-ttl":5,"max-length":20,"overflow":"drop-head","delivery-limit":7,"expires":9,
		"delayed-retry-type":"failed","delayed-retry-min":8,"delayed-retry-max":50}`)
	e := q.Effective
	if *e.MessageTTL != 5 || *e.MaxLength != 10 || e.Overflow != queue.DropHead || *e.DeliveryLimit != 7 || *e.Expires != 9 ||
		*e.DeadLetterExchange != "dlx" || e.DelayedRetry != (queue.Retry{Type: queue.RetryFailed, Min: 8, Max: 50}) {
		t.Errorf("settings are %+v", e)
	}
	if d := q.EffectiveDefinition(); len(d) != 9 || d["max-length"] != int64(10) {
		t.Errorf("the effective definition is %v", d)
	}
}

// What two policies come to does not depend on whether a number is whole, nor on a restart, after which JSON's 2.0 is 2.
func TestDL_4_7_TheOperatorsNumbersAreTheSameAfterARestart(t *testing.T) {
	for _, c := range []struct{ policy, operator string }{{"2.0", "3.0"}, {"2", "3"}, {"2.5", "3"}, {"2", "3.0"}} {
		f := newFixture(t, Options{})
		f.queue(quorumQueue("q"))
		f.policy("p", ".*", 0, `{"delayed-retry-type":"all","delayed-retry-min":5,"delayed-retry-multiplier":`+c.policy+`,"delayed-retry-jitter":0.0}`)
		f.operatorPolicy("op", ".*", `{"delayed-retry-multiplier":`+c.operator+`,"delayed-retry-jitter":1.0}`)
		for _, when := range []string{"before a restart", "after it"} {
			q, _ := f.vhost().Queue("q")
			if r := q.Effective.DelayedRetry; r.Multiplier != 3 || r.Jitter != 1 {
				t.Errorf("%s and %s come to %+v %s, want the operator's", c.policy, c.operator, r, when)
			}
			f = f.restart()
		}
	}
}

func TestDL_4_8_KeyWithoutExchange(t *testing.T) {
	f := newFixture(t, Options{})
	q := f.queue(durableQueue("q"))
	f.policy("p", ".*", 0, `{"dead-letter-routing-key":"k"}`)
	if q.Effective.DeadLetterExchange != nil || *q.Effective.DeadLetterRoutingKey != "k" {
		t.Errorf("settings are %+v", q.Effective)
	}
}

func TestDL_12_2_DelayedRetryOff(t *testing.T) {
	f := newFixture(t, Options{})
	for name, q := range map[string]QueueDecl{
		"no minimum":   quorumQueue("a", arg("x-delayed-retry-type", "all")),
		"minimum 0":    quorumQueue("b", arg("x-delayed-retry-type", "all"), arg("x-delayed-retry-min", int32(0))),
		"unknown type": quorumQueue("c", arg("x-delayed-retry-type", "some"), arg("x-delayed-retry-min", int32(5))),
		"disabled":     quorumQueue("d", arg("x-delayed-retry-type", "disabled"), arg("x-delayed-retry-min", int32(5))),
	} {
		if got := f.queue(q).Effective.DelayedRetry; got != (queue.Retry{}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestBR_16_6_LegacyKeys(t *testing.T) {
	d := parseDefinition(t, `{"ha-mode":"all","max-length":1,"ha-sync-mode":"automatic"}`)
	if got := d.LegacyKeys(); !slices.Equal(got, []string{"ha-mode", "ha-sync-mode"}) {
		t.Errorf("got %q", got)
	}
}
