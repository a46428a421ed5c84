"""The common stories with aio-pika. It connects again by itself: connect_robust."""

import asyncio

import aio_pika
from aio_pika import DeliveryMode, ExchangeType, Message

from interop import PATIENCE, URI, check, check_rejected, check_survivors, count_of, main, restart_broker, story


def persistent(body, **more):
    return Message(body, delivery_mode=DeliveryMode.PERSISTENT, **more)


async def ready(channel, queue):
    return (await channel.declare_queue(queue, passive=True)).declaration_result.message_count


async def take(incoming, n):
    """The next n of the messages that a consumer puts into incoming."""
    return [await asyncio.wait_for(incoming.get(), PATIENCE) for _ in range(n)]


@story
async def confirms():
    connection = await aio_pika.connect(URI)
    channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
    await channel.declare_queue("orders", durable=True)
    exchange = channel.default_exchange
    confirmations = await asyncio.gather(*[exchange.publish(persistent(b"%d" % i), "orders", mandatory=True) for i in range(50)])
    check("confirmations", {type(c).__name__ for c in confirmations}, {"Ack"})
    try:
        await exchange.publish(persistent(b"lost"), "nowhere", mandatory=True)
    except aio_pika.exceptions.PublishError as error:
        check("reply code", error.message.delivery.reply_code, 312)
        check("returned body", error.message.body, b"lost")
    else:
        raise AssertionError("a mandatory message without a route did not come back")
    check("messages", await ready(channel, "orders"), 50)
    await connection.close()


@story
async def consume():
    connection = await aio_pika.connect(URI)
    watching = await connection.channel()
    await watching.declare_queue("orders", durable=True)
    for i in range(20):
        await watching.default_exchange.publish(persistent(b"%d" % i), "orders")
    channel = await connection.channel()
    await channel.set_qos(prefetch_count=5)
    queue = await channel.get_queue("orders")
    incoming = asyncio.Queue()
    await queue.consume(incoming.put)
    first = await take(incoming, 5)
    check("ready messages beyond the prefetch", await ready(watching, "orders"), 15)
    for message in first[:3]:
        await message.ack()
    await take(incoming, 3)
    check("ready messages after three acknowledgements", await ready(watching, "orders"), 12)
    check("further deliveries", incoming.qsize(), 0)
    await channel.close()

    channel = await connection.channel()
    queue = await channel.get_queue("orders")
    incoming = asyncio.Queue()
    await queue.consume(incoming.put)
    messages = await take(incoming, 17)
    check("bodies", [m.body for m in messages], [b"%d" % i for i in range(3, 20)])
    check("redelivered", [m.redelivered for m in messages], [True] * 5 + [False] * 12)
    await messages[-1].ack(multiple=True)
    await channel.close()
    check("messages left", await ready(watching, "orders"), 0)
    await connection.close()


@story
async def reject():
    connection = await aio_pika.connect(URI)
    channel = await connection.channel()
    jobs = await channel.declare_exchange("jobs", ExchangeType.DIRECT, durable=True)
    dlx = await channel.declare_exchange("dlx", ExchangeType.DIRECT, durable=True)
    arguments = {"x-dead-letter-exchange": "dlx", "x-dead-letter-routing-key": "dead"}
    work = await channel.declare_queue("work", durable=True, arguments=arguments)
    await work.bind(jobs, "job")
    dead = await channel.declare_queue("dead", durable=True)
    await dead.bind(dlx, "dead")
    await jobs.publish(persistent(b"broken", message_id="m-1", headers={"trace": "t-1"}), "job")

    incoming = asyncio.Queue()
    await work.consume(incoming.put)
    [message] = await take(incoming, 1)
    await message.reject(requeue=False)
    await dead.consume(incoming.put)
    [message] = await take(incoming, 1)
    check("body", message.body, b"broken")
    check("message id", message.message_id, "m-1")
    check("exchange and key", (message.exchange, message.routing_key), ("dlx", "dead"))
    check_rejected(message.headers)
    await message.ack()
    await connection.close()


@story
async def retry():
    connection = await aio_pika.connect(URI)
    channel = await connection.channel()
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "wait"}
    work = await channel.declare_queue("work", durable=True, arguments=arguments)
    arguments = {"x-message-ttl": 200, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work"}
    await channel.declare_queue("wait", durable=True, arguments=arguments)
    parked = await channel.declare_queue("parked", durable=True)
    await channel.default_exchange.publish(persistent(b"again"), "work")
    seen = []
    done = asyncio.Event()

    async def attempt(message):
        rejected = count_of(message.headers, "work", "rejected")
        seen.append((rejected, count_of(message.headers, "wait", "expired")))
        if rejected < 3:
            await message.nack(requeue=False)
        else:
            await channel.default_exchange.publish(persistent(message.body), "parked")
            await message.ack()
            done.set()

    await work.consume(attempt)
    await asyncio.wait_for(done.wait(), PATIENCE)
    check("counts of rejected and expired", seen, [(0, 0), (1, 1), (2, 2), (3, 3)])
    check("parked", (await parked.get(no_ack=True)).body, b"again")
    check("left", (await ready(channel, "work"), await ready(channel, "wait")), (0, 0))
    await connection.close()


@story
async def close():
    """Closes channels and connections with a message under way: their callbacks are told of no error of the broker's."""
    for _ in range(50):
        connection = await aio_pika.connect(URI)
        channel = await connection.channel()
        told = []
        for ended in (channel, connection):
            ended.close_callbacks.add(lambda _, error: told.append(error))
        await channel.declare_queue("orders", durable=True)
        await channel.default_exchange.publish(persistent(b"0"), "orders")
        await channel.close()
        await connection.close()
        check("who is told", len(told), 2)
        check("codes of errors", [code for error in told if error for code in error.args if isinstance(code, int)], [])


@story
async def reconnect():
    connection = await aio_pika.connect_robust(URI, reconnect_interval=0.2)
    channel = await connection.channel()
    await channel.set_qos(prefetch_count=3)
    jobs = await channel.declare_exchange("jobs", ExchangeType.DIRECT, durable=True)
    work = await channel.declare_queue("work", durable=True)
    await work.bind(jobs, "job")
    for i in range(10):
        await jobs.publish(persistent(b"%d" % i), "job")
    before, after = asyncio.Queue(), asyncio.Queue()
    lost, again = asyncio.Event(), asyncio.Event()
    connection.close_callbacks.add(lambda *_: lost.set())
    connection.reconnect_callbacks.add(lambda *_: again.set())

    async def received(message):
        await (after if lost.is_set() else before).put(message)

    await work.consume(received)
    for message in await take(before, 3):
        await message.ack()
    await asyncio.to_thread(restart_broker)
    await asyncio.wait_for(again.wait(), PATIENCE)
    await jobs.publish(persistent(b"10"), "job", mandatory=True)
    bodies = []
    while bodies[-1:] != [b"10"]:  # the consumer is there again too
        [message] = await take(after, 1)
        bodies.append(message.body)
        await message.ack()
    check_survivors(bodies)
    await connection.close()


main()
