package shovel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/safety/bug"
	"bartleby.mq/internal/wire/amqp091"
)

// worker runs one shovel. Its goroutine owns both ends; its mutex guards the status that it
// shows.
type worker struct {
	// Static.
	b           *broker.Broker
	log         *slog.Logger
	vhost       message.VHost
	name        string
	value       string // of the parameter, to detect a change
	setter      broker.Setter
	definition  definition
	clusterName func() string
	finished    func(*worker) // called when the shovel has moved all its messages
	patience    time.Duration // answerTimeout if 0

	// The goroutine's.
	largest int // size of the largest message from a remote source

	stop context.CancelFunc
	done chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex
	status  status
	attempt context.CancelCauseFunc // ends the running attempt, if there is one
}

// status is the shown state of a shovel.
type status struct {
	state     state
	reason    string
	since     time.Time
	from, to  address
	forwarded int64
	pending   int64
	remaining int64 // of a shovel that ends
	blocked   bool

	waitsFor   string // the pending request to an end, "" for none
	waitsSince time.Time
	refused    int // messages of the last batch that came back
	refusedAt  time.Time
	triedEvery time.Duration // after a failure; 0: not
}

// slow is how long an end may take before the status shows it.
const slow = 5 * time.Second

// waiting says what keeps a running shovel from moving messages, "" for no known reason.
func (s *status) waiting(now time.Time) string {
	switch {
	case s.blocked:
		return "the destination takes nothing for now, for an alarm of its memory or disk"
	case s.waitsFor != "" && now.Sub(s.waitsSince) >= slow:
		return fmt.Sprintf("%s since %s", s.waitsFor, timeShown(s.waitsSince))
	case s.refused > 0:
		return fmt.Sprintf("the destination refused %d messages at %s, as a full queue does; they are in the source and tried again", s.refused, timeShown(s.refusedAt))
	}
	return ""
}

// The values of status.waitsFor.
const (
	opensTarget = "waits for the destination to let it in"
	opensSource = "waits for the source to let it in"
	publishes   = "waits for the destination to take or confirm messages"
	settles     = "waits for the source to take acknowledgements"
)

// waits notes the pending request, "" for none.
func (w *worker) waits(what string) {
	w.change(func(s *status) { s.waitsFor, s.waitsSince = what, time.Now() })
}

type state string

// The states, in RabbitMQ's words.
const (
	starting   state = "starting"
	running    state = "running"
	terminated state = "terminated"
)

// batchLimit is how many messages are taken and confirmed together, and batchBytes the number of bytes
// after which a batch takes no more: each message has copies in memory.
const (
	batchLimit = 512
	batchBytes = 8 << 20
)

// run works until ctx ends or the shovel has moved all its messages. After a failure it tries
// again, with the delay of the definition.
func (w *worker) run(ctx context.Context) {
	defer close(w.done)
	for {
		w.change(func(s *status) { s.state, s.reason = starting, "" })
		w.notify()
		complete, err := w.try(ctx)
		switch {
		case ctx.Err() != nil:
			w.notifyRemoved()
			return
		case complete:
			w.log.Info("shovel has finished", "messages", w.shown().forwarded)
			w.finished(w)
			w.notifyRemoved()
			return
		}
		w.log.Warn("shovel failed", "error", err)
		w.change(func(s *status) {
			s.state, s.reason, s.triedEvery, s.waitsFor, s.refused = terminated, reasonOf(err), w.definition.reconnectDelay, "", 0
		})
		w.notify()
		if w.definition.reconnectDelay <= 0 {
			<-ctx.Done()
			w.notifyRemoved()
			return
		}
		if pause(ctx, w.definition.reconnectDelay) != nil {
			w.notifyRemoved()
			return
		}
	}
}

// try runs once, which interrupt may end.
func (w *worker) try(ctx context.Context) (complete bool, err error) {
	attempt, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w.mu.Lock()
	w.attempt = cancel
	w.mu.Unlock()
	complete, err = w.once(attempt)
	if cause := context.Cause(attempt); cause != nil && !complete {
		err = cause
	}
	return complete, err
}

// interrupt makes the running attempt fail with a reason. The shovel tries again as after any failure.
func (w *worker) interrupt(reason error) {
	w.mu.Lock()
	cancel := w.attempt
	w.mu.Unlock()
	if cancel != nil {
		cancel(reason)
	}
}

// permitted returns an error if the shovel's creator has lost a permission that it needs.
func (w *worker) permitted() error {
	complaints := w.definition.forbidden(w.b.LoopbackUsers, w.setter)
	switch {
	case complaints == nil:
		return nil
	case !w.setter.Known():
		return fmt.Errorf("user '%s', who created the shovel, is deleted", w.setter.Name())
	}
	return fmt.Errorf("user '%s', who created the shovel, no longer has the permissions for it: %s", w.setter.Name(), strings.Join(complaints, "; "))
}

// reasonOf is the shown text of an error.
func reasonOf(err error) string {
	var dial *dialError
	if errors.As(err, &dial) {
		return strings.TrimSuffix(err.Error(), dial.Error()) + "there is no connection; the log of the node says why"
	}
	return err.Error()
}

// pause waits for d or until ctx ends, which is an error.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *worker) change(f func(*status)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.status.state
	f(&w.status)
	if w.status.state != before {
		w.status.since = time.Now()
	}
}

func (w *worker) shown() status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

// notify publishes an event about the present state.
func (w *worker) notify() {
	st := w.shown()
	w.b.Notify("shovel.worker.status", func() amqp091.Table {
		t := append(w.facts(), amqp091.Field{Key: "status", Value: string(st.state)})
		switch st.state {
		case running:
			ends := map[string]any{}
			w.showEnds(ends, &st)
			for _, key := range slices.Sorted(maps.Keys(ends)) {
				t = append(t, amqp091.Field{Key: key, Value: ends[key]})
			}
		case terminated:
			t = append(t, amqp091.Field{Key: "reason", Value: st.reason})
		}
		return t
	})
}

func (w *worker) notifyRemoved() { w.b.Notify("shovel.worker.removed", w.facts) }

func (w *worker) facts() amqp091.Table {
	return amqp091.Table{{Key: "name", Value: w.name}, {Key: "vhost", Value: string(w.vhost)}}
}

// once opens both ends and moves messages until something fails, or complete.
func (w *worker) once(ctx context.Context) (complete bool, err error) {
	asOf := w.b.AccountsRevision()
	if err := w.permitted(); err != nil {
		return false, err
	}
	from, to := pick(w.definition.source.uris), pick(w.definition.dest.uris)
	w.change(func(s *status) { s.from, s.to = from, to })
	w.waits(opensTarget)
	out, err := w.openTarget(ctx, to)
	if err != nil {
		return false, fmt.Errorf("failed to connect to destination: %w", err)
	}
	defer out.close()
	defer bug.End(w.log, "a shovel") // before it: the broker is asked
	w.waits(opensSource)
	in, err := w.openSource(ctx, from)
	if err != nil {
		return false, fmt.Errorf("failed to connect to source: %w", err)
	}
	defer in.close()
	defer bug.End(w.log, "a shovel") // likewise
	left := w.toMove(in)
	w.change(func(s *status) { s.state, s.remaining = running, left })
	w.notify()
	return w.move(ctx, in, out, left, asOf)
}

// pick chooses one of several addresses, so that a node that is down does not stop a shovel for good.
func pick(list []address) address { return list[rand.IntN(len(list))] }

func (w *worker) openSource(ctx context.Context, a address) (source, error) {
	if a.local {
		return w.openLocalSource(a)
	}
	return w.openRemoteSource(ctx, a)
}

func (w *worker) openTarget(ctx context.Context, a address) (target, error) {
	if a.local {
		return w.openLocalTarget(a)
	}
	return w.openRemoteTarget(ctx, a)
}

// toMove is how many messages the shovel still has to move, negative for no limit.
func (w *worker) toMove(in source) int64 {
	u := w.definition.until
	switch {
	case u.never:
		return -1
	case u.queueLength:
		return int64(in.length())
	}
	return max(0, u.messages-w.shown().forwarded)
}

// move moves messages, left of them or without end. The shovel is permitted as of a revision of the accounts.
func (w *worker) move(ctx context.Context, in source, out target, left int64, asOf uint64) (complete bool, err error) {
	for left != 0 {
		limit := batchLimit
		if left > 0 {
			limit = int(min(left, batchLimit))
		}
		w.waits("")
		list, err := in.next(ctx, limit)
		if err != nil {
			return false, err
		}
		if now := w.b.AccountsRevision(); now != asOf { // messages that were taken go back with the source
			if err := w.permitted(); err != nil {
				return false, err
			}
			asOf = now
		}
		w.address(list)
		may, forbidden := w.passes(list)
		list = list[:may] // what is behind goes back with the source
		if w.definition.ack == noAck {
			// Acknowledge just before the publish: a consumer without acknowledgements would lose
			// all messages on their way to it when the shovel ends.
			if err := in.ack(list); err != nil {
				return false, err
			}
		}
		w.change(func(s *status) { s.pending, s.blocked = int64(len(list)), out.blocked() })
		w.waits(publishes)
		refused, failed := out.publish(ctx, list, w.definition.ack == onConfirm)
		// Settle the messages that the target has, even if the next one fails: otherwise each
		// attempt would move them again.
		w.waits(settles)
		moved, err := w.settle(ctx, in, list[:len(refused)], refused)
		if err = cmp.Or(failed, err, forbidden); err != nil {
			w.change(func(s *status) { s.forwarded += moved })
			return false, err
		}
		if left > 0 {
			left -= moved
		}
		w.change(func(s *status) {
			s.forwarded += moved
			s.pending, s.remaining, s.blocked = 0, left, false
		})
	}
	return true, nil
}

// passes returns how many of the messages, from the first on, the shovel's creator may publish, and the error for the next
// one. Only their routing keys for topic exchanges, including CC and BCC, could not be checked earlier.
func (w *worker) passes(list []carried) (n int, err error) {
	to := w.shown().to
	if !to.inside(w.b.LoopbackUsers) || w.definition.dest.queue != "" {
		return len(list), nil // the remote broker checks its own user; and a publish to a queue has no such key
	}
	ask := w.setter.Publisher(to.vhost)
	if ask == nil {
		return len(list), nil
	}
	for i := range list {
		p, err := publication(&list[i])
		if err == nil {
			err = ask(&p)
		}
		if err != nil {
			return i, fmt.Errorf("user '%s', who created the shovel, cannot publish a message: %w", w.setter.Name(), err)
		}
	}
	return len(list), nil
}

// refusedPause is the pause before the next attempt on a full target.
const refusedPause = time.Second

// settle acknowledges the messages that the target has accepted and requeues those that it has refused.
func (w *worker) settle(ctx context.Context, in source, list []carried, refused []bool) (moved int64, err error) {
	if w.definition.ack == noAck || len(list) == 0 {
		return int64(len(list)), nil
	}
	var good, bad []carried
	for i := range list {
		if refused[i] {
			bad = append(bad, list[i])
		} else {
			good = append(good, list[i])
		}
	}
	if err := in.ack(good); err != nil {
		return 0, err
	}
	if len(bad) == 0 {
		w.change(func(s *status) { s.refused = 0 })
		return int64(len(good)), nil
	}
	if err := in.giveBack(bad); err != nil {
		return int64(len(good)), err
	}
	w.change(func(s *status) { s.refused, s.refusedAt, s.waitsFor = len(bad), time.Now(), "" })
	return int64(len(good)), pause(ctx, refusedPause)
}

// address sets the destination of the messages and the added headers and properties.
func (w *worker) address(list []carried) {
	e := &w.definition.dest
	status := w.shown()
	for i := range list {
		m := &list[i]
		switch {
		case e.queue != "":
			m.exchange, m.key = "", e.queue
		case e.exchange != "":
			m.exchange = e.exchange
		}
		if e.hasKey && e.queue == "" {
			m.key = e.key
		}
		l := &m.properties
		l.Headers = slices.Clone(l.Headers)
		if e.forwardHeaders {
			w.tellOf(l, &status)
		}
		if l.UserID != nil && !status.from.local && status.to.inside(w.b.LoopbackUsers) && !w.setter.MaySay(*l.UserID) {
			setHeader(l, "x-shovelled-user-id", *l.UserID) // this node has not checked it
			l.UserID = nil
		}
		if e.timestampHeader {
			setHeader(l, "x-shovelled-timestamp", time.Now().Unix())
		}
		e.overwrite(l)
	}
}

// tellOf puts this shovel's entry in front of the entries of earlier shovels.
func (w *worker) tellOf(l *amqp091.PropertyList, s *status) {
	about := amqp091.Table{
		{Key: "shovelled-by", Value: w.clusterName()}, {Key: "shovel-type", Value: "dynamic"},
		{Key: "shovel-name", Value: w.name}, {Key: "shovel-vhost", Value: string(w.vhost)},
		{Key: "src-uri", Value: s.from.shown}, {Key: "dest-uri", Value: s.to.shown},
	}
	d := &w.definition
	for _, f := range []struct{ key, value string }{
		{"src-queue", d.source.queue}, {"src-exchange", d.source.exchange}, {"src-exchange-key", d.source.key},
		{"dest-queue", d.dest.queue}, {"dest-exchange", d.dest.exchange}, {"dest-exchange-key", d.dest.key},
	} {
		if f.value != "" {
			about = append(about, amqp091.Field{Key: f.key, Value: f.value})
		}
	}
	earlier, _ := l.Headers.Get("x-shovelled")
	list, _ := earlier.(amqp091.Array)
	others := slices.DeleteFunc(slices.Clone(l.Headers), func(f amqp091.Field) bool { return f.Key == "x-shovelled" })
	room := maxHeaders - len(amqp091.AppendTable(nil, others))
	if list = newest(append(amqp091.Array{about.Sorted()}, list...), room); len(list) > 0 {
		setHeader(l, "x-shovelled", list)
	}
}

// maxHeaders is the size of headers up to which x-shovelled gets entries: all headers go in one frame, and a message that
// circulates between shovels gets an entry each time. It is half of the usual frame_max.
const maxHeaders = 64 << 10

// newest returns the beginning of a list, as much as fits.
func newest(list amqp091.Array, room int) amqp091.Array {
	for i, v := range list {
		if room -= len(amqp091.AppendTable(nil, amqp091.Table{{Key: "x-shovelled", Value: v}})); room < 0 {
			return list[:i]
		}
	}
	return list
}

func setHeader(l *amqp091.PropertyList, key string, value any) {
	for i := range l.Headers {
		if l.Headers[i].Key == key {
			l.Headers[i].Value = value
			return
		}
	}
	l.Headers = append(l.Headers, amqp091.Field{Key: key, Value: value})
}

// overwrite sets the properties that the definition names.
func (e *end) overwrite(l *amqp091.PropertyList) {
	texts := map[string]**string{
		"content_type": &l.ContentType, "content_encoding": &l.ContentEncoding, "correlation_id": &l.CorrelationID, "reply_to": &l.ReplyTo,
		"expiration": &l.Expiration, "message_id": &l.MessageID, "type": &l.Type, "user_id": &l.UserID, "app_id": &l.AppID, "cluster_id": &l.ClusterID,
	}
	octets := map[string]**uint8{"delivery_mode": &l.DeliveryMode, "priority": &l.Priority}
	for key, v := range e.publishProperties {
		switch v := v.(type) {
		case string:
			if p := texts[key]; p != nil {
				*p = &v
			}
		case int64:
			if p := octets[key]; p != nil && v >= 0 && v <= 255 {
				*p = new(uint8(v))
			}
			if key == "timestamp" && v >= 0 {
				l.Timestamp = new(uint64(v))
			}
		}
	}
}
