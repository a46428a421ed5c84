// Package stall does what is large to one queue while somebody else uses another:
// the bystander must not notice (DESIGN: what may take long works in slices). It
// is all tests.
//
//	make stall    the full sizes, a table, and a bound on the bystander's latency
//
// Without the flag -stall the same is done at a hundredth of the size and only
// the outcome is looked at: a machine that is busy with other tests says nothing
// about latency. How much is done under a lock is then the partition's own test
// (TestHoldsAreBounded).
package stall
