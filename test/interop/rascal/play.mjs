// The common stories with rascal, and its strategies for messages that fail. It
// connects again by itself.

import rascal from 'rascal';

import {Inbox, URI, check, checkRejected, checkSurvivors, numbers, play, restartBroker, within} from '../node/interop.mjs';

const DEAD = {'x-dead-letter-exchange': 'dlx', 'x-dead-letter-routing-key': 'dead'};

// create starts a broker, which declares what the vhost's configuration says.
async function create(vhost, more = {}) {
  const connection = {url: URI, retry: {min: 100, max: 500, factor: 2, strategy: 'exponential'}};
  const config = rascal.withDefaultConfig({vhosts: {[process.env.AMQP_VHOST]: {connection, ...vhost}}, ...more});
  const broker = await rascal.BrokerAsPromised.create(config);
  broker.on('error', (error) => console.error(error.message));
  return broker;
}

// publish resolves when the message is confirmed, with the message if it comes back.
async function publish(broker, name, content, overrides) {
  const publication = await broker.publish(name, content, overrides);
  return within(`${content} is confirmed`, new Promise((resolve, reject) => {
    let returned;
    publication
      .on('return', (message) => {
        returned = message;
      })
      .on('success', () => resolve(returned))
      .on('error', reject);
  }));
}

// subscribe puts deliveries into an inbox: {message, content, ackOrNack}.
async function subscribe(broker, name, overrides) {
  const inbox = new Inbox();
  const subscription = await broker.subscribe(name, overrides);
  subscription
    .on('message', (message, content, ackOrNack) => inbox.put({message, content, ackOrNack}))
    .on('error', (error) => console.error(error.message));
  return {inbox, subscription};
}

const jobs = {
  exchanges: {jobs: {type: 'direct'}, dlx: {type: 'direct'}},
  queues: {work: {options: {arguments: DEAD}}, dead: {}},
  bindings: ['jobs[job] -> work', 'dlx[dead] -> dead'],
  publications: {job: {exchange: 'jobs', routingKey: 'job', options: {mandatory: true}}},
  subscriptions: {work: {queue: 'work', contentType: 'text/plain'}, dead: {queue: 'dead', contentType: 'text/plain'}},
};

await play({
  async confirms() {
    const broker = await create({...jobs, publications: {...jobs.publications, nowhere: {exchange: 'jobs', routingKey: 'nowhere', options: {mandatory: true}}}});
    const returned = await Promise.all(numbers(0, 50).map((n) => publish(broker, 'job', n)));
    check('messages that came back', returned.filter(Boolean), []);
    const back = await publish(broker, 'nowhere', 'lost');
    check('reply code', back.fields.replyCode, 312);
    const {inbox} = await subscribe(broker, 'work', {prefetch: 50});
    for (const {ackOrNack} of await inbox.take(50)) ackOrNack();
    await broker.shutdown();
  },

  async consume() {
    const broker = await create(jobs);
    for (const n of numbers(0, 20)) await publish(broker, 'job', n);
    const {inbox, subscription} = await subscribe(broker, 'work', {prefetch: 5, closeTimeout: 100});
    const first = await inbox.take(5);
    for (const {ackOrNack} of first.slice(0, 3)) ackOrNack();
    await inbox.take(3);
    check('deliveries beyond the prefetch', inbox.arrived.length, 0);
    await subscription.cancel().catch(() => {}); // it complains of what is not acknowledged, and closes its channel
    const next = await subscribe(broker, 'work', {prefetch: 20});
    const deliveries = await next.inbox.take(17);
    check('bodies', deliveries.map((d) => d.content), numbers(3, 20));
    check('redelivered', deliveries.map((d) => d.message.fields.redelivered), [...Array(5).fill(true), ...Array(12).fill(false)]);
    for (const {ackOrNack} of deliveries) ackOrNack();
    await broker.shutdown();
  },

  async reject() {
    const broker = await create(jobs);
    await publish(broker, 'job', 'broken', {options: {messageId: 'm-1', headers: {trace: 't-1'}}});
    const work = await subscribe(broker, 'work');
    const [doomed] = await work.inbox.take(1);
    doomed.ackOrNack(new Error('broken indeed'), {strategy: 'nack'});
    const {inbox} = await subscribe(broker, 'dead');
    const [{message, content, ackOrNack}] = await inbox.take(1);
    check('body', content, 'broken');
    check('message id', message.properties.messageId, 'm-1');
    check('header trace', message.properties.headers.trace, 't-1');
    check('exchange and key', [message.fields.exchange, message.fields.routingKey], ['dlx', 'dead']);
    checkRejected(message.properties.headers);
    ackOrNack();
    await broker.shutdown();
  },

  // As rascal's documentation draws it: forwarded with the routing keys delay.short and
  // work.job, a message waits, expires into the exchange retry and finds its queue by the second.
  async retry() {
    const broker = await create({
      ...jobs,
      exchanges: {...jobs.exchanges, delay: {type: 'topic'}, retry: {type: 'topic'}},
      queues: {...jobs.queues, short: {options: {arguments: {'x-message-ttl': 200, 'x-dead-letter-exchange': 'retry'}}}},
      bindings: [...jobs.bindings, 'delay[delay.short] -> short', 'retry[work.#] -> work'],
      publications: {...jobs.publications, later: {exchange: 'delay', options: {CC: ['delay.short']}}},
    });
    await publish(broker, 'job', 'again');
    const work = await subscribe(broker, 'work');
    const seen = [];
    const dead = await subscribe(broker, 'dead');
    for (let attempt = 0; attempt < 4; attempt++) {
      const [{message, ackOrNack}] = await work.inbox.take(1);
      const {headers} = message.properties;
      seen.push([headers.rascal?.recovery?.work?.forwarded ?? 0, headers['x-death']?.[0].reason]);
      ackOrNack(new Error('not yet'), [{strategy: 'forward', attempts: 3, publication: 'later'}, {strategy: 'nack'}]);
    }
    check('attempts and last deaths', seen, [[0, undefined], [1, 'expired'], [2, 'expired'], [3, 'expired']]);
    const [{message, content, ackOrNack}] = await dead.inbox.take(1);
    check('body', content, 'again');
    check('last death', message.properties.headers['x-last-death-reason'], 'rejected');
    check('error', message.properties.headers.rascal.error.message, 'not yet');
    ackOrNack();
    await broker.shutdown();
  },

  async reconnect() {
    const broker = await create(jobs);
    for (const n of numbers(0, 10)) await publish(broker, 'job', n);
    const {inbox} = await subscribe(broker, 'work', {prefetch: 3});
    for (const {ackOrNack} of await inbox.take(3)) ackOrNack();
    await inbox.take(3); // all that the prefetch lets come stays unacknowledged
    const again = new Promise((resolve) => {
      broker.once('vhost_initialised', resolve);
    });
    await restartBroker();
    await within('it is connected again', again);
    await publish(broker, 'job', '10');
    const bodies = [];
    while (bodies.at(-1) !== '10') {
      const [{content, ackOrNack}] = await inbox.take(1);
      bodies.push(content);
      ackOrNack();
    }
    checkSurvivors(bodies);
    await broker.shutdown();
  },

  async republish() {
    const broker = await create(jobs);
    await publish(broker, 'job', 'again');
    const work = await subscribe(broker, 'work');
    const dead = await subscribe(broker, 'dead');
    const seen = [];
    for (let attempt = 0; attempt < 4; attempt++) {
      const [{message, ackOrNack}] = await work.inbox.take(1);
      seen.push(message.properties.headers.rascal?.recovery?.work?.republished ?? 0);
      ackOrNack(new Error('not yet'), [{strategy: 'republish', attempts: 3, defer: 10}, {strategy: 'nack'}]);
    }
    check('times it was republished', seen, [0, 1, 2, 3]);
    const [{content, ackOrNack}] = await dead.inbox.take(1);
    check('body', content, 'again');
    ackOrNack();
    await broker.shutdown();
  },

  async 'dead-letter'() {
    const broker = await create(jobs);
    await publish(broker, 'job', 'broken');
    const work = await subscribe(broker, 'work');
    const [doomed] = await work.inbox.take(1);
    doomed.ackOrNack(new Error('no shelf for it'), {strategy: 'republish', immediateNack: true});
    const dead = await subscribe(broker, 'dead');
    const [{message, ackOrNack}] = await dead.inbox.take(1);
    const {headers} = message.properties;
    check('error', headers.rascal.error.message, 'no shelf for it');
    check('reason', headers['x-first-death-reason'], 'rejected');
    check('messages that the consumer saw again', work.inbox.arrived.length, 0);
    ackOrNack();
    await broker.shutdown();
  },

  async redeliveries() {
    const broker = await create(
      {...jobs, subscriptions: {...jobs.subscriptions, limited: {queue: 'work', contentType: 'text/plain', redeliveries: {limit: 3, counter: 'memory'}}}},
      {redeliveries: {counters: {memory: {type: 'inMemory', size: 100}}}},
    );
    await publish(broker, 'job', 'poison', {options: {messageId: 'm-1'}});
    const exceeded = new Inbox();
    let deliveries = 0;
    const subscription = await broker.subscribe('limited');
    subscription
      .on('message', (message, content, ackOrNack) => {
        deliveries++;
        ackOrNack(new Error('again'), {strategy: 'nack', requeue: true});
      })
      .on('redeliveries_exceeded', (error, message, ackOrNack) => {
        exceeded.put(message);
        ackOrNack(error, {strategy: 'nack'});
      })
      .on('error', (error) => console.error(error.message));
    await exceeded.take(1);
    const dead = await subscribe(broker, 'dead');
    const [{content, ackOrNack}] = await dead.inbox.take(1);
    check('body', content, 'poison');
    check('deliveries that were handled', deliveries, 4);
    ackOrNack();
    await broker.shutdown();
  },
});
