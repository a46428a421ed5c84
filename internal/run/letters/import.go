package letters

import (
	"context"
	"errors"
	"fmt"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
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
	c   Client
	to  broker.QueueInfo
	any bool
}

// Importer returns what puts messages into a queue. The client needs the permissions to configure it and to write to it: a history
// is the client's word. anyUser says that the client is trusted with every user-id.
func (c Client) Importer(name message.QueueName, anyUser bool) (*Importer, error) {
	to, err := c.conn.Find(name, topology.Configure, topology.Write)
	if err != nil {
		return nil, err
	}
	return &Importer{c, to, anyUser}, nil
}

// Put puts messages into the queue, in order, and returns when they are durable. Each that is refused says why. Where a message was first published is
// the client's word, also if it has not died yet: its history says so. Messages come into a quorum queue by the archive, as a move: a crash on this way leaves
// them in the archive, as drafts that nobody takes for letters. After an error the fate of the messages is unknown.
func (i *Importer) Put(ctx context.Context, list []Import) error {
	c, q := i.c, i.to.Runtime()
	var deposits []int
	var letters []partition.Deposit
	none := deadletter.History{Profile: i.to.Decl.Profile, Marks: deadletter.Marks{Imported: true}}
	for n := range list {
		m := &list[n]
		p := broker.Publication{Exchange: []byte(m.Exchange), Key: []byte(m.Key), Raw: m.Properties, Sections: m.Sections, Body: [][]byte{m.Body}, Size: len(m.Body)}
		if m.History == nil {
			m.History = none.Append(nil)
		}
		rec, err := c.record(&p, m.BCC, func([]byte) bool { return i.any })
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
		body, b := c.broker().Bodies().Alloc(len(rec))
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
			list[n].Why = fmt.Sprintf("queue '%s' is full", i.to.Decl.Name)
		}
	}
	return nil
}

// release gives back what was not put anywhere.
func (c Client) release(letters []partition.Deposit) error {
	for i := range letters {
		c.broker().Bodies().Release(letters[i].Body)
	}
	return nil
}

func (i *Importer) deposit(_ context.Context, letters []partition.Deposit) error {
	return i.to.Missing(i.c.node().Deposit(i.to.Runtime(), letters))
}

// throughArchive deposits drafts in the archive and moves them to the queue. Taken says then whether the queue has a letter.
func (i *Importer) throughArchive(ctx context.Context, letters []partition.Deposit) error {
	c, q := i.c, i.to.Runtime()
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
	if err := c.node().Deposit(archive.Runtime(), letters); err != nil {
		return archive.Missing(err)
	}
	var moves []partition.Move
	var of []int
	for k := range letters {
		if d := &letters[k]; d.Taken {
			moves, of = append(moves, partition.Move{ID: d.ID, Targets: []*partition.Queue{q}, History: histories[k]}), append(of, k)
		}
	}
	moved, err := c.node().Move(ctx, archive.Runtime(), moves)
	if err != nil {
		return archive.Missing(err)
	}
	var dropped []partition.Move
	for n, m := range moved {
		if d := &letters[of[n]]; m.What != partition.MoveDone {
			d.Taken = false
			dropped = append(dropped, partition.Move{ID: d.ID, History: d.History})
		}
	}
	if len(dropped) > 0 {
		_, err = c.node().Move(ctx, archive.Runtime(), dropped)
	}
	return archive.Missing(err)
}

// fits refuses a letter whose headers no consumer could read, since they take more than a frame of the usual size; it leaves some room for
// further deaths. Who publishes cannot send such headers, an import and an edit could.
func fits(rec message.Record, history []byte) error {
	if props, _, _ := broker.Rendered(rec, history, queue.Counts{}, false); len(props) > broker.HeadersLimit {
		return topology.Refuse(topology.PreconditionFailed, "headers: with those that tell of deaths they take %d bytes, and a consumer could read %d", len(props), broker.HeadersLimit)
	}
	return nil
}
