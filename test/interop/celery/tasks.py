"""A Celery application: its tasks fail in every way that Celery has words for."""

import os
import signal

from celery import Celery
from celery.exceptions import Reject
from kombu import Exchange, Queue

from interop import URI, count_of

app = Celery("tasks", broker=URI, backend="rpc://")
app.conf.update(
    broker_transport_options={"confirm_publish": True},
    broker_connection_retry_on_startup=True,
    task_default_queue="default",
    task_queues=[
        Queue("default", Exchange("default"), "default"),
        Queue("work", Exchange("jobs"), "job", queue_arguments={"x-dead-letter-exchange": "dlx", "x-dead-letter-routing-key": "dead"}),
        Queue("loop", Exchange("loop"), "loop", queue_arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "wait"}),
        Queue("parked", Exchange("parked"), "parked"),
    ],
    task_routes={"tasks.refuse": {"queue": "work"}, "tasks.loop": {"queue": "loop"}},
    worker_prefetch_multiplier=1,
    worker_send_task_events=True,
)


@app.task
def add(x, y):
    return x + y


@app.task
def fail():
    raise ValueError("the ledger does not add up")


@app.task(bind=True, max_retries=3)
def flaky(self):
    """Works at the fourth time, and returns the times between."""
    if self.request.retries < 3:
        raise self.retry(countdown=0.5)
    return self.request.retries


@app.task(acks_late=True)
def refuse():
    raise Reject("nobody wants this", requeue=False)


@app.task(bind=True, acks_late=True)
def loop(self):
    """Is rejected into a queue that sends it back, until it has been three times."""
    headers = {"x-death": getattr(self.request, "x-death", None) or []}
    rejected = count_of(headers, "loop", "rejected")
    if rejected < 3:
        raise Reject("again", requeue=False)
    park.apply_async((rejected, count_of(headers, "wait", "expired")), queue="parked")


@app.task
def park(rejected, expired):
    """Stands in its queue for somebody to look at."""


@app.task(bind=True, acks_late=True)
def outlive(self):
    """Kills its worker, and returns whether it was delivered before."""
    if not self.request.delivery_info["redelivered"]:
        os.killpg(0, signal.SIGKILL)
    return self.request.delivery_info["redelivered"]
