// Package twodrivers has classic and quorum queues do the same. There is one machine of a
// queue (package queue) and two drivers of it: partition changes a classic queue at once and
// logs the outcome, and proposes commands for a quorum queue that are applied once they are
// decided. So whatever clients and operators ask for in whatever order must come to the same,
// but where a rule says otherwise.
//
// A test is a list of operations that rapid draws (ops_test.go), which follows whatever came
// of the ones before: queues declared with all arguments, publishes in all modes, consumers,
// settlements, transactions, ends of channels and connections, policies, replays, looks,
// time, restarts. It is played (play_test.go) to two whole brokers in memory (node_test.go),
// over frames, so that texts and codes are compared too: on one of them the queues q0, q1 and
// q2 are classic, on the other quorum queues. Two more have the same type on both, so that
// dead letters go from one log to another here and stay in one log there.
//
// Both brokers live in one bubble of testing/synctest. Its clock stands still while anybody
// runs, and goes on by what an operation waits for: deadlines are met to the millisecond on both. Workers are always there
// first, but where somebody looks at a queue just when a message of it has waited long enough: operations begin in the
// middle of a millisecond, and so what workers wait for does, too, and he is there half of one earlier.
//
// After each operation everything comes to rest, and then (compare_test.go) must be the same
// what each client was told (answers, errors, deliveries with their headers and histories,
// returns, confirms), what each queue holds, and what it and the node have counted, deaths by
// reason and outcome among it. In the end so must be what a peek shows of each queue. And on
// neither is anything ready then that a consumer without a limit waits for.
//
// Clients of AMQP 1.0 (ten_test.go) have lists of their own, on the same brokers: over a session with a link for each queue they
// publish, give credit and take it back, drain, and settle by every outcome, some with annotations. What each link was told must be
// the same, ends of drains and histories among it.
//
// What may differ stands in one table (rules_test.go), by rule. Some is taken out of what is
// compared. Most is not generated, or left out when it would be done: a rule that sends what
// comes back to another place would make all that follows another story. Where two ways lead
// to one queue in the same moment, and their order tells, the list ends there.
//
// A list that fails is shrunk by rapid, and what is left is printed with the seed that repeats it.
// "make twodrivers CHECKS=1000" plays more lists of each kind than "go test" does; any flag of
// rapid's can be given to go test, too.
package twodrivers
