package session091

import (
	"cmp"
	"slices"
	"sync/atomic"

	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
)

// transaction collects the publishes and settlements of a channel in tx mode since the last
// commit or rollback (BR-8.11). A note to the SettleExchange is no part of it: it is kept at once, goes with the
// settlement that follows, and with it when that is rolled back. Publishes are routed when they arrive; publishes and
// settlements take effect at commit, as one frame of the journal.
type transaction struct {
	ops     []partition.Op
	settles []uint64 // tags of the settled deliveries
	returns []byte   // frames of unroutable mandatory messages
	replies []heldReply
	nowhere broker.Unroutable
	counts  map[*publishing]*txCounts // of publishes
	size    int                       // of everything, in bytes as partition.MaxWhole counts them
	steps   int                       // of ops

	// For the management API: messages published, routable or not, and deliveries
	// acknowledged.
	messages, acks atomic.Int64
}

// txCounts are what the counters of an exchange get at commit.
type txCounts struct{ published, returned, dropped uint64 }

// countsOf returns those of an exchange.
func (t *transaction) countsOf(to *publishing) *txCounts {
	if t.counts == nil {
		t.counts = map[*publishing]*txCounts{}
	}
	if t.counts[to] == nil {
		t.counts[to] = &txCounts{}
	}
	return t.counts[to]
}

// add collects an operation. size is that of the message it publishes.
func (t *transaction) add(op partition.Op, size int) {
	t.ops = append(t.ops, op)
	t.size += op.Cost(size)
	t.steps += op.Steps()
}

// keptOps is the number of operations for which an empty transaction keeps memory: a channel may live long after its
// largest one.
const keptOps = 256

// emptied is s without elements, and without memory for more than most elements.
func emptied[T any](s []T, most int) []T {
	if cap(s) > most {
		return nil
	}
	clear(s)
	return s[:0]
}

// reset makes the transaction an empty one.
func (t *transaction) reset() {
	t.ops, t.settles, t.replies = emptied(t.ops, keptOps), emptied(t.settles, keptOps), emptied(t.replies, keptOps)
	t.returns, t.nowhere, t.counts, t.size, t.steps = nil, nil, nil, 0, 0
	t.messages.Store(0)
	t.acks.Store(0)
}

// check fails if the transaction is too large to be carried out at once, because others would wait for it.
// In RabbitMQ only memory limits it.
func (t *transaction) check() error {
	if t.size+len(t.returns) > partition.MaxWhole && t.messages.Load()+int64(len(t.settles)) > 1 { // a single message may be larger
		return fail(amqp091.CodePreconditionFailed, "transaction is larger than %d bytes", partition.MaxWhole)
	}
	if t.steps > partition.MaxSteps {
		return fail(amqp091.CodePreconditionFailed, "transaction has more than %d operations", partition.MaxSteps)
	}
	return nil
}

// drop discards the transaction.
func (t *transaction) drop(c *conn) {
	for i := range t.ops {
		if t.ops[i].Kind == partition.Publish {
			c.broker.Bodies().Release(t.ops[i].Body)
		}
	}
	for _, r := range t.replies {
		c.broker.Bodies().Release(r.body)
	}
	t.reset()
}

// arrange puts publishes first, then settlements in the order of their deliveries, as RabbitMQ does.
func (t *transaction) arrange() {
	type settlement struct {
		tag uint64
		op  partition.Op
	}
	var settled []settlement
	ordered := make([]partition.Op, 0, len(t.ops))
	for _, op := range t.ops {
		if op.Kind == partition.Publish {
			ordered = append(ordered, op)
			continue
		}
		settled = append(settled, settlement{t.settles[len(settled)], op})
	}
	slices.SortStableFunc(settled, func(a, b settlement) int { return cmp.Compare(a.tag, b.tag) })
	for _, s := range settled {
		ordered = append(ordered, s.op)
	}
	t.ops = ordered
}

// noTransactions says whether methods of this class are answered but have no effect (DL-22.14).
func (ch *channel) noTransactions() bool { return ch.c.link.Apsara() != nil }

func (ch *channel) txSelect() error {
	if ch.noTransactions() {
		ch.reply(amqp091.TxSelectOk{}, false)
		return nil
	}
	if ch.confirms != nil {
		return fail(amqp091.CodePreconditionFailed, "cannot switch from confirm to tx mode")
	}
	if ch.tx == nil {
		ch.tx = &transaction{}
		ch.shown.tx.Store(true)
	}
	ch.reply(amqp091.TxSelectOk{}, false)
	return nil
}

func (ch *channel) txCommit() error {
	if ch.noTransactions() {
		ch.reply(amqp091.TxCommitOk{}, false)
		return nil
	}
	t := ch.tx
	if t == nil {
		return fail(amqp091.CodePreconditionFailed, "channel is not transactional")
	}
	if err := t.check(); err != nil {
		return err
	}
	c := ch.c
	if over, err := c.over(); over {
		return err // a get that cannot be read has ended the connection: its settlement may be missing
	}
	t.arrange()
	ops := t.ops
	t.ops = nil // from here on the messages are no longer ours, whatever fails
	if err := c.link.RunWhole(ops); err != nil {
		return err // unsettled deliveries go back with the channel
	}
	ch.mu.Lock()
	for _, tag := range t.settles {
		if u := ch.unacked.inTx(tag); u != nil {
			ch.freed(u.consumer)
			ch.unacked.settled(u)
		}
	}
	ch.mu.Unlock()
	c.pumpGated()
	refused := false
	for i := range ops {
		refused = refused || ops[i].Refused
	}
	if err := c.link.Await(partition.Receipt{}); err != nil {
		return err
	}
	c.link.CountNoted(t.nowhere)
	for to, n := range t.counts {
		to.published.Add(n.published)
		to.dropped.Add(n.dropped)
		to.returned.Add(n.returned)
	}
	if len(t.returns) > 0 {
		c.putOwn(t.returns)
		t.returns = nil
	}
	for _, r := range t.replies {
		if to, ok := c.broker.Requester(r.to); ok {
			to.Reply(r.exchange, r.key, r.body)
		} else {
			c.broker.Bodies().Release(r.body)
		}
	}
	t.ops = ops // for reuse
	t.reset()
	if refused {
		return fail(amqp091.CodePreconditionFailed, "partial tx completion") // DL-10.7
	}
	ch.reply(amqp091.TxCommitOk{}, false)
	return nil
}

func (ch *channel) txRollback() error {
	if ch.noTransactions() {
		ch.reply(amqp091.TxRollbackOk{}, false)
		return nil
	}
	t := ch.tx
	if t == nil {
		return fail(amqp091.CodePreconditionFailed, "channel is not transactional")
	}
	ch.mu.Lock()
	for _, tag := range t.settles {
		if u := ch.unacked.inTx(tag); u != nil {
			ch.unacked.unpend(u)
		}
	}
	ch.mu.Unlock()
	t.drop(ch.c)
	ch.reply(amqp091.TxRollbackOk{}, false)
	return nil
}
