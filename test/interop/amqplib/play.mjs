// The common stories with amqplib. It connects again by itself where recovery is asked for.

import amqp from 'amqplib';

import {Inbox, URI, check, checkRejected, checkSurvivors, countOf, letter, numbers, play, restartBroker, within} from '../node/interop.mjs';

const PERSISTENT = {persistent: true};

async function ready(channel, queue) {
  return (await channel.checkQueue(queue)).messageCount;
}

class NoCustomer extends Error {}

async function process(message) {
  throw new NoCustomer(`order ${message.content} has no customer`);
}

const settle = (channel) => async (message) => {
  try {
    await process(message);
    channel.ack(message);
  } catch (error) {
    channel.publish('bartleby.settle', '', Buffer.from(error.stack), {headers: {
      'delivery-tag': message.fields.deliveryTag, 'error-class': error.constructor.name, error: error.message,
    }});
    channel.reject(message, false);
  }
};

const park = (channel) => async (message) => {
  try {
    await process(message);
  } catch (error) {
    const headers = {
      ...message.properties.headers,
      'x-exception-fqcn': error.constructor.name, 'x-exception-message': error.message, 'x-exception-stacktrace': error.stack,
    };
    channel.sendToQueue('orders.parked', message.content, {...message.properties, headers, mandatory: true});
    await channel.waitForConfirms();
  }
  channel.ack(message);
};

const body = (message) => message.content.toString();

await play({
  async confirms() {
    const connection = await amqp.connect(URI);
    const channel = await connection.createConfirmChannel();
    await channel.assertQueue('orders');
    const returned = new Inbox();
    channel.on('return', returned.put);
    for (const n of numbers(0, 50)) {
      channel.sendToQueue('orders', Buffer.from(n), {...PERSISTENT, mandatory: true});
    }
    await channel.waitForConfirms(); // rejects if one is not
    check('messages that came back', returned.arrived, []);
    channel.sendToQueue('nowhere', Buffer.from('lost'), {...PERSISTENT, mandatory: true});
    await channel.waitForConfirms();
    const [message] = await returned.take(1);
    check('reply code', message.fields.replyCode, 312);
    check('returned body', body(message), 'lost');
    check('messages', await ready(channel, 'orders'), 50);
    await connection.close();
  },

  async consume() {
    const connection = await amqp.connect(URI);
    const watching = await connection.createConfirmChannel();
    await watching.assertQueue('orders');
    for (const n of numbers(0, 20)) watching.sendToQueue('orders', Buffer.from(n), PERSISTENT);
    await watching.waitForConfirms();

    let channel = await connection.createChannel();
    await channel.prefetch(5);
    let incoming = new Inbox();
    await channel.consume('orders', incoming.put);
    const first = await incoming.take(5);
    check('ready messages beyond the prefetch', await ready(watching, 'orders'), 15);
    for (const message of first.slice(0, 3)) channel.ack(message);
    await incoming.take(3);
    check('ready messages after three acknowledgements', await ready(watching, 'orders'), 12);
    check('further deliveries', incoming.arrived.length, 0);
    await channel.close();

    channel = await connection.createChannel();
    incoming = new Inbox();
    await channel.consume('orders', incoming.put);
    const messages = await incoming.take(17);
    check('bodies', messages.map(body), numbers(3, 20));
    check('redelivered', messages.map((m) => m.fields.redelivered), [...Array(5).fill(true), ...Array(12).fill(false)]);
    channel.ackAll();
    await channel.close();
    check('messages left', await ready(watching, 'orders'), 0);
    await connection.close();
  },

  async reject() {
    const connection = await amqp.connect(URI);
    const channel = await connection.createConfirmChannel();
    await channel.assertExchange('jobs', 'direct');
    await channel.assertExchange('dlx', 'direct');
    await channel.assertQueue('work', {deadLetterExchange: 'dlx', deadLetterRoutingKey: 'dead'});
    await channel.bindQueue('work', 'jobs', 'job');
    await channel.assertQueue('dead');
    await channel.bindQueue('dead', 'dlx', 'dead');
    channel.publish('jobs', 'job', Buffer.from('broken'), {...PERSISTENT, messageId: 'm-1', headers: {trace: 't-1'}});

    const incoming = new Inbox();
    await channel.consume('work', incoming.put);
    const [doomed] = await incoming.take(1);
    channel.reject(doomed, false);
    await channel.consume('dead', incoming.put);
    const [message] = await incoming.take(1);
    check('body', body(message), 'broken');
    check('message id', message.properties.messageId, 'm-1');
    check('header trace', message.properties.headers.trace, 't-1');
    check('exchange and key', [message.fields.exchange, message.fields.routingKey], ['dlx', 'dead']);
    checkRejected(message.properties.headers);
    channel.ack(message);
    await connection.close();
  },

  async retry() {
    const connection = await amqp.connect(URI);
    const channel = await connection.createConfirmChannel();
    await channel.assertQueue('work', {deadLetterExchange: '', deadLetterRoutingKey: 'wait'});
    await channel.assertQueue('wait', {messageTtl: 200, deadLetterExchange: '', deadLetterRoutingKey: 'work'});
    await channel.assertQueue('parked');
    channel.sendToQueue('work', Buffer.from('again'), PERSISTENT);
    const seen = [];
    const done = new Promise((resolve) => {
      channel.consume('work', (message) => {
        const {headers} = message.properties;
        const rejected = countOf(headers, 'work', 'rejected');
        seen.push([rejected, countOf(headers, 'wait', 'expired')]);
        if (rejected < 3) {
          channel.nack(message, false, false);
          return;
        }
        channel.sendToQueue('parked', message.content, PERSISTENT);
        channel.ack(message);
        resolve();
      });
    });
    await within('the message is parked', done);
    await channel.waitForConfirms();
    check('counts of rejected and expired', seen, [[0, 0], [1, 1], [2, 2], [3, 3]]);
    check('parked', body(await channel.get('parked', {noAck: true})), 'again');
    check('left', [await ready(channel, 'work'), await ready(channel, 'wait')], [0, 0]);
    await connection.close();
  },

  async causes() {
    const connection = await amqp.connect(URI);
    const channel = await connection.createConfirmChannel();
    await channel.assertQueue('orders', {deadLetterExchange: '', deadLetterRoutingKey: 'orders.dead'});
    for (const [listener, into, from] of [[settle, 'orders.dead', 'settle'], [park, 'orders.parked', 'spring']]) {
      await channel.assertQueue(into);
      channel.sendToQueue('orders', Buffer.from('7'), PERSISTENT);
      const {consumerTag} = await channel.consume('orders', listener(channel));
      const {cause} = await letter(into);
      check('from', cause.from, from);
      check('class', cause.class, 'NoCustomer');
      check('error', cause.error, 'order 7 has no customer');
      check('detail has the place', cause.detail.includes('at process'), true);
      await channel.cancel(consumerTag);
    }
    await connection.close();
  },

  // Closes channels and connections, with a message under way: both say that they are closed, and of no error.
  async close() {
    for (let i = 0; i < 50; i++) {
      const connection = await amqp.connect(URI);
      const channel = await connection.createConfirmChannel();
      const told = new Inbox();
      for (const [name, ended] of [['channel', channel], ['connection', connection]]) {
        ended.on('error', (error) => told.put(`${name}: ${error}`));
        ended.on('close', (error) => told.put(`${name} closed${error ? `: ${error}` : ''}`));
      }
      await channel.assertQueue('orders');
      channel.sendToQueue('orders', Buffer.from('0'));
      await channel.close();
      await connection.close();
      check('what is told', await told.take(2), ['channel closed', 'connection closed']);
    }
  },

  async reconnect() {
    const inboxes = []; // one for each time that it connected
    let channel;
    const connection = await amqp.connect(URI, {
      recovery: {
        initialDelay: 100,
        maxDelay: 500,
        async setup(model) {
          const incoming = new Inbox();
          channel = await model.createConfirmChannel();
          await channel.assertExchange('jobs', 'direct');
          await channel.assertQueue('work');
          await channel.bindQueue('work', 'jobs', 'job');
          await channel.prefetch(3);
          await channel.consume('work', incoming.put);
          inboxes.push(incoming);
        },
      },
    });
    connection.on('error', () => {}); // without a listener the process ends
    for (const n of numbers(0, 10)) channel.publish('jobs', 'job', Buffer.from(n), PERSISTENT);
    await channel.waitForConfirms();
    for (const message of await inboxes[0].take(3)) channel.ack(message);
    const again = new Promise((resolve) => {
      connection.once('connect', resolve);
    });
    await restartBroker();

    await within('it is connected again', again);
    channel.publish('jobs', 'job', Buffer.from('10'), {...PERSISTENT, mandatory: true});
    await channel.waitForConfirms();
    const bodies = [];
    while (bodies.at(-1) !== '10') {
      const [message] = await inboxes[1].take(1);
      bodies.push(body(message));
      channel.ack(message);
    }
    checkSurvivors(bodies);
    await connection.close();
  },
});
