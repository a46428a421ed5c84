// The pages of the office that came second: with data, empty, failing, with wrong input, by keyboard, with hostile names.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { after, before, test } from "node:test";
import { fill, hostile, openBrowser, openPage, signIn, startNode, visit } from "./harness.mjs";
import { answers, stub } from "./stub.mjs";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
let node, browser;
before(async () => { node = await startNode(); await fill(node); browser = await openBrowser(); });
after(async () => { await browser?.close(); await node?.stop(); });

/** at opens a page whose office answers what is given, and ends with it. */
async function at(hash, given, work, options) {
  const page = await openPage(browser, node, options);
  const asked = await stub(page, given);
  await signIn(page, node);
  await visit(page, hash);
  await work(page, asked, page.getByRole("dialog"));
  assert.deepEqual(page.faults, []);
  await page.context().close();
}
const refused = { status: 503, error: "unavailable", reason: "the store is closed" };

const pages = { "#/drops": answers, "#/retries": answers };
for (const [mode, options] of [["light", {}], ["dark", { colorScheme: "dark" }], ["narrow", { viewport: { width: 360, height: 740 } }]]) {
  test(`every page, ${mode}: nothing that axe finds, and no wider than the window`, { timeout: 240000 }, async (t) => {
    const page = await openPage(browser, node, options);
    await stub(page, answers);
    await signIn(page, node);
    for (const hash of Object.keys(pages)) await t.test(hash, async () => {
      await visit(page, hash);
      await page.evaluate(axe);
      const found = await page.evaluate(async () => (await window.axe.run(document, { resultTypes: ["violations"] })).violations.map((v) => `${v.id}: ${v.help}\n  ${v.nodes.slice(0, 3).map((n) => n.html.slice(0, 200) + " " + n.failureSummary.split("\n")[1]).join("\n  ")}`));
      assert.deepEqual(found, []);
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth), "the page is wider than the window");
      assert.deepEqual(page.faults.splice(0), []);
    });
    await page.context().close();
  });
}

test("the first load is under 150 KiB, compressed", async () => {
  const html = await (await fetch(node.base + "/")).text();
  let sum = html.length;
  for (const [, name] of html.matchAll(/(?:src|href)="(\/?assets\/[^"]+)"/g)) sum += gzipSync(Buffer.from(await (await fetch(new URL(name, node.base + "/"))).arrayBuffer())).length;
  assert.ok(sum > 20 * 1024 && sum < 150 * 1024, `${sum} bytes`);
});

test("drops: by hour and by entry, with the way out, and more of them", async () => {
  const given = { ...answers, drops: ({ query }) => query.get("cursor") ? { ...answers.drops, items: [{ ...answers.drops.items[0], id: 1, queue: "the-oldest" }], next: null } : answers.drops };
  await at("#/drops", given, async (page, asked, dialog) => {
    await page.getByText("52,113 messages in 214 entries").waitFor();
    await page.getByRole("img", { name: /^Messages dropped: [\d,]+ messages from / }).waitFor();
    await page.getByText(hostile[0], { exact: true }).first().waitFor();
    await page.getByText("hidden").waitFor(); // what the user may not read
    await page.locator("body").press("j");
    await page.keyboard.press("Enter");
    await dialog.getByText("4,120 messages dropped: its exchange does not exist").waitFor();
    await dialog.getByText("Declare the exchange and bind a queue to it").waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Show more" }).click();
    await page.getByRole("link", { name: "the-oldest" }).waitFor();
    assert.equal(await page.getByRole("button", { name: "Show more" }).count(), 0);
    await page.getByRole("button", { name: /^its exchange does not exist 2,000/ }).click();
    await page.getByText("it was misspelt, deleted, or never declared").waitFor();
    assert.equal(asked.at(-1).query.get("why"), "dlx_missing");
    await page.getByLabel("Queue").fill("orders");
    await page.getByRole("button", { name: "Show", exact: true }).click();
    await page.waitForFunction(() => location.hash.includes("queue=orders"));
    await page.getByRole("button", { name: "Clear" }).click();
    await page.waitForFunction(() => !location.hash.includes("queue="));
  });
});

test("drops: none, none that match, and a node that fails", async () => {
  const none = { items: [], next: null, total: 0, dropped: 0, hours: [] };
  await at("#/drops", { drops: none }, async (page) => {
    await page.getByText("Nothing was dropped").waitFor();
    await visit(page, "#/drops?why=cycle&queue=orders");
    await page.getByText("No drop matches").waitFor();
  });
  await at("#/drops", { drops: refused }, async (page) => { await page.getByText("Entries cannot be shown").waitFor(); await page.getByText("the store is closed").waitFor(); });
});

test("retries: how much waits, when it is due, what is late", async () => {
  await at("#/retries", answers, async (page) => {
    await page.getByText("2,053").waitFor();
    await page.getByText("their consumers are busy, or none is there").waitFor();
    await page.getByRole("img", { name: /^Retries that are due: 1?[\d,]+ messages/ }).waitFor();
    assert.equal(await page.getByRole("link", { name: "idle" }).count(), 0); // nothing waits there
    await page.locator("body").press("j");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Queue payments" }).waitFor();
  });
  await at("#/retries", { retries: [] }, (page) => page.getByText("Nothing waits for a retry").waitFor());
  await at("#/retries", { retries: refused }, (page) => page.getByText("the store is closed").waitFor());
});
