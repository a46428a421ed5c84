"""The common stories with pika's BlockingConnection."""

import traceback

import pika
import pika.exceptions

from interop import URI, check, check_cause, check_rejected, check_survivors, count_of, letter, main, restart_broker, story, until

PERSISTENT = pika.BasicProperties(delivery_mode=2)


def connect():
    return pika.BlockingConnection(pika.URLParameters(URI))


def ready(channel, queue):
    return channel.queue_declare(queue, passive=True).method.message_count


def gather(channel, queue, n):
    """Consumes until n deliveries are there, and returns the list, which goes on growing."""
    deliveries = []
    channel.basic_consume(queue, lambda _, method, properties, body: deliveries.append((method, properties, body)))
    await_deliveries(channel, deliveries, n)
    return deliveries


def await_deliveries(channel, deliveries, n):
    until(f"{n} messages are delivered", lambda: len(deliveries) >= n, lambda: channel.connection.process_data_events(0.1))


@story
def confirms():
    connection = connect()
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("orders", durable=True)
    for i in range(50):  # each returns when it is confirmed, and raises if it is not
        channel.basic_publish("", "orders", b"%d" % i, PERSISTENT, mandatory=True)
    try:
        channel.basic_publish("", "nowhere", b"lost", PERSISTENT, mandatory=True)
    except pika.exceptions.UnroutableError as error:
        check("reply code", error.messages[0].method.reply_code, 312)
        check("returned body", error.messages[0].body, b"lost")
    else:
        raise AssertionError("a mandatory message without a route did not come back")
    check("messages", ready(channel, "orders"), 50)
    connection.close()


@story
def consume():
    connection = connect()
    watching = connection.channel()
    watching.confirm_delivery()
    watching.queue_declare("orders", durable=True)
    for i in range(20):
        watching.basic_publish("", "orders", b"%d" % i, PERSISTENT)
    channel = connection.channel()
    channel.basic_qos(prefetch_count=5)
    deliveries = gather(channel, "orders", 5)
    check("ready messages beyond the prefetch", ready(watching, "orders"), 15)
    for method, _, _ in deliveries[:3]:
        channel.basic_ack(method.delivery_tag)
    await_deliveries(channel, deliveries, 8)
    check("deliveries", len(deliveries), 8)
    channel.close()

    channel = connection.channel()
    deliveries = gather(channel, "orders", 17)
    check("bodies", [body for _, _, body in deliveries], [b"%d" % i for i in range(3, 20)])
    check("redelivered", [method.redelivered for method, _, _ in deliveries], [True] * 5 + [False] * 12)
    channel.basic_ack(0, multiple=True)
    channel.close()
    check("messages left", ready(watching, "orders"), 0)
    connection.close()


@story
def reject():
    connection = connect()
    channel = connection.channel()
    channel.confirm_delivery()
    channel.exchange_declare("jobs", "direct", durable=True)
    channel.exchange_declare("dlx", "direct", durable=True)
    channel.queue_declare("work", durable=True, arguments={"x-dead-letter-exchange": "dlx", "x-dead-letter-routing-key": "dead"})
    channel.queue_bind("work", "jobs", "job")
    channel.queue_declare("dead", durable=True)
    channel.queue_bind("dead", "dlx", "dead")
    channel.basic_publish("jobs", "job", b"broken", pika.BasicProperties(delivery_mode=2, message_id="m-1", headers={"trace": "t-1"}))

    [(method, _, _)] = gather(channel, "work", 1)
    channel.basic_reject(method.delivery_tag, requeue=False)
    [(method, properties, body)] = gather(channel, "dead", 1)
    check("body", body, b"broken")
    check("message id", properties.message_id, "m-1")
    check("exchange and key", (method.exchange, method.routing_key), ("dlx", "dead"))
    check_rejected(properties.headers)
    channel.basic_ack(method.delivery_tag)
    connection.close()


@story
def retry():
    connection = connect()
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("work", durable=True, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "wait"})
    channel.queue_declare(
        "wait", durable=True, arguments={"x-message-ttl": 200, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work"}
    )
    channel.queue_declare("parked", durable=True)
    channel.basic_publish("", "work", b"again", PERSISTENT)
    seen = []

    def attempt(_, method, properties, body):
        rejected = count_of(properties.headers, "work", "rejected")
        seen.append((rejected, count_of(properties.headers, "wait", "expired")))
        if rejected < 3:
            channel.basic_nack(method.delivery_tag, requeue=False)
        else:
            channel.basic_publish("", "parked", body, PERSISTENT)
            channel.basic_ack(method.delivery_tag)

    channel.basic_consume("work", attempt)
    until("the message is parked", lambda: len(seen) == 4, lambda: connection.process_data_events(0.1))
    check("counts of rejected and expired", seen, [(0, 0), (1, 1), (2, 2), (3, 3)])
    check("parked", channel.basic_get("parked", auto_ack=True)[2], b"again")
    check("left", (ready(channel, "work"), ready(channel, "wait")), (0, 0))
    connection.close()


class NoCustomer(Exception):
    pass


def process(body):
    raise NoCustomer(f"order {body.decode()} has no customer")


def settle(channel, method, properties, body):
    try:
        process(body)
    except Exception as error:
        channel.basic_publish("bartleby.settle", "", traceback.format_exc(), pika.BasicProperties(headers={
            "delivery-tag": method.delivery_tag, "error-class": type(error).__name__, "error": str(error),
        }))
        channel.basic_reject(method.delivery_tag, requeue=False)


def park(channel, method, properties, body):
    try:
        process(body)
    except Exception as error:
        properties.headers = (properties.headers or {}) | {
            "exception_type": type(error).__name__, "exception_message": str(error), "traceback": traceback.format_exc(),
        }
        channel.basic_publish("", "orders.parked", body, properties, mandatory=True)
        channel.basic_ack(method.delivery_tag)


@story
def causes():
    connection = connect()
    channel = connection.channel()
    channel.confirm_delivery()
    for name in "orders.dead", "orders.parked":
        channel.queue_declare(name, durable=True)
    for callback in settle, park:
        channel.queue_declare("orders", durable=True, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders.dead"})
        channel.basic_publish("", "orders", b"7", PERSISTENT)
        tag = channel.basic_consume("orders", callback)
        into = {settle: "orders.dead", park: "orders.parked"}[callback]
        until("it is dead", lambda: ready(channel, into) == 1, lambda: connection.process_data_events(0.1))
        channel.basic_cancel(tag)
    dead = letter("orders.dead")
    check_cause(dead, "settle", "NoCustomer", "order 7 has no customer", "in process")
    check("product", dead["rejected_by"]["product"], "Pika Python Client Library")
    check_cause(letter("orders.parked"), "celery", "NoCustomer", "order 7 has no customer", "in process")
    connection.close()


@story
def close():
    """Closes connections with a message under way. What the connection below tells of it is that its client has closed it."""
    for _ in range(50):
        told = []

        def opened(connection):
            connection.add_on_close_callback(lambda connection, reason: (told.append(reason), connection.ioloop.stop()))
            connection.channel(on_open_callback=declare)

        def declare(channel):
            channel.add_on_close_callback(lambda _, reason: told.append(reason))
            channel.queue_declare("orders", durable=True, callback=lambda _: publish(channel))

        def publish(channel):
            channel.basic_publish("", "orders", b"0", PERSISTENT)
            channel.connection.close()

        pika.SelectConnection(pika.URLParameters(URI), on_open_callback=opened).ioloop.start()
        check("what is told", [(type(reason).__name__, reason.reply_code) for reason in told], [("ChannelClosedByClient", 200), ("ConnectionClosedByClient", 200)])


@story
def reconnect():
    connection = connect()
    channel = connection.channel()
    channel.confirm_delivery()
    channel.exchange_declare("jobs", "direct", durable=True)
    channel.queue_declare("work", durable=True)
    channel.queue_bind("work", "jobs", "job")
    for i in range(10):
        channel.basic_publish("jobs", "job", b"%d" % i, PERSISTENT)
    channel.basic_qos(prefetch_count=3)
    for method, _, _ in gather(channel, "work", 3):
        channel.basic_ack(method.delivery_tag)
    restart_broker()
    try:
        connection.channel()
        raise AssertionError("the connection outlived its broker")
    except pika.exceptions.AMQPConnectionError:
        pass

    connection = connect()  # pika leaves that to its user
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_publish("jobs", "job", b"10", PERSISTENT, mandatory=True)
    deliveries = gather(channel, "work", 1)
    until("the last message is delivered", lambda: deliveries[-1][2] == b"10", lambda: connection.process_data_events(0.1))
    check_survivors([body for _, _, body in deliveries])
    channel.basic_ack(0, multiple=True)
    connection.close()


main()
