package shovel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	client "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/safety/bug"
)

// remote is a channel to another node, or to this one through a socket.
type remote struct {
	conn     *client.Connection
	ch       *client.Channel
	closed   chan *client.Error
	blockedc chan client.Blocking
	stopped  bool
	cut      *cutter
}

// The client library waits forever for a peer that sends heartbeats but answers nothing, or reads
// nothing, such as a broker that is low on memory.
const (
	dialTimeout = 30 * time.Second // until the login is done
	// lastWords is how long a peer may take to answer when the shovel stops, or closes its
	// connection.
	lastWords = 2 * time.Second
	// answerTimeout is how long a peer may take to answer one method, such as channel.open. Confirms may take
	// longer, for example if a quorum queue has no majority; the shovel's state shows that it waits.
	answerTimeout = time.Minute
)

// errSilent is for a peer that sends heartbeats but answers nothing.
var errSilent = errors.New("the peer does not answer after the login")

// cutter closes the socket under a connection whose peer does not answer in time.
type cutter struct {
	log      *slog.Logger
	outside  bool          // it must not lead to this machine
	intake   *intake       // limits the bytes that are read; may be nil
	patience time.Duration // answerTimeout
	socket   net.Conn
	watch    sync.WaitGroup

	closing, ended chan struct{} // closed before and after the connection is
}

// errLoopback is for an address that leads to this machine without saying so: the permissions of a
// shovel are checked by its address, and the user of a loopback login has a password that is not secret.
var errLoopback = errors.New("the address leads to this machine, where the user may log in only from loopback: use localhost or 127.0.0.1")

// dial connects, and watches over the connection from then on.
func (k *cutter) dial(ctx context.Context, network, address string) (nc net.Conn, err error) {
	d := net.Dialer{Timeout: dialTimeout}
	if k.socket, err = d.DialContext(ctx, network, address); err != nil {
		return nil, err
	}
	if to, ok := k.socket.RemoteAddr().(*net.TCPAddr); k.outside && ok && to.IP.IsLoopback() {
		return nil, errors.Join(errLoopback, k.socket.Close())
	}
	if k.intake != nil {
		k.socket = k.intake.around(k.socket)
	}
	// The library removes the deadline when it is let in.
	if err := k.socket.SetDeadline(time.Now().Add(dialTimeout)); err != nil {
		return nil, errors.Join(err, k.socket.Close())
	}
	k.watch.Go(bug.Guarded(k.log, "the watch over a shovel's connection", func() {
		select {
		case <-ctx.Done():
		case <-k.closing:
		}
		late := time.NewTimer(lastWords)
		defer late.Stop()
		select {
		case <-late.C:
			_ = k.socket.Close()
		case <-k.ended:
		}
	}))
	return k.socket, nil
}

// end closes the connection, if there is one, and the socket if that takes too long.
func (k *cutter) end(conn *client.Connection) {
	close(k.closing)
	if conn != nil {
		_ = conn.Close()
	}
	close(k.ended)
	k.watch.Wait()
}

// answered asks the peer, and closes the socket if that takes too long.
func (k *cutter) answered(ask func() error) error {
	late := time.AfterFunc(k.patience, bug.Guarded(k.log, "the patience with a shovel's peer", func() { _ = k.socket.Close() }))
	err := ask()
	if !late.Stop() && err != nil {
		return errSilent
	}
	return err
}

// dialError means that there is no connection. The cause is only for the log: it would show users
// who may define shovels which ports are open and which files exist.
type dialError struct{ cause error }

func (e *dialError) Error() string { return e.cause.Error() }

func (e *dialError) Unwrap() error { return e.cause }

// dial connects to another node. Once ctx ends the connection does not last much longer.
func (w *worker) dial(ctx context.Context, a address, in *intake) (*remote, error) {
	properties := client.NewConnectionProperties()
	properties["connection_name"] = "Shovel " + w.name
	cut := &cutter{
		log: w.log, outside: !a.loopback && slices.Contains(w.b.LoopbackUsers, a.user), intake: in, patience: cmp.Or(w.patience, answerTimeout),
		closing: make(chan struct{}), ended: make(chan struct{}),
	}
	conn, err := client.DialConfig(a.uri, client.Config{
		Properties: properties, Heartbeat: 10 * time.Second,
		Dial: func(network, address string) (net.Conn, error) { return cut.dial(ctx, network, address) },
	})
	if err != nil {
		cut.end(nil)
		return nil, &dialError{err}
	}
	r := &remote{conn: conn, cut: cut, closed: conn.NotifyClose(make(chan *client.Error, 1)), blockedc: conn.NotifyBlocked(make(chan client.Blocking, 16))}
	if err := cut.answered(func() error { r.ch, err = conn.Channel(); return err }); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *remote) close() { r.cut.end(r.conn) }

// remoteSource is a queue elsewhere.
type remoteSource struct {
	*remote
	deliveries <-chan client.Delivery
	ready      int
	again      []client.Delivery // refused by the target: next returns them first
	cancelled  chan string       // the source has ended the consumer
	intake     *intake
	noteSize   func(int) // of each message
}

func (w *worker) openRemoteSource(ctx context.Context, a address) (source, error) {
	in := newIntake(intakeBytes)
	r, err := w.dial(ctx, a, in)
	if err != nil {
		return nil, err
	}
	s := &remoteSource{remote: r, intake: in, noteSize: func(n int) { w.largest = max(w.largest, n) }}
	if err := r.cut.answered(func() error { return s.open(w) }); err != nil {
		r.close()
		return nil, err
	}
	return s, nil
}

func (s *remoteSource) open(w *worker) error {
	e := &w.definition.source
	q, err := s.declare(e)
	if err != nil {
		return err
	}
	s.ready = q.Messages
	if err := s.ch.Qos(window(e.prefetch, w.largest), 0, false); err != nil {
		return err
	}
	s.cancelled = s.ch.NotifyCancel(make(chan string, 1))
	s.deliveries, err = s.ch.Consume(q.Name, "", false, false, false, false, nil)
	return err
}

func (r *remote) declare(e *end) (client.Queue, error) {
	if e.exchange == "" {
		return r.declareQueue(e)
	}
	q, err := r.ch.QueueDeclare("", false, false, true, false, nil)
	if err != nil {
		return q, err
	}
	return q, r.ch.QueueBind(q.Name, e.key, e.exchange, false, nil)
}

// declareQueue asks first, on a channel that a refusal may close.
func (r *remote) declareQueue(e *end) (client.Queue, error) {
	q, err := r.ch.QueueDeclarePassive(e.queue, true, false, false, false, nil)
	if err == nil || e.predeclared {
		return q, err
	}
	if r.ch, err = r.conn.Channel(); err != nil {
		return q, err
	}
	arguments, err := tableOut(e.arguments)
	if err != nil {
		return q, err
	}
	return r.ch.QueueDeclare(e.queue, true, false, false, false, arguments)
}

func (s *remoteSource) length() int { return s.ready }

func (s *remoteSource) next(ctx context.Context, limit int) (list []carried, err error) {
	if err := ctx.Err(); err != nil { // the select below chooses randomly
		return nil, err
	}
	if len(s.again) > 0 { // else what is in deliveries still comes
		select {
		case <-s.cancelled: // by a consumer timeout: the source has them back, and would send them once more. Or closed
			return nil, s.reason("the source has taken back what the destination refused, or is gone")
		default:
		}
	}
	for size := 0; len(list) < limit && size < batchBytes; {
		var d client.Delivery
		var ok bool
		switch {
		case len(s.again) > 0:
			d, s.again, ok = s.again[0], s.again[1:], true
		case len(list) == 0:
			if d, ok, err = s.first(ctx); err != nil {
				return nil, err
			}
		default:
			select {
			case d, ok = <-s.deliveries:
			default:
				return list, nil
			}
		}
		if !ok {
			if len(list) > 0 {
				return list, nil
			}
			return nil, s.reason("the source's connection or queue is gone")
		}
		m := carried{exchange: d.Exchange, key: d.RoutingKey, body: d.Body, handle: d}
		if m.properties, err = propertiesIn(&d); err != nil {
			return nil, err
		}
		m.took = wireSize(&m)
		s.noteSize(m.took)
		list = append(list, m)
		size += len(m.body) + broker.DecodedTimes*(m.took-len(m.body))
	}
	return list, nil
}

// first waits for a message.
func (s *remoteSource) first(ctx context.Context) (d client.Delivery, ok bool, err error) {
	starving := time.NewTimer(starvation)
	defer starving.Stop()
	for {
		select {
		case d, ok = <-s.deliveries:
			return d, ok, nil
		case <-starving.C:
			s.intake.starve() // nothing that was read is a whole message
			starving.Reset(starvation)
		case <-ctx.Done():
			return d, false, ctx.Err()
		}
	}
}

// reason is why the connection was closed, if it was.
func (r *remote) reason(otherwise string) error {
	select {
	case err := <-r.closed:
		if err != nil {
			return err
		}
	default:
	}
	return errors.New(otherwise)
}

func (s *remoteSource) ack(list []carried) error {
	for i := range list {
		d := list[i].handle.(client.Delivery)
		if d.Acknowledger == nil || d.DeliveryTag == 0 {
			continue
		}
		if err := d.Ack(false); err != nil {
			return err
		}
		s.intake.release(list[i].took)
	}
	return nil
}

// giveBack keeps the messages, unacknowledged, for next. By basic.nack they would come back at once as well, but in a
// quorum queue each attempt on a full destination could count as a failed delivery, until they die of that.
func (s *remoteSource) giveBack(list []carried) error {
	for i := range list {
		s.again = append(s.again, list[i].handle.(client.Delivery))
	}
	return nil
}

// remoteTarget is an exchange elsewhere.
type remoteTarget struct {
	*remote
	// returns gets the returned messages if the target is a queue: if it is deleted, no message is dropped, and the
	// shovel restarts. It is nil for an exchange, which may route nowhere. It has room for a batch and, without
	// confirms, for the batch before, because the client library blocks until a return is read.
	returns chan client.Return
}

func (w *worker) openRemoteTarget(ctx context.Context, a address) (target, error) {
	r, err := w.dial(ctx, a, nil)
	if err != nil {
		return nil, err
	}
	t := &remoteTarget{remote: r}
	if err := r.cut.answered(func() error { return t.open(w) }); err != nil {
		r.close()
		return nil, err
	}
	return t, nil
}

func (t *remoteTarget) open(w *worker) error {
	e := &w.definition.dest
	if e.queue != "" {
		if _, err := t.declareQueue(e); err != nil {
			return err
		}
		t.returns = t.ch.NotifyReturn(make(chan client.Return, 2*batchLimit))
	}
	if w.definition.ack != onConfirm {
		return nil
	}
	return t.ch.Confirm(false)
}

func (t *remoteTarget) publish(ctx context.Context, list []carried, confirm bool) ([]bool, error) {
	if err := t.unroutable(); err != nil {
		return nil, err
	}
	refused := make([]bool, len(list))
	confirmations := make([]*client.DeferredConfirmation, 0, len(list))
	for i := range list {
		m := &list[i]
		p, err := publishing(m)
		if err != nil {
			return nil, err
		}
		c, err := t.ch.PublishWithDeferredConfirmWithContext(ctx, m.exchange, m.key, t.returns != nil, false, p)
		if err != nil {
			return nil, err
		}
		confirmations = append(confirmations, c)
	}
	if !confirm { // returns of earlier messages are noticed late, because nothing waits for them
		return refused, t.unroutable()
	}
	for i, c := range confirmations {
		select {
		case <-c.Done():
			refused[i] = !c.Acked()
		case err := <-t.closed:
			return nil, fmt.Errorf("the target's connection is gone: %w", err)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if err := t.unroutable(); err != nil {
		return nil, err // it is unknown which messages these were: all are moved again
	}
	return refused, nil
}

// unroutable is the error for returned messages. A target returns them before it confirms them.
func (t *remoteTarget) unroutable() error {
	select {
	case r, open := <-t.returns:
		if open {
			return fmt.Errorf("no queue is bound to exchange '%s' with key '%s': %s", r.Exchange, r.RoutingKey, r.ReplyText)
		}
	default:
	}
	return nil
}

// blocked is the latest state that the peer has sent.
func (t *remoteTarget) blocked() bool {
	for {
		select {
		case b, ok := <-t.blockedc:
			if !ok {
				return false
			}
			t.stopped = b.Active
		default:
			return t.stopped
		}
	}
}
