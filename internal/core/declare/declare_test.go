package declare

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/mutation"
	"bartleby.mq/internal/core/topology"
)

// machine is a State, and what it has logged since it began.
type machine struct {
	*State
	stored map[string]string
	logged int
}

func newMachine() *machine {
	return &machine{&State{Topology: topology.New(topology.Options{}), Users: auth.New()}, map[string]string{}, 0}
}

// take stores what was logged.
func (m *machine) take() {
	for key, value := range mutation.All(slices.Concat(m.Topology.TakeChanges(), m.Users.TakeChanges())) {
		m.logged++
		if value == nil {
			delete(m.stored, string(key))
		} else {
			m.stored[string(key)] = string(value)
		}
	}
}

// digest tells the State apart from others.
func (m *machine) digest() string {
	var lines []string
	for key, value := range m.stored {
		lines = append(lines, key+" "+value)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// command draws a command about few names, so that many meet what is there. Some are wrong.
func command(r *rand.Rand) Command {
	one := func(of ...string) string { return of[r.IntN(len(of))] }
	vhost, user, name := message.VHost(one("/", "a", "b", "gone")), one("ada", "bob", "eve"), one("p", "q", "")
	flag := func() bool { return r.IntN(2) == 0 }
	optional := func() *bool {
		if v := flag(); flag() {
			return &v
		}
		return nil
	}
	limit := []any{int64(r.IntN(5)), "five"}[r.IntN(2)]
	exchange := message.ExchangeName(one("amq.topic", "amq.direct"))
	switch r.IntN(17) {
	case 0, 1:
		description := one("x", "y")
		return PutVHost{Name: vhost, OnlyNew: flag(), CreatedBy: one("", user), Change: VHostChange{Description: &description, Protected: optional(), Lenient: optional(), Tracing: optional()}}
	case 2:
		return DeleteVHost{Name: vhost, OnlyEmpty: flag()}
	case 3:
		return ProtectVHost{Name: vhost, On: flag()}
	case 4:
		return SetVHostLimits{Name: vhost, Only: flag(), Limits: map[topology.Limit]any{topology.MaxQueues: limit, topology.MaxConnections: int64(3)}}
	case 5:
		return ClearVHostLimit{Name: vhost, Limit: topology.MaxQueues}
	case 6, 7:
		return PutUser{Name: one(user, user, ""), Password: auth.PasswordHash{Hash: one("h", "i"), Algorithm: auth.SHA256}, Tags: []auth.Tag{auth.Tag(one("management", "policymaker"))}}
	case 8:
		return DeleteUser{user}
	case 9:
		return SetUserLimits{Name: user, Limits: map[auth.Limit]any{auth.MaxChannels: limit}}
	case 10:
		return ClearUserLimit{user, auth.MaxChannels}
	case 11:
		return PutPermission{auth.Permission{VHost: vhost, User: user, Configure: one("^a", ".*"), Write: ".*", Read: one("^a", "(")}}
	case 12:
		return []Command{DeletePermission{vhost, user}, DeleteTopicPermissions{vhost, user, nil}, DeleteTopicPermissions{vhost, user, &exchange}}[r.IntN(3)]
	case 13:
		return PutTopicPermission{auth.TopicPermission{VHost: vhost, User: user, Exchange: exchange, Write: one("^a", ".*"), Read: ".*"}}
	case 14:
		if flag() {
			return DeletePolicy{vhost, name, flag()}
		}
		return PutPolicy{VHost: vhost, Operator: flag(), Policy: topology.PolicyDecl{Name: name, Pattern: one("^a", "("), Definition: topology.Definition{"max-length": limit}}}
	case 15:
		if flag() {
			return DeleteParameter{VHost: vhost, Component: "c", Name: name, Value: []byte(one("1", "2"))}
		}
		return PutParameter{topology.Parameter{VHost: vhost, Component: "c", Name: name, Value: []byte(one("1", "{")), By: user}}
	}
	if flag() {
		return DeleteGlobalParameter{name}
	}
	return PutGlobalParameter{topology.GlobalParameter{Name: name, Value: []byte(one("1", "{"))}}
}

// The same commands make the same State, and say the same. What was refused has changed nothing.
func TestTheSameCommandsMakeTheSameState(t *testing.T) {
	refused, done := 0, 0
	for seed := range uint64(50) {
		a, b, r := newMachine(), newMachine(), rand.New(rand.NewPCG(seed, 1))
		for n := range 200 {
			c := command(r)
			before := a.logged
			ra, errA := a.Apply(c)
			rb, errB := b.Apply(c)
			a.take()
			b.take()
			if fmt.Sprint(errA, ra.Created, ra.Existed, ra.Again, ra.Takeover, len(ra.Ended)) != fmt.Sprint(errB, rb.Created, rb.Existed, rb.Again, rb.Takeover, len(rb.Ended)) {
				t.Fatalf("seed %d, command %d, %#v: %v %v, and %v %v", seed, n, c, ra, errA, rb, errB)
			}
			if done++; errA != nil {
				if refused++; a.logged != before {
					t.Fatalf("seed %d, command %d, %#v was refused and has changed something: %v", seed, n, c, errA)
				}
			}
		}
		if a.digest() != b.digest() || a.digest() == "" {
			t.Fatalf("seed %d: two states:\n%s\n\n%s", seed, a.digest(), b.digest())
		}
	}
	if refused < done/10 || refused > done*9/10 {
		t.Errorf("%d of %d were refused: it says little", refused, done)
	}
}

// A user's name is given anew only when nobody's parameters of that name are left unmarked, some at a time.
func TestASuccessorOwnsNoParameters(t *testing.T) {
	m := newMachine()
	apply := func(c Command) (r Result) {
		t.Helper()
		r, err := m.Apply(c)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	apply(PutVHost{Name: "/"})
	for i := range 2500 {
		apply(PutParameter{topology.Parameter{VHost: "/", Component: "c", Name: fmt.Sprint(i), Value: []byte("1"), By: "ada"}})
	}
	parts := 0
	for apply(PutUser{Name: "ada"}).Again {
		parts++
	}
	v, _ := m.Topology.VHost("/")
	for _, p := range v.Parameters("c") {
		if !p.Orphaned {
			t.Fatalf("parameter %s is the new user's", p.Name)
		}
	}
	if parts != 2 {
		t.Errorf("in %d parts and a last one, want 2", parts)
	}
}
