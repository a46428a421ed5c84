// What people do: by mouse, by keyboard, and with wrong input.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { fill, openBrowser, openPage, signIn, startNode, visit } from "./harness.mjs";

let node, browser, page;
before(async () => {
  node = await startNode(); await fill(node); browser = await openBrowser();
  page = await openPage(browser, node); await signIn(page, node);
});
after(async () => { await browser?.close(); await node?.stop(); });
const dialog = () => page.getByRole("dialog");

test("a queue is added with its dead-letter exchange, key and time to live, after wrong input was refused", async () => {
  await visit(page, "#/queues");
  await page.getByRole("button", { name: "Add a queue" }).click();
  await dialog().getByRole("button", { name: "Add queue" }).click();
  await dialog().getByText("Enter a name.").waitFor();
  await dialog().getByLabel("Name", { exact: true }).fill("refunds");
  await dialog().getByLabel("Dead-letter key (DLK)").fill("failed");
  await dialog().getByRole("button", { name: "Add queue" }).click();
  await dialog().getByText("A dead-letter key needs a dead-letter exchange.").waitFor();
  await dialog().getByLabel("Dead-letter exchange (DLX)").fill("no.such.exchange");
  await dialog().getByText("does not exist in /").waitFor();
  await dialog().getByLabel("Dead-letter exchange (DLX)").fill("orders.dlx");
  await dialog().getByLabel("Time to live (TTL)").fill("soon");
  await dialog().getByRole("button", { name: "Add queue" }).click();
  await dialog().getByText("must be a whole number").waitFor();
  await dialog().getByLabel("Time to live (TTL)").fill("60000");
  await dialog().getByRole("button", { name: "Add queue" }).click();
  await page.getByRole("heading", { name: "Queue refunds" }).waitFor();
  const q = await node.api("GET", "queues/%2F/refunds");
  assert.deepEqual([q.arguments["x-dead-letter-exchange"], q.arguments["x-dead-letter-routing-key"], q.arguments["x-message-ttl"]], ["orders.dlx", "failed", 60000]);
});

test("a message is published, looked at without a change, and purged with its count", async () => {
  await visit(page, "#/queues/%2F/refunds");
  await page.getByText("Publish a message").click();
  await page.getByLabel("Headers", { exact: true }).fill("{not json");
  await page.getByRole("button", { name: "Publish message" }).click();
  await page.getByText("Headers must be a JSON object").waitFor();
  await page.getByLabel("Headers", { exact: true }).fill('{"tenant": "<b>north</b>"}');
  await page.getByLabel("Body", { exact: true }).fill('{"html": "<img src=x onerror=alert(1)>"}');
  await page.getByRole("button", { name: "Publish message" }).click();
  await page.getByText("The message is published and confirmed.").waitFor();
  await page.getByText("Look at messages").click();
  await page.getByRole("button", { name: "Show messages" }).click();
  await page.getByText("<img src=x onerror=alert(1)>").waitFor();
  const [peeked] = await node.api("POST", "queues/%2F/refunds/get", { ackmode: "peek", count: 1, encoding: "auto" });
  assert.equal(peeked.redelivered, false);
  await page.getByRole("button", { name: "Purge" }).click();
  await dialog().getByRole("button", { name: "Purge 1 message" }).click();
  await page.getByText("The queue refunds is purged.").waitFor();
  assert.deepEqual(page.faults, []);
});

test("an exchange is bound and unbound", async () => {
  await visit(page, "#/exchanges/%2F/orders");
  await page.getByText("Bind something to it").click();
  await page.getByLabel("Name of the queue").fill("nowhere");
  await page.getByRole("button", { name: "Bind", exact: true }).click();
  await page.getByText("no queue 'nowhere'").waitFor();
  await page.getByLabel("Name of the queue").fill("refunds");
  await page.getByLabel("Routing key").first().fill("refund.#");
  await page.getByRole("button", { name: "Bind", exact: true }).click();
  await page.getByRole("button", { name: "Unbind orders from refunds" }).click();
  await dialog().getByRole("button", { name: "Unbind" }).click();
  await page.getByText("The binding is removed.").waitFor();
});

test("a policy shows the queues that it matches before it is saved", async () => {
  await visit(page, "#/policies");
  await page.getByRole("button", { name: "Add a policy" }).click();
  await dialog().getByLabel("Name", { exact: true }).fill("dlx");
  await dialog().getByLabel("Pattern").fill("^(orders");
  await dialog().getByText("Unterminated group").waitFor();
  await dialog().getByLabel("Pattern").fill("^orders");
  await dialog().getByText("It matches 2 queues").waitFor();
  await dialog().getByRole("button", { name: "Save for 2 queues" }).click();
  await dialog().getByText("The policy must set something.").waitFor();
  await dialog().getByLabel("Length limit", { exact: true }).fill("1000");
  await dialog().getByRole("button", { name: "Save for 2 queues" }).click();
  await page.getByText("The policy dlx is set.").waitFor();
  assert.equal((await node.api("GET", "queues/%2F/orders")).policy, "dlx");
});

test("a breaker is set by a policy, needs attention when it opens, and is closed", async () => {
  await node.api("PUT", "queues/%2F/payments.slow", {});
  await visit(page, "#/policies");
  await page.getByRole("button", { name: "Add a policy" }).click();
  await dialog().getByLabel("Name", { exact: true }).fill("breaks");
  await dialog().getByLabel("Pattern").fill("^payments.slow$");
  await dialog().getByText("Breaker", { exact: true }).click();
  await dialog().getByLabel("Deaths").fill("2");
  await dialog().getByLabel("Window").fill("3600000");
  await dialog().getByRole("button", { name: "Save for 1 queue" }).click();
  await dialog().getByText("A breaker needs deaths, a share and a window.").waitFor();
  await dialog().getByLabel("Share in percent").fill("50");
  await dialog().getByRole("button", { name: "Save for 1 queue" }).click();
  await page.getByText("The policy breaks is set.").waitFor();
  assert.deepEqual((await node.api("GET", "policies/%2F/breaks")).definition, { "dead-letter-breaker": { deaths: 2, percent: 50, window: 3600000 } });
  await page.getByText("breaks", { exact: true }).first().click();
  assert.equal(await dialog().getByLabel("Share in percent").inputValue(), "50");
  await page.keyboard.press("Escape");
  for (const body of ["one", "two", "three"]) await node.api("POST", "exchanges/%2F/amq.default/publish", { routing_key: "payments.slow", payload: body, payload_encoding: "string", properties: {} });
  await node.api("POST", "queues/%2F/payments.slow/get", { ackmode: "reject_requeue_false", count: 2, encoding: "auto" });
  await visit(page, "#/");
  await page.getByText("Queue payments.slow in virtual host / delivers nothing: its breaker is open").waitFor();
  await visit(page, "#/queues/%2F/payments.slow");
  await page.getByText("2 of 2 deliveries that ended within 1h0m0s died.").waitFor();
  await page.getByRole("button", { name: "Close the breaker" }).click();
  await dialog().getByRole("button", { name: "Close for 1 message" }).click();
  await page.getByText("The breaker of payments.slow is closed.").waitFor();
  assert.equal((await node.api("GET", "queues/%2F/payments.slow")).breaker.state, "closed");
  await node.api("DELETE", "policies/%2F/breaks"); await node.api("DELETE", "queues/%2F/payments.slow");
  assert.deepEqual(page.faults, []);
});

test("a user is added with tags and a permission, and deleted", async () => {
  await visit(page, "#/users");
  await page.getByRole("button", { name: "Add a user" }).click();
  await dialog().getByLabel("Name", { exact: true }).fill("carol");
  await dialog().getByLabel("Password", { exact: true }).fill("one");
  await dialog().getByLabel("The same again").fill("two");
  await dialog().getByRole("button", { name: "Add user" }).click();
  await dialog().getByText("The two passwords are not the same.").waitFor();
  await dialog().getByLabel("The same again").fill("one");
  await dialog().getByLabel("monitoring").check();
  await dialog().getByRole("button", { name: "Add user" }).click();
  await page.getByText("carol has no permissions").waitFor();
  await page.getByRole("button", { name: "Set permission" }).click();
  await dialog().getByRole("button", { name: "Save" }).click();
  await page.getByText("The permission is set.").waitFor();
  assert.deepEqual((await node.api("GET", "users/carol")).tags, ["monitoring"]);
  await page.getByRole("button", { name: "Delete", exact: true }).click();
  await dialog().getByRole("button", { name: "Delete user" }).click();
  await page.getByText("The user carol is deleted.").waitFor();
});

test("a connection is closed with a reason", async () => {
  const c = await node.connect("victim");
  const closed = new Promise((f) => c.on("close", f));
  await visit(page, "#/connections");
  await page.getByRole("link", { name: /^victim/ }).click();
  await page.getByRole("button", { name: "Close connection" }).click();
  await dialog().getByLabel("Reason").fill("maintenance at noon");
  await dialog().getByRole("button", { name: "Close connection" }).click();
  assert.match(String(await closed), /maintenance at noon/);
});

test("the end of an action does not take a user back who has gone elsewhere", async () => {
  await node.api("PUT", "queues/%2F/leaving", { durable: true, arguments: {} });
  await visit(page, "#/queues/%2F/leaving");
  let answer;
  const held = new Promise((f) => { answer = f; });
  await page.route("**/api/queues/%2F/leaving*", async (r) => { if (r.request().method() === "DELETE") await held; await r.continue(); });
  await page.getByRole("button", { name: "Delete", exact: true }).click();
  await dialog().getByRole("button", { name: "Delete if empty" }).click();
  await page.evaluate(() => { location.hash = "#/exchanges"; });
  answer();
  await page.getByText("The queue leaving is deleted.").waitFor();
  assert.match(page.url(), /#\/exchanges$/);
  await page.getByRole("heading", { name: "Exchanges", exact: true }).waitFor();
  await page.unroute("**/api/queues/%2F/leaving*");
  assert.deepEqual(page.faults, []);
});

test("the list of queues works by keyboard alone", async () => {
  await visit(page, "#/queues");
  await page.getByText(/^(\d+ of )?\d+ queues$/).waitFor(); // the keys are the list's, once it is there
  await page.locator("body").press("/");
  await page.keyboard.type("order");
  await page.getByText(/^2 of \d+ queues$/).waitFor();
  await page.keyboard.type("s"); // the list is asked for anew, and shown a moment later: no key is lost meanwhile
  await page.keyboard.press("Escape");
  await page.keyboard.press("j");
  await page.keyboard.press("j");
  await page.keyboard.press("k");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Queue orders", exact: true }).waitFor();
  await page.goBack();
  await page.getByText(/^2 of \d+ queues$/).waitFor(); // the filter is part of the address
});

test("everything on a page is reached by the tab key, with a visible focus", async () => {
  await visit(page, "#/inbox");
  await page.locator("body").click({ position: { x: 700, y: 880 } });
  const seen = new Set();
  for (let i = 0; i < 60; i++) {
    await page.keyboard.press("Tab");
    const at = await page.evaluate(() => { const el = document.activeElement, s = getComputedStyle(el); return el === document.body ? { name: "BODY" } : { name: el.getAttribute("aria-label") || el.textContent.trim().slice(0, 40) || el.tagName, ring: s.outlineStyle !== "none" && s.outlineWidth !== "0px" }; });
    if (at.name !== "BODY" && at.name !== "" && !at.name.startsWith("Overview")) assert.ok(at.ring || seen.size === 0, `no visible focus on ${at.name}`);
    seen.add(at.name);
  }
  for (const name of ["Queues", "Sign out", "Filter groups", "Columns"]) assert.ok([...seen].some((s) => s.includes(name)), `${name} was not reached: ${[...seen].join(" | ")}`);
});

test("the search box takes a regular expression, and says when it is none", async () => {
  await visit(page, "#/queues");
  await page.getByLabel("Regular expression").check();
  await page.getByLabel("Filter queues").fill("^(pay|pri");
  await page.getByText("This is no regular expression").waitFor();
  await page.getByLabel("Filter queues").fill("^(pay|pri)");
  await page.getByText(/^2 of \d+ queues$/).waitFor();
});

test("charts of a day begin where data begins, and say so", async () => {
  for (const hash of ["#/", "#/queues/%2F/orders"]) {
    await visit(page, hash);
    await page.getByRole("button", { name: "24 h" }).click();
    assert.match(await page.locator("figcaption").first().innerText(), /Recorded since/);
  }
  const { queue_totals: totals } = await node.api("GET", "overview?lengths_age=86400&lengths_incr=600");
  const { samples, samples_since: since } = totals.messages_details;
  assert.ok(samples.length >= 144 && samples.at(-1).timestamp < since && since <= Date.now(), `${samples.length} samples, since ${since}`);
});

test("a page says so while the node is away, and goes on when it is back", { timeout: 60000 }, async () => {
  await visit(page, "#/");
  await page.route("**/api/**", (r) => r.abort());
  await page.getByText("is not up to date").waitFor({ timeout: 15000 });
  await page.unroute("**/api/**");
  await page.getByText("is not up to date").waitFor({ state: "hidden", timeout: 15000 });
  page.faults = page.faults.filter((f) => !f.includes("ERR_FAILED"));
});

test("a thousand queues scroll, and few rows are made", { timeout: 120000 }, async () => {
  await node.api("PUT", "vhosts/many", {});
  await node.api("PUT", "permissions/many/console", { configure: ".*", write: ".*", read: ".*" });
  for (let i = 0; i < 1000; i += 50) await Promise.all(Array.from({ length: 50 }, (_, j) => node.api("PUT", `queues/many/q-${String(i + j).padStart(4, "0")}`, { durable: false, arguments: {} })));
  await page.reload();
  await page.getByLabel("Virtual host").selectOption("many");
  await visit(page, "#/queues");
  await page.getByText("1,000 queues").waitFor();
  assert.ok(await page.locator("tbody tr").count() < 120);
  await page.evaluate(() => window.scrollTo(0, document.body.scrollHeight));
  await page.getByRole("link", { name: "q-0999" }).waitFor();
  assert.ok(await page.locator("tbody tr").count() < 120);
  assert.deepEqual(page.faults, []);
});
