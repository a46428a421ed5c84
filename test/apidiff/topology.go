package apidiff

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// vhost is where everything is built.
const vhost = "apidiff"

// declared is what is put by the API, in order: method, path, body.
var declared = [][3]string{
	{"PUT", "vhosts/apidiff", `{"description":"every kind of object","tags":["a","b"],"default_queue_type":"classic"}`},
	{"PUT", "users/apidiff", `{"password":"apidiff","tags":["management"]}`},
	{"PUT", "permissions/apidiff/apidiff", `{"configure":".*","write":".*","read":".*"}`},
	{"PUT", "vhost-limits/apidiff/max-queues", `{"value":100}`},
	{"PUT", "vhost-limits/apidiff/max-connections", `{"value":100}`},
	{"PUT", "user-limits/apidiff/max-channels", `{"value":100}`},
	{"PUT", "user-limits/apidiff/max-connections", `{"value":100}`},
	{"PUT", "global-parameters/apidiff", `{"value":{"a":1}}`},
	{"PUT", "exchanges/apidiff/direct", `{"type":"direct","durable":true}`},
	{"PUT", "exchanges/apidiff/topic", `{"type":"topic","durable":true,"arguments":{"alternate-exchange":"fanout"}}`},
	{"PUT", "exchanges/apidiff/fanout", `{"type":"fanout","durable":true,"auto_delete":true}`},
	{"PUT", "exchanges/apidiff/headers", `{"type":"headers","durable":true}`},
	{"PUT", "exchanges/apidiff/internal", `{"type":"topic","durable":true,"internal":true}`},
	{"PUT", "exchanges/apidiff/hash", `{"type":"x-consistent-hash","durable":true}`},
	{"PUT", "exchanges/apidiff/modulus", `{"type":"x-modulus-hash","durable":true}`},
	{"PUT", "exchanges/apidiff/random", `{"type":"x-local-random","durable":true}`},
	{"PUT", "topic-permissions/apidiff/apidiff", `{"exchange":"topic","write":".*","read":".*"}`},
	{"PUT", "policies/apidiff/p", `{"pattern":"^(arguments|quorum|direct)$","definition":{"max-length":1000,"alternate-exchange":"fanout"},"priority":3,"apply-to":"all"}`},
	{"PUT", "operator-policies/apidiff/op", `{"pattern":"^arguments$","definition":{"expires":3600000},"priority":3,"apply-to":"queues"}`},
	{"PUT", "queues/apidiff/classic", `{"durable":true}`},
	{"PUT", "queues/apidiff/arguments", `{"durable":true,"arguments":{"x-message-ttl":3600000,"x-dead-letter-exchange":"","x-dead-letter-routing-key":"idle",
		"x-max-priority":5,"x-max-length-bytes":1000000,"x-overflow":"reject-publish"}}`},
	{"PUT", "queues/apidiff/quorum", `{"durable":true,"arguments":{"x-queue-type":"quorum","x-delivery-limit":5,"x-dead-letter-exchange":"","x-dead-letter-routing-key":"idle"}}`},
	{"PUT", "queues/apidiff/retry", `{"durable":true,"arguments":{"x-queue-type":"quorum","x-delayed-retry-type":"all","x-delayed-retry-min":60000,"x-delayed-retry-max":600000}}`},
	{"PUT", "queues/apidiff/single", `{"durable":true,"arguments":{"x-single-active-consumer":true}}`},
	{"PUT", "queues/apidiff/idle", `{"durable":true}`},
	{"PUT", "queues/apidiff/transient", `{"durable":false,"auto_delete":true}`},
	{"POST", "bindings/apidiff/e/direct/q/classic", `{"routing_key":"key"}`},
	{"POST", "bindings/apidiff/e/direct/q/quorum", `{"routing_key":"key"}`},
	{"POST", "bindings/apidiff/e/direct/q/arguments", `{"routing_key":"key","arguments":{"a":1,"b":"text"}}`},
	{"POST", "bindings/apidiff/e/direct/e/fanout", `{"routing_key":"other"}`},
	{"POST", "bindings/apidiff/e/headers/q/idle", `{"routing_key":"","arguments":{"x-match":"any","h":true}}`},
	{"POST", "bindings/apidiff/e/hash/q/transient", `{"routing_key":"1"}`},
}

// target is a node, ours or RabbitMQ.
type target struct {
	http    string // without /api
	amqp    string // HOST:PORT
	metrics string // without a path
}

// wipe removes what build makes; that there is none is fine.
func (t target) wipe() error {
	var failed error
	for _, path := range []string{"vhosts/apidiff", "users/apidiff", "global-parameters/apidiff"} {
		if a, err := t.do("DELETE", path, ""); err != nil || a.status != http.StatusNoContent && a.status != http.StatusNotFound {
			failed = errors.Join(failed, fmt.Errorf("DELETE %s: %d %s %w", path, a.status, a.body, err))
		}
	}
	return failed
}

// build makes the topology, and has clients do what there are statistics of. Their
// connection stays open until close is called.
func (t target) build() (close func() error, err error) {
	if err := t.wipe(); err != nil {
		return nil, err
	}
	for _, d := range declared {
		a, err := t.do(d[0], d[1], d[2])
		if err != nil {
			return nil, err
		}
		if a.status >= 300 {
			return nil, fmt.Errorf("%s %s: %d %s", d[0], d[1], a.status, a.body)
		}
	}
	properties := amqp.NewConnectionProperties()
	properties["connection_name"] = "apidiff"
	conn, err := amqp.DialConfig("amqp://guest:guest@"+t.amqp+"/"+vhost, amqp.Config{Properties: properties, Heartbeat: 10 * time.Second})
	if err != nil {
		return nil, err
	}
	if err := work(conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn.Close, nil
}

// work uses channel 1 for publishing with confirms, 2 for consuming, and 3 for a
// transaction that stays open.
func work(conn *amqp.Connection) error {
	out, err := conn.Channel()
	if err != nil {
		return err
	}
	in, err := conn.Channel()
	if err != nil {
		return err
	}
	tx, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := out.Confirm(false); err != nil {
		return err
	}
	if err := publish(out); err != nil {
		return err
	}
	if err := consume(in); err != nil {
		return err
	}
	if err := tx.Tx(); err != nil {
		return err
	}
	return tx.Publish("direct", "key", false, false, amqp.Publishing{Body: []byte("uncommitted")})
}

func publish(ch *amqp.Channel) error {
	ctx := context.Background()
	returned := ch.NotifyReturn(make(chan amqp.Return, 1))
	send := func(exchange, key string, mandatory bool) error {
		c, err := ch.PublishWithDeferredConfirmWithContext(ctx, exchange, key, mandatory, false, amqp.Publishing{
			DeliveryMode: amqp.Persistent, Timestamp: time.Unix(1700000000, 0), Body: []byte("body"), Priority: 1,
		})
		if err == nil {
			c.Wait()
		}
		return err
	}
	for range 6 {
		if err := send("direct", "key", false); err != nil {
			return err
		}
	}
	for _, queue := range []string{"retry", "single"} {
		if err := send("", queue, false); err != nil {
			return err
		}
	}
	if err := send("direct", "nowhere", false); err != nil {
		return err
	}
	if err := send("direct", "nowhere", true); err != nil {
		return err
	}
	<-returned
	return nil
}

// consume leaves of each queue's messages some acknowledged, one returned, and one
// with its consumer.
func consume(ch *amqp.Channel) error {
	if err := ch.Qos(3, 0, false); err != nil {
		return err
	}
	if _, err := ch.QueueDeclare("exclusive", false, false, true, false, nil); err != nil {
		return err
	}
	for _, queue := range []string{"classic", "quorum", "single", "retry"} {
		deliveries, err := ch.Consume(queue, "consumer-"+queue, false, false, false, false, amqp.Table{"x-priority": 1})
		if err != nil {
			return err
		}
		d := <-deliveries
		if queue == "retry" {
			err = d.Reject(true) // a failed delivery, to be retried later
		} else {
			err = d.Ack(false)
		}
		if err != nil {
			return err
		}
		if queue == "classic" || queue == "quorum" {
			if err := (<-deliveries).Nack(false, true); err != nil {
				return err
			}
			<-deliveries
		}
	}
	if _, err := ch.Consume("single", "second", true, false, false, false, nil); err != nil {
		return err
	}
	for _, noAck := range []bool{true, false} {
		if _, _, err := ch.Get("arguments", noAck); err != nil {
			return err
		}
	}
	_, _, err := ch.Get("idle", true)
	return err
}

// escape encodes what may stand in a path.
func escape(segment string) string { return url.PathEscape(segment) }
