package serving

import "bartleby.mq/internal/run/partition"

// Returns gives deliveries back to their queues, some at a time: one hold with all of them would make others wait.
type Returns struct {
	Node *partition.Node
	ops  []partition.Op
}

// returnsAtOnce is how many are given back in one hold.
const returnsAtOnce = 512

// Add gives a delivery back, or keeps it for the next that are. Whoever has added the last one calls Run.
func (r *Returns) Add(op partition.Op) {
	if r.ops = append(r.ops, op); len(r.ops) == returnsAtOnce {
		r.Run()
	}
}

// Run gives back what Add has kept.
func (r *Returns) Run() {
	r.Node.Run(r.ops)
	r.ops = r.ops[:0]
}
