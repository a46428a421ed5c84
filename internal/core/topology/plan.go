package topology

// Plan is what a declaration would make, to find its policies before it is made: all of them may take milliseconds to be
// matched with a name, and the declarations are locked for everybody meanwhile.
type Plan struct {
	v     *VHost
	ruled uint64 // VHost.ruled when rules were taken
	rules Rules
	queue *Queue // one of these; part of no State
	x     *Exchange
	found *inForce // set by Match
}

func (v *VHost) plan() *Plan { return &Plan{v: v, ruled: v.ruled, rules: v.rules()} }

// PlanQueue returns the queue that a declaration would make, nil if it would make none. It only reads.
func (s *State) PlanQueue(d QueueDecl) *Plan {
	if q, err := s.checkQueue(&d, nil); q != nil || err != nil {
		return nil
	}
	p := s.vhosts[d.VHost].plan()
	p.queue = s.newQueue(p.v, &d)
	p.v.types(p.queue)
	return p
}

// PlanExchange returns the exchange that a declaration would make, nil if it would make none. It only reads.
func (s *State) PlanExchange(d ExchangeDecl) *Plan {
	v, ok := s.vhosts[d.VHost]
	if !ok {
		return nil
	}
	p := v.plan()
	p.x = &Exchange{ExchangeDecl: ExchangeDecl{Name: CleanName(d.Name)}}
	return p
}

// Match finds the policies. It needs no State.
func (p *Plan) Match() {
	switch {
	case p == nil:
	case p.queue != nil:
		f := p.rules.ofQueue(p.queue)
		p.queue.goBy(f)
		p.found = &f
	default:
		f := p.rules.ofExchange(p.x)
		p.found = &f
	}
}

// Queue is the queue that would be made, with its settings; it is part of no State. REQUIRES: Match was called.
func (p *Plan) Queue() *Queue { return p.queue }

// ofQueue returns what Match has found, and looks for it anew if the policies have changed since.
func (p *Plan) ofQueue(v *VHost, q *Queue) inForce {
	if p != nil && p.found != nil && p.v == v && p.ruled == v.ruled && p.queue != nil && p.queue.Name == q.Name && p.queue.Type == q.Type {
		f := *p.found
		f.byDefault = v.Metadata.DefaultDeadLetter
		return f
	}
	return v.rules().ofQueue(q)
}

// ofExchange is like ofQueue.
func (p *Plan) ofExchange(v *VHost, x *Exchange) inForce {
	if p != nil && p.found != nil && p.v == v && p.ruled == v.ruled && p.x != nil && p.x.Name == x.Name {
		return *p.found
	}
	return v.rules().ofExchange(x)
}
