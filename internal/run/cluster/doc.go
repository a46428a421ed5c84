// Package cluster replicates state machines with Raft: a few groups for each node,
// all of them in the node's one journal.
//
// It is for the partitions of quorum queues, which hand in what is to be decided
// (Group.Propose) and get back, on every replica and in the same order, what was
// (Machine.Apply). A Driver owns its groups: their logs in memory, their hard
// states, who is a member, who leads. What a command means, and the state it
// changes, is the Machine's; the journal, its recovery and the sockets between
// nodes are the node's.
//
// What it does not do: it stores no checkpoint (it says what one must hold, State), drops
// no segment of the journal, routes no proposal to another node, and knows
// nothing of queues. The library that decides, go.etcd.io/raft, shows in no
// signature.
//
// DESIGN.md beside this file says how a proposal travels and why nothing is lost.
package cluster
