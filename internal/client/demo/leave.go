package demo

import (
	"context"
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// The shop of what the demo leaves. Each service has a connection of its own, as in a company where many teams share a broker.
const (
	shop      = "shop"
	lettersOf = "%s.dead"
)

// leave makes what there is to look at afterwards: dead letters of several causes from several consumers, a retry that waits, drops,
// and a job that is over.
func (s *story) leave(ctx context.Context) error {
	s.title("A shop after a bad night, to look at")
	for _, act := range []func(context.Context) error{s.openShop, s.orders, s.payments, s.mails, s.stock, s.webhooks, s.invoices, s.tryAFew} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *story) openShop(context.Context) error {
	if err := s.ch.ExchangeDeclare(shop, amqp.ExchangeDirect, true, false, false, false, nil); err != nil {
		return err
	}
	for queue, more := range map[string]amqp.Table{
		"orders": nil, "payments": nil, "mails": {"x-message-ttl": 50}, "stock": {"x-max-length": 10},
	} {
		dead := fmt.Sprintf(lettersOf, queue)
		args := amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
		for k, v := range more {
			args[k] = v
		}
		if err := s.queue(dead, nil); err != nil {
			return err
		}
		if err := s.queue(queue, args); err != nil {
			return err
		}
	}
	if err := s.queue("visits", nil); err != nil { // what dies here is dropped
		return err
	}
	// A name that is misspelt: what dies here goes nowhere.
	if err := s.queue("invoices", amqp.Table{"x-dead-letter-exchange": "invoices.dlx"}); err != nil {
		return err
	}
	return s.queue("webhooks", amqp.Table{
		"x-queue-type": "quorum", "x-delayed-retry-type": "all", "x-delayed-retry-min": time.Hour.Milliseconds(), "x-delayed-retry-max": time.Hour.Milliseconds(),
	})
}

// queue declares a queue that gets what is published to the shop with its name.
func (s *story) queue(name string, args amqp.Table) error {
	if _, err := s.ch.QueueDeclare(name, true, false, false, false, args); err != nil {
		return err
	}
	return s.ch.QueueBind(name, name, shop, false, nil)
}

// flood publishes n messages to the shop, and waits for all confirms.
func (s *story) flood(ctx context.Context, queue, kind string, n int, body func(i int) string) error {
	var waiting []*amqp.DeferredConfirmation
	for i := range n {
		c, err := s.ch.PublishWithDeferredConfirmWithContext(ctx, shop, queue, true, false, amqp.Publishing{
			MessageId: fmt.Sprintf("%s-%d", queue, 1+i), Type: kind, DeliveryMode: amqp.Persistent, ContentType: "application/json", Body: []byte(body(i)),
			AppId: "shop", Timestamp: time.Now(),
		})
		if err != nil {
			return err
		}
		waiting = append(waiting, c)
	}
	for _, c := range waiting {
		if ok, err := c.WaitContext(ctx); err != nil || !ok {
			return fmt.Errorf("publish to %s: confirmed: %v: %w", queue, ok, err)
		}
	}
	return nil
}

// service consumes n messages of a queue on a connection of its own.
func (s *story) service(ctx context.Context, name, queue string, n int, handle func(ch *amqp.Channel, d *amqp.Delivery) error) error {
	conn, err := s.connect(name)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.Qos(50, 0, false); err != nil {
		return err
	}
	deliveries, err := ch.ConsumeWithContext(ctx, queue, name, false, false, false, false, nil)
	if err != nil {
		return err
	}
	patience := time.NewTimer(time.Minute)
	defer patience.Stop()
	for range n {
		select {
		case d, ok := <-deliveries:
			if !ok {
				return fmt.Errorf("%s: the consumer was cancelled", name)
			}
			if err := handle(ch, &d); err != nil {
				return err
			}
		case <-patience.C:
			return fmt.Errorf("%s: no message of %s for a minute", name, queue)
		}
	}
	return nil
}

// park sends a delivery to the dead letters of its queue, with its cause as Spring's recoverer writes it, and acknowledges it.
func park(ctx context.Context, ch *amqp.Channel, d *amqp.Delivery, queue, class, text, at string) error {
	err := ch.PublishWithContext(ctx, "", fmt.Sprintf(lettersOf, queue), true, false, amqp.Publishing{
		MessageId: d.MessageId, Type: d.Type, DeliveryMode: d.DeliveryMode, ContentType: d.ContentType, Body: d.Body, AppId: d.AppId, Timestamp: d.Timestamp,
		Headers: amqp.Table{
			"x-original-exchange": d.Exchange, "x-original-routingKey": d.RoutingKey, "x-exception-message": text,
			"x-exception-stacktrace": fmt.Sprintf("%s: %s\n\tat %s\n\tat shop.Worker.run(Worker.java:40)", class, text, at),
		},
	})
	if err != nil {
		return err
	}
	return d.Ack(false)
}

func (s *story) orders(ctx context.Context) error {
	const n, noPrice = 300, 240
	err := s.flood(ctx, "orders", "OrderPlaced", n, func(i int) string {
		if i < noPrice {
			return fmt.Sprintf(`{"order": %d, "item": "chair-%d", "price": null}`, 1000+i, i%7)
		}
		return fmt.Sprintf(`{"order": %d, "item": "lamp-%d", "price": 30, "country": "XX"}`, 1000+i, i%3)
	})
	if err != nil {
		return err
	}
	i := 0
	err = s.service(ctx, "order-service", "orders", n, func(ch *amqp.Channel, d *amqp.Delivery) error {
		defer func() { i++ }()
		if i < noPrice {
			return park(ctx, ch, d, "orders", "java.lang.NullPointerException", fmt.Sprintf("price of item chair-%d is null", i%7), "shop.Orders.total(Orders.java:112)")
		}
		return park(ctx, ch, d, "orders", "shop.UnknownCountryException", `no tax rate for country "XX"`, "shop.Tax.of(Tax.java:31)")
	})
	s.tell(err, "%d orders fail: %d without a price, %d for a country without a tax rate", n, noPrice, n-noPrice)
	return err
}

func (s *story) payments(ctx context.Context) error {
	const n = 120
	if err := s.flood(ctx, "payments", "PaymentDue", n, func(i int) string { return fmt.Sprintf(`{"payment": %d, "amount": %d}`, 5000+i, 10+i) }); err != nil {
		return err
	}
	i := 0
	err := s.service(ctx, "payment-service", "payments", n, func(ch *amqp.Channel, d *amqp.Delivery) error {
		i++
		return park(ctx, ch, d, "payments", "shop.PaymentTimeoutException", fmt.Sprintf("the bank did not answer within %d ms", 3000+i), "shop.Bank.charge(Bank.java:77)")
	})
	s.tell(err, "%d payments fail: the bank does not answer in time", n)
	return err
}

func (s *story) mails(ctx context.Context) error {
	const n = 40
	err := s.flood(ctx, "mails", "MailRequested", n, func(i int) string { return fmt.Sprintf(`{"to": "user%d@example.com", "template": "welcome"}`, i) })
	s.tell(err, "%d mails expire: nobody consumes them", n)
	return err
}

func (s *story) stock(ctx context.Context) error {
	const n, room = 35, 10
	err := s.flood(ctx, "stock", "StockChanged", n, func(i int) string { return fmt.Sprintf(`{"item": %d, "left": %d}`, i, 100-i) })
	s.tell(err, "%d changes of stock find no room in a queue of %d", n-room, room)
	return err
}

func (s *story) webhooks(ctx context.Context) error {
	if err := s.flood(ctx, "webhooks", "Webhook", 1, func(int) string { return `{"url": "https://partner.example/hook"}` }); err != nil {
		return err
	}
	err := s.service(ctx, "webhook-service", "webhooks", 1, func(_ *amqp.Channel, d *amqp.Delivery) error { return d.Nack(false, true) })
	s.tell(err, "1 webhook fails, and waits an hour for its next attempt")
	return err
}

func (s *story) invoices(ctx context.Context) error {
	for _, c := range []struct {
		queue, kind, service, what string
		n                          int
	}{
		{"invoices", "Invoice", "invoice-service", "invoices are rejected, and their dead-letter exchange does not exist", 2},
		{"visits", "Visit", "statistics", "visits are rejected, and their queue has no dead-letter exchange", 3},
	} {
		if err := s.flood(ctx, c.queue, c.kind, c.n, func(i int) string { return fmt.Sprintf(`{"number": %d}`, 70+i) }); err != nil {
			return err
		}
		if err := s.service(ctx, c.service, c.queue, c.n, func(_ *amqp.Channel, d *amqp.Delivery) error { return d.Reject(false) }); err != nil {
			return err
		}
		s.tell(nil, "%d %s", c.n, c.what)
	}
	return nil
}

// tryAFew sends some payments back by a job, and a service does most of them.
func (s *story) tryAFew(ctx context.Context) error {
	const n = 20
	if err := s.waitForLetters(ctx, "payments.dead", 120); err != nil {
		return err
	}
	id, err := s.api.job(ctx, map[string]any{
		"action": "replay", "vhost": vhost, "queues": []string{"payments.dead"}, "limit": n, "reason": "the bank is back: a few to try",
	})
	if err != nil {
		return err
	}
	i := 0
	err = s.service(ctx, "payment-service", "payments", n, func(ch *amqp.Channel, d *amqp.Delivery) error {
		if i++; i%10 == 0 {
			return d.Reject(false)
		}
		return d.Ack(false)
	})
	if err != nil {
		return err
	}
	err = s.until(ctx, func() (bool, error) {
		j, err := s.api.jobNow(ctx, id)
		return err == nil && j.Outcomes.Acknowledged+j.Outcomes.DiedAgain == n, err
	})
	s.tell(err, "%d payments are sent back by job %s: the bank takes %d, %d die again", n, id, n-n/10, n/10)
	return err
}

// waitForLetters waits until a queue has as many messages.
func (s *story) waitForLetters(ctx context.Context, queue string, n int) error {
	return s.until(ctx, func() (bool, error) {
		q, err := s.ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		return err == nil && q.Messages >= n, err
	})
}

// until asks every 50 ms, for a minute at most.
func (s *story) until(ctx context.Context, holds func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		if ok, err := holds(); ok || err != nil {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *story) tell(err error, format string, args ...any) {
	if err == nil {
		fmt.Fprintf(s.Out, "  "+format+"\n", args...)
	}
}

// usualHTTP is where commands look for a node that is not named.
const usualHTTP = "http://127.0.0.1:15672"

// where says where to look.
func (s *story) where() {
	node, login := "", s.User
	if at := strings.TrimSuffix(s.HTTP, "/"); at != usualHTTP {
		node = " --url " + at
	}
	if s.Password == "guest" {
		login += ", password guest"
	}
	fmt.Fprintf(s.Out, `
Why did the orders die, and can they be sent back? Look:

  in a browser    %s/#/inbox, as user %s
  here            bartleby dlq ls --vhost %s%[4]s
                  bartleby dlq groups --vhost %[3]s%[4]s
                  bartleby dlq jobs%[4]s
                  bartleby drops --vhost %[3]s%[4]s

It is all in the virtual host %[3]s. To remove it: bartleby delete_vhost %[3]s%[4]s
`, strings.TrimSuffix(s.HTTP, "/"), login, vhost, node)
}
