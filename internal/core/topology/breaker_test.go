package topology

import (
	"strings"
	"testing"

	"bartleby.mq/internal/core/queue"
)

func TestBreakerPolicyKey(t *testing.T) {
	f := newFixture(t, Options{})
	for _, c := range []struct{ value, fault string }{
		{`5`, "It must be an object with deaths, percent and window"},
		{`null`, "It must be an object with deaths, percent and window"},
		{`[]`, "It must be an object with deaths, percent and window"},
		{`{}`, "deaths is missing"},
		{`{"deaths":50,"percent":30}`, "window is missing"},
		{`{"deaths":50,"window":60000}`, "percent is missing"},
		{`{"deaths":50,"percent":30,"window":60000,"every":1}`, `It has no "every", only deaths, percent and window`},
		{`{"deaths":0,"percent":30,"window":60000}`, "deaths must be a whole number from 1 to 1000000000"},
		{`{"deaths":1000000001,"percent":30,"window":60000}`, "deaths must be a whole number from 1 to 1000000000"},
		{`{"deaths":50,"percent":0,"window":60000}`, "percent must be a whole number from 1 to 100"},
		{`{"deaths":50,"percent":30.5,"window":60000}`, "percent must be a whole number from 1 to 100"},
		{`{"deaths":50,"percent":101,"window":60000}`, "percent must be a whole number from 1 to 100"},
		{`{"deaths":50,"percent":30,"window":"1m"}`, "window must be a whole number from 1000 to 86400000 milliseconds"},
		{`{"deaths":50,"percent":30,"window":999}`, "window must be a whole number from 1000 to 86400000 milliseconds"},
		{`{"deaths":50,"percent":30,"window":86400001}`, "window must be a whole number from 1000 to 86400000 milliseconds"},
	} {
		_, err := f.PutPolicy(vh, PolicyDecl{Name: "p", Pattern: ".*", Definition: parseDefinition(t, `{"dead-letter-breaker":`+c.value+`}`)}, false)
		if err == nil || !strings.HasPrefix(err.Error(), "Validation failed\n\n") || !strings.HasSuffix(err.Error(), " is not a valid dead letter breaker. "+c.fault+"\n") {
			t.Errorf("%s: %v", c.value, err)
		}
	}
	_, err := f.PutPolicy(vh, PolicyDecl{Name: "p", Pattern: ".*", Definition: parseDefinition(t, `{"dead-letter-breaker":{"deaths":0}}`)}, false)
	expectRefusal(t, err, Invalid, "Validation failed\n\n#{<<\"deaths\">> => 0} is not a valid dead letter breaker. deaths must be a whole number from 1 to 1000000000\n")

	good := parseDefinition(t, `{"dead-letter-breaker":{"deaths":50,"percent":30,"window":60000}}`)
	_, err = f.PutPolicy(vh, PolicyDecl{Name: "op", Pattern: ".*", Definition: good}, true)
	if err == nil || !strings.HasSuffix(err.Error(), "are not recognised policy settings\n") {
		t.Errorf("an operator policy: %v", err)
	}
	strict := newFixture(t, Options{Strict: true})
	_, err = strict.PutPolicy(vh, PolicyDecl{Name: "p", Pattern: ".*", Definition: good}, false)
	if err == nil || !strings.HasSuffix(err.Error(), "are not recognised policy settings\n") {
		t.Errorf("in strict mode: %v", err)
	}
}

func TestBreakerOfQueues(t *testing.T) {
	f := newFixture(t, Options{})
	classic, quorum := f.queue(durableQueue("c")), f.queue(quorumQueue("q"))
	f.policy("p", ".*", 0, `{"dead-letter-breaker":{"deaths":50,"percent":30,"window":60000}}`)
	f.operatorPolicy("op", ".*", `{"max-length":9}`)
	want := queue.Breaker{Deaths: 50, Percent: 30, Window: 60_000}
	for _, when := range []string{"before a restart", "after it"} {
		for _, q := range []*Queue{classic, quorum} {
			if q.Effective.Breaker != want {
				t.Errorf("%s queue %s has the breaker %+v, want %+v", when, q.Name, q.Effective.Breaker, want)
			}
		}
		f = f.restart()
		classic, _ = f.vhost().Queue("c")
		quorum, _ = f.vhost().Queue("q")
	}
	if _, err := f.DeletePolicy(vh, "p", false); err != nil {
		t.Fatal(err)
	}
	takeOver(f.State)
	if classic.Effective.Breaker.On() || quorum.Effective.Breaker.On() {
		t.Errorf("without the policy the breakers are %+v and %+v", classic.Effective.Breaker, quorum.Effective.Breaker)
	}
}
