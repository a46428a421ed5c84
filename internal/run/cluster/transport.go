package cluster

// Transport carries messages to other nodes, where Driver.Receive takes them. It
// may lose, repeat, delay and reorder them; Raft copes. Its methods are called
// with a group locked: they must not block, nor call the driver.
type Transport interface {
	// Send hands on messages for one node, in the order they should arrive.
	Send(to, group uint64, messages []Message)
	// SendSnapshot hands on a message with a whole state, which may be large and
	// should not hold up the others. What became of it is told by
	// Driver.SnapshotSent; a group that is told nothing tries again after a while.
	SendSnapshot(to, group uint64, message Message)
}

// nowhere is the transport of a node without others.
type nowhere struct{}

func (nowhere) Send(uint64, uint64, []Message)       {}
func (nowhere) SendSnapshot(uint64, uint64, Message) {}
