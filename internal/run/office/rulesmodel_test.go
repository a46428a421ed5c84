package office

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/letters"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
)

// ruleModel is what must be true of letters and rules: where each letter is, and how often each rule has acted.
type ruleModel struct {
	*chancery
	fs    *vfs.MemFS
	clone *vfs.MemFS // of the moment at which the node was killed
	armed bool
	mu    sync.Mutex

	place map[string]string // by body; "" is nowhere: a consumer has acknowledged it
	acted map[string]int    // by rule
}

// modelRules retry what begins with r, twice; discard what begins with d; hold what begins with h; and park all others, and what was retried twice.
var modelRules = []Rule{
	{Name: "retry", On: true, Queues: "^dlq$", Action: RuleRetry, AfterMS: 60_000, Factor: 2, JitterPercent: 30, MaxTimes: 2, RoutingKey: new("work"), Match: map[string][]string{"body": {"r"}}},
	{Name: "drop", On: true, Queues: "^dlq$", Action: RuleDiscard, AfterMS: 50_000, Match: map[string][]string{"body": {"d"}}},
	{Name: "hold", On: true, Queues: "^dlq$", Action: RuleHold, Match: map[string][]string{"body": {"h"}}},
	{Name: "park", On: true, Queues: "^dlq$", Action: RuleSend, ToQueue: "park"},
}

var modelPlaces = []string{"dlq", "work", "park", string(broker.Archive)}

func (m *ruleModel) fail(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.armed && m.clone == nil && slices.Contains(JobFailpoints, name) {
		m.clone = m.fs.CrashClone(vfs.CrashCloneCfg{})
	}
}

func (m *ruleModel) open(t *testing.T, fs *vfs.MemFS, ahead int64) {
	m.fs, m.clone, m.armed = fs, nil, false
	m.chancery = openFailing(t, fs, ahead, m.fail)
}

// bodies are the letters of a queue, or its other messages, by body.
func (m *ruleModel) bodies(name string) (list []string) {
	m.t.Helper()
	q, err := m.c.Find(message.QueueName(name), topology.Read)
	if err != nil {
		return nil // the archive is made when it is needed
	}
	e, err := letters.Extent(m.b, q)
	if err != nil {
		m.t.Fatal(err)
	}
	_, done, err := letters.Browse(context.Background(), m.b, q, e.There, 10_000, func(_ queue.View, r message.Record, _ []byte) bool {
		list = append(list, string(r.Body()))
		return true
	})
	if err != nil || !done {
		m.t.Fatal(done, err)
	}
	return list
}

// observe compares where all letters are with where they were: each must be in one place, and only rules move letters.
func (m *ruleModel) observe() {
	m.t.Helper()
	now := map[string]string{}
	for _, name := range modelPlaces {
		for _, body := range m.bodies(name) {
			if other, twice := now[body]; twice {
				m.t.Fatalf("%s is in %s and in %s", body, other, name)
			}
			now[body] = name
		}
	}
	for body, was := range m.place {
		if is := now[body]; is != was {
			rule := map[string]string{"work": "retry", "park": "park", string(broker.Archive): "drop"}[is]
			if was != "dlq" || rule == "" {
				m.t.Fatalf("%s has gone from %q to %q", body, was, is)
			}
			m.acted[rule]++
			m.place[body] = is
		}
	}
	if len(now) > len(m.place) {
		m.t.Fatalf("%v has more than %v", now, m.place)
	}
	for rule, n := range m.acted {
		if got := m.rule(rule).Acted; got != uint64(n) {
			m.t.Fatalf("rule %s says that it has acted %d times, and has %d times", rule, got, n)
		}
	}
}

// step lets time pass, and checks that what was due has gone and what was not has stayed.
func (m *ruleModel) step(ms int64) {
	m.t.Helper()
	m.ahead.Add(ms)
	type due struct{ at int64 }
	when := map[string]due{}
	q, err := m.c.Find("dlq", topology.Read)
	if err != nil {
		m.t.Fatal(err)
	}
	began := m.rules.now()
	_, err = m.f.Letters(m.t.Context(), q, LettersRequest{Oldest: true}, func(r *Row) bool {
		incarnation, id, _ := ParseLetterID(r.ID)
		for i := range modelRules {
			rule := &modelRules[i]
			if body := rule.Match["body"]; body != nil && !strings.Contains(r.Preview, body[0]) || rule.Action == RuleRetry && r.Replays >= rule.MaxTimes {
				continue
			}
			if rule.moves() {
				when[r.Preview] = due{r.Died + rule.wait(r.Replays, lot(incarnation, id))}
			}
			return true
		}
		return true
	}, nil)
	if err != nil {
		m.t.Fatal(err)
	}
	m.work()
	ended := m.rules.now()
	left := m.bodies("dlq")
	for body, d := range when {
		switch there := slices.Contains(left, body); {
		case there && d.at <= began:
			m.t.Fatalf("%s was due %d ms ago and is still there", body, began-d.at)
		case !there && d.at > ended:
			m.t.Fatalf("%s has gone %d ms too early", body, d.at-ended)
		}
	}
	m.observe()
}

// settle makes everything so far durable.
func (m *ruleModel) settle() {
	m.t.Helper()
	m.declare("tmp", "classic") // what deletes a queue waits for the journal
	if _, err := m.c.DeleteQueue("tmp", false, false); err != nil {
		m.t.Fatal(err)
	}
}

func (m *ruleModel) consume(kind partition.OpKind) {
	m.t.Helper()
	body, ok := m.take("work", kind)
	switch {
	case !ok:
	case kind == partition.Ack:
		m.place[body] = ""
	default:
		m.place[body] = "dlq"
		m.eventually(body+" has died again", func() bool { return slices.Contains(m.bodies("dlq"), body) })
	}
}

// Letters come, consumers take and refuse what comes back, time passes, and the node is restarted and killed, also while rules act: each letter is in
// one place, a rule acts on it when it is due and not before, and each act is counted once.
func TestRulesDoTheirWorkOnce(t *testing.T) {
	seeds := 6
	if testing.Short() {
		seeds = 2
	}
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			kinds := []string{"classic", "quorum"}
			m := &ruleModel{place: map[string]string{}, acted: map[string]int{}}
			m.open(t, vfs.NewCrashableMem(), 0)
			kind := kinds[rng.IntN(2)]
			m.letters(kind, kinds[rng.IntN(2)], 0)
			m.declare("park", kinds[rng.IntN(2)])
			m.declare("fresh", "classic", amqp091.Field{Key: "x-dead-letter-exchange", Value: ""}, amqp091.Field{Key: "x-dead-letter-routing-key", Value: "dlq"})
			m.put(modelRules...)
			n := 0
			for range 50 {
				switch rng.IntN(12) {
				case 0, 1, 2:
					for range 1 + rng.IntN(4) {
						body := fmt.Sprintf("%c%d", "rrdhs"[rng.IntN(5)], n)
						n++
						m.publish("fresh", body)
						m.kill("fresh")
						m.place[body] = "dlq"
						m.eventually(body+" has died", func() bool { return slices.Contains(m.bodies("dlq"), body) })
					}
				case 3, 4, 5, 6:
					m.step(int64(rng.IntN(40_000)))
				case 7:
					m.consume(partition.Ack)
				case 8:
					m.consume(partition.Reject)
				case 9: // it is restarted
					m.shutDown()
					m.open(t, m.fs, m.ahead.Load())
					m.step(0)
				case 10: // it is killed
					m.settle()
					clone, ahead := m.fs.CrashClone(vfs.CrashCloneCfg{}), m.ahead.Load()
					m.shutDown()
					m.open(t, clone, ahead)
					m.observe()
					m.step(0)
				default: // it is killed while rules act
					m.settle()
					m.mu.Lock()
					m.armed = true
					m.mu.Unlock()
					m.ahead.Add(50_000)
					m.work()
					m.mu.Lock()
					m.armed = false
					m.mu.Unlock()
					clone, ahead := m.clone, m.ahead.Load()
					if clone == nil {
						m.observe()
						continue
					}
					m.shutDown()
					m.open(t, clone, ahead)
					m.eventually("nothing is on its way", func() bool { c := m.counts("dlq"); return c.Transit+c.Dying+c.Held == 0 })
					m.observe()
					m.step(0)
				}
			}
			for range 8 {
				m.step(100_000)
				for m.ready("work") > 0 {
					m.consume(partition.Reject)
				}
			}
			m.step(0)
			for body, at := range m.place {
				want := map[byte]string{'r': "park", 's': "park", 'h': "dlq", 'd': string(broker.Archive)}[body[0]]
				if at != want && at != "" {
					t.Errorf("%s is in %q at the end, want %s", body, at, want)
				}
			}
		})
	}
}
