"""The stories of AMQP 1.0 with Qpid Proton's BlockingConnection, which leaves declaring
and connecting again to its user."""

import itertools
import os
from urllib.parse import quote

from deaths import annotation, check_dead_letter, check_header, count_of
from interop import PATIENCE, VHOST, check, check_survivors, letter, main, restart_broker, story
from proton import Condition, ConnectionException, Delivery, Link, Message, PropertyDict, symbol
from proton.handlers import MessagingHandler
from proton.reactor import LinkOption
from proton.utils import BlockingConnection


def connect():
    """Opens the virtual host of the story, which AMQP 1.0 names as the host."""
    url = f"amqp://guest:guest@{os.environ['AMQP_HOST']}:{os.environ['AMQP_PORT']}"
    return BlockingConnection(url, timeout=PATIENCE, virtual_host=f"vhost:{VHOST}", allowed_mechs="PLAIN")


class Paired(LinkOption):
    """Makes a link one of the pair that the node /management has."""

    def apply(self, link):
        link.properties = PropertyDict({symbol("paired"): True})
        link.source.address = link.target.address = Management.NODE
        if link.is_sender:
            link.snd_settle_mode = Link.SND_SETTLED


class Management:
    """Asks the node /management: requests and answers are messages on a pair of links."""

    NODE = "/management"

    def __init__(self, connection):
        name = "management-link-pair"
        # The answers come first: a request needs their credit.
        self._answers = connection.create_receiver(self.NODE, credit=100, name=name, options=Paired())
        self._requests = connection.create_sender(self.NODE, name=name, options=Paired())
        self._ids = itertools.count()
        self._declared = {}  # queues and their arguments

    def ask(self, method, path, body):
        """Takes every status but 2xx for an error."""
        request = f"request-{next(self._ids)}"
        self._requests.send(Message(id=request, address=path, subject=method, reply_to="$me", body=body))
        answer = self._answers.receive()
        check("correlation id", answer.correlation_id, request)
        if not answer.subject.startswith("2"):
            raise AssertionError(f"{method} {path}: {answer.subject}: {answer.body}")
        return answer.body

    def declare(self, queue, arguments={}):
        """Declares a durable queue, or asks how it is."""
        self._declared[queue] = arguments
        return self.ask("PUT", f"/queues/{quote(queue, safe='')}", {"durable": True, "arguments": arguments})

    def bind(self, queue, exchange, key):
        """Declares a durable direct exchange and binds the queue to it."""
        self.ask("PUT", f"/exchanges/{quote(exchange, safe='')}", {"type": "direct", "durable": True})
        self.ask("POST", "/bindings", {"source": exchange, "destination_queue": queue, "binding_key": key, "arguments": {}})

    def ready(self, queue):
        """How many messages are ready. RabbitMQ takes GET with the value null only, which Proton
        has no word for, so the queue is declared once more."""
        return self.declare(queue, self._declared[queue])["message_count"]


class Receiver(MessagingHandler):
    """A receiver that gives credit when it is told to, and settles nothing by itself."""

    def __init__(self, connection, queue, credit):
        super().__init__(prefetch=0, auto_accept=False)
        self._connection = connection
        self._arrived = []
        self.drained = False
        self._blocking = connection.create_receiver(f"/queues/{queue}", credit=credit, handler=self)
        self.link = self._blocking.link

    def on_message(self, event):
        self._arrived.append((event.delivery, event.message))

    def on_link_flow(self, event):
        self.drained = self.drained or event.link.drain_mode and event.link.credit == 0

    def take(self, n):
        """Waits for n messages, and returns them with their deliveries."""
        self._connection.wait(lambda: len(self._arrived) >= n, msg=f"{n} messages")
        taken, self._arrived = self._arrived[:n], self._arrived[n:]
        return taken

    def drain(self, credit):
        """Asks for all that is there, and returns it when the rest of the credit has ended."""
        self.link.drain(credit)
        self._connection.wait(lambda: self.drained, msg="the end of the drain")
        self.link.drain_mode = False
        return self.take(len(self._arrived))

    def close(self):
        self._blocking.close()


def settle(delivery, state):
    delivery.update(state)
    delivery.settle()


def settle_modified(delivery, failed=False, undeliverable=False, annotations=None):
    delivery.local.failed = failed
    delivery.local.undeliverable = undeliverable
    delivery.local.annotations = annotations
    settle(delivery, Delivery.MODIFIED)


def publish(connection, address, *messages):
    """Sends durable messages and takes every outcome but accepted for an error."""
    sender = connection.create_sender(address)
    for message in messages:
        message.durable = True
        message.inferred = True  # octets are data
        check("outcome", sender.send(message, error_states=[]).remote_state, Delivery.ACCEPTED)
    sender.close()


def publish_numbers(connection, address, n):
    publish(connection, address, *(Message(body=b"%d" % i) for i in range(n)))


def bodies(taken):
    return [bytes(message.body) for _, message in taken]


def numbers(start, end):
    return [b"%d" % i for i in range(start, end)]


def take_one(connection, queue):
    receiver = Receiver(connection, queue, 1)
    [(delivery, message)] = receiver.take(1)
    settle(delivery, Delivery.ACCEPTED)
    receiver.close()
    return message


def counting():
    """Declares work as a quorum queue, which counts and keeps annotations of outcomes, with
    dead for its dead letters."""
    connection = connect()
    management = Management(connection)
    management.declare("work", {"x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    management.declare("dead")
    publish(connection, "/queues/work", Message(body=b"order"))
    return connection, management, Receiver(connection, "work", 1)


@story
def confirms():
    connection = connect()
    management = Management(connection)
    management.declare("orders")
    management.declare("elsewhere")
    management.bind("elsewhere", "jobs", "job")
    publish_numbers(connection, "/queues/orders", 50)
    nowhere = connection.create_sender("/exchanges/jobs/nowhere")
    check("outcome without a route", nowhere.send(Message(body="lost"), error_states=[]).remote_state, Delivery.RELEASED)
    check("messages", management.ready("orders"), 50)
    connection.close()


@story
def consume():
    connection = connect()
    management = Management(connection)
    management.declare("orders")
    publish_numbers(connection, "/queues/orders", 20)
    receiver = Receiver(connection, "orders", 5)
    first = receiver.take(5)
    check("ready messages beyond the credit", management.ready("orders"), 15)
    for delivery, _ in first[:3]:
        settle(delivery, Delivery.ACCEPTED)
    receiver.link.flow(3)
    receiver.take(3)
    check("ready messages after three were accepted", management.ready("orders"), 12)
    receiver.close()

    receiver = Receiver(connection, "orders", 20)
    rest = receiver.take(17)
    check("bodies", bodies(rest), numbers(3, 20))
    check("first-acquirer", [message.first_acquirer for _, message in rest], [False] * 5 + [True] * 12)
    for delivery, _ in rest:
        settle(delivery, Delivery.ACCEPTED)
    receiver.close()
    check("messages left", management.ready("orders"), 0)
    connection.close()


@story
def drain():
    connection = connect()
    management = Management(connection)
    management.declare("orders")
    publish_numbers(connection, "/queues/orders", 3)
    receiver = Receiver(connection, "orders", 0)
    messages = receiver.drain(10)
    check("what the drain brings", bodies(messages), numbers(0, 3))
    check("credit", receiver.link.credit, 0)
    publish(connection, "/queues/orders", Message(body=b"3"))
    check("messages without credit", management.ready("orders"), 1)
    receiver.link.flow(1)
    last = receiver.take(1)
    check("what the next credit brings", bodies(last), numbers(3, 4))
    for delivery, _ in messages + last:
        settle(delivery, Delivery.ACCEPTED)
    receiver.close()
    check("messages left", management.ready("orders"), 0)
    connection.close()


@story
def reject():
    connection = connect()
    management = Management(connection)
    management.declare("work", {"x-dead-letter-exchange": "dlx", "x-dead-letter-routing-key": "dead"})
    management.bind("work", "jobs", "job")
    management.declare("dead")
    management.bind("dead", "dlx", "dead")
    publish(connection, "/exchanges/jobs/job", Message(body=b"broken", id="m-1", properties={"trace": "t-1"}))
    [(delivery, message)] = Receiver(connection, "work", 1).take(1)
    check_header(message, True, 0)
    settle(delivery, Delivery.REJECTED)
    dead = take_one(connection, "dead")
    check_dead_letter(dead, dead.properties)
    connection.close()


@story
def retry():
    connection = connect()
    management = Management(connection)
    management.declare("work", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "wait"})
    management.declare("wait", {"x-message-ttl": 200, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work"})
    management.declare("parked")
    publish(connection, "/queues/work", Message(body=b"again"))
    work = Receiver(connection, "work", 10)
    seen = []
    while not seen or seen[-1][0] < 3:
        [(delivery, message)] = work.take(1)
        seen.append((count_of(message, "work", "rejected"), count_of(message, "wait", "expired")))
        if seen[-1][0] < 3:
            settle(delivery, Delivery.REJECTED)
        else:
            publish(connection, "/queues/parked", Message(body=bytes(message.body)))
            settle(delivery, Delivery.ACCEPTED)
    check("counts of rejected and expired", seen, [(0, 0), (1, 1), (2, 2), (3, 3)])
    check("parked", bytes(take_one(connection, "parked").body), b"again")
    check("left", [management.ready("work"), management.ready("wait")], [0, 0])
    connection.close()


@story
def modify():
    connection, _, work = counting()
    for header, attempt, outcome in [
        ((True, 0), None, {"failed": True, "annotations": {symbol("x-opt-attempt"): "first"}}),
        ((False, 1), "first", {"annotations": {symbol("x-opt-attempt"): "second"}}),
        ((False, 1), "second", {"undeliverable": True, "annotations": {symbol("x-opt-why"): "no customer"}}),
    ]:
        [(delivery, message)] = work.take(1)
        check_header(message, *header)
        check("x-opt-attempt", annotation(message, "x-opt-attempt"), attempt)
        settle_modified(delivery, **outcome)
        work.link.flow(1)
    dead = take_one(connection, "dead")
    check("body", bytes(dead.body), b"order")
    check("annotations", [annotation(dead, "x-opt-attempt"), annotation(dead, "x-opt-why")], ["second", "no customer"])
    check("deaths", count_of(dead, "work", "rejected"), 1)
    check("first-acquirer", dead.first_acquirer, False)
    connection.close()


@story
def release():
    connection, management, work = counting()
    for i in range(3):
        [(delivery, message)] = work.take(1)
        check_header(message, i == 0, 0)
        check("x-acquired-count", annotation(message, "x-acquired-count") or 0, i)
        settle(delivery, Delivery.RELEASED)
        work.link.flow(1)
    [(delivery, _)] = work.take(1)
    settle(delivery, Delivery.ACCEPTED)
    work.close()
    check("left", [management.ready("work"), management.ready("dead")], [0, 0])
    connection.close()


@story
def causes():
    connection, _, work = counting()
    [(delivery, _)] = work.take(1)
    delivery.local.condition = Condition("com.example:no-customer", "order 7 has no customer")
    settle(delivery, Delivery.REJECTED)
    work.close()  # a round trip: the outcome is sent
    cause = letter("dead")["cause"]
    check("cause", [cause["from"], cause["class"], cause["error"]], ["settle", "com.example:no-customer", "order 7 has no customer"])
    connection.close()


@story
def reconnect():
    connection = connect()
    management = Management(connection)
    management.declare("work")
    management.bind("work", "jobs", "job")
    publish_numbers(connection, "/exchanges/jobs/job", 10)
    work = Receiver(connection, "work", 3)
    for delivery, _ in work.take(3):
        settle(delivery, Delivery.ACCEPTED)
    management.ready("work")  # a round trip: the outcomes are sent
    restart_broker()
    try:
        work.take(1)
    except ConnectionException:
        pass
    else:
        raise AssertionError("nobody was told that the connection is lost")

    connection = connect()
    publish(connection, "/exchanges/jobs/job", Message(body=b"10"))
    work = Receiver(connection, "work", 3)
    came = []
    while came[-1:] != [b"10"]:
        [(delivery, message)] = work.take(1)
        came.append(bytes(message.body))
        settle(delivery, Delivery.ACCEPTED)
        work.link.flow(1)
    check_survivors(came)
    connection.close()


if __name__ == "__main__":
    main()
