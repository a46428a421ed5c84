package partition

import (
	"bartleby.mq/internal/deadletter"
	"bartleby.mq/internal/queue"
)

// Strategy is under what a death was counted (DL-18.3).
type Strategy uint8

// The strategies.
const (
	Disabled   Strategy = iota // there was no dead letter exchange
	AtMostOnce                 //
	AtLeastOnce
)

// String returns the strategy as metrics name it (DL-18.1).
func (s Strategy) String() string {
	return [...]string{"disabled", "at_most_once", "at_least_once"}[s]
}

// Deaths is how many messages have died since the node started, by what they died
// in, under what, and why (DL-18.1).
func (n *Node) Deaths(t queue.Type, s Strategy, r deadletter.Reason) uint64 {
	return n.deaths[deathKind(t)][s][r].Load()
}

// countDeath counts a death for the node's totals (DL-18.1, DL-18.3).
func (n *Node) countDeath(t queue.Type, s Strategy, r deadletter.Reason) {
	n.deaths[deathKind(t)][s][r].Add(1)
}

// deathKind is the place of a queue type in Node.deaths.
func deathKind(t queue.Type) int {
	if t == queue.Quorum {
		return 1
	}
	return 0
}

// DeathsConfirmed is how many at-least-once deaths all their targets have taken.
func (n *Node) DeathsConfirmed() uint64 { return n.confirmed.Load() }
