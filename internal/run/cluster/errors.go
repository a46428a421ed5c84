package cluster

import (
	"errors"
	"fmt"
)

var (
	// ErrBusy refuses a proposal while as much is undecided as may be
	// (Options.MaxUncommitted), while leadership is being handed over, or a change
	// of members while another one is not applied. Nothing was logged: try later.
	ErrBusy = errors.New("cluster: too much is undecided")
	// ErrStopped is what a group answers after Stop, or after the journal or a
	// machine has failed.
	ErrStopped = errors.New("cluster: stopped")
	// ErrTooLarge refuses a proposal that no frame of the journal could hold.
	ErrTooLarge = errors.New("cluster: proposal is too large")
	// ErrFrame is a frame of the journal, a message or a state that does not decode.
	ErrFrame = errors.New("cluster: malformed")
)

// NotLeaderError refuses what only the leader of a group may do. Nothing was logged.
type NotLeaderError struct {
	Group  uint64
	Leader uint64 // who leads, as far as this replica knows; 0: nobody
}

// Error names the group and its leader.
func (e *NotLeaderError) Error() string {
	if e.Leader == 0 {
		return fmt.Sprintf("group %d: no leader is known", e.Group)
	}
	return fmt.Sprintf("group %d: node %d leads", e.Group, e.Leader)
}

// ErrNotLeader is what every NotLeaderError is, for errors.Is.
var ErrNotLeader = errors.New("cluster: not the leader")

// Is makes every NotLeaderError an ErrNotLeader.
func (e *NotLeaderError) Is(target error) bool { return target == ErrNotLeader }

// LostError says that the log of a replica is not whole: it may have promised
// what it does not remember. It must not vote again. The replica's data are to be
// dropped, its id removed from the group, and the node joins as a learner with
// an id never used before.
type LostError struct {
	Group  uint64
	Have   uint64 // the last index that is there
	Wanted uint64 // the index that should follow it, or be there
}

// Error names the group and the hole.
func (e *LostError) Error() string {
	return fmt.Sprintf("group %d: the log ends at %d and goes on at %d: entries are lost", e.Group, e.Have, e.Wanted)
}
