package broker

import (
	"testing"

	"bartleby.mq/internal/core/topology"
)

// BR-7.5: a connection that declares and deletes exclusive queues for ever makes the node remember only the existing
// ones, which are deleted with it.
func TestAConnectionForgetsExclusiveQueuesThatAreGone(t *testing.T) {
	c := open(t, Options{})
	one := func() Declared {
		t.Helper()
		d, err := c.DeclareQueue(topology.QueueDecl{Exclusive: true})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	const kept = 10
	for range kept {
		one()
	}
	for range 5000 {
		if _, err := c.DeleteQueue(one().Name, false, false); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(c.exclusive); n > 2*keptExclusive {
		t.Errorf("%d exclusive queues are remembered, %d are there", n, kept)
	}
	c.Disconnect()
	if v, _ := c.b.state.VHost("/"); v.QueueCount() != 0 {
		t.Errorf("%d exclusive queues are left behind", v.QueueCount())
	}
}
