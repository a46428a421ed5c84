// The node /management of RabbitMQ: requests and answers are messages on a pair of links.

import {check, Inbox} from '../node/interop.mjs';
import {opened} from './client.mjs';

const NODE = '/management';

export class Management {
  #requests;
  #answers = new Inbox();
  #ids = 0;

  // open attaches the pair, one after the other: rhea tells links of a session apart by their name alone. The answers come first: a
  // request needs their credit.
  static async open(connection) {
    const management = new Management();
    const common = {name: 'management-link-pair', source: {address: NODE}, target: {address: NODE}, properties: {paired: true}};
    const answers = connection.open_receiver({...common, credit_window: 100});
    answers.on('message', management.#answers.put);
    await opened(answers, 'receiver_open');
    management.#requests = connection.open_sender({...common, snd_settle_mode: 1});
    await opened(management.#requests, 'sendable');
    return management;
  }

  // ask takes every status but 2xx for an error.
  async ask(method, path, body = null) {
    const id = `request-${this.#ids++}`;
    this.#requests.send({message_id: id, to: path, subject: method, reply_to: '$me', body});
    const [{message}] = await this.#answers.take(1);
    check('correlation id', message.correlation_id, id);
    if (!message.subject.startsWith('2')) throw new Error(`${method} ${path}: ${message.subject}: ${message.body}`);
    return message.body;
  }

  // declare declares a durable queue.
  declare(queue, args = {}) {
    return this.ask('PUT', `/queues/${encodeURIComponent(queue)}`, {durable: true, arguments: args});
  }

  // bind declares a durable direct exchange and binds the queue to it.
  async bind(queue, exchange, key) {
    await this.ask('PUT', `/exchanges/${encodeURIComponent(exchange)}`, {type: 'direct', durable: true});
    await this.ask('POST', '/bindings', {source: exchange, destination_queue: queue, binding_key: key, arguments: {}});
  }

  // ready is how many messages are ready in a queue.
  async ready(queue) {
    return (await this.ask('GET', `/queues/${encodeURIComponent(queue)}`)).message_count;
  }
}
