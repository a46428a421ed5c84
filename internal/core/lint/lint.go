// Package lint finds declarations that lose dead letters, or do not do what somebody who wrote them may have meant: a dead-letter
// exchange that is not there, a loop, a target that is shorter than its source. It only reads the topology.
//
// A Pass examines one virtual host a few queues at a time, so that whoever has locked the topology can let others in. What is declared or
// deleted meanwhile is seen or not.
package lint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/routing"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/wire/amqp091"
)

// Severity says how bad a finding is.
type Severity string

// The severities.
const (
	Error   Severity = "error"   // dead letters are lost
	Warning Severity = "warning" // they may be
	Hint    Severity = "hint"    // it may be meant so
)

// The rules.
const (
	DLXMissing            = "dlx-missing"              // the dead-letter exchange is not declared
	DLXUnbound            = "dlx-unbound"              // it is bound to nothing
	DLXNoRoute            = "dlx-no-route"             // it routes the keys that come to no queue
	Loop                  = "loop"                     // dead letters come round
	TargetNotDurable      = "target-not-durable"       // where they go may end before their source
	TargetShorter         = "target-shorter"           // where they go holds fewer messages than their source
	AtLeastOnceFallsBack  = "at-least-once-falls-back" // the strategy at-least-once is not in force
	SharedTarget          = "shared-target"            // many queues share a target
	TTLUnseen             = "ttl-unseen"               // what expires vanishes
	PriorityUnused        = "priority-unused"          // nobody publishes with a priority
	DeliveryLimitDiscards = "delivery-limit-discards"  // what fails too often vanishes
	PolicyMatchesNothing  = "policy-matches-nothing"   // a policy is in force nowhere
	Incomplete            = "incomplete"               // there is more than a pass looks at, or shows
)

// Finding is something that may be wrong.
type Finding struct {
	VHost    message.VHost `json:"vhost"`
	Kind     string        `json:"kind"` // queue, exchange, policy or vhost
	Name     string        `json:"name"`
	Rule     string        `json:"rule"`
	Severity Severity      `json:"severity"`
	Text     string        `json:"text"` // what is wrong
	Mend     string        `json:"mend"` // what to do about it
}

// Contents tells of the messages in queues. It is asked with nothing locked, and only of queues that have priorities.
type Contents interface {
	// Urgent is how many messages of a queue are ready, and how many of these have a priority above 0.
	Urgent(q *topology.Queue) (ready, urgent int)
}

// Bounds of a pass.
const (
	// maxWork is how many queues that dead letters reach, and bindings on the way, are looked at.
	maxWork = 1 << 20
	// maxOfRule is how many findings of one rule are shown.
	maxOfRule = 1000
	// maxKeys is how many bindings of a queue are asked for the keys of its messages.
	maxKeys = 8
	// maxNames is how many names a text has.
	maxNames = 10
	// manyShare is how many sources of one target are many, and fewUrgent how many messages without a priority tell nothing yet.
	manyShare, fewUrgent = 10, 100
)

// Pass examines one virtual host, or some of its queues.
type Pass struct {
	// FindsLost says whether dead letters of a queue that lead nowhere are kept in the lost and found; nil: none are. It is set before the
	// first Step.
	FindsLost func(*topology.Queue) bool

	vhost      message.VHost
	cutsCycles bool // whether letters that come round without a reject are dropped
	all        bool // all queues are examined, so what is found of their targets is complete
	queues     []*topology.Queue
	next       int
	rules      *topology.RuleSet
	inForce    map[policyName]bool

	router    topology.Router
	facts     []fact
	at        map[*topology.Queue]int // index in facts
	reaches   map[way]*reach
	unbound   map[message.ExchangeName]*sources
	work      int
	unlooked  int // queues whose dead letters were not followed, since that would be too much work
	exchanges map[message.ExchangeName]*through
	bindings  []*topology.Binding // see Bindings
	leftOut   int
}

// through is a dead-letter exchange.
type through struct {
	durable bool
	source  *topology.Queue // a durable queue whose dead letters go to it, nil if there is none
}

type policyName struct {
	name     string
	operator bool
}

// fact is a queue as it was when it was examined. Settings and policies never change.
type fact struct {
	q                *topology.Queue
	e                *topology.Settings
	args             amqp091.Table
	policy, operator *topology.Policy
	missing          bool // its dead-letter exchange is
	unbound          bool
	keys             []string // with which its dead letters leave, as far as that is known
	known            bool     // keys are all that is declared
	to               []*reach
	blind            bool // where they go depends on more than keys
	lost             bool // see Pass.FindsLost
}

// way is how dead letters leave.
type way struct {
	exchange message.ExchangeName
	key      string
}

// reach is the queues that a way leads to.
type reach struct {
	queues  []*topology.Queue
	blind   bool // of headers, or of chance
	sources sources
}

// sources are the queues whose dead letters go some way.
type sources struct {
	n       int
	names   []string // some of them
	durable *topology.Queue
	longest *fact // a copy of its settings
	other   *fact // another one, since the longest may be the target itself
	dropped bool  // of some of them, what leads nowhere is dropped
}

// New begins a pass over a virtual host; with queues, over these only. REQUIRES: the topology is locked for reading.
func New(v *topology.VHost, queues ...*topology.Queue) *Pass {
	p := &Pass{
		vhost: v.Name, cutsCycles: v.Profile() != deadletter.ApsaraMQ, all: queues == nil, queues: queues, rules: v.RuleSet(), inForce: map[policyName]bool{},
		at: map[*topology.Queue]int{}, reaches: map[way]*reach{}, unbound: map[message.ExchangeName]*sources{}, exchanges: map[message.ExchangeName]*through{},
	}
	if p.all {
		p.queues = make([]*topology.Queue, 0, v.QueueCount())
		v.EachQueue(func(q *topology.Queue) { p.queues = append(p.queues, q) })
		v.EachExchange(func(x *topology.Exchange) { p.note(x.Policy, x.OperatorPolicy) })
	}
	return p
}

// Order sorts the queues. It needs no lock, and is called before the first Step.
func (p *Pass) Order() {
	slices.SortFunc(p.queues, func(a, b *topology.Queue) int { return cmp.Compare(a.Name, b.Name) })
}

func (p *Pass) note(policies ...*topology.Policy) {
	for _, policy := range policies {
		if policy != nil {
			p.inForce[policyName{policy.Name, policy.Operator}] = true
		}
	}
}

// Step examines the next queues, until enough returns true, and says whether there are more. pause may be called when much has been looked
// at, as routing.Message.Pause. REQUIRES: the topology is locked for reading.
func (p *Pass) Step(v *topology.VHost, enough func() bool, pause func()) (more bool) {
	for first := true; p.next < len(p.queues) && (first || !enough()); first = false {
		q := p.queues[p.next]
		p.next++
		if now, ok := v.Queue(q.Name); ok && now == q && !q.Unstored() {
			p.examine(v, q, pause)
		}
	}
	return p.next < len(p.queues)
}

func (p *Pass) examine(v *topology.VHost, q *topology.Queue, pause func()) {
	f := fact{q: q, e: q.Effective, args: q.Arguments, policy: q.Policy, operator: q.OperatorPolicy}
	p.note(f.policy, f.operator)
	f.lost = p.FindsLost != nil && p.FindsLost(q)
	if f.e.DeadLetterExchange != nil {
		p.follow(v, &f, pause)
	}
	p.at[q] = len(p.facts)
	p.facts = append(p.facts, f)
}

// follow finds where dead letters of the queue go.
func (p *Pass) follow(v *topology.VHost, f *fact, pause func()) {
	name := message.ExchangeName(*f.e.DeadLetterExchange)
	x, ok := v.Exchange(name)
	switch {
	case !ok:
		f.missing = true
		return
	case name != "" && x.BindingsFromCount() == 0 && x.Alternate == nil:
		f.unbound = true
		if p.unbound[name] == nil {
			p.unbound[name] = &sources{}
		}
		p.unbound[name].add(f)
		return
	}
	if p.exchanges[name] == nil {
		p.exchanges[name] = &through{durable: x.Durable}
	}
	if f.q.Durable {
		p.exchanges[name].source = f.q
	}
	if f.e.DeadLetterRoutingKey != nil {
		f.keys, f.known = []string{*f.e.DeadLetterRoutingKey}, true
	} else {
		f.keys, f.known = keysOf(f.q)
	}
	for _, key := range f.keys {
		r := p.reaches[way{name, key}]
		if r == nil {
			if p.work > maxWork {
				p.unlooked++
				f.blind = true
				return
			}
			r = p.route(v, x, key, pause)
			p.reaches[way{name, key}] = r
		}
		f.blind = f.blind || r.blind
		r.sources.add(f)
		f.to = append(f.to, r)
	}
}

func (p *Pass) route(v *topology.VHost, x *topology.Exchange, key string, pause func()) *reach {
	m := routing.Message{Key: []byte(key), Pause: func() {
		p.work += 1 << 14
		if pause != nil {
			pause()
		}
	}}
	queues := p.router.Route(v, x, &m, nil)
	p.work += 1 + len(queues)
	return &reach{queues: slices.DeleteFunc(queues, func(q *topology.Queue) bool { return q.Delays != nil }), blind: !p.router.ByKeys || p.router.Delaying > 0}
}

// keysOf are keys with which messages of a queue may have come: its name, and the keys of its bindings. all is false if a binding lets
// others through too.
func keysOf(q *topology.Queue) (keys []string, all bool) {
	keys, all = []string{string(q.Name)}, true
	looked := 0
	q.EachBinding(func(b *topology.Binding) bool {
		key := string(b.Key)
		acts := b.Source.Acts()
		switch {
		case looked == maxKeys || acts != routing.Direct && acts != routing.Topic || acts == routing.Topic && strings.ContainsAny(key, "*#"):
			all = false
		case !slices.Contains(keys, key):
			keys = append(keys, key)
		}
		looked++
		return looked <= maxKeys
	})
	slices.Sort(keys[1:])
	return keys, all
}

func (s *sources) add(f *fact) {
	s.dropped = s.dropped || !f.lost
	if s.n++; len(s.names) < maxNames {
		s.names = append(s.names, string(f.q.Name))
	}
	if s.durable == nil && f.q.Durable {
		s.durable = f.q
	}
	kept := *f
	switch {
	case s.longest == nil:
		s.longest = &kept
	case f.length() > s.longest.length():
		s.longest, s.other = &kept, s.longest
	case s.other == nil || f.length() > s.other.length():
		s.other = &kept
	}
}

// nowhere says what becomes of dead letters that lead nowhere.
func nowhere(lost bool) string {
	if lost {
		return "they go to the lost and found"
	}
	return "they are dropped"
}

// length is how many messages the queue holds at most.
func (f *fact) length() int64 {
	if f.e.MaxLength == nil {
		return 1<<63 - 1
	}
	return *f.e.MaxLength
}

// list names some things, and how many there are.
func list(names []string, n int) string {
	quoted := make([]string, 0, len(names))
	for _, name := range names[:min(len(names), maxNames)] {
		quoted = append(quoted, "'"+name+"'")
	}
	text := strings.Join(quoted, ", ")
	if n > len(quoted) {
		text += fmt.Sprintf(" and %d more", n-len(quoted))
	}
	return text
}
