package letters

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/moment"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/routing"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
)

// ReplayResult is what a replay did, or would do in a dry run.
type ReplayResult struct {
	Examined   int `json:"examined"`
	Matched    int `json:"matched"`
	Replayed   int `json:"replayed"`
	Unroutable int `json:"unroutable"` // their exchange is gone or leads nowhere; they stay
	Refused    int `json:"refused"`    // a target is full, or was deleted meanwhile; they stay
	NoOrigin   int `json:"no_origin"`  // their origin is unknown; they stay
	Gone       int `json:"gone"`       // they left the queue meanwhile

	// To counts messages by where they went, or would go. RefusedBy counts messages that stay, by the queue that
	// refused them and why; UnroutableBy those that lead nowhere, by exchange and key; PassedBy the dead letters that
	// the filters left out, by their last death. Each has the first MaxReplayPlaces places; its "others" count the
	// messages of all others.
	To                 map[string]int `json:"to,omitempty"`
	ToOthers           int            `json:"to_others,omitempty"`
	RefusedBy          map[string]int `json:"refused_by,omitempty"`
	RefusedByOthers    int            `json:"refused_by_others,omitempty"`
	UnroutableBy       map[string]int `json:"unroutable_by,omitempty"`
	UnroutableByOthers int            `json:"unroutable_by_others,omitempty"`
	PassedBy           map[string]int `json:"passed_by,omitempty"`
	PassedByOthers     int            `json:"passed_by_others,omitempty"`
}

// MaxReplayPlaces is how many places a result names, and maxPlaceQueues how many queues of one place. Dead letters
// may come from any number of places, and a result is kept in memory and sent as a whole.
const (
	MaxReplayPlaces = 100
	maxPlaceQueues  = 10
)

// count counts a message in by, or in others if by is full.
func count(by map[string]int, others *int, what string) {
	if _, known := by[what]; !known && len(by) >= MaxReplayPlaces {
		*others++
		return
	}
	by[what]++
}

const replaySlice = 128

// Replay moves dead letters of the queue back to the exchange and the keys with which they were first published, or to
// where the request says. Afterwards each message is at its targets or stays, and the result is durable: after a crash
// each message is in one place. A message that has moved has no death headers; its own TTL stays spent, and
// x-replayed-from names the queue. An error says what was done before; the fate of the slice in which it happened is
// unknown.
//
// Replay looks once at the messages that are in the queue when it begins. So it ends even if it moves messages into
// the same queue, or if they die again of the same cause.
func (c Client) Replay(ctx context.Context, name message.QueueName, r ReplayRequest) (ReplayResult, error) {
	result, err := c.replay(ctx, name, r)
	return result, ended(err, &result)
}

func (c Client) replay(ctx context.Context, name message.QueueName, r ReplayRequest) (ReplayResult, error) {
	result := ReplayResult{To: map[string]int{}, RefusedBy: map[string]int{}, UnroutableBy: map[string]int{}, PassedBy: map[string]int{}}
	from, err := c.conn.Find(name, topology.Read)
	if err != nil {
		return result, err
	}
	if r.Limit < 0 || r.Rate < 0 || r.OlderThan < 0 || r.NewerThan < 0 {
		return result, topology.Refuse(topology.PreconditionFailed, "replay of %s: limit, rate and ages must not be negative", from.Decl.Resource())
	}
	if r.NewerThan > 0 && r.OlderThan >= r.NewerThan {
		return result, topology.Refuse(topology.PreconditionFailed, "replay of %s: no message died both more than %v and less than %v ago: the age of older-than must be less than that of newer-than",
			from.Decl.Resource(), r.OlderThan, r.NewerThan)
	}
	began, quorum := time.Now(), from.Quorum()
	e := Errand{Action: Replay, To: r.To, DryRun: r.DryRun, Choose: func(v *queue.View, rec message.Record, history []byte) bool {
		h, ok := past(rec, history)
		switch {
		case !ok:
			result.NoOrigin++
			return false
		case !r.matches(&h, began) || !r.fits(rec, history, v.Counts, quorum):
			count(result.PassedBy, &result.PassedByOthers, fmt.Sprintf("%s in queue '%s'", h.Deaths[0].Reason.Counted(), h.Deaths[0].Queue))
			return false
		case r.Limit > 0 && result.Matched >= r.Limit:
			return false
		}
		result.Matched++
		return true
	}}
	incarnation, there, err := c.LettersOf(name, &e, 0)
	if err != nil {
		return result, err
	}
	cursor := there.There
	slice := replaySlice
	if r.Rate > 0 {
		slice = min(slice, max(1, r.Rate/10))
	}
	for done := false; !done; {
		if err := ctx.Err(); err != nil {
			return result, err
		}
		s, err := c.RunErrand(ctx, name, incarnation, &e, cursor, slice, slice, result.tell)
		cursor, done = s.Next, s.Done
		result.Examined, result.Gone = result.Examined+s.Examined, result.Gone+s.Gone
		if err != nil {
			return result, err
		}
		if r.Limit > 0 && result.Matched >= r.Limit {
			break
		}
		if r.Rate > 0 && s.Chosen > 0 && !r.DryRun {
			due := began.Add(moment.Duration(int64(result.Replayed), time.Second) / time.Duration(r.Rate))
			if err := sleep(ctx, time.Until(due)); err != nil {
				return result, err
			}
		}
	}
	return result, nil
}

// tell counts a message by its place.
func (r *ReplayResult) tell(p *Place) {
	switch p.What {
	case LedNowhere:
		r.Unroutable++
		count(r.UnroutableBy, &r.UnroutableByOthers, p.Why)
	case TurnedAway:
		r.Refused++
		count(r.RefusedBy, &r.RefusedByOthers, p.Why)
	default:
		count(r.To, &r.ToOthers, p.String())
		if p.What == Went {
			r.Replayed++
		}
	}
}

// ended adds what was done before to an error that ends a replay, because the caller then gets no result.
func ended(err error, r *ReplayResult) error {
	var refused *topology.Error
	if r.Replayed+r.Refused == 0 || !errors.As(err, &refused) {
		return err
	}
	told := *refused
	told.Text += fmt.Sprintf("; before that %d messages were replayed and %d refused", r.Replayed, r.Refused)
	return &told
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// replayed is a message chosen for a replay.
type replayed struct {
	id       queue.ID
	exchange message.ExchangeName
	missing  bool // there is no such exchange
	byKeys   bool // the targets depend on exchange and keys only
	m        routing.Message
	history  []byte
}

// past returns the message's history: the broker's own, or the one in the headers of a client that parked it. A
// message that was replayed and has not died since has none: it would go to the same place again and again.
func past(rec message.Record, history []byte) (deadletter.History, bool) {
	own, _ := deadletter.Parse(history)
	return pastOf(rec, &own)
}

// pastOf is past for the broker's own history, which is empty if it has none, or none that can be read.
func pastOf(rec message.Record, own *deadletter.History) (deadletter.History, bool) {
	if len(own.Deaths) > 0 || own.ReplayedFrom != "" {
		_, _, known := own.Origin() // it may continue a history from a client (DL-7.10)
		return *own, known
	}
	if !rec.HasHeaders() {
		return deadletter.History{}, false
	}
	props, err := amqp091.ParseProps(rec.Properties())
	if err != nil {
		return deadletter.History{}, false
	}
	h, ok := deadletter.Carried(props.Headers)
	h.Annotations = own.Annotations
	if _, _, known := h.Origin(); !known {
		return h, false
	}
	return h, ok
}

// lead notes where a message goes: to where it was first published, or to what d says instead. rec is valid only now.
// marks are those that it has then.
func (d *Destination) lead(id queue.ID, rec message.Record, h *deadletter.History, from *topology.Queue, marks deadletter.Marks) replayed {
	exchange, keys, _ := h.Origin()
	replaced := d.Key != nil || d.Queue != ""
	switch {
	case d.Queue != "":
		exchange, keys = "", []string{string(d.Queue)}
	case d.Key != nil:
		keys = []string{*d.Key}
	}
	if d.Exchange != nil {
		exchange = string(*d.Exchange)
	}
	p := replayed{id: id, exchange: message.ExchangeName(exchange)}
	p.m.Key, p.m.Chance, p.m.Waited = []byte(keys[0]), rand.Uint64(), h.Delayed
	for _, k := range keys[1:] {
		p.m.More = append(p.m.More, []byte(k))
	}
	if !replaced {
		p.m.More = append(p.m.More, message.ShortStrings(slices.Clone(rec.BCC()))...)
	}
	if props, err := amqp091.ParseProps(slices.Clone(rec.Properties())); err == nil {
		p.m.Headers, p.m.MessageID, p.m.CorrelationID = props.Headers, props.MessageID, props.CorrelationID
		p.m.Timestamp, p.m.HasTimestamp = props.Timestamp, props.Has(amqp091.FlagTimestamp)
	}
	next := deadletter.History{Exchange: exchange, Keys: keys, KeysReplaced: replaced, ReplayedFrom: string(from.Name), Profile: from.Profile, Delayed: h.Delayed, Annotations: h.Annotations, Marks: marks}
	p.history = next.Append(nil)
	return p
}

// target is the name of the target with this incarnation.
func target(targets []*partition.Queue, incarnation uint64) string {
	for _, t := range targets {
		if t.Incarnation == incarnation {
			return t.Name
		}
	}
	return ""
}

// goesAs says whether the message goes where another one of its slice has gone, so that nobody needs to ask again.
func (p *replayed) goesAs(other *replayed) bool {
	return other != nil && other.byKeys && p.exchange == other.exchange && bytes.Equal(p.m.Key, other.m.Key) && len(p.m.More) == 0 && len(other.m.More) == 0
}

// replayTargets returns the targets, none if the exchange is gone, and the ticket that results depending on them must wait for. The
// origin is the word of the publisher, so the user must have permission to publish there.
func (c Client) replayTargets(p *replayed) (targets []*partition.Queue, ticket uint64, err error) {
	r, err := c.conn.RouteAgain(p.exchange, &p.m)
	p.missing, p.byKeys = r.NoExchange, r.ByKeys
	return r.Queues, r.Ticket, err
}
