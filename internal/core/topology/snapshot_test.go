package topology

import (
	"fmt"
	"testing"
)

// A snapshot is taken with everything locked: it copies pointers, whatever there is, and is put in order later.
func TestASnapshotIsTakenInFewSteps(t *testing.T) {
	f := newFixture(t, Options{})
	const queues = 500
	for i := range queues {
		f.queue(durableQueue(fmt.Sprintf("q%03d", queues-i)))
	}
	v := f.vhosts[vh]
	if n := testing.AllocsPerRun(10, func() { v.Snapshot() }); n > 4 {
		t.Errorf("%v allocations for %d queues", n, queues)
	}
	s := v.Snapshot()
	if list := s.Bindings(); len(list) != queues || list[0].Key != "q001" || s.Queues()[queues-1].Name != "q500" {
		t.Errorf("%d bindings", len(list))
	}
}

// So is what there is of rules.
func TestARuleSetIsTakenInFewSteps(t *testing.T) {
	f := newFixture(t, Options{})
	const rules = 300
	for i := range rules {
		name := fmt.Sprintf("%03d", rules-i)
		for _, component := range []string{"b", "a"} {
			if _, err := f.PutParameter(Parameter{VHost: vh, Component: component, Name: name, Value: []byte("1")}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := f.PutPolicy(vh, PolicyDecl{Name: name, Pattern: "^x", Definition: Definition{"max-length": int64(1)}}, i%2 == 0); err != nil {
			t.Fatal(err)
		}
	}
	v := f.vhosts[vh]
	if n := testing.AllocsPerRun(10, func() { v.RuleSet() }); n > 4 {
		t.Errorf("%v allocations for %d parameters and %d policies", n, 2*rules, rules)
	}
	s := v.RuleSet()
	if p := s.Parameters(""); len(p) != 2*rules || p[0].Component != "a" || p[0].Name != "001" || p[2*rules-1].Component != "b" {
		t.Errorf("%d parameters: %v", len(p), p[0])
	}
	if p := s.Parameters("b"); len(p) != rules || p[0].Name != "001" {
		t.Errorf("%d parameters of a component", len(p))
	}
	if p, o := s.Policies(false), s.Policies(true); len(p) != rules/2 || len(o) != rules/2 || p[0].Name != "001" || o[0].Name != "002" {
		t.Errorf("%d policies from %s on, %d operator policies from %s on", len(p), p[0].Name, len(o), o[0].Name)
	}
}
