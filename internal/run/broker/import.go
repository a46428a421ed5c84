package broker

import (
	"context"
	"errors"
	"fmt"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/partition"
)

// Import is a message that enters a queue as an export has it.
type Import struct {
	Exchange, Key    string
	BCC              []byte // as in a record
	Properties, Body []byte
	Sections         *message.Sections // nil for a message of AMQP 0-9-1
	History          []byte            // stored form; nil: it has none. It is neither sent nor a draft

	Why string // why it was refused, "" if it was not
}

// Importer puts messages into one queue.
type Importer struct {
	c   *Connection
	to  *topology.Queue
	any bool
}

// Importer returns what puts messages into a queue. The client needs the permissions to configure it and to write to it: a history
// is the client's word. anyUser says that the client is trusted with every user-id.
func (c *Connection) Importer(name message.QueueName, anyUser bool) (*Importer, error) {
	to, err := c.find(name, func(r topology.Resource) error {
		if err := c.permit(topology.Configure, r); err != nil {
			return err
		}
		return c.permit(topology.Write, r)
	})
	if err != nil {
		return nil, err
	}
	return &Importer{c, to, anyUser}, nil
}

// Put puts messages into the queue, in order, and returns when they are durable. Each that is refused says why. Where a message was first published is
// the client's word, also if it has not died yet: its history says so. Messages come into a quorum queue by the archive, as a move: a crash on this way leaves
// them in the archive, as drafts that nobody takes for letters. After an error the fate of the messages is unknown.
func (i *Importer) Put(ctx context.Context, list []Import) error {
	c, q := i.c, runtimeOf(i.to)
	var deposits []int
	var letters []partition.Deposit
	none := deadletter.History{Profile: i.to.Profile, Marks: deadletter.Marks{Imported: true}}
	for n := range list {
		m := &list[n]
		p := Publication{Exchange: []byte(m.Exchange), Key: []byte(m.Key), Raw: m.Properties, Sections: m.Sections, Body: [][]byte{m.Body}, Size: len(m.Body)}
		if m.History == nil {
			m.History = none.Append(nil)
		}
		rec, err := c.recordOf(&p, m.BCC, func([]byte) bool { return i.any })
		if err == nil {
			err = fits(rec, m.History)
		}
		var refused *topology.Error
		switch {
		case errors.As(err, &refused):
			m.Why = refused.Text
			continue
		case err != nil:
			return errors.Join(err, c.release(letters))
		}
		body, b := c.b.bodies.Alloc(len(rec))
		copy(b, rec)
		deposits = append(deposits, n)
		letters = append(letters, partition.Deposit{Body: body, History: m.History})
	}
	if len(letters) == 0 {
		return nil
	}
	deposit := i.deposit
	if q.Replicated() {
		deposit = i.throughArchive
	}
	if err := deposit(ctx, letters); err != nil {
		return err
	}
	for k, n := range deposits {
		if !letters[k].Taken {
			list[n].Why = fmt.Sprintf("queue '%s' is full", i.to.Name)
		}
	}
	return nil
}

// release gives back what was not put anywhere.
func (c *Connection) release(letters []partition.Deposit) error {
	for i := range letters {
		c.b.bodies.Release(letters[i].Body)
	}
	return nil
}

func (i *Importer) deposit(_ context.Context, letters []partition.Deposit) error {
	return i.c.missing(i.c.b.node.Deposit(runtimeOf(i.to), letters), i.to)
}

// throughArchive deposits drafts in the archive and moves them to the queue. Taken says then whether the queue has a letter.
func (i *Importer) throughArchive(ctx context.Context, letters []partition.Deposit) error {
	c, q := i.c, runtimeOf(i.to)
	archive, err := c.archive()
	if err != nil {
		return errors.Join(err, c.release(letters))
	}
	histories := make([][]byte, len(letters))
	for k := range letters {
		histories[k] = letters[k].History
		h, _ := deadletter.Parse(histories[k])
		h.Marks = deadletter.Marks{Draft: true}
		letters[k].History = h.Append(nil)
	}
	if err := c.b.node.Deposit(runtimeOf(archive), letters); err != nil {
		return c.missing(err, archive)
	}
	var moves []partition.Move
	var of []int
	for k := range letters {
		if d := &letters[k]; d.Taken {
			moves, of = append(moves, partition.Move{ID: d.ID, Targets: []*partition.Queue{q}, History: histories[k]}), append(of, k)
		}
	}
	moved, err := c.b.node.Move(ctx, runtimeOf(archive), moves)
	if err != nil {
		return c.missing(err, archive)
	}
	var dropped []partition.Move
	for n, m := range moved {
		if d := &letters[of[n]]; m.What != partition.MoveDone {
			d.Taken = false
			dropped = append(dropped, partition.Move{ID: d.ID, History: d.History})
		}
	}
	if len(dropped) > 0 {
		_, err = c.b.node.Move(ctx, runtimeOf(archive), dropped)
	}
	return c.missing(err, archive)
}

// fits refuses a letter whose headers no consumer could read, since they take more than a frame of the usual size; it leaves some room for
// further deaths. Who publishes cannot send such headers, an import and an edit could.
func fits(rec message.Record, history []byte) error {
	if props, _, _ := Rendered(rec, history, queue.Counts{}, false); len(props) > headersLimit {
		return topology.Refuse(topology.PreconditionFailed, "headers: with those that tell of deaths they take %d bytes, and a consumer could read %d", len(props), headersLimit)
	}
	return nil
}
