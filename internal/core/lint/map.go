package lint

import (
	"cmp"
	"fmt"
	"slices"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
)

// Map is the dead-letter edges of a virtual host, and what they lead through.
type Map struct {
	Nodes   []Node `json:"nodes"`
	Edges   []Edge `json:"edges"`
	LeftOut int    `json:"left_out"` // edges that are not shown, since there are too many
}

// Node is a queue or an exchange.
type Node struct {
	Name    string `json:"name"`
	Kind    string `json:"kind"` // queue or exchange
	Missing bool   `json:"missing"`
	// Letters is how many dead letters the queue is known to hold, nil if nobody has looked, and Messages how many messages; of an exchange
	// both are nil. The map does not know them.
	Letters  *int `json:"letters"`
	Messages *int `json:"messages"`

	Queue *topology.Queue `json:"-"` // nil for an exchange, and for a queue that is missing
}

// Edge is a way of dead letters: out of a queue into an exchange, or by the default exchange into another queue; or a binding.
type Edge struct {
	From          string  `json:"from"`
	FromKind      string  `json:"from_kind"`
	To            string  `json:"to"`
	ToKind        string  `json:"to_kind"`
	Kind          string  `json:"kind"`           // dead-letter or binding
	Key           *string `json:"key"`            // nil: letters keep theirs
	FromArguments bool    `json:"from_arguments"` // of a dead-letter edge: the queue's arguments say so
	FromPolicy    string  `json:"from_policy"`    // or this policy
	FromVHost     bool    `json:"from_vhost"`     // or the virtual host's default; the queue is made when it is needed
	Loop          bool    `json:"loop"`           // letters may come round by this edge
	Problem       string  `json:"problem"`        // "" if there is none
}

// Bounds of a map.
const (
	maxEdges    = 5000
	maxBindings = 5000
)

// Bindings collects the bindings of dead-letter exchanges, for the Map. It is called after the last Step. REQUIRES: the topology is locked for
// reading.
func (p *Pass) Bindings(v *topology.VHost) {
	names := make([]message.ExchangeName, 0, len(p.exchanges))
	for name := range p.exchanges {
		if name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	seen := map[message.ExchangeName]bool{}
	for len(names) > 0 {
		name := names[0]
		names = names[1:]
		x, ok := v.Exchange(name)
		if !ok || seen[name] {
			continue
		}
		seen[name] = true
		room := maxBindings - len(p.bindings)
		p.leftOut += max(0, x.BindingsFromCount()-room)
		for _, b := range x.SomeBindingsFrom(room) {
			p.bindings = append(p.bindings, b)
			if b.Exchange != nil {
				names = append(names, b.Exchange.Name)
			}
		}
	}
}

// place names a node.
type place struct{ kind, name string }

// Map draws what the pass has seen. It needs no lock.
func (p *Pass) Map() Map {
	m := Map{LeftOut: p.leftOut, Nodes: []Node{}, Edges: []Edge{}}
	ofQueue, ofReach := map[*topology.Queue]int{}, map[*reach]int{}
	for i, c := range p.cycles(func(*fact) bool { return true }) {
		for _, q := range c.queues {
			ofQueue[q] = i + 1
		}
		for _, r := range c.reaches {
			ofReach[r] = i + 1
		}
	}
	for i := range p.facts {
		if f := &p.facts[i]; f.e.DeadLetterExchange != nil {
			m.Edges = f.edges(m.Edges, ofQueue, ofReach)
		}
	}
	loops := map[message.ExchangeName]map[int]bool{} // of the ways through an exchange
	for w, r := range p.reaches {
		if n := ofReach[r]; n != 0 {
			if loops[w.exchange] == nil {
				loops[w.exchange] = map[int]bool{}
			}
			loops[w.exchange][n] = true
		}
	}
	for _, b := range p.bindings {
		to, key := b.Destination(), string(b.Key)
		e := Edge{From: string(b.SourceName()), FromKind: "exchange", To: to.Name, ToKind: "queue", Kind: "binding", Key: &key}
		if b.Exchange != nil {
			e.ToKind = "exchange"
		} else {
			e.Loop = loops[b.SourceName()][ofQueue[b.Queue]]
		}
		m.Edges = append(m.Edges, e)
	}
	slices.SortFunc(m.Edges, func(a, b Edge) int {
		return cmp.Or(a.rank()-b.rank(), cmp.Compare(b.Kind, a.Kind), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), cmp.Compare(a.ToKind, b.ToKind), cmp.Compare(a.key(), b.key()))
	})
	if len(m.Edges) > maxEdges {
		m.LeftOut += len(m.Edges) - maxEdges
		m.Edges = m.Edges[:maxEdges]
	}
	m.addNodes(p)
	return m
}

func (e *Edge) key() string {
	if e.Key == nil {
		return ""
	}
	return *e.Key
}

// rank is smaller for what must be seen first.
func (e *Edge) rank() int {
	switch {
	case e.Problem != "":
		return 0
	case e.Loop:
		return 1
	}
	return 2
}

// edges appends the ways of a queue's dead letters.
func (f *fact) edges(list []Edge, ofQueue map[*topology.Queue]int, ofReach map[*reach]int) []Edge {
	e := Edge{From: string(f.q.Name), FromKind: "queue", To: *f.e.DeadLetterExchange, ToKind: "exchange", Kind: "dead-letter", Key: f.e.DeadLetterRoutingKey}
	e.FromVHost = f.e.DefaultDeadLetter != ""
	if _, e.FromArguments = f.args.Get("x-dead-letter-exchange"); !e.FromArguments && !e.FromVHost {
		for _, policy := range []*topology.Policy{f.operator, f.policy} {
			if policy == nil {
				continue
			}
			if _, ok := policy.Definition["dead-letter-exchange"]; ok {
				e.FromPolicy = policy.Name
				break
			}
		}
	}
	reached := false
	for _, r := range f.to {
		reached = reached || len(r.queues) > 0
		e.Loop = e.Loop || ofReach[r] != 0 && ofReach[r] == ofQueue[f.q]
	}
	switch {
	case f.missing:
		e.Problem = "the exchange does not exist"
	case f.unbound:
		e.Problem = "the exchange is bound to nothing"
	case e.FromVHost:
	case f.known && !f.blind && !reached && e.Key != nil:
		e.Problem = fmt.Sprintf("the key '%s' reaches no queue", *e.Key)
	case f.known && !f.blind && !reached:
		e.Problem = "no key that messages are known to come with reaches a queue"
	}
	if e.To != "" {
		return append(list, e)
	}
	// The default exchange: the key is the queue.
	e.ToKind, e.Loop = "queue", false
	if !reached {
		if e.To = e.key(); e.Key == nil {
			return list // nobody knows the keys of its messages
		}
		return append(list, e)
	}
	for i, r := range f.to {
		for _, q := range r.queues {
			way := e
			way.To, way.Key, way.Loop = string(q.Name), &f.keys[i], ofReach[r] != 0 && ofReach[r] == ofQueue[f.q]
			list = append(list, way)
		}
	}
	return list
}

// addNodes adds the ends of all edges, by kind and name.
func (m *Map) addNodes(p *Pass) {
	queues := map[string]*topology.Queue{}
	for q := range p.at {
		queues[string(q.Name)] = q
	}
	found := map[place]*Node{}
	for i := range m.Edges {
		e := &m.Edges[i]
		for _, at := range []place{{e.FromKind, e.From}, {e.ToKind, e.To}} {
			if found[at] == nil {
				found[at] = &Node{Name: at.name, Kind: at.kind, Queue: queues[at.name]}
				if at.kind != "queue" {
					found[at].Queue = nil
				}
			}
		}
		if e.Kind == "dead-letter" && e.Problem != "" {
			to := found[place{e.ToKind, e.To}]
			to.Missing = to.Missing || e.ToKind == "queue" && to.Queue == nil || e.Problem == "the exchange does not exist"
		}
	}
	for _, n := range found {
		m.Nodes = append(m.Nodes, *n)
	}
	slices.SortFunc(m.Nodes, func(a, b Node) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name)) })
}
