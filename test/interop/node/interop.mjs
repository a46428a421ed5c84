// What the stories of all Node clients share: the broker's address, checks, and queues of
// what has arrived.

import assert from 'node:assert/strict';
import {execFile} from 'node:child_process';
import {promisify} from 'node:util';

export const URI = process.env.AMQP_URI;
const PATIENCE = 20_000; // ms for whatever must come about

// play plays the story that the command line names, and ends the process.
export async function play(stories) {
  const story = stories[process.argv[2]];
  if (!story) throw new Error(`no story ${process.argv[2]}`);
  try {
    await story();
    process.exit(0);
  } catch (error) {
    console.error(error);
    process.exit(1);
  }
}

// check fails the story unless got is what is wanted.
export function check(what, got, want) {
  assert.deepEqual(got, want, `${what} is ${JSON.stringify(got)}, want ${JSON.stringify(want)}`);
}

// within fails the story if the promise takes too long.
export function within(what, promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`it did not come about that ${what}`)), PATIENCE);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

// until waits for a condition.
export async function until(what, holds) {
  const deadline = Date.now() + PATIENCE;
  while (!(await holds())) {
    if (Date.now() > deadline) throw new Error(`it did not come about that ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

// letter is what the Dead Letter Office says of the one letter of a queue.
export async function letter(queue) {
  const where = `${process.env.HTTP_URI}/api/office/letters/${encodeURIComponent(process.env.AMQP_VHOST)}/${queue}`;
  const answer = async (url) => (await fetch(url, {headers: {authorization: `Basic ${btoa('guest:guest')}`}})).json();
  await until(`${queue} has a letter`, async () => (await answer(where)).items.length === 1);
  return answer(`${where}/${(await answer(where)).items[0].id}`);
}

// Inbox keeps what has arrived until it is taken.
export class Inbox {
  arrived = [];
  #waiting;

  put = (item) => {
    this.arrived.push(item);
    this.#waiting?.();
  };

  // take waits for n items and takes them.
  async take(n) {
    while (this.arrived.length < n) {
      await within(`${n} arrive, ${this.arrived.length} have`, new Promise((resolve) => {
        this.#waiting = resolve;
      }));
    }
    return this.arrived.splice(0, n);
  }
}

// restartBroker kills the broker with SIGKILL and returns when it serves again.
export async function restartBroker() {
  await promisify(execFile)(process.env.INTEROP_RESTART);
}

// numbers are the bodies from one number to another, the last excluded.
export function numbers(from, to) {
  return Array.from({length: to - from}, (_, i) => String(from + i));
}

// countOf is how often the message died in the queue for the reason.
export function countOf(headers, queue, reason) {
  return headers?.['x-death']?.find((death) => death.queue === queue && death.reason === reason)?.count ?? 0;
}

// checkRejected checks what headers say of a message from exchange jobs, rejected in work.
export function checkRejected(headers) {
  check('number of deaths', headers['x-death'].length, 1);
  const {time, ...death} = headers['x-death'][0];
  check('x-death', death, {count: 1, reason: 'rejected', queue: 'work', exchange: 'jobs', 'routing-keys': ['job']});
  check('type of the time', time['!'], 'timestamp');
  const age = Date.now() / 1000 - time.value;
  assert(age > -5 && age < 60, `x-death time is ${age} s ago`);
  for (const which of ['first', 'last']) {
    for (const [key, want] of Object.entries({reason: 'rejected', queue: 'work', exchange: 'jobs'})) {
      check(`x-${which}-death-${key}`, headers[`x-${which}-death-${key}`], want);
    }
  }
}

// checkSurvivors checks what came after the broker was killed: 3 to 10, in order.
// Acknowledgements have no answer, so that 0 to 2, which were acknowledged, may come again before.
export function checkSurvivors(bodies) {
  check('bodies', bodies.slice(-8), numbers(3, 11));
  const again = bodies.slice(0, -8);
  check('what comes again', again, numbers(3 - again.length, 3));
}
