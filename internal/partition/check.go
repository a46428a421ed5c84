//go:build invariants

package partition

import "fmt"

// checkQueue panics if an invariant of the queue does not hold at the end of a hold.
func checkQueue(q *Queue) {
	if err := q.m.Check(); err != nil {
		panic(fmt.Sprintf("queue %q: %v", q.Name, err))
	}
}
