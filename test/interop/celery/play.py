"""The common stories as Celery's users meet them, and Celery's own."""

import contextlib
import signal
import subprocess
import sys
import time
from datetime import datetime, timedelta, timezone

from celery.result import ResultSet
from kombu import Exchange, Queue

import delayed
from interop import PATIENCE, check, check_rejected, main, restart_broker, story, until
from tasks import add, app, fail, flaky, loop, outlive, refuse


@contextlib.contextmanager
def worker(*queues, pool="solo", of=app):
    """A worker process that answers; it is killed at the end if it still runs."""
    command = [sys.executable, "-W", "ignore", "-m", "celery", "-A", of.main, "worker", "-c", "2", "--pool", pool, "-l", "warning", "-Q", ",".join(queues)]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        until("the worker answers", lambda: of.control.ping(timeout=0.3), lambda: check("the worker's end", process.poll(), None))
        yield process
    finally:
        process.kill()
        process.wait()


def ready(queue):
    with app.connection_for_read() as connection:
        return connection.default_channel.queue_declare(queue, passive=True).message_count


def declare(*queues):
    with app.connection_for_write() as connection:
        for queue in queues:
            queue(connection.default_channel).declare()


@story
def confirms():
    declare(app.amqp.queues["default"])
    for i in range(50):  # each returns when it is confirmed
        add.delay(i, i)
    check("messages", ready("default"), 50)


@story
def consume():
    with worker("default"):
        results = ResultSet([add.delay(i, i) for i in range(20)])
        check("results", results.get(timeout=PATIENCE), [2 * i for i in range(20)])
        until("all are acknowledged", lambda: app.control.inspect().active().popitem()[1] == [] and ready("default") == 0)


@story
def reject():
    dead = Queue("dead", Exchange("dlx"), "dead")
    declare(dead)
    with worker("work"):
        sent = refuse.apply_async(exchange="jobs", routing_key="job", headers={"trace": "t-1"})
        until("the task is dead", lambda: ready("dead") == 1)
    with app.connection_for_read() as connection:
        message = dead(connection.default_channel).get()
        check("id", message.headers["id"], sent.id)
        check("task", message.headers["task"], "tasks.refuse")
        check_rejected(message.headers)
        message.ack()


@story
def retry():
    arguments = {"x-message-ttl": 200, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "loop"}
    declare(Queue("wait", Exchange(""), "wait", queue_arguments=arguments))
    parked = app.amqp.queues["parked"]
    declare(parked)
    with worker("loop"):
        loop.delay()
        until("the task is parked", lambda: ready("parked") == 1)
        until("it is acknowledged", lambda: app.control.inspect().active().popitem()[1] == [])
    check("left", (ready("loop"), ready("wait")), (0, 0))
    with app.connection_for_read() as connection:
        args, _, _ = parked(connection.default_channel).get(no_ack=True).payload
        check("counts of rejected and expired", args, [3, 3])


@story
def reconnect():
    with worker("default"):
        check("a result before", add.delay(1, 1).get(timeout=PATIENCE), 2)
        app.control.cancel_consumer("default")
        until("the queue has no consumer", lambda: app.control.inspect().active_queues().popitem()[1] == [])
        for i in range(10):
            add.apply_async((i, i), reply_to="results", task_id=str(i))
        results = Queue("results", Exchange(""), "results")
        declare(results)
        restart_broker()
        add.delay(10, 10)  # publishing connects again by itself; remote control does not
        with app.connection_for_write() as connection:
            until("the worker answers again", lambda: app.control.ping(timeout=0.3, connection=connection))
            app.control.add_consumer("default", connection=connection)
        until("all results are there", lambda: ready("results") == 10)
        with app.connection_for_read() as connection:
            queue = results(connection.default_channel)
            got = [queue.get(no_ack=True, accept=["json"]).payload for _ in range(10)]
        check("results", [(r["task_id"], r["result"]) for r in got], [(str(i), 2 * i) for i in range(10)])


@story
def failing():
    with worker("default"):
        result = fail.delay()
        try:
            result.get(timeout=PATIENCE)
            raise AssertionError("the task did not fail")
        except ValueError as error:
            check("error", str(error), "the ledger does not add up")
        check("state", result.state, "FAILURE")


@story
def countdown():
    with worker("default"):
        check("retries", flaky.delay().get(timeout=PATIENCE), 3)


@story
def native_delay():
    with worker("later", of=delayed.app):
        pass  # it has declared the queues in which tasks wait
    began = time.monotonic()
    eta = datetime.now(timezone.utc) + timedelta(seconds=2)
    results = [delayed.add.apply_async((1, 1), countdown=3), delayed.add.apply_async((1, 2), eta=eta), delayed.add.delay(1, 3)]
    far = delayed.add.apply_async((1, 4), countdown=50 * 24 * 3600)
    check("tasks that wait for nobody", ready("later"), 1)
    check("tasks that wait longest", ready("celery_delayed_22"), 1)  # 2^22 s of 50 days
    until("both others wait in the queue", lambda: ready("later") == 3)
    if time.monotonic() - began < 2.9:
        raise AssertionError("they came too early")
    with worker("later", of=delayed.app):
        check("results", [r.get(timeout=PATIENCE) for r in results], [2, 3, 4])
        check("a task of the far future", far.state, "PENDING")
        [scheduled] = delayed.app.control.inspect().scheduled().values()
        check("tasks that wait in the worker", scheduled, [])


@story
def acks_late():
    with worker("default") as first:
        result = outlive.delay()
        check("the first worker's end", first.wait(PATIENCE), -signal.SIGKILL)
    with worker("default"):
        check("redelivered", result.get(timeout=PATIENCE), True)


@story
def remote_control():
    with worker("default", pool="prefork") as process:
        inspect = app.control.inspect()
        [(name, queues)] = inspect.active_queues().items()
        check("queues", [q["name"] for q in queues], ["default"])
        check("tasks", "tasks.add" in inspect.registered()[name], True)
        check("reply to add_consumer", app.control.add_consumer("more", reply=True)[0][name]["ok"], "add consumer more")
        check("a result through the new queue", add.apply_async((1, 2), queue="more").get(timeout=PATIENCE), 3)
        result = add.apply_async((1, 2), countdown=60)
        until("the task waits", lambda: inspect.scheduled()[name])
        result.revoke()
        until("the task is known to be revoked", lambda: result.id in (inspect.revoked()[name] or []))
        check("prefetched", inspect.stats()[name]["prefetch_count"], 3)  # 2 processes x 1, and the task with a countdown
        app.control.shutdown()
        check("the worker's end", process.wait(PATIENCE), 0)


@story
def events():
    seen = []
    with app.connection_for_read() as connection:
        receiver = app.events.Receiver(connection, handlers={"*": lambda event: seen.append((event["type"], event.get("uuid")))})
        with receiver.consumer_context() as (connection, _, _), worker("default"):
            result = add.delay(1, 2)
            check("result", result.get(timeout=PATIENCE), 3)

            def step():
                with contextlib.suppress(TimeoutError):
                    connection.drain_events(timeout=0.1)

            until("the task's success is told", lambda: ("task-succeeded", result.id) in seen, step)
            until("the worker's heart beats", lambda: ("worker-heartbeat", None) in seen, step)
    told = [kind for kind, task in seen if task == result.id]
    check("events of the task", told, ["task-received", "task-started", "task-succeeded"])


main()
