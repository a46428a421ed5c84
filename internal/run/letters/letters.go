// Package letters does with messages that lie in queues what somebody orders: it replays, moves, discards, edits and imports them.
// It says where dead letters would go, and finds declarations that would lose them.
//
// A Client does what the rights of its connection permit. The functions that take a Broker ask for no rights: the caller has done that.
// The management API and the Dead Letter Office call this package. It knows declarations and rights through package broker, which knows
// nothing of it, and reads and moves messages through package partition. It holds no lock of either.
package letters

import (
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/partition"
)

// Client is what a client may do with the letters of its virtual host. It is used as its connection is: by one goroutine at a time.
type Client struct{ conn *broker.Connection }

// As returns the client of a connection.
func As(c *broker.Connection) Client { return Client{c} }

func (c Client) broker() *broker.Broker { return c.conn.Broker() }

func (c Client) node() *partition.Node { return c.broker().Node() }
