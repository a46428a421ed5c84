// 40,000 letters of seven causes in three queues, and consumers that are mended when the test says so.
import { setTimeout as pause } from "node:timers/promises";

/** causes are the letters of the scene: where they died, of what, and how many. */
export const causes = [
  { queue: "orders", error: "java.lang.NullPointerException", text: (i) => `price of item ${i} is null`, letters: 10000 },
  { queue: "orders", error: "com.fasterxml.jackson.core.JsonParseException", text: (i) => `Unexpected character at line 1, column ${i}`, letters: 8000 },
  { queue: "payments", error: "shop.PaymentTimeoutException", text: (i) => `no answer within ${3000 + i} ms`, letters: 9000 },
  { queue: "payments", error: "shop.CardDeclinedException", text: (i) => `card of order ${i} was declined`, letters: 4000 },
  { queue: "mails", error: "shop.InvalidAddressException", text: (i) => `550 no mailbox "user${i}"`, letters: 6000 },
  { queue: "mails", error: "java.net.ConnectException", text: (i) => `connection ${i} refused`, letters: 2500 },
  { queue: "mails", error: "shop.TemplateNotFoundException", text: () => "template welcome.html does not exist", letters: 500 },
];
const queues = [...new Set(causes.map((c) => c.queue))];

/** breakdown makes the scene: consumers of three queues reject all that they get. */
export async function breakdown(node) {
  await node.api("PUT", "exchanges/%2F/shop", { type: "direct", durable: true });
  await node.api("PUT", "queues/%2F/payments.parked", { durable: true, arguments: {} });
  for (const queue of queues) {
    await node.api("PUT", `queues/%2F/${queue}.dead`, { durable: true, arguments: {} });
    await node.api("PUT", `queues/%2F/${queue}`, { durable: true, arguments: { "x-dead-letter-exchange": "", "x-dead-letter-routing-key": `${queue}.dead` } });
    await node.api("POST", `bindings/%2F/e/shop/q/${queue}`, { routing_key: queue, arguments: {} });
  }
  const c = await node.connect("shop"), ch = await c.createConfirmChannel();
  let n = 0;
  for (const { queue, error, text, letters } of causes) {
    for (let i = 0; i < letters; i++) {
      ch.publish("shop", queue, Buffer.from(JSON.stringify({ number: i })), {
        persistent: true, messageId: `${queue}-${n++}`, contentType: "application/json", type: `${queue}.created`,
        headers: { "x-exception-message": text(i), "x-exception-stacktrace": `${error}: ${text(i)}\n\tat shop.Worker.run(Worker.java:${40 + i % 9})` },
      });
    }
    await ch.waitForConfirms();
  }
  let died = 0;
  for (const queue of queues) {
    await ch.consume(queue, (m) => { died++; ch.nack(m, false, false); }, { consumerTag: `old-${queue}` });
  }
  while (died < 40000) await pause(20);
  for (const queue of queues) await ch.cancel(`old-${queue}`);
  await until("the dead lie in their queues", async () => {
    const found = await node.api("GET", "office/groups/%2F?limit=50");
    return found.letters === 40000 && !found.reading && found.items.length === causes.length;
  });
}

/**
 * mended consumes the orders with a fixed consumer, which does all but those whose number is a multiple of fifty, and comes back
 * when its node was killed. It returns what ends it.
 */
export function mended(node) {
  let over = false, c;
  const run = async () => {
    while (!over) {
      try {
        c = await node.connect("orders, fixed");
        const closed = new Promise((f) => c.once("close", f));
        const ch = await c.createChannel();
        ch.on("error", () => {});
        await ch.prefetch(50);
        await ch.consume("orders", (m) => {
          if (m === null) return;
          if (JSON.parse(m.content).number % 50 === 0) ch.nack(m, false, false); else ch.ack(m);
        });
        await closed;
      } catch { await pause(100); }
    }
  };
  const running = run();
  return async () => { over = true; await c?.close().catch(() => {}); await running; };
}

/** until waits for something to hold, a minute at most. */
export async function until(what, holds, ms = 60000) {
  for (const end = Date.now() + ms; !await holds(); await pause(100)) if (Date.now() > end) throw new Error(`waited ${ms} ms until ${what}`);
}
