"""The stories of AMQP 1.0 with RabbitMQ's Python client."""

from datetime import timedelta

from deaths import annotation, check_dead_letter, check_header, count_of
from interop import URI, check, check_survivors, main, restart_broker, story
from rabbitmq_amqp_python_client import (
    AddressHelper,
    ClassicQueueSpecification,
    Delivery,
    Environment,
    ExchangeSpecification,
    ExchangeToQueueBindingSpecification,
    Message,
    MessagingHandler,
    QuorumQueueSpecification,
    symbol,
)
from rabbitmq_amqp_python_client.delivery_context import DeliveryContext
from rabbitmq_amqp_python_client.qpid.proton._exceptions import ConnectionException
from rabbitmq_amqp_python_client.qpid.proton.utils import SendException

context = DeliveryContext()


def connect():
    connection = Environment(uri=URI).connection()
    connection.dial()
    return connection


def declare(connection, *queues):
    for queue in queues:
        connection.management().declare_queue(queue)


def bind(connection, queue, exchange, key):
    connection.management().declare_exchange(ExchangeSpecification(name=exchange))
    connection.management().bind(ExchangeToQueueBindingSpecification(source_exchange=exchange, destination_queue=queue, binding_key=key))


def ready(connection, queue):
    return connection.management().queue_info(queue).message_count


def publish(connection, address, *messages):
    """Publishes durable messages and takes every outcome but accepted for an error."""
    publisher = connection.publisher(address)
    for message in messages:
        check("outcome", publisher.publish(message).remote_state, Delivery.ACCEPTED)
    publisher.close()


def publish_numbers(connection, address, n):
    publish(connection, address, *(Message(body=b"%d" % i, durable=True) for i in range(n)))


def numbers(start, end):
    return [b"%d" % i for i in range(start, end)]


class Done(Exception):
    """Ends Consumer.run, which nothing else does from within a handler."""


class Player(MessagingHandler):
    """Hands each message, and the end of a drain as None, to a generator until that returns.
    Credit is given when the generator says so."""

    def __init__(self, play, drain):
        super().__init__(prefetch=0, auto_accept=False)
        self._drain = drain
        self._play = play()
        next(self._play)
        self._done = False

    def on_link_opened(self, event):
        if self._drain:
            event.receiver.drain(self._drain)

    def on_link_flow(self, event):
        if event.link.drain_mode and event.link.credit == 0:
            event.link.drain_mode = False
            self._drain = 0
            self._go_on(None)

    def on_message(self, event):
        event.message.body = bytes(event.message.body)  # it is a view of memory that goes with the delivery
        self._go_on(event)

    def _go_on(self, event):
        if self._done:  # the event that ended it comes once more
            return
        try:
            self._play.send(event)
        except StopIteration:
            self._done = True
            raise Done from None


def consume_queue(queue, credit, play, drain=0):
    """Consumes on a connection of its own until play has all it waits for."""
    connection = connect()
    consumer = connection.consumer(AddressHelper.queue_address(queue), Player(play, drain), credit=credit)
    try:
        consumer.run()
    except Done:
        pass
    consumer.close()
    connection.close()


def take_one(queue):
    taken = []

    def play():
        event = yield
        taken.append(event.message)
        context.accept(event)

    consume_queue(queue, 1, play)
    return taken[0]


@story
def confirms():
    connection = connect()
    declare(connection, ClassicQueueSpecification(name="orders"), ClassicQueueSpecification(name="elsewhere"))
    bind(connection, "elsewhere", "jobs", "job")
    publish_numbers(connection, "/queues/orders", 50)
    nowhere = connection.publisher(AddressHelper.exchange_address("jobs", "nowhere"))
    try:
        nowhere.publish(Message(body=b"lost"))
    except SendException as error:
        check("outcome without a route", error.state, Delivery.RELEASED)
    else:
        raise AssertionError("a message without a route was accepted")
    check("messages", ready(connection, "orders"), 50)
    connection.close()


@story
def consume():
    connection = connect()
    declare(connection, ClassicQueueSpecification(name="orders"))
    publish_numbers(connection, "/queues/orders", 20)

    def some():
        first = []
        for _ in range(5):
            event = yield
            first.append(event.delivery)
        check("ready messages beyond the credit", ready(connection, "orders"), 15)
        for delivery in first[:3]:
            delivery.update(Delivery.ACCEPTED)
            delivery.settle()
        event.receiver.flow(3)
        for _ in range(3):
            yield
        check("ready messages after three were accepted", ready(connection, "orders"), 12)

    rest = []

    def others():
        for _ in range(17):
            event = yield
            rest.append(event.message)
            context.accept(event)

    consume_queue("orders", 5, some)
    consume_queue("orders", 20, others)
    check("bodies", [message.body for message in rest], numbers(3, 20))
    check("first-acquirer", [message.first_acquirer for message in rest], [False] * 5 + [True] * 12)
    check("messages left", ready(connection, "orders"), 0)
    connection.close()


@story
def drain():
    connection = connect()
    declare(connection, ClassicQueueSpecification(name="orders"))
    publish_numbers(connection, "/queues/orders", 3)
    bodies = []

    def play():
        receiver = None
        while True:
            event = yield
            if event is None:
                break
            receiver = event.receiver
            bodies.append(event.message.body)
            context.accept(event)
        check("what the drain brings", bodies, numbers(0, 3))
        publish(connection, "/queues/orders", Message(body=b"3"))
        check("messages without credit", ready(connection, "orders"), 1)
        receiver.flow(1)
        event = yield
        check("what the next credit brings", event.message.body, b"3")
        context.accept(event)

    consume_queue("orders", 0, play, drain=10)
    connection.close()


@story
def reject():
    connection = connect()
    declare(
        connection,
        ClassicQueueSpecification(name="work", dead_letter_exchange="dlx", dead_letter_routing_key="dead"),
        ClassicQueueSpecification(name="dead"),
    )
    bind(connection, "work", "jobs", "job")
    bind(connection, "dead", "dlx", "dead")
    publish(connection, "/exchanges/jobs/job", Message(body=b"broken", id="m-1", application_properties={"trace": "t-1"}))

    def play():
        event = yield
        check_header(event.message, True, 0)
        context.discard(event)

    consume_queue("work", 1, play)
    dead = take_one("dead")
    check_dead_letter(dead, dead.application_properties)
    connection.close()


@story
def retry():
    connection = connect()
    declare(
        connection,
        ClassicQueueSpecification(name="work", dead_letter_exchange="", dead_letter_routing_key="wait"),
        ClassicQueueSpecification(
            name="wait", message_ttl=timedelta(milliseconds=200), dead_letter_exchange="", dead_letter_routing_key="work"
        ),
        ClassicQueueSpecification(name="parked"),
    )
    publish(connection, "/queues/work", Message(body=b"again"))
    seen = []

    def play():
        while True:
            event = yield
            seen.append((count_of(event.message, "work", "rejected"), count_of(event.message, "wait", "expired")))
            if seen[-1][0] == 3:
                publish(connection, "/queues/parked", Message(body=event.message.body))
                context.accept(event)
                return
            context.discard(event)

    consume_queue("work", 10, play)
    check("counts of rejected and expired", seen, [(0, 0), (1, 1), (2, 2), (3, 3)])
    check("parked", take_one("parked").body, b"again")
    check("left", [ready(connection, "work"), ready(connection, "wait")], [0, 0])
    connection.close()


def counting():
    """Declares work as a quorum queue, which counts and keeps annotations of outcomes, with
    dead for its dead letters."""
    connection = connect()
    declare(
        connection,
        QuorumQueueSpecification(name="work", dead_letter_exchange="", dead_letter_routing_key="dead"),
        ClassicQueueSpecification(name="dead"),
    )
    publish(connection, "/queues/work", Message(body=b"order"))
    return connection


@story
def modify():
    connection = counting()

    def play():
        event = yield
        check_header(event.message, True, 0)
        # The client has no word for a failure that is to be tried again; Proton, which it is made of, has.
        event.delivery.local.failed = True
        event.delivery.local.annotations = {symbol("x-opt-attempt"): "first"}
        event.delivery.update(Delivery.MODIFIED)
        event.delivery.settle()
        event = yield
        check_header(event.message, False, 1)
        check("x-opt-attempt", annotation(event.message, "x-opt-attempt"), "first")
        context.requeue_with_annotations(event, {symbol("x-opt-attempt"): "second"})
        event = yield
        check_header(event.message, False, 1)
        check("x-opt-attempt", annotation(event.message, "x-opt-attempt"), "second")
        context.discard_with_annotations(event, {symbol("x-opt-why"): "no customer"})

    consume_queue("work", 10, play)
    dead = take_one("dead")
    check("body", dead.body, b"order")
    check("annotations", [annotation(dead, "x-opt-attempt"), annotation(dead, "x-opt-why")], ["second", "no customer"])
    check("deaths", count_of(dead, "work", "rejected"), 1)
    check("first-acquirer", dead.first_acquirer, False)
    connection.close()


@story
def release():
    connection = counting()

    def play():
        for i in range(4):
            event = yield
            check_header(event.message, i == 0, 0)
            check("x-acquired-count", annotation(event.message, "x-acquired-count") or 0, i)
            if i < 3:
                context.requeue(event)
        context.accept(event)

    consume_queue("work", 10, play)
    check("left", [ready(connection, "work"), ready(connection, "dead")], [0, 0])
    connection.close()


@story
def reconnect():
    """The client connects again by itself when a broker says that it closes, but not when it is
    killed: then Consumer.run goes on waiting. Its user connects again."""
    connection = connect()
    declare(connection, ClassicQueueSpecification(name="work"))
    bind(connection, "work", "jobs", "job")
    publish_numbers(connection, "/exchanges/jobs/job", 10)

    def some():
        for _ in range(3):
            event = yield
            context.accept(event)

    consume_queue("work", 3, some)
    restart_broker()
    try:
        ready(connection, "work")
    except ConnectionException:
        pass
    else:
        raise AssertionError("nobody was told that the connection is lost")

    connection = connect()
    publish(connection, "/exchanges/jobs/job", Message(body=b"10", durable=True))
    connection.close()
    bodies = []

    def others():
        while bodies[-1:] != [b"10"]:
            event = yield
            bodies.append(event.message.body)
            context.accept(event)

    consume_queue("work", 20, others)
    check_survivors(bodies)


if __name__ == "__main__":
    main()
