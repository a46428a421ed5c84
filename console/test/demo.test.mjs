// Somebody who has started the demo and reads nothing but the console finds out why its orders died, and sends them back.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, before, test } from "node:test";
import { binary, openBrowser, openPage, signIn, startNode } from "./harness.mjs";
import { until } from "./scene.mjs";

let node, browser, page, said;
before(async () => {
  node = await startNode();
  const amqp = new URL(node.amqp).host;
  said = execFileSync(binary, ["demo", "--keep", "--delay", "100ms", "--amqp", amqp, "--http", node.base, "--user", "console", "--password", "console"], { encoding: "utf8" });
  browser = await openBrowser();
  page = await openPage(browser, node);
});
after(async () => { await browser?.close(); await node?.stop(); });

test("the demo says where to look", () => {
  assert.match(said, new RegExp(`${node.base}/#/inbox`));
  assert.match(said, /bartleby dlq ls --vhost bartleby-demo/);
});

test("its orders are found and sent back from the overview on", async () => {
  await signIn(page, node);
  const todo = page.locator(".todo li", { hasText: "240 new dead letters" });
  await todo.getByText("price of item # is null").waitFor();
  await todo.getByRole("link", { name: "Show letters" }).click();
  await page.locator("td.name-cell a").first().click();
  await page.getByText("shop.Orders.total(Orders.java:112)").first().waitFor();
  await page.getByText('"price": null').first().waitFor();
  assert.match(await page.locator("section", { has: page.getByRole("heading", { name: "A replay would put it now" }) }).innerText(), /orders/);
  await page.getByText("Letters like it").waitFor();
  await page.locator(".facts").getByRole("link", { name: /NullPointerException/ }).click();
  await page.getByRole("button", { name: "Replay…" }).click();
  await page.getByRole("dialog").getByLabel("Reason").fill("prices are there again");
  await page.getByRole("dialog").getByLabel("Try a few first").uncheck();
  await page.getByRole("dialog").getByRole("button", { name: "Replay 240 letters" }).click();
  await page.getByText("240 of 240").first().waitFor();
  await until("the orders are back", async () => (await node.api("GET", "queues/bartleby-demo/orders")).messages === 240);
  assert.deepEqual(page.faults, []);
});

test("it leaves letters of several causes, parked and dead, drops, a retry that waits, and a job with its outcomes", async () => {
  const { items } = await node.api("GET", "office/groups/bartleby-demo");
  for (const reason of ["rejected", "expired", "maxlen"]) assert.ok(items.some((g) => g.reason === reason), `nothing is ${reason}`);
  assert.ok(new Set(items.map((g) => g.error_class).filter(Boolean)).size >= 2);
  assert.deepEqual((await node.api("GET", "office/jobs")).at(-1).outcomes, { waiting: 0, acknowledged: 18, died_again: 2, expired: 0, dropped: 0, removed: 0 });
  const drops = (await node.api("GET", "office/drops/bartleby-demo")).items;
  assert.ok(drops.some((d) => d.queue === "visits" && d.count === 3), JSON.stringify(drops));
  assert.equal((await node.api("GET", "queues/bartleby-demo/webhooks")).messages_delayed, 1);
});
