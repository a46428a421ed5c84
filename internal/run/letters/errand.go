package letters

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/partition"
)

// Errand is what a job of the Dead Letter Office does with letters of a queue, slice by slice. The office chooses them,
// remembers how far it is, and asks again; each slice is checked against the rights that the connection has then.
type Errand struct {
	Job    uint64
	Action Action
	To     Destination // of Replay and EditLetter; of Park and Restore, Queue alone
	Stay   bool        // of EditLetter: the edited letter lies in the same queue
	// MaxReplays is how often a letter may have been replayed before: beyond, it is left. 0: any number of times.
	MaxReplays uint64
	DryRun     bool
	Spread     bool // RunErrandOn ends before the second letter that goes to one place
	// Counts notes a Park in the letter as if it were a replay, so that rules cannot send letters round for ever.
	Counts bool
	// Tolerant leaves a letter that the user may not send where it is to go, and goes on with the others: the way is the word of
	// whoever published the letter. Otherwise that ends the slice.
	Tolerant bool
	// HeedsBreakers ends the slice of a Replay before anything is moved if a letter would go to a queue whose breaker is open.
	HeedsBreakers bool
	// Within is asked after each message that was looked at whether there is time for another: if not, the slice ends behind it. nil: always.
	Within func() bool
	// Choose says whether a message is one of them. The bytes are valid only during the call.
	Choose func(v *queue.View, rec message.Record, history []byte) bool
}

// Action is what is done with a letter.
type Action string

// The actions.
const (
	Replay  Action = "replay"  // its deaths are over: it is sent to its origin, or where the errand says
	Park    Action = "move"    // it lies in another queue, with its deaths
	Discard Action = "discard" // it lies in the archive for a while, with its deaths
	Restore Action = "restore" // it goes back from the archive to where it was discarded, or where the errand says, with its deaths
	// EditLetter puts an edited copy into the place of one letter: see Edit.
	EditLetter Action = "edit"
)

// Place is where a letter goes, or why it stays.
type Place struct {
	What          Fate
	ID            queue.ID
	Exchange, Key string
	Queues        []string
	More          int    // queues that are not named
	Why           string // of LedNowhere and TurnedAway
}

// Fate is what becomes of a letter.
type Fate uint8

// The fates.
const (
	WouldGo    Fate = iota // of a dry run: it would go there
	Went                   // it is there
	LedNowhere             // its exchange is gone or leads nowhere; it stays
	TurnedAway             // a target is full, or was deleted; it stays
)

// name names the queues.
func (p *Place) name(targets []*partition.Queue) {
	for _, t := range targets[:min(len(targets), maxPlaceQueues)] {
		p.Queues = append(p.Queues, t.Name)
	}
	p.More = max(0, len(targets)-maxPlaceQueues)
}

// String names the place.
func (p *Place) String() string {
	names := p.Queues
	if p.More > 0 {
		names = append(slices.Clip(names), fmt.Sprintf("%d more", p.More))
	}
	return fmt.Sprintf("exchange '%s' key '%s' -> %s", p.Exchange, p.Key, strings.Join(names, ", "))
}

// ErrandSlice is what became of a slice of letters.
type ErrandSlice struct {
	Next queue.Cursor
	Done bool // nothing is left behind Next

	Handled int // of RunErrandOn: so many of the ids, the first ones

	Examined, Chosen, Moved, Unroutable, Refused, NoOrigin, TooOften, Gone int
}

// LettersOf finds a queue for an errand, with the rights that this takes: to read it, and for Discard and EditLetter to configure it.
// incarnation is that of the queue, or 0 for any. there is what is in it now.
func (c Client) LettersOf(name message.QueueName, e *Errand, incarnation uint64) (found uint64, there partition.Extent, err error) {
	from, err := c.errandQueue(name, e, incarnation)
	if err != nil {
		return 0, there, err
	}
	if err := c.mayDo(e, from.Decl); err != nil {
		return 0, there, err
	}
	q := from.Runtime()
	if there, err = c.node().Extent(q); err != nil {
		return 0, there, from.Missing(err)
	}
	return q.Incarnation, there, nil
}

// mayDo says why an errand cannot be done with letters of the queue.
func (c Client) mayDo(e *Errand, from *topology.Queue) error {
	refuse := func(text string) error {
		return topology.Refuse(topology.PreconditionFailed, "%s of %s: %s", e.Action, from.Resource(), text)
	}
	switch {
	case e.Action == Park && e.To.Queue == "":
		return refuse("the queue to move to is missing")
	case e.Action == Discard && from.Name == broker.Archive:
		return refuse("what lies there is discarded already")
	case e.Action == EditLetter && from.Name == broker.Archive:
		return refuse("what lies there is discarded; restore the letter first")
	case e.Action == Restore && from.Name != broker.Archive:
		return refuse(fmt.Sprintf("what can be restored lies in queue '%s'", broker.Archive))
	case e.Action == Discard || e.Stay:
		return nil
	}
	return c.mayReplay(&e.To, from, e.Action)
}

func (c Client) errandQueue(name message.QueueName, e *Errand, incarnation uint64) (broker.QueueInfo, error) {
	needs := []topology.Access{topology.Read}
	if e.Action == Discard || e.Action == EditLetter { // its filters tell what is in letters
		needs = []topology.Access{topology.Configure, topology.Read}
	}
	from, err := c.conn.Find(name, needs...)
	if err == nil && incarnation != 0 && from.Incarnation() != incarnation {
		err = topology.Refuse(topology.NotFound, "%s was deleted and declared anew", from.Decl.Resource())
	}
	return from, err
}

// RunErrand looks at messages of the queue behind a cursor, at most limit of them, moves those that are chosen, at most
// most of them, and returns when the moves are durable. told is called for each chosen letter with its place; nil: not.
// After an error the letters of the slice are where they were or where they were to go: what has gone is not met again.
func (c Client) RunErrand(ctx context.Context, name message.QueueName, incarnation uint64, e *Errand, after queue.Cursor, limit, most int, told func(*Place)) (r ErrandSlice, err error) {
	r.Next = after
	from, err := c.errandQueue(name, e, incarnation)
	if err != nil {
		return r, err
	}
	q := from.Runtime()
	archive, err := c.archiveFor(e)
	if err != nil {
		return r, err
	}
	var chosen []replayed
	next, done, err := c.node().Browse(q, after, limit, until(ctx, func(v queue.View, rec message.Record, history []byte) bool {
		chosen = e.pick(from.Decl, &v, rec, history, &r, chosen)
		return e.within() && len(chosen) < most
	}))
	if err = cmp.Or(err, ctx.Err()); err != nil {
		return r, from.Missing(err)
	}
	if err := c.carryOut(ctx, q, e, chosen, archive, &r, told); err != nil {
		return r, from.Missing(err)
	}
	r.Next, r.Done = next, done
	return r, nil
}

// nowhereKnown is the history of a message whose origin nobody knows: the errand says all of its way.
func nowhereKnown(h *deadletter.History) deadletter.History {
	return deadletter.History{Delayed: h.Delayed, Annotations: h.Annotations, Deaths: []deadletter.Death{{Keys: []string{""}}}}
}

// RunErrandOn is RunErrand for messages of which the ids are known, in their order: about a thousand at most. Those that are gone are
// not met.
func (c Client) RunErrandOn(ctx context.Context, name message.QueueName, incarnation uint64, e *Errand, ids []queue.ID, told func(*Place)) (r ErrandSlice, err error) {
	from, err := c.errandQueue(name, e, incarnation)
	if err != nil {
		return r, err
	}
	if err := c.mayDo(e, from.Decl); err != nil {
		return r, err
	}
	q := from.Runtime()
	archive, err := c.archiveFor(e)
	if err != nil {
		return r, err
	}
	var chosen []replayed
	r.Handled = len(ids)
	places := map[string]bool{}
	err = c.node().Look(q, ids, until(ctx, func(v queue.View, rec message.Record, history []byte) bool {
		before, n := r, len(chosen)
		chosen = e.pick(from.Decl, &v, rec, history, &r, chosen)
		if e.Spread && len(chosen) > n {
			place := string(chosen[n].exchange) + "\x00" + string(chosen[n].m.Key)
			if places[place] {
				r, chosen = before, chosen[:n]
				r.Handled = slices.Index(ids, v.ID)
				return false
			}
			places[place] = true
		}
		if e.within() {
			return true
		}
		r.Handled = slices.Index(ids, v.ID) + 1
		return false
	}))
	if err = cmp.Or(err, ctx.Err()); err == nil {
		err = c.carryOut(ctx, q, e, chosen, archive, &r, told)
	}
	return r, from.Missing(err)
}

func (e *Errand) within() bool { return e.Within == nil || e.Within() }

// archiveFor returns the archive if the errand needs it, nil if it does not.
func (c Client) archiveFor(e *Errand) (*partition.Queue, error) {
	if e.Action != Discard || e.DryRun {
		return nil, nil
	}
	archive, err := c.archive()
	return archive.Runtime(), err
}

// pick appends a message to those that are to go, if it is one.
func (e *Errand) pick(from *topology.Queue, v *queue.View, rec message.Record, history []byte, r *ErrandSlice, chosen []replayed) []replayed {
	if v.Out || v.Dead || v.Offered || v.NotBefore != 0 {
		return chosen
	}
	r.Examined++
	if !e.Choose(v, rec, history) {
		return chosen
	}
	own, _ := deadletter.Parse(history)
	if own.Draft { // it is no letter yet: see Edit
		return chosen
	}
	r.Chosen++
	switch {
	case e.Action == Discard:
		return append(chosen, e.park(v.ID, own, from, broker.Archive))
	case e.Action == Park || e.Action == Restore && e.To.Queue != "":
		return append(chosen, e.park(v.ID, own, from, e.To.Queue))
	case e.Action == Restore && own.From == "":
		r.NoOrigin++ // an earlier release did not note it
	case e.Action == Restore:
		return append(chosen, e.park(v.ID, own, from, message.QueueName(own.From)))
	case e.MaxReplays > 0 && own.Replays >= e.MaxReplays:
		r.TooOften++
	default:
		h, ok := pastOf(rec, &own)
		if !ok && e.To.Queue == "" && (e.To.Key == nil || e.To.Exchange == nil) {
			r.NoOrigin++
			break
		}
		if !ok {
			h = nowhereKnown(&h)
		}
		return append(chosen, e.To.lead(v.ID, rec, &h, from, own.Replayed(e.Job)))
	}
	return chosen
}

// park notes that a letter goes to another queue as it is.
func (e *Errand) park(id queue.ID, h deadletter.History, from *topology.Queue, to message.QueueName) replayed {
	h.Marks = h.Moved(e.Job, string(from.Name))
	if e.Counts {
		h.Replays++
	}
	h.Exchange, h.Keys, h.KeysReplaced = "", []string{string(to)}, true
	if len(h.Deaths) == 0 {
		h.Profile = from.Profile
	}
	p := replayed{id: id, history: h.Append(nil)}
	p.m.Key = []byte(to)
	return p
}

// carryOut moves the chosen messages: all to the queue into, or, if that is nil, each to where it is routed.
func (c Client) carryOut(ctx context.Context, q *partition.Queue, e *Errand, chosen []replayed, into *partition.Queue, r *ErrandSlice, told func(*Place)) error {
	if told == nil {
		told = func(*Place) {}
	}
	var moves []partition.Move
	var places []Place
	var seen uint64
	var asked *replayed // the last message whose targets were asked for
	var found []*partition.Queue
	breakers := map[*partition.Queue]bool{} // that were asked about
	for i := range chosen {
		p := &chosen[i]
		var targets []*partition.Queue
		var err error
		place := Place{ID: p.id, Exchange: string(p.exchange), Key: string(p.m.Key)}
		switch {
		case into != nil:
			targets = []*partition.Queue{into}
		case e.Action == Discard: // a dry run: the archive is made when it is needed
			place.Queues = []string{string(broker.Archive)}
		case p.goesAs(asked):
			targets = found
		default:
			var ticket uint64
			targets, ticket, err = c.replayTargets(p)
			if seen = max(seen, ticket); err == nil {
				asked, found = p, targets
				if e.HeedsBreakers && e.Action == Replay && !e.DryRun {
					err = c.heed(targets, breakers)
				}
			}
		}
		if refused := new(topology.Error); e.Tolerant && errors.As(err, &refused) {
			r.Refused++
			place.What, place.Why = TurnedAway, refused.Text
			told(&place)
			continue
		}
		if err != nil {
			return cmp.Or(c.broker().AwaitStored(seen), err)
		}
		if len(targets) == 0 && len(place.Queues) == 0 {
			r.Unroutable++
			place.What, place.Why = LedNowhere, fmt.Sprintf("exchange '%s' routes key '%s' to no queue", p.exchange, p.m.Key)
			if p.missing {
				place.Why = fmt.Sprintf("exchange '%s' does not exist", p.exchange)
			}
			told(&place)
			continue
		}
		place.name(targets)
		moves, places = append(moves, partition.Move{ID: p.id, Targets: targets, History: p.history}), append(places, place)
	}
	if err := c.broker().AwaitStored(seen); err != nil {
		return err
	}
	if e.DryRun {
		for i := range places {
			told(&places[i])
		}
		return nil
	}
	if len(moves) == 0 {
		return nil
	}
	moved, err := c.node().Move(ctx, q, moves)
	for i, m := range moved {
		p := &places[i]
		switch m.What {
		case partition.MoveDone:
			r.Moved++
			p.What = Went
		case partition.MoveRefused:
			r.Refused++
			p.What, p.Why = TurnedAway, fmt.Sprintf("queue '%s' is full", target(moves[i].Targets, m.By))
		case partition.MoveNoTarget:
			r.Refused++
			p.What, p.Why = TurnedAway, fmt.Sprintf("queue '%s' was deleted", target(moves[i].Targets, m.By))
		case partition.MoveGone:
			r.Gone++
			continue
		default:
			continue
		}
		told(p)
	}
	return err
}

// archive returns the queue for discarded letters of the virtual host, and makes it if need be.
func (c Client) archive() (archive broker.QueueInfo, err error) {
	by := c.broker().AsOperator("the Dead Letter Office", c.conn.VHost)
	if _, err := by.DeclareQueue(broker.OwnQueue(c.conn.VHost, broker.Archive)); err != nil {
		return archive, topology.Refuse(topology.PreconditionFailed,
			"discarded messages go to the queue '%s', which must be durable and classic with x-message-ttl=%d: %v. If a client has declared it otherwise, delete it: the broker makes it anew", broker.Archive, broker.ArchiveTTL, err)
	}
	return by.Find(broker.Archive)
}

// heed refuses a slice with a letter for a queue whose breaker is open. It asks about each queue once.
func (c Client) heed(targets []*partition.Queue, asked map[*partition.Queue]bool) error {
	for _, t := range targets {
		if asked[t] {
			continue
		}
		asked[t] = true
		if b := c.node().Breaker(t); b.State == queue.BreakerOpen {
			return topology.Refuse(topology.PreconditionFailed, "halted by the breaker of queue '%s', which delivers nothing until %s: %s. Resume goes on once it tries or is closed",
				t.Name, time.UnixMilli(b.Until).UTC().Format(time.RFC3339), broker.WhyBroken(b))
		}
	}
	return nil
}
