package office

import (
	"context"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/letters"
	"bartleby.mq/internal/run/partition"
)

// RetryRow says what waits in a queue for a delayed retry.
type RetryRow struct {
	VHost   message.VHost     `json:"vhost"`
	Queue   message.QueueName `json:"queue"`
	Waiting int               `json:"waiting"`
	Next    int64             `json:"next_ms"` // when the first comes back
	Late    int64             `json:"late_ms"` // for how long that has been due
	Due     Arrivals          `json:"due"`     // from now on
}

// dueStep is the shortest step of RetryRow.Due.
const dueStep = 1000

// due counts a moment in a curve whose steps become longer until it fits. What is overdue is in the first.
func (c *Arrivals) due(at int64) {
	for at >= c.From+c.Step*curvePoints {
		for i := range curvePoints / 2 {
			c.Counts[i] = c.Counts[2*i] + c.Counts[2*i+1]
		}
		clear(c.Counts[curvePoints/2:])
		c.Step *= 2
	}
	c.Counts[max(0, at-c.From)/c.Step]++
}

// Retries lists the queues of a scope in which messages wait for a delayed retry, by virtual host and name. It ends with ctx.
func (f *Office) Retries(ctx context.Context, s Scope) ([]RetryRow, error) {
	rows := []RetryRow{}
	for _, q := range f.inScope(&s) {
		if f.b.Counts(q).Delayed == 0 || s.May != nil && !s.May(q) {
			continue
		}
		r := RetryRow{VHost: q.Decl.VHost, Queue: q.Decl.Name, Due: Arrivals{From: f.deaths(), Step: dueStep, Counts: make([]int, curvePoints)}}
		err := letters.Retries(ctx, f.b, q, func(until int64) {
			r.Waiting++
			if r.Next == 0 || until < r.Next {
				r.Next = until
			}
			r.Due.due(until)
		})
		switch {
		case partition.Gone(err):
			continue
		case err != nil:
			return nil, err
		}
		if r.Waiting > 0 {
			r.Late = max(0, r.Due.From-r.Next)
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// inScope are the queues of a scope, whatever they hold, in order. It does not ask May.
func (f *Office) inScope(s *Scope) (list []broker.QueueInfo) {
	f.b.Read(func(state *topology.State, _ *auth.Users) {
		for _, v := range state.VHosts() {
			if s.VHost != nil && v.Name != *s.VHost {
				continue
			}
			v.EachQueue(func(q *topology.Queue) {
				if s.Queue == "" || q.Name == s.Queue {
					list = append(list, broker.Describe(q))
				}
			})
		}
	})
	return broker.SortQueues(list)
}
