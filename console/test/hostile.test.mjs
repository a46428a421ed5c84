// What senders can do to those who look: names, headers and bodies of any kind and size, and very many queues.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { hostile, openBrowser, openPage, signIn, startNode, visit } from "./harness.mjs";
import { until } from "./scene.mjs";

const bodies = {
  script: Buffer.from(`<script>alert("body")</script><img src="https://evil.example/x.png" onerror="alert(1)">`),
  rtl: Buffer.from("\u202egnp.\u0627\u0644\u0633\u0644\u0627\u0645 \u2066 {\"a\": 1}"),
  torn: Buffer.from([0xff, 0xfe, 0x00, 0xc3, 0x28, 0x0d, 0x0a, 0x1b, 0x5b, 0x32, 0x4a, 0xed, 0xa0, 0x80]),
  deep: Buffer.from("[".repeat(50000) + "]".repeat(50000)),
  line: Buffer.alloc(10 << 20, "x"),
  empty: Buffer.alloc(0),
};
const e = encodeURIComponent, dead = hostile[0] + ".dead";
let node, browser, page;
before(async () => {
  node = await startNode();
  await node.api("PUT", `queues/%2F/${e(dead)}`, { durable: true, arguments: {} });
  await node.api("PUT", `queues/%2F/${e(hostile[0])}`, { durable: true, arguments: { "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead } });
  const ch = await (await node.connect(hostile[1])).createConfirmChannel();
  for (const [name, body] of Object.entries(bodies)) {
    ch.publish("", hostile[0], body, {
      persistent: true, messageId: `${name} ${hostile[2]}`, type: hostile[1], contentType: hostile[0], appId: hostile[5].slice(0, 200),
      headers: { [hostile[2]]: hostile[0], "x-exception-message": `${hostile[1]} ${hostile[2]}`, "x-exception-stacktrace": `<b>Bad</b>Exception: ${"at <i>x</i>\n".repeat(500)}`, long: "\u202ey".repeat(14000) },
    });
  }
  await ch.waitForConfirms();
  let left = Object.keys(bodies).length;
  await ch.consume(hostile[0], (m) => { left--; ch.nack(m, false, false); }, { consumerTag: hostile[2] });
  await until("they have died", async () => left === 0 && (await node.api("GET", `queues/%2F/${e(dead)}`)).messages === Object.keys(bodies).length);
  browser = await openBrowser();
  page = await openPage(browser, node);
  await signIn(page, node);
});
after(async () => { await browser?.close(); await node?.stop(); });

/** calm says that a page is as wide as its window, and that nothing of what senders wrote was anything but text. */
async function calm() {
  assert.deepEqual(page.faults, []);
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth), "the page is wider than the window");
  assert.equal(await page.locator("main script, main img, main i:not([class])").count(), 0);
}

test("lists and pages of hostile letters show text", { timeout: 120000 }, async () => {
  for (const hash of ["#/", "#/inbox", "#/letters", `#/letters/%2F?queue=${e(dead)}`, `#/queues/%2F/${e(dead)}`]) {
    await visit(page, hash);
    await calm();
  }
  const { items } = await node.api("GET", `office/letters/%2F/${e(dead)}`);
  assert.equal(items.length, Object.keys(bodies).length);
  for (const { id, message_id: name } of items) {
    const began = Date.now();
    await visit(page, `#/letters/%2F/${e(dead)}/${id}`);
    await page.getByRole("heading", { name: "Body" }).waitFor();
    assert.ok(Date.now() - began < 4000, `the letter ${name} took ${Date.now() - began} ms`);
    for (const view of ["Text", "Hex"]) {
      const button = page.getByRole("button", { name: view, exact: true });
      if (await button.count()) await button.click();
    }
    await calm();
  }
});

test("messages that are looked at in their queue show text", { timeout: 60000 }, async () => {
  await visit(page, `#/queues/%2F/${e(dead)}`);
  await page.getByText("Look at messages").click();
  await page.getByLabel("How many").fill("10");
  await page.getByRole("button", { name: "Show messages" }).click();
  await page.getByText(`${Object.keys(bodies).length} messages`, { exact: true }).waitFor();
  await calm();
});

test("a list of 100,000 queues scrolls and filters without a stall", { timeout: 240000 }, async (t) => {
  const queues = Array.from({ length: 100000 }, (_, i) => ({ name: `q-${String(i).padStart(6, "0")}`, vhost: "many", durable: false, auto_delete: false, arguments: {} }));
  await node.api("PUT", "vhosts/many", {});
  await node.api("PUT", "permissions/many/console", { configure: ".*", write: ".*", read: ".*" });
  for (let i = 0; i < queues.length; i += 20000) await node.api("POST", "definitions", { queues: queues.slice(i, i + 20000) });
  await page.reload();
  await page.getByLabel("Virtual host").selectOption("many");
  await visit(page, "#/queues");
  await page.getByText("100,000 queues").waitFor({ timeout: 30000 });
  await page.evaluate(() => {
    window.stalls = [];
    new PerformanceObserver((l) => { for (const task of l.getEntries()) window.stalls.push(Math.round(task.duration)); }).observe({ type: "longtask" });
  });
  const took = async (what, work) => { const began = Date.now(); await work(); t.diagnostic(`${what}: ${Date.now() - began} ms`); return Date.now() - began; };
  for (const part of [0.25, 0.5, 0.75, 1]) {
    const last = Math.round(part * 99999);
    const ms = await took(`scroll to ${last}`, async () => {
      await page.evaluate((p) => window.scrollTo(0, p * document.body.scrollHeight), part);
      await page.waitForFunction(() => [...document.querySelectorAll("tbody tr:not(.spacer)")].some((r) => r.getBoundingClientRect().top > 100 && r.getBoundingClientRect().bottom < innerHeight && /q-\d/.test(r.textContent)));
    });
    assert.ok(ms < 5000, `${ms} ms until the rows at ${part} are there`);
    assert.ok(await page.locator("tbody tr").count() < 120);
  }
  await page.evaluate(() => window.scrollTo(0, 0));
  const ms = await took("filter", async () => {
    await page.getByLabel("Filter queues").pressSequentially("q-0999", { delay: 30 });
    await page.getByText("100 of 100,000 queues").waitFor();
  });
  assert.ok(ms < 5000, `${ms} ms until the filter's queues are there`);
  const stalls = await page.evaluate(() => window.stalls);
  t.diagnostic(`tasks over 50 ms: ${stalls.join(", ") || "none"}`);
  assert.ok(Math.max(0, ...stalls) < 500, `the page stood still for ${Math.max(...stalls)} ms`);
  assert.deepEqual(page.faults, []);
});
