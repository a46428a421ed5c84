// The stories of AMQP 1.0 with rhea.

import assert from 'node:assert/strict';
import {check, checkSurvivors, letter, numbers, play, restartBroker, until, within} from '../node/interop.mjs';
import {connect, opened, Receiver, Sender} from './client.mjs';
import {Management} from './management.mjs';

const body = ({message}) => message.body.content?.toString() ?? message.body.toString();
const text = (bodies) => bodies.map((body) => ({body: Buffer.from(body)}));
const annotation = ({message}, name) => message.message_annotations?.[name];
const header = ({message}) => ({firstAcquirer: message.first_acquirer ?? false, deliveryCount: message.delivery_count ?? 0});

const deaths = (context) => annotation(context, 'x-opt-deaths') ?? [];
const count = (context, queue, reason) => deaths(context).find((d) => d.queue === queue && d.reason === reason)?.count ?? 0;

// checkRejected checks what annotations say of a message from exchange jobs, rejected in work.
function checkRejected(context) {
  check('number of deaths', deaths(context).length, 1);
  const {'first-time': first, 'last-time': last, ...death} = deaths(context)[0];
  check('x-opt-deaths', death, {queue: 'work', reason: 'rejected', count: 1, exchange: 'jobs', 'routing-keys': ['job']});
  check('last-time', last, first);
  const age = (Date.now() - Number(first)) / 1000;
  assert(age > -5 && age < 60, `first-time is ${age} s ago`);
  for (const which of ['first', 'last']) {
    for (const [key, want] of Object.entries({reason: 'rejected', queue: 'work', exchange: 'jobs'})) {
      check(`x-${which}-death-${key}`, annotation(context, `x-${which}-death-${key}`), want);
    }
  }
}

async function takeOne(connection, queue) {
  const receiver = await Receiver.open(connection, queue, 1);
  const context = await receiver.takeOne();
  context.delivery.accept();
  await receiver.close();
  return context;
}

// counting declares work as a quorum queue, which counts and keeps annotations of outcomes, with dead for its dead letters.
async function counting() {
  const connection = await connect();
  const management = await Management.open(connection);
  await management.declare('work', {'x-queue-type': 'quorum', 'x-dead-letter-exchange': '', 'x-dead-letter-routing-key': 'dead'});
  await management.declare('dead');
  await (await Sender.open(connection, '/queues/work')).publish(...text(['order']));
  return {connection, management, work: await Receiver.open(connection, 'work', 1)};
}

await play({
  async confirms() {
    const connection = await connect();
    const management = await Management.open(connection);
    await management.declare('orders');
    await management.declare('elsewhere');
    await management.bind('elsewhere', 'jobs', 'job');
    await (await Sender.open(connection, '/queues/orders')).publish(...text(numbers(0, 50)));
    const nowhere = await Sender.open(connection, '/exchanges/jobs/nowhere');
    check('outcome without a route', await nowhere.outcome({body: 'lost'}), 'released');
    check('messages', await management.ready('orders'), 50);
    connection.close();
  },

  async consume() {
    const connection = await connect();
    const management = await Management.open(connection);
    await management.declare('orders');
    await (await Sender.open(connection, '/queues/orders')).publish(...text(numbers(0, 20)));
    let receiver = await Receiver.open(connection, 'orders', 5);
    const first = await receiver.take(5);
    check('ready messages beyond the credit', await management.ready('orders'), 15);
    for (const {delivery} of first.slice(0, 3)) delivery.accept();
    receiver.link.add_credit(3);
    await receiver.take(3);
    check('ready messages after three were accepted', await management.ready('orders'), 12);
    check('further messages', receiver.arrived.length, 0);
    await receiver.close();

    receiver = await Receiver.open(connection, 'orders', 20);
    const rest = await receiver.take(17);
    check('bodies', rest.map(body), numbers(3, 20));
    check('first-acquirer', rest.map((m) => header(m).firstAcquirer), [...Array(5).fill(false), ...Array(12).fill(true)]);
    for (const {delivery} of rest) delivery.accept();
    await receiver.close();
    check('messages left', await management.ready('orders'), 0);
    connection.close();
  },

  async drain() {
    const connection = await connect();
    const management = await Management.open(connection);
    await management.declare('orders');
    const orders = await Sender.open(connection, '/queues/orders');
    await orders.publish(...text(numbers(0, 3)));
    const receiver = await Receiver.open(connection, 'orders', 0);
    const drained = opened(receiver.link, 'receiver_drained');
    receiver.link.add_credit(10);
    receiver.link.drain_credit();
    await drained;
    const messages = receiver.arrived.splice(0);
    check('what the drain brings', messages.map(body), numbers(0, 3));
    check('credit', receiver.link.credit, 0);
    await orders.publish(...text(['3']));
    check('messages without credit', await management.ready('orders'), 1);
    receiver.link.drain = false;
    receiver.link.add_credit(1);
    const last = await receiver.takeOne();
    check('what the next credit brings', body(last), '3');
    for (const {delivery} of [...messages, last]) delivery.accept();
    await receiver.close();
    check('messages left', await management.ready('orders'), 0);
    connection.close();
  },

  async reject() {
    const connection = await connect();
    const management = await Management.open(connection);
    await management.declare('work', {'x-dead-letter-exchange': 'dlx', 'x-dead-letter-routing-key': 'dead'});
    await management.bind('work', 'jobs', 'job');
    await management.declare('dead');
    await management.bind('dead', 'dlx', 'dead');
    const jobs = await Sender.open(connection, '/exchanges/jobs/job');
    await jobs.publish({body: Buffer.from('broken'), message_id: 'm-1', application_properties: {trace: 't-1'}});
    const doomed = await (await Receiver.open(connection, 'work', 1)).takeOne();
    check('header', header(doomed), {firstAcquirer: true, deliveryCount: 0});
    doomed.delivery.reject();
    const dead = await takeOne(connection, 'dead');
    check('body', body(dead), 'broken');
    check('message id', dead.message.message_id, 'm-1');
    check('application property trace', dead.message.application_properties.trace, 't-1');
    check('first-acquirer', header(dead).firstAcquirer, false);
    check('way', [annotation(dead, 'x-exchange'), annotation(dead, 'x-routing-key')], ['dlx', 'dead']);
    checkRejected(dead);
    connection.close();
  },

  async retry() {
    const connection = await connect();
    const management = await Management.open(connection);
    await management.declare('work', {'x-dead-letter-exchange': '', 'x-dead-letter-routing-key': 'wait'});
    await management.declare('wait', {'x-message-ttl': 200, 'x-dead-letter-exchange': '', 'x-dead-letter-routing-key': 'work'});
    await management.declare('parked');
    await (await Sender.open(connection, '/queues/work')).publish(...text(['again']));
    const parked = await Sender.open(connection, '/queues/parked');
    const work = await Receiver.open(connection, 'work', 10);
    const seen = [];
    for (let rejected = 0; rejected < 3;) {
      const context = await work.takeOne();
      rejected = count(context, 'work', 'rejected');
      seen.push([rejected, count(context, 'wait', 'expired')]);
      if (rejected < 3) {
        context.delivery.reject();
      } else {
        await parked.publish(...text([body(context)]));
        context.delivery.accept();
      }
    }
    check('counts of rejected and expired', seen, [[0, 0], [1, 1], [2, 2], [3, 3]]);
    check('parked', body(await takeOne(connection, 'parked')), 'again');
    check('left', [await management.ready('work'), await management.ready('wait')], [0, 0]);
    connection.close();
  },

  async modify() {
    const {connection, work} = await counting();
    for (const [want, attempt, outcome] of [
      [{firstAcquirer: true, deliveryCount: 0}, undefined, {delivery_failed: true, message_annotations: {'x-opt-attempt': 'first'}}],
      [{firstAcquirer: false, deliveryCount: 1}, 'first', {message_annotations: {'x-opt-attempt': 'second'}}],
      [{firstAcquirer: false, deliveryCount: 1}, 'second', {undeliverable_here: true, message_annotations: {'x-opt-why': 'no customer'}}],
    ]) {
      const context = await work.takeOne();
      check('header', header(context), want);
      check('x-opt-attempt', annotation(context, 'x-opt-attempt'), attempt);
      context.delivery.modified(outcome);
      work.link.add_credit(1);
    }
    const dead = await takeOne(connection, 'dead');
    check('body', body(dead), 'order');
    check('annotations', [annotation(dead, 'x-opt-attempt'), annotation(dead, 'x-opt-why')], ['second', 'no customer']);
    check('deaths', count(dead, 'work', 'rejected'), 1);
    check('first-acquirer', header(dead).firstAcquirer, false);
    connection.close();
  },

  async release() {
    const {connection, management, work} = await counting();
    for (let i = 0; i < 3; i++) {
      const context = await work.takeOne();
      check('header', header(context), {firstAcquirer: i === 0, deliveryCount: 0});
      check('x-acquired-count', annotation(context, 'x-acquired-count') ?? 0, i);
      context.delivery.release();
      work.link.add_credit(1);
    }
    (await work.takeOne()).delivery.accept();
    await work.close();
    check('left', [await management.ready('work'), await management.ready('dead')], [0, 0]);
    connection.close();
  },

  async causes() {
    const {connection, work} = await counting();
    (await work.takeOne()).delivery.reject({condition: 'com.example:no-customer', description: 'order 7 has no customer'});
    const {cause} = await letter('dead');
    check('from', cause.from, 'settle');
    check('class', cause.class, 'com.example:no-customer');
    check('error', cause.error, 'order 7 has no customer');
    connection.close();
  },

  async reconnect() {
    // The pair of links has a connection of its own: rhea attaches links again, but not one by one.
    const declaring = await connect();
    const management = await Management.open(declaring);
    await management.declare('work');
    await management.bind('work', 'jobs', 'job');
    declaring.close();
    const connection = await connect({reconnect: true, initial_reconnect_delay: 100, max_reconnect_delay: 500});
    const jobs = await Sender.open(connection, '/exchanges/jobs/job');
    await jobs.publish(...text(numbers(0, 10)));
    const work = await Receiver.open(connection, 'work', 3);
    for (const {delivery} of await work.take(3)) delivery.accept();
    const again = within('it is connected again', new Promise((resolve) => {
      connection.once('connection_open', resolve);
    }));
    await restartBroker();

    await again;
    await until('it can send again', () => connection.is_open() && jobs.sendable());
    await jobs.publish(...text(['10']));
    const bodies = [];
    while (bodies.at(-1) !== '10') {
      work.link.add_credit(1);
      const context = await work.takeOne();
      bodies.push(body(context));
      context.delivery.accept();
    }
    checkSurvivors(bodies);
    connection.close();
  },
});
