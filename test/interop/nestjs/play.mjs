// The common stories with NestJS microservices over RabbitMQ's transport, whose
// connections are amqp-connection-manager's: it connects again by itself.

import {Logger} from '@nestjs/common';
import {RpcException} from '@nestjs/microservices';
import amqp from 'amqplib';
import {lastValueFrom} from 'rxjs';

import {Inbox, URI, check, checkRejected, checkSurvivors, countOf, numbers, play, restartBroker, until, within} from '../node/interop.mjs';
import {connect, serve} from './application.mjs';

Logger.overrideLogger(['fatal']); // that the broker is away is told as an error many times

// work is a queue bound to exchange jobs by the patterns of its handlers.
const work = {queue: 'work', exchange: 'jobs', exchangeType: 'direct', wildcards: true};

// observer is a channel for what NestJS has no words for: counts, and declaring what is elsewhere.
async function observer() {
  return (await amqp.connect(URI)).createChannel();
}

async function ready(channel, queue) {
  return (await channel.checkQueue(queue)).messageCount;
}

// emit resolves when the event is confirmed.
function emit(client, pattern, data) {
  return within(`${data} is confirmed`, lastValueFrom(client.emit(pattern, data), {defaultValue: undefined}));
}

const ack = (context) => context.getChannelRef().ack(context.getMessage());
const nack = (context) => context.getChannelRef().nack(context.getMessage(), false, false);

// dead is the queue that dead letters of jobs come to, and the arguments that send them there.
async function declareDead(channel) {
  await channel.assertExchange('dlx', 'direct');
  await channel.assertQueue('dead');
  await channel.bindQueue('dead', 'dlx', 'dead');
  return {'x-dead-letter-exchange': 'dlx', 'x-dead-letter-routing-key': 'dead'};
}

async function next(channel, queue) {
  const inbox = new Inbox();
  await channel.consume(queue, inbox.put, {noAck: true});
  return (await inbox.take(1))[0];
}

await play({
  async confirms() {
    const channel = await observer();
    const client = await connect({queue: 'orders'});
    await Promise.all(numbers(0, 50).map((n) => emit(client, 'order', n)));
    check('messages', await ready(channel, 'orders'), 50);
    await client.close();
  },

  async consume() {
    const channel = await observer();
    const client = await connect({queue: 'orders'});
    for (const n of numbers(0, 20)) await emit(client, 'order', n);
    const options = {queue: 'orders', noAck: false, prefetchCount: 5};
    let incoming = new Inbox();
    const handlers = {events: {order: (data, context) => incoming.put({data, context})}};
    const first = await serve(options, handlers);
    const deliveries = await incoming.take(5);
    check('ready messages beyond the prefetch', await ready(channel, 'orders'), 15);
    for (const {context} of deliveries.slice(0, 3)) ack(context);
    await incoming.take(3);
    check('ready messages after three acknowledgements', await ready(channel, 'orders'), 12);
    await first.close();

    incoming = new Inbox();
    const second = await serve({...options, prefetchCount: 0}, handlers);
    const rest = await incoming.take(17);
    check('bodies', rest.map(({data}) => data), numbers(3, 20));
    check('redelivered', rest.map(({context}) => context.getMessage().fields.redelivered), [...Array(5).fill(true), ...Array(12).fill(false)]);
    for (const {context} of rest) ack(context);
    await second.close();
    check('messages left', await ready(channel, 'orders'), 0);
    await client.close();
  },

  async reject() {
    const channel = await observer();
    const queueOptions = {durable: true, arguments: await declareDead(channel)};
    const app = await serve({...work, noAck: false, queueOptions}, {events: {job: (data, context) => nack(context)}});
    const client = await connect(work);
    await emit(client, 'job', 'broken');
    const message = await next(channel, 'dead');
    check('body', JSON.parse(message.content), {pattern: 'job', data: 'broken'});
    check('exchange and key', [message.fields.exchange, message.fields.routingKey], ['dlx', 'dead']);
    checkRejected(message.properties.headers);
    await app.close();
    await client.close();
  },

  async retry() {
    const channel = await observer();
    await channel.assertQueue('wait', {messageTtl: 200, deadLetterExchange: '', deadLetterRoutingKey: 'work'});
    const queueOptions = {durable: true, arguments: {'x-dead-letter-exchange': '', 'x-dead-letter-routing-key': 'wait'}};
    const parked = await connect({queue: 'parked'});
    const seen = [];
    const app = await serve({queue: 'work', noAck: false, queueOptions}, {
      events: {
        async job(data, context) {
          const {headers} = context.getMessage().properties;
          const rejected = countOf(headers, 'work', 'rejected');
          seen.push([rejected, countOf(headers, 'wait', 'expired')]);
          if (rejected < 3) {
            nack(context);
            return;
          }
          await emit(parked, 'job', data);
          ack(context);
        },
      },
    });
    const client = await connect({queue: 'work', queueOptions});
    await emit(client, 'job', 'again');
    const message = await next(channel, 'parked');
    check('parked', JSON.parse(message.content).data, 'again');
    check('counts of rejected and expired', seen, [[0, 0], [1, 1], [2, 2], [3, 3]]);
    check('left', [await ready(channel, 'work'), await ready(channel, 'wait')], [0, 0]);
    await app.close();
    await client.close();
    await parked.close();
  },

  async reconnect() {
    const client = await connect({queue: 'work'});
    for (const n of numbers(0, 10)) await emit(client, 'job', n);
    let incoming = new Inbox();
    const app = await serve({queue: 'work', noAck: false, prefetchCount: 3}, {events: {job: (data, context) => incoming.put({data, context})}});
    for (const {context} of await incoming.take(3)) ack(context);
    await incoming.take(3); // all that the prefetch lets come stays unacknowledged
    incoming = new Inbox();
    await restartBroker();

    await until('it is connected again', () => emit(client, 'job', '10').then(() => true, () => false));
    const bodies = [];
    while (bodies.at(-1) !== '10') {
      const [{data, context}] = await incoming.take(1);
      bodies.push(data);
      ack(context);
    }
    checkSurvivors(bodies);
    await app.close();
    await client.close();
  },

  async request() {
    await serve({queue: 'sums'}, {
      requests: {
        sum: (numbers) => numbers.reduce((a, b) => a + b, 0),
        fail: () => {
          throw new RpcException('the ledger does not add up');
        },
      },
    });
    const client = await connect({queue: 'sums'});
    const send = (pattern, data) => within('a response comes', lastValueFrom(client.send(pattern, data)));
    check('sums', await Promise.all(numbers(0, 20).map((n) => send('sum', [Number(n), 1]))), numbers(1, 21).map(Number));
    check('error', await send('fail', {}).catch((error) => error.message), 'the ledger does not add up');
    await client.close(); // the server's channel may not have the last confirmation yet, and would complain
  },

  async unhandled() {
    const channel = await observer();
    const queueOptions = {durable: true, arguments: await declareDead(channel)};
    const app = await serve({queue: 'work', noAck: false, queueOptions}, {events: {job: (data, context) => ack(context)}});
    const client = await connect({queue: 'work', queueOptions});
    await emit(client, 'nonsense', 'what is this');
    const message = await next(channel, 'dead');
    check('body', JSON.parse(message.content), {pattern: 'nonsense', data: 'what is this'});
    check('count', countOf(message.properties.headers, 'work', 'rejected'), 1);
    await until('nothing is left', async () => (await ready(channel, 'work')) === 0);
    await app.close();
    await client.close();
  },
});
