"""The common stories with kombu over py-amqp. It connects again by its own ensure."""

import socket

from kombu import Connection, Consumer, Exchange, Producer, Queue
from kombu.mixins import ConsumerMixin

from interop import URI, check, check_rejected, check_survivors, count_of, main, restart_broker, story, until

DEFAULT = Exchange("")


def connect():
    return Connection(URI, transport_options={"confirm_publish": True})


def ready(channel, queue):
    return channel.queue_declare(queue, passive=True).message_count


def drain(connection):
    """Handles what arrives within a tenth of a second."""
    try:
        connection.drain_events(timeout=0.1)
    except socket.timeout:
        pass


class Deliveries(list):
    """The messages that a consumer of a queue has been given."""

    def __init__(self, channel, name, **options):
        self.connection = channel.connection.client
        consumer = Consumer(channel, [Queue(name, no_declare=True)], on_message=self.append, accept=["json", "text/plain"], **options)
        consumer.consume()
        self.cancel = consumer.cancel

    def reach(self, n):
        until(f"{n} messages are delivered", lambda: len(self) >= n, lambda: drain(self.connection))
        return self


@story
def confirms():
    with connect() as connection, connection.channel() as channel:
        returned = []
        producer = Producer(channel, DEFAULT, on_return=lambda *what: returned.append(what))
        Queue("orders", durable=True, channel=channel).declare()
        for i in range(50):  # each returns when it is confirmed, and raises if it is not
            producer.publish(str(i), routing_key="orders", mandatory=True)
        check("messages that came back", returned, [])
        producer.publish("lost", routing_key="nowhere", mandatory=True)
        [(exception, exchange, routing_key, message)] = returned
        check("reply code", exception.reply_code, 312)
        check("returned message", (exchange, routing_key, message.body), ("", "nowhere", "lost"))
        check("messages", ready(channel, "orders"), 50)


@story
def consume():
    with connect() as connection:
        watching = connection.channel()
        Queue("orders", durable=True, channel=watching).declare()
        for i in range(20):
            Producer(watching, DEFAULT).publish(str(i), routing_key="orders")
        channel = connection.channel()
        messages = Deliveries(channel, "orders", prefetch_count=5).reach(5)
        check("ready messages beyond the prefetch", ready(watching, "orders"), 15)
        for message in messages[:3]:
            message.ack()
        check("deliveries", len(messages.reach(8)), 8)
        channel.close()

        channel = connection.channel()
        messages = Deliveries(channel, "orders").reach(17)
        check("bodies", [m.payload for m in messages], [str(i) for i in range(3, 20)])
        check("redelivered", [m.delivery_info["redelivered"] for m in messages], [True] * 5 + [False] * 12)
        messages[-1].ack(multiple=True)
        channel.close()
        check("messages left", ready(watching, "orders"), 0)


@story
def reject():
    with connect() as connection, connection.channel() as channel:
        jobs, dlx = Exchange("jobs", "direct", durable=True), Exchange("dlx", "direct", durable=True)
        arguments = {"x-dead-letter-exchange": "dlx", "x-dead-letter-routing-key": "dead"}
        Queue("work", jobs, "job", durable=True, queue_arguments=arguments, channel=channel).declare()
        Queue("dead", dlx, "dead", durable=True, channel=channel).declare()
        Producer(channel, jobs).publish("broken", routing_key="job", message_id="m-1", headers={"trace": "t-1"})

        [message] = Deliveries(channel, "work").reach(1)
        message.reject()
        [message] = Deliveries(channel, "dead").reach(1)
        check("body", message.payload, "broken")
        check("message id", message.properties["message_id"], "m-1")
        info = message.delivery_info
        check("exchange and key", (info["exchange"], info["routing_key"]), ("dlx", "dead"))
        check_rejected(message.headers)
        message.ack()


@story
def retry():
    with connect() as connection, connection.channel() as channel:
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "wait"}
        Queue("work", durable=True, queue_arguments=arguments, channel=channel).declare()
        wait = Queue(
            "wait", durable=True, message_ttl=0.2, channel=channel,
            queue_arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work"},
        )
        wait.declare()
        parked = Queue("parked", durable=True, channel=channel)
        parked.declare()
        producer = Producer(channel, DEFAULT)
        producer.publish("again", routing_key="work")
        seen = []

        def attempt(message):
            rejected = count_of(message.headers, "work", "rejected")
            seen.append((rejected, count_of(message.headers, "wait", "expired")))
            if rejected < 3:
                message.reject()
            else:
                producer.publish(message.payload, routing_key="parked")
                message.ack()

        with Consumer(channel, [Queue("work", no_declare=True)], on_message=attempt):
            until("the message is parked", lambda: len(seen) == 4, lambda: drain(connection))
        check("counts of rejected and expired", seen, [(0, 0), (1, 1), (2, 2), (3, 3)])
        check("parked", parked.get(no_ack=True).payload, "again")
        check("left", (ready(channel, "work"), ready(channel, "wait")), (0, 0))


class Worker(ConsumerMixin):
    """A consumer of work as kombu's users write it: run() connects again when it must."""

    def __init__(self, connection, work):
        self.connection = connection
        self.work = work
        self.bodies = []
        self.killed = False

    def get_consumers(self, consumer, channel):
        return [consumer([self.work], on_message=self.receive, prefetch_count=3, accept=["text/plain"])]

    def receive(self, message):
        message.ack()
        self.bodies.append(message.payload.encode())
        if not self.killed and len(self.bodies) == 3:
            self.killed = True
            restart_broker()
            with connect() as other:
                Producer(other, self.work.exchange).publish("10", routing_key="job", mandatory=True)
        self.should_stop = self.bodies[-1:] == [b"10"]

    def on_connection_revived(self):
        self.bodies.clear()  # what the old connection still had


@story
def reconnect():
    with connect() as connection:
        jobs = Exchange("jobs", "direct", durable=True)
        work = Queue("work", jobs, "job", durable=True)
        work(connection.default_channel).declare()
        producer = Producer(connection, jobs)
        for i in range(10):
            producer.publish(str(i), routing_key="job")
        worker = Worker(connect(), work)
        worker.run()
        check_survivors(worker.bodies)
        # A publisher connects again by itself if it is told how often to try.
        producer.publish("11", routing_key="job", mandatory=True, retry=True, retry_policy={"max_retries": 5, "interval_start": 0.1})
        check("messages", ready(connection.default_channel, "work"), 1)


main()
