// Promises around rhea's events.

import rhea from 'rhea';
import {check, Inbox, within} from '../node/interop.mjs';

// opened waits for an event of a link that says that it can be used.
export function opened(link, event) {
  return within(`${event} of ${link.name}`, new Promise((resolve, reject) => {
    link.once(event, resolve);
    link.once('sender_error', ({sender}) => reject(new Error(`${sender.error}`)));
    link.once('receiver_error', ({receiver}) => reject(new Error(`${receiver.error}`)));
  }));
}

// connect opens the virtual host of the story, which AMQP 1.0 names as the host.
export async function connect(options = {}) {
  const {AMQP_HOST: host, AMQP_PORT: port, AMQP_VHOST: vhost} = process.env;
  const connection = rhea.create_container().connect({
    host, port, hostname: `vhost:${vhost}`, username: 'guest', password: 'guest', reconnect: false, ...options,
  });
  await within('it is connected', new Promise((resolve, reject) => {
    connection.once('connection_open', resolve);
    connection.once('disconnected', ({error}) => reject(error));
  }));
  return connection;
}

// Sender gives each message's outcome.
export class Sender {
  #link;
  #waiting = new Map(); // delivery-ids and who waits for their outcomes

  static async open(connection, address) {
    const sender = new Sender();
    sender.#link = connection.open_sender({target: {address}});
    for (const outcome of ['accepted', 'rejected', 'released', 'modified']) {
      sender.#link.on(outcome, ({delivery}) => sender.#waiting.get(delivery.id)(outcome));
    }
    await opened(sender.#link, 'sendable');
    return sender;
  }

  // outcome sends a durable message and waits for its outcome.
  outcome(message) {
    const delivery = this.#link.send({durable: true, ...message});
    return within(`the outcome of ${message.body}`, new Promise((resolve) => {
      this.#waiting.set(delivery.id, resolve);
    }));
  }

  sendable() {
    return this.#link.sendable();
  }

  // publish sends messages and takes every outcome but accepted for an error.
  async publish(...messages) {
    const outcomes = await Promise.all(messages.map((message) => this.outcome(message)));
    check('outcomes', outcomes, messages.map(() => 'accepted'));
  }
}

// Receiver gives credit only when it is told to, and settles nothing by itself.
export class Receiver extends Inbox {
  link;

  static async open(connection, queue, credit) {
    const receiver = new Receiver();
    receiver.link = connection.open_receiver({source: {address: `/queues/${queue}`}, credit_window: 0, autoaccept: false, autosettle: false});
    receiver.link.on('message', receiver.put);
    await opened(receiver.link, 'receiver_open');
    receiver.link.add_credit(credit);
    return receiver;
  }

  async takeOne() {
    const [context] = await this.take(1);
    return context;
  }

  close() {
    const closed = opened(this.link, 'receiver_close');
    this.link.close();
    return closed;
  }
}
