// Package sim runs a cluster of nodes as one deterministic program: their journals
// on disks that lose what was not synced, a network that loses, delays, repeats,
// reorders and divides, clocks that drift, and crashes, restarts, lost disks,
// leader transfers and changes of members, all drawn from one seed.
//
// It is for tests. A World owns everything of one run: the virtual time, the events
// to come, the nodes with their disks and drivers, and the record of what was ever
// decided, against which each step is checked. What is replicated is a Model: Sets is
// a small one, that of the queues is among the tests of package partition (see Hosts).
//
// The package never starts a goroutine or reads a clock, so that the same
// seed gives the same history (World.Trace shows it). Raft draws its election times from
// crypto/rand: the test that calls it has to make that deterministic, too.
package sim
