package letters

import (
	"fmt"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// ReplayRequest says which dead letters of a queue a replay moves (DL-19.6), and where to. A message is chosen if all
// that is set holds of it. The zero value sends all of them to where they were first published.
type ReplayRequest struct {
	// Reason and Queue choose messages that died so, or there; both must hold of
	// the same death. Zero values choose all.
	Reason deadletter.Reason
	Queue  string
	// OlderThan and NewerThan choose by the time since the last death; 0 = all.
	OlderThan, NewerThan time.Duration
	// MessageID and Headers choose by properties, as a consumer would get them.
	MessageID string
	Headers   []HeaderValue
	// Replayed chooses messages that a replay has moved before, or that none has; nil = all.
	Replayed *bool

	To Destination

	Limit  int  // messages at most; 0 = no limit
	Rate   int  // messages a second at most; 0 = as fast as it goes
	DryRun bool // only count
}

// HeaderValue is a header and what it has to be, as text: true and false, integers as decimals.
type HeaderValue struct{ Name, Value string }

// Destination says where a replay sends messages. What is not set is where each was first published.
type Destination struct {
	Queue    message.QueueName     // by the default exchange; then nothing else is set
	Exchange *message.ExchangeName // "" is the default exchange
	Key      *string               // in place of all keys of the message
}

// matches says whether the history has the death that is looked for. What died after the replay began does not.
func (r *ReplayRequest) matches(h *deadletter.History, began time.Time) bool {
	last := time.UnixMilli(h.Deaths[0].Last)
	if !last.Before(began) {
		return false
	}
	age := began.Sub(last)
	if r.OlderThan > 0 && age < r.OlderThan || r.NewerThan > 0 && age > r.NewerThan {
		return false
	}
	return slices.ContainsFunc(h.Deaths, func(d deadletter.Death) bool {
		return (r.Reason == 0 || d.Reason.Counted() == r.Reason) && (r.Queue == "" || d.Queue == r.Queue)
	})
}

// fits says whether the message has the properties that are looked for.
func (r *ReplayRequest) fits(rec message.Record, history []byte, n queue.Counts, quorum bool) bool {
	if r.MessageID == "" && len(r.Headers) == 0 && r.Replayed == nil {
		return true
	}
	raw, _, _ := broker.Rendered(rec, history, n, quorum)
	l, err := amqp091.DecodeProps(raw)
	if err != nil {
		return false
	}
	if r.MessageID != "" && (l.MessageID == nil || *l.MessageID != r.MessageID) {
		return false
	}
	if r.Replayed != nil {
		if _, replayed := l.Headers.Get(deadletter.HeaderReplayedFrom); replayed != *r.Replayed {
			return false
		}
	}
	return !slices.ContainsFunc(r.Headers, func(h HeaderValue) bool {
		v, ok := l.Headers.Get(h.Name)
		text, scalar := headerText(v)
		return !ok || !scalar || text != h.Value
	})
}

// headerText is a header's value as text; ok is false if it is a table or a list.
func headerText(v any) (text string, ok bool) {
	if n, ok := amqp091.Int64(v); ok {
		return strconv.FormatInt(n, 10), true
	}
	switch v := v.(type) {
	case nil:
		return "", true
	case string:
		return v, true
	case []byte:
		return string(v), true
	case bool:
		return strconv.FormatBool(v), true
	case uint64:
		return strconv.FormatUint(v, 10), true
	case float32:
		return strconv.FormatFloat(float64(v), 'g', -1, 32), true
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64), true
	case amqp091.Timestamp:
		return strconv.FormatUint(uint64(v), 10), true
	}
	return "", false
}

// mayReplay refuses a destination that makes no sense, that does not exist, or that the user may not write to: whoever
// asked learns it before anything has moved, and also if no message is chosen. Each message is checked again.
func (c Client) mayReplay(to *Destination, from *topology.Queue, action Action) error {
	refuse := func(format string, args ...any) error {
		return topology.Refuse(topology.PreconditionFailed, "%s of %s: %s", action, from.Resource(), fmt.Sprintf(format, args...))
	}
	switch {
	case to.Queue != "" && (to.Exchange != nil || to.Key != nil):
		return refuse("a queue as the destination cannot be combined with an exchange or a routing key")
	case to.Queue == from.Name:
		return refuse("the destination is the queue itself")
	case to.Key != nil && (len(*to.Key) > maxKey || !utf8.ValidString(*to.Key)):
		return refuse("the routing key must be UTF-8 of at most %d bytes", maxKey)
	case to.Queue == "" && to.Exchange == nil:
		return nil
	}
	exchange := message.ExchangeName("")
	if to.Exchange != nil {
		exchange = *to.Exchange
	}
	there, err := c.conn.FindExchange(exchange)
	if err == nil && !there {
		err = refuse("the exchange '%s' does not exist", exchange)
	}
	if err != nil || to.Queue == "" {
		return err
	}
	c.broker().Read(func(s *topology.State, _ *auth.Users) {
		v, ok := s.VHost(c.conn.VHost)
		if ok {
			_, ok = v.Queue(to.Queue)
		}
		if !ok {
			err = refuse("the queue '%s' does not exist", to.Queue)
		}
	})
	return err
}

const maxKey = 255 // bytes
