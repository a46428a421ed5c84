//go:build invariants

package partition

import "fmt"

// checkQueue panics if an invariant of the queue does not hold at the end of a hold. Its own reads are not counted.
func checkQueue(q *Queue) {
	reads := q.part.store.reads
	err := q.m.Check()
	q.part.store.reads = reads
	if err != nil {
		panic(fmt.Sprintf("queue %q: %v", q.Name, err))
	}
}
