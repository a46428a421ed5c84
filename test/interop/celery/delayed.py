"""A Celery application with quorum queues: what has a countdown or an eta waits in the broker (native delayed delivery)."""

from celery import Celery
from kombu import Exchange, Queue

from interop import URI

app = Celery("delayed", broker=URI, backend="rpc://")
app.conf.update(
    broker_transport_options={"confirm_publish": True},
    broker_connection_retry_on_startup=True,
    broker_native_delayed_delivery_queue_type="quorum",
    task_default_queue="later",
    task_queues=[Queue("later", Exchange("later", type="topic"), "later", queue_arguments={"x-queue-type": "quorum"})],
)


@app.task
def add(x, y):
    return x + y
