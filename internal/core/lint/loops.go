package lint

import (
	"cmp"
	"slices"

	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
)

// loops finds queues whose dead letters come round. How bad that is depends on whether they do so without a consumer's reject: then they
// are dropped (History.ClosesCycle). With one they go round without end, which is how many programs retry.
func (p *Pass) loops(found *findings) {
	told := map[*topology.Queue]bool{}
	report := func(severity Severity, text, mend string, goes func(*fact) bool) {
		for _, c := range p.cycles(goes) {
			loop := c.queues
			if slices.ContainsFunc(loop, func(q *topology.Queue) bool { return told[q] }) {
				continue
			}
			names := make([]string, 0, maxNames)
			for _, q := range loop {
				told[q] = true
				if len(names) < maxNames {
					names = append(names, string(q.Name))
				}
			}
			found.add("queue", names[0], Loop, severity, "dead letters come round through "+list(names, len(loop))+": "+text, mend)
		}
	}
	byItself := func(f *fact) bool { return f.e.MessageTTL != nil || f.overflows() }
	const mend = "lead one of these queues elsewhere"
	if p.cutsCycles {
		report(Error, "no consumer is needed for that, so they lead nowhere when they come back", mend, byItself)
		report(Warning, "what comes round by the delivery limit, and not by a reject, leads nowhere when it comes back", mend,
			func(f *fact) bool { return byItself(f) || f.e.DeliveryLimit != nil && *f.e.DeliveryLimit >= 0 })
	}
	report(Hint, "what is rejected each time goes round without end", "let the consumer count x-death, and park a message that has failed often", func(*fact) bool { return true })
}

// overflows says whether messages die of the queue's length.
func (f *fact) overflows() bool {
	return (f.e.MaxLength != nil || f.e.MaxLengthBytes != nil) && f.e.Overflow != queue.RejectPublish
}

// cycle is queues, sorted, of which each leads to each other by dead-lettering, and what is between them.
type cycle struct {
	queues  []*topology.Queue
	reaches []*reach
}

// cycles returns the cycles of queues for which goes holds: the strongly connected components, by Tarjan's algorithm without recursion.
// Nodes are queues, and reaches, which many queues share.
func (p *Pass) cycles(goes func(*fact) bool) (loops []cycle) {
	numbers := map[*reach]int{}
	var reaches []*reach
	for i := range p.facts {
		for _, r := range p.facts[i].to {
			if _, known := numbers[r]; !known {
				numbers[r] = len(p.facts) + len(reaches)
				reaches = append(reaches, r)
			}
		}
	}
	// next is the i-th node that a node leads to; -1: that is none, and -2: there are no more.
	next := func(node, i int) int {
		if node < len(p.facts) {
			f := &p.facts[node]
			if i >= len(f.to) || !goes(f) {
				return -2
			}
			return numbers[f.to[i]]
		}
		r := reaches[node-len(p.facts)]
		if i >= len(r.queues) {
			return -2
		}
		if at, ok := p.at[r.queues[i]]; ok {
			return at
		}
		return -1
	}
	n := len(p.facts) + len(reaches)
	index, low := make([]int, n), make([]int, n) // from 1; 0: not seen
	onStack := make([]bool, n)
	type frame struct{ node, edge int }
	var path []frame
	var stack []int
	count := 0
	enter := func(node int) {
		count++
		index[node], low[node], onStack[node] = count, count, true
		stack = append(stack, node)
		path = append(path, frame{node, 0})
	}
	for start := range p.facts {
		if index[start] != 0 {
			continue
		}
		enter(start)
		for len(path) > 0 {
			at := &path[len(path)-1]
			to := next(at.node, at.edge)
			at.edge++
			switch {
			case to == -1:
			case to == -2:
				node := at.node
				path = path[:len(path)-1]
				if len(path) > 0 {
					above := path[len(path)-1].node
					low[above] = min(low[above], low[node])
				}
				if low[node] == index[node] {
					begin := len(stack) - 1
					for stack[begin] != node {
						begin--
					}
					for _, member := range stack[begin:] {
						onStack[member] = false
					}
					if len(stack)-begin > 1 {
						loops = append(loops, p.cycleOf(stack[begin:], reaches))
					}
					stack = stack[:begin]
				}
			case index[to] == 0:
				enter(to)
			case onStack[to]:
				low[at.node] = min(low[at.node], index[to])
			}
		}
	}
	return loops
}

func (p *Pass) cycleOf(nodes []int, reaches []*reach) (c cycle) {
	for _, node := range nodes {
		if node < len(p.facts) {
			c.queues = append(c.queues, p.facts[node].q)
		} else {
			c.reaches = append(c.reaches, reaches[node-len(p.facts)])
		}
	}
	slices.SortFunc(c.queues, func(a, b *topology.Queue) int { return cmp.Compare(a.Name, b.Name) })
	return c
}
