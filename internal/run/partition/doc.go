// Package partition runs queues. A partition is a mutex around the machines of many queues, with the log that they
// share. There are two kinds:
//
//	local  classic queues. All local partitions share one log, the node's journal. What one hold of them did is one
//	       frame, written before the hold ends. A move between two partitions locks both, in order, and is one frame too.
//	group  quorum queues. Its log has commands, and package cluster decides their order. The hold that applies a
//	       command writes nothing.
//
// The package owns the machines; the deadlines of their queues; how what happens is logged and redone; how a death
// becomes a move; the outboxes from one log to another; the checkpoints of all this. Package broker calls it. It
// knows no connections and no exchanges: it calls Subscribers instead of the one and a Router instead of the other.
//
//	node.go, queue.go                 what other packages call
//	operations.go, driver.go          the operations on a queue, applied in one place, at once or by a log
//	batch.go, entrance.go, hold.go    publishes and settlements; how a message enters; one hold of partitions
//	command.go, apply.go, group.go    groups: commands, their application, proposals (proposal.go, replicated.go, forward.go)
//	clientend*.go                     the end of a client, with everything that it holds
//	deadmove*.go, move.go             the way of a death, in three steps; the moves that operators ask for
//	delayed.go                        the same way for messages that an exchange has delayed
//	outbox*.go                        moves between logs
//	frame.go, recover.go, salvage.go  the journal: what is written, a start, a repair
//	checkpoint*.go, shelf.go          copies of the index; compact.go: sparse files made dense
//	memory.go, relief.go              what leaves memory; foresight.go: what is read before it is needed
//	worker.go                         deadlines, and work that nobody waits for
//
// Goroutines: see docs/internals/goroutines.md.
package partition
