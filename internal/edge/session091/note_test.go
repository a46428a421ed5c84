package session091_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"bartleby.mq/internal/core/declare"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/run/broker"
)

// settles is a client with a consumer, whose notes are confirmed.
type settles struct {
	t          testing.TB
	s          *server
	ch         *amqp.Channel
	deliveries <-chan amqp.Delivery
	returns    chan amqp.Return
}

// consume declares the queue q of a type, with dead letters to "dead", and consumes from it.
func (s *server) consume(t testing.TB, kind string, more amqp.Table) *settles {
	t.Helper()
	ch := s.named(t, amqp.Table{"product": "shop", "version": "1.2"})
	dying(t, ch, "q", kind, more)
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	return &settles{
		t: t, s: s, ch: ch, returns: ch.NotifyReturn(make(chan amqp.Return, 100)),
		deliveries: must[<-chan amqp.Delivery](t)(ch.Consume("q", "tag", false, false, false, false, nil)),
	}
}

// take publishes n messages and gets them.
func (c *settles) take(n int) (list []amqp.Delivery) {
	c.t.Helper()
	for i := range n {
		if err := c.ch.Publish("", "q", false, false, amqp.Publishing{MessageId: fmt.Sprint(i)}); err != nil {
			c.t.Fatal(err)
		}
	}
	for range n {
		list = append(list, c.next())
	}
	return list
}

func (c *settles) next() amqp.Delivery {
	c.t.Helper()
	select {
	case d, ok := <-c.deliveries:
		if !ok {
			c.t.Fatal("the channel has ended")
		}
		return d
	case <-time.After(10 * time.Second):
		c.t.Fatal("no delivery comes")
	}
	return amqp.Delivery{}
}

// note publishes a note, and returns what the broker has returned: "" if nothing.
func (c *settles) note(headers amqp.Table, body string) string {
	c.t.Helper()
	confirm, err := c.ch.PublishWithDeferredConfirm("bartleby.settle", "", true, false, amqp.Publishing{Headers: headers, Body: []byte(body)})
	if err != nil {
		c.t.Fatal(err)
	}
	if !confirm.Wait() {
		c.t.Fatal("a note is refused")
	}
	select {
	case r := <-c.returns:
		if r.ReplyCode != 406 || r.Exchange != "bartleby.settle" || string(r.Body) != body {
			c.t.Errorf("returned as %+v", r)
		}
		return r.ReplyText
	default:
		return ""
	}
}

func (c *settles) takes(headers amqp.Table, body string) {
	c.t.Helper()
	if problem := c.note(headers, body); problem != "" {
		c.t.Fatalf("%v is returned: %s", headers, problem)
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// What a consumer says of a delivery before it rejects it is in the history of the dead letter, for this delivery only: with
// reject and nack, with multiple, with requeue if it dies of its delivery limit, in any order.
func TestANoteIsInTheHistoryOfItsDelivery(t *testing.T) {
	for _, kind := range bothTypes {
		t.Run(kind, func(t *testing.T) {
			s := serve(t, broker.Options{})
			c := s.consume(t, kind, nil)
			who := deadletter.Cause{ConsumerTag: "tag", Connection: s.b.Connections()[0].Name, User: "guest", Product: "shop", Version: "1.2"}
			d := c.take(5)
			c.takes(amqp.Table{"delivery-tag": int64(d[2].DeliveryTag), "error-class": "Class", "error": " text "}, "at line 1")
			c.takes(amqp.Table{"delivery-tag": int32(d[0].DeliveryTag), "error": "first"}, "")
			c.takes(amqp.Table{"delivery-tag": float64(d[0].DeliveryTag), "error": "again"}, "")
			check(t, d[2].Reject(false))
			check(t, d[1].Nack(true, false)) // 0 and 1
			check(t, d[4].Nack(true, false)) // 3 and 4
			got := s.histories(t, "dead", 5)
			for i, want := range []deadletter.Cause{
				{Class: "Class", Error: "text", Detail: "at line 1", DeliveryCount: 1}, {Error: "again"}, {}, {}, {},
			} {
				want.ConsumerTag, want.Connection, want.User, want.Product, want.Version = who.ConsumerTag, who.Connection, who.User, who.Product, who.Version
				if h := got[i]; h.Cause != want || h.Note != nil || len(h.Deaths) != 1 {
					t.Errorf("%d: %+v\nwant %+v", i, h.Cause, want)
				}
			}
			if n := s.b.Totals.Settled.Load(); n != 3 || s.b.Totals.SettleUnknown.Load() != 0 {
				t.Errorf("%d notes are counted", n)
			}
		})
	}
	s := serve(t, broker.Options{})
	c := s.consume(t, "quorum", amqp.Table{"x-delivery-limit": 1})
	d := c.take(1)[0]
	c.takes(amqp.Table{"delivery-tag": int64(d.DeliveryTag), "error": "of the first attempt"}, "")
	check(t, d.Reject(true))
	d = c.next()
	c.takes(amqp.Table{"delivery-tag": int64(d.DeliveryTag), "error": "of the last"}, "")
	check(t, d.Reject(true))
	if h := s.histories(t, "dead", 1)[0]; h.Cause.Error != "of the last" || h.Cause.DeliveryCount != 2 {
		t.Errorf("%+v", h.Cause)
	}
}

// Under an alarm a note says little: it passes, and what consumers say of each delivery would take the memory that is short.
func TestANoteUnderAnAlarmIsShort(t *testing.T) {
	s := serve(t, broker.Options{})
	c := s.consume(t, "classic", nil)
	d := c.take(1)[0]
	s.b.SetAlarm(broker.Memory, true)
	c.takes(amqp.Table{"delivery-tag": int64(d.DeliveryTag), "error-class": "Class", "error": strings.Repeat("e", 4000)}, strings.Repeat("d", 60_000))
	check(t, d.Reject(false))
	if h := s.histories(t, "dead", 1)[0]; h.Cause.Class != "Class" || len(h.Cause.Error) != 255 || h.Cause.Detail != "" {
		t.Errorf("%d bytes of error, %d of detail", len(h.Cause.Error), len(h.Cause.Detail))
	}
}

// A note is forgotten with its delivery: acknowledged, requeued, recovered or given back by its channel.
func TestANoteEndsWithItsDelivery(t *testing.T) {
	s := serve(t, broker.Options{})
	c := s.consume(t, "classic", nil)
	for i, end := range []func(d *amqp.Delivery) error{
		func(d *amqp.Delivery) error { return d.Nack(false, true) },
		func(*amqp.Delivery) error { return c.ch.Recover(true) }, //nolint:staticcheck // clients still call it
		func(*amqp.Delivery) error { return c.ch.Close() },
	} {
		d := c.take(1)[0]
		c.takes(amqp.Table{"delivery-tag": int64(d.DeliveryTag), "error": "old"}, "")
		check(t, end(&d))
		if i == 2 {
			c = s.consume(t, "classic", nil)
		}
		d = c.next()
		check(t, d.Reject(false))
		if h := s.histories(t, "dead", i+1)[i]; h.Cause.Error != "" || h.Cause.ConsumerTag != "tag" {
			t.Errorf("%d: %+v", i, h.Cause)
		}
	}
	d := c.take(1)[0]
	c.takes(amqp.Table{"delivery-tag": int64(d.DeliveryTag)}, "")
	check(t, d.Ack(false))
	if got := c.note(amqp.Table{"delivery-tag": int64(d.DeliveryTag)}, "x"); got != "PRECONDITION_FAILED - unknown delivery tag 2" {
		t.Errorf("a note of a settled delivery: %q", got)
	}
}

// What is wrong with a note is returned if it is mandatory. The channel goes on, and the delivery too.
func TestAWrongNoteIsReturned(t *testing.T) {
	s := serve(t, broker.Options{})
	c := s.consume(t, "classic", nil)
	d := c.take(1)[0]
	tag := int64(d.DeliveryTag)
	for _, n := range []struct {
		headers amqp.Table
		want    string
	}{
		{nil, "header delivery-tag is missing"},
		{amqp.Table{"delivery-tag": "1"}, "header delivery-tag must be the tag of a delivery"},
		{amqp.Table{"delivery-tag": int64(0)}, "header delivery-tag must be the tag of a delivery"},
		{amqp.Table{"delivery-tag": 1.5}, "header delivery-tag must be the tag of a delivery"},
		{amqp.Table{"delivery-tag": tag + 1}, "unknown delivery tag 2"},
		{amqp.Table{"delivery-tag": tag, "delay": int64(-1)}, "header delay must be a number of milliseconds from 0 to 4294967295"},
		{amqp.Table{"delivery-tag": tag, "delay": int64(1 << 32)}, "header delay must be a number of milliseconds from 0 to 4294967295"},
		{amqp.Table{"delivery-tag": tag, "delay": "soon"}, "header delay must be a number of milliseconds from 0 to 4294967295"},
		{amqp.Table{"delivery-tag": tag, "dead-letter-to": int64(7)}, "header dead-letter-to must be a routing key"},
		{amqp.Table{"delivery-tag": tag, "dead-letter-to": strings.Repeat("k", 256)}, "header dead-letter-to must be a routing key"},
	} {
		if got := c.note(n.headers, "x"); got != "PRECONDITION_FAILED - "+n.want {
			t.Errorf("%v: %q, want %q", n.headers, got, n.want)
		}
	}
	check(t, s.channel(t).Publish("bartleby.settle", "", false, false, amqp.Publishing{Headers: amqp.Table{"delivery-tag": tag, "error": "of another channel"}}))
	eventually(t, "it is counted", func() bool { return s.b.Totals.SettleUnknown.Load() == 11 })
	check(t, d.Reject(false))
	if h := s.histories(t, "dead", 1)[0]; h.Cause.Error != "" {
		t.Errorf("%+v", h.Cause)
	}
}

// Texts are cut, and only so many notes of a channel are kept: the oldest goes.
func TestNotesAreBounded(t *testing.T) {
	s := serve(t, broker.Options{})
	c := s.consume(t, "classic", nil)
	d := c.take(6)
	long, detail := strings.Repeat("é", letter.MaxError), strings.Repeat("é", letter.MaxDetail)
	for i := range d {
		c.takes(amqp.Table{"delivery-tag": int64(d[i].DeliveryTag), "error-class": long, "error": fmt.Sprint(i, long)}, detail)
	}
	check(t, d[5].Nack(true, false))
	for i, h := range s.histories(t, "dead", 6) {
		kept := i > 2 // 256 KiB
		if kept != (strings.HasPrefix(h.Cause.Error, fmt.Sprint(i)) && len(h.Cause.Detail) == letter.MaxDetail && len(h.Cause.Error) <= letter.MaxSaid && len(h.Cause.Class) <= letter.MaxClass) {
			t.Errorf("%d: class of %d, error of %d, detail of %d bytes", i, len(h.Cause.Class), len(h.Cause.Error), len(h.Cause.Detail))
		}
	}
	d = c.take(1)
	c.takes(amqp.Table{"delivery-tag": int64(d[0].DeliveryTag), "error": long}, "")
	check(t, d[0].Reject(false))
	if h := s.histories(t, "dead", 7)[6]; len(h.Cause.Error) > letter.MaxSaid || len(h.Cause.Detail) != letter.MaxError {
		t.Errorf("a long error without a detail: %d bytes are the error, and %d the detail", len(h.Cause.Error), len(h.Cause.Detail))
	}
	d = c.take(501)
	for i := range d {
		check(t, c.ch.Publish("bartleby.settle", "", false, false, amqp.Publishing{Headers: amqp.Table{"delivery-tag": int64(d[i].DeliveryTag), "error": "x"}}))
	}
	check(t, d[500].Nack(true, false))
	said := 0
	for _, h := range s.histories(t, "dead", 508)[7:] {
		if h.Cause.Error != "" {
			said++
		}
	}
	if said != 500 {
		t.Errorf("%d notes were kept, want 500", said)
	}
}

// delay delays this one retry, on classic and on quorum queues.
func TestANoteDelaysOneRetry(t *testing.T) {
	for _, kind := range bothTypes {
		s := serve(t, broker.Options{})
		c := s.consume(t, kind, nil)
		d := c.take(2)
		began := time.Now()
		c.takes(amqp.Table{"delivery-tag": int64(d[0].DeliveryTag), "delay": int32(300), "error": "busy"}, "")
		check(t, d[0].Nack(false, true))
		check(t, d[1].Nack(false, true))
		if again := c.next(); again.MessageId != "1" {
			t.Errorf("%s: message %s came first", kind, again.MessageId)
		}
		again := c.next()
		if passed := time.Since(began); passed < 300*time.Millisecond || again.MessageId != "0" || !again.Redelivered {
			t.Errorf("%s: message %s came back after %s", kind, again.MessageId, passed)
		}
	}
}

// dead-letter-to takes the place of the dead-letter routing key, if the user may write to the dead-letter exchange with it.
func TestANoteSaysWhereTheDeadLetterGoes(t *testing.T) {
	for _, kind := range bothTypes {
		s := serve(t, broker.Options{})
		c := s.consume(t, kind, nil)
		must[amqp.Queue](t)(c.ch.QueueDeclare("parked", true, false, false, false, nil))
		d := c.take(2)
		c.takes(amqp.Table{"delivery-tag": int64(d[0].DeliveryTag), "dead-letter-to": "parked"}, "")
		check(t, d[1].Nack(true, false))
		if h := s.histories(t, "parked", 1)[0]; len(h.Keys) != 1 || h.Keys[0] != "parked" || h.Exchange != "" {
			t.Errorf("%s: %+v", kind, h)
		}
		s.histories(t, "dead", 1)
	}
}

// account is a user with a password.
type account struct {
	t    testing.TB
	s    *server
	name string
}

func (s *server) user(t testing.TB, name string) *account {
	must[declare.Result](t)(s.b.By("").Do(declare.PutUser{Name: name, Password: must[auth.PasswordHash](t)(s.b.HashPassword("p")), Tags: nil}))
	return &account{t, s, name}
}

// may says to which exchanges it may write, and with which keys to one of them. It may read all.
func (a *account) may(write, exchange, keys string) {
	must[declare.Result](a.t)(a.s.b.By("").Do(declare.PutPermission{Permission: auth.Permission{User: a.name, VHost: "/", Configure: "^$", Write: write, Read: ".*"}}))
	must[declare.Result](a.t)(a.s.b.By("").Do(declare.PutTopicPermission{TopicPermission: auth.TopicPermission{User: a.name, VHost: "/", Exchange: message.ExchangeName(exchange), Write: keys, Read: ".*"}}))
}

func (a *account) channel() *amqp.Channel {
	c := must[*amqp.Connection](a.t)(amqp.Dial("amqp://" + a.name + ":p@" + a.s.addr))
	a.t.Cleanup(func() { _ = c.Close() })
	return must[*amqp.Channel](a.t)(c.Channel())
}

// Who may not write to the dead-letter exchange gains nothing by dead-letter-to, nor with a key that it may not use, nor by
// waiting until a policy has changed the exchange.
func TestDeadLetterToNeedsPermission(t *testing.T) {
	s := serve(t, broker.Options{})
	admin := s.channel(t)
	check(t, admin.ExchangeDeclare("dlx", "topic", true, false, false, false, nil))
	for _, name := range []string{"dead", "secret"} {
		must[amqp.Queue](t)(admin.QueueDeclare(name, true, false, false, false, nil))
		check(t, admin.QueueBind(name, name, "dlx", false, nil))
	}
	must[amqp.Queue](t)(admin.QueueDeclare("q", true, false, false, false, amqp.Table{"x-dead-letter-exchange": "dlx", "x-dead-letter-routing-key": "dead"}))
	worker := s.user(t, "worker")
	type attempt struct {
		write, topic, key string
		code              int
	}
	for i, c := range []attempt{{"^$", ".*", "secret", amqp.AccessRefused}, {"^dlx$", "^dead$", "secret", amqp.AccessRefused}, {"^dlx$", "^secret$", "secret", 0}} {
		worker.may(c.write, "dlx", c.topic)
		ch := worker.channel()
		closed := ch.NotifyClose(make(chan *amqp.Error, 1))
		check(t, admin.Publish("", "q", false, false, amqp.Publishing{}))
		d := <-must[<-chan amqp.Delivery](t)(ch.Consume("q", "tag", false, false, false, false, nil))
		check(t, ch.Confirm(false))
		confirm := must[*amqp.DeferredConfirmation](t)(ch.PublishWithDeferredConfirm("bartleby.settle", "", false, false, amqp.Publishing{Headers: amqp.Table{"delivery-tag": int64(d.DeliveryTag), "dead-letter-to": c.key}}))
		if c.code != 0 {
			if err := <-closed; err == nil || err.Code != c.code {
				t.Errorf("%d: closed with %v", i, err)
			}
			purged := 0
			eventually(t, "the delivery is back", func() bool {
				n, err := admin.QueuePurge("q", false)
				check(t, err)
				purged += n
				return purged == 1
			})
			continue
		}
		confirm.Wait()
		worker.may("^$", "dlx", c.topic) // the note is older
		check(t, d.Reject(false))
		s.histories(t, "dead", 1)
	}
	if n := must[amqp.Queue](t)(admin.QueueDeclarePassive("secret", true, false, false, false, nil)).Messages; n != 0 {
		t.Errorf("%d messages came where nobody may write", n)
	}
}

// A note is no part of a transaction: it goes with the settlement, and with it when that is rolled back.
func TestNotesInTransactions(t *testing.T) {
	for _, kind := range bothTypes {
		s := serve(t, broker.Options{})
		ch := s.channel(t)
		dying(t, ch, "q", kind, nil)
		for range 2 {
			check(t, ch.Publish("", "q", false, false, amqp.Publishing{}))
		}
		check(t, ch.Tx())
		deliveries := must[<-chan amqp.Delivery](t)(ch.Consume("q", "tag", false, false, false, false, nil))
		a, b := <-deliveries, <-deliveries
		say := func(d *amqp.Delivery, text string) {
			check(t, ch.Publish("bartleby.settle", "", false, false, amqp.Publishing{Headers: amqp.Table{"delivery-tag": int64(d.DeliveryTag), "error": text}}))
		}
		say(&a, "rolled back")
		check(t, a.Reject(false))
		check(t, ch.TxRollback())
		say(&b, "committed")
		check(t, a.Reject(false))
		check(t, b.Reject(false))
		check(t, ch.TxCommit())
		got := s.histories(t, "dead", 2)
		if got[0].Cause.Error != "" || got[1].Cause.Error != "committed" {
			t.Errorf("%s: %+v\n%+v", kind, got[0].Cause, got[1].Cause)
		}
	}
}

// What is got by basic.get and rejected says who did it, and notes are for it too.
func TestWhoRejectedWhatItGot(t *testing.T) {
	for _, kind := range bothTypes {
		s := serve(t, broker.Options{})
		ch := s.named(t, amqp.Table{"product": "shop"})
		dying(t, ch, "q", kind, nil)
		for i, text := range []string{"", "got"} {
			check(t, ch.Publish("", "q", false, false, amqp.Publishing{}))
			d, ok, err := ch.Get("q", false)
			for ; !ok && err == nil; d, ok, err = ch.Get("q", false) {
			}
			check(t, err)
			if text != "" {
				check(t, ch.Publish("bartleby.settle", "", false, false, amqp.Publishing{Headers: amqp.Table{"delivery-tag": int64(d.DeliveryTag), "error": text}}))
			}
			check(t, d.Nack(false, false))
			want := deadletter.Cause{Connection: s.b.Connections()[0].Name, User: "guest", Product: "shop", Error: text}
			if got := s.histories(t, "dead", i+1)[i].Cause; got != want {
				t.Errorf("%s: %+v, want %+v", kind, got, want)
			}
		}
	}
}

// Nobody declares, deletes or binds the exchange; a passive declaration finds it. In strict mode, and where it is switched off,
// there is none, and one that is declared is like any other.
func TestTheSettleExchangeIsTheBrokersOwn(t *testing.T) {
	off := false
	for _, c := range []struct {
		o    broker.Options
		code int
	}{{broker.Options{}, amqp.AccessRefused}, {broker.Options{Strict: true}, 0}, {broker.Options{SettleExchange: &off}, 0}} {
		s := serve(t, c.o)
		code := func(do func(ch *amqp.Channel) error) int {
			var e *amqp.Error
			if err := do(s.channel(t)); errors.As(err, &e) {
				return e.Code
			}
			return 0
		}
		passive := func(ch *amqp.Channel) error {
			return ch.ExchangeDeclarePassive("bartleby.settle", "direct", true, false, false, false, nil)
		}
		if got := code(passive); (got == 0) != (c.code != 0) {
			t.Errorf("%+v: a passive declaration is answered with %d", c, got)
		}
		must[amqp.Queue](t)(s.channel(t).QueueDeclare("q", false, false, false, false, nil))
		for what, do := range map[string]func(ch *amqp.Channel) error{
			"declare": func(ch *amqp.Channel) error {
				return ch.ExchangeDeclare("bartleby.settle", "fanout", true, false, false, false, nil)
			},
			"bind":    func(ch *amqp.Channel) error { return ch.QueueBind("q", "", "bartleby.settle", false, nil) },
			"bind to": func(ch *amqp.Channel) error { return ch.ExchangeBind("bartleby.settle", "", "amq.fanout", false, nil) },
			"unbind":  func(ch *amqp.Channel) error { return ch.QueueUnbind("q", "", "bartleby.settle", nil) },
			"delete":  func(ch *amqp.Channel) error { return ch.ExchangeDelete("bartleby.settle", false, false) },
		} {
			if c.code != 0 {
				if got := code(do); got != c.code {
					t.Errorf("%s is answered with %d", what, got)
				}
			}
		}
		if c.code == 0 {
			ch := s.channel(t)
			check(t, ch.ExchangeDeclare("bartleby.settle", "fanout", true, false, false, false, nil))
			check(t, ch.QueueBind("q", "", "bartleby.settle", false, nil))
			check(t, ch.Publish("bartleby.settle", "", false, false, amqp.Publishing{}))
			eventually(t, "its message", func() bool {
				q, err := ch.QueueDeclarePassive("q", false, false, false, false, nil)
				return err == nil && q.Messages == 1
			})
		}
	}
}
