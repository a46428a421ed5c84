// The whole task, in a browser: 40,000 letters lie in three queues. Find out why, send one kind back with care, park the second, discard the
// third, and see what became of them; the node is killed in the middle.
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { openBrowser, openPage, pictures, signIn, startNode } from "./harness.mjs";
import { breakdown, causes, mended, until } from "./scene.mjs";

const mostClicks = 12;
let node, browser, end;
before(async () => { node = await startNode(); await breakdown(node); end = mended(node); browser = await openBrowser(); }, { timeout: 120000 });
after(async () => { await browser?.close(); await end?.(); await node?.stop(); });

test("the whole task takes twelve clicks, and a kill of the node changes no count", { timeout: 280000 }, async () => {
  const page = await openPage(browser, node, { viewport: { width: 1200, height: 760 } });
  let clicks = 0;
  const click = async (what) => { clicks++; await what.click(); };
  const dialog = page.getByRole("dialog");
  const nav = (name) => page.locator("nav.nav").getByRole("link", { name, exact: true });
  const picture = (name) => page.screenshot({ path: join(pictures, `task-${name}.png`) });

  // The alarm: the overview says what needs somebody. Nothing was clicked yet: signing in is not part of the task.
  await signIn(page, node);
  await page.getByText("10,000 new dead letters from orders").waitFor();
  await picture("1-overview");

  // Why: each cause with its count.
  await click(nav("Inbox"));
  for (const c of causes) {
    const row = page.locator("tbody tr", { hasText: c.error });
    await row.waitFor();
    assert.match(await row.innerText(), new RegExp(`${c.letters.toLocaleString("en")}[^]*${c.queue}`));
  }
  await picture("2-inbox");

  // What is typed goes into the first field of a dialog, once the dialog is there.
  const typing = () => page.waitForFunction(() => document.activeElement?.matches("dialog input, dialog textarea, dialog select"));

  // The first goes back to where it was published: 500 a second, a few first.
  await click(page.getByRole("link", { name: /NullPointerException/ }));
  await picture("3-group");
  await click(page.getByRole("button", { name: "Replay…" }));
  await typing();
  await page.keyboard.type("prices are there again");
  await click(dialog.getByLabel("Rate"));
  await page.keyboard.type("500");
  await dialog.getByRole("button", { name: "Replay 10,000 letters" }).waitFor();
  assert.match(await dialog.innerText(), /shop\s+orders\s+orders\s+10,000/, "it does not say where they would go");
  await picture("4-replay");
  await page.keyboard.press("Enter");
  await page.getByText("It waits for its first letters").waitFor();
  await picture("5-canary");

  // Meanwhile the second is parked, and the third discarded.
  await click(nav("Inbox"));
  await click(page.getByRole("link", { name: /PaymentTimeout/ }));
  await click(page.getByRole("button", { name: "Move…" }));
  await typing();
  await page.keyboard.type("payments.parked");
  await click(dialog.getByLabel("Reason"));
  await page.keyboard.type("the bank is asked first");
  await dialog.getByRole("button", { name: "Move 9,000 letters" }).waitFor();
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: /^Job \d+: Move/ }).waitFor();

  await click(nav("Inbox"));
  await click(page.getByRole("link", { name: /InvalidAddress/ }));
  await click(page.getByRole("button", { name: "Discard…" }));
  await typing();
  await page.keyboard.type("nobody has these addresses");
  await dialog.getByRole("button", { name: "Discard 6,000 letters" }).waitFor();
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: /^Job \d+: Discard/ }).waitFor();

  // What became of them.
  await click(nav("Jobs"));
  const jobs = await node.api("GET", "office/jobs");
  const replay = jobs.find((j) => j.action === "replay").id;
  const moved = async () => (await node.api("GET", `office/jobs/${replay}`)).moved;
  await until("a third of the letters is back", async () => await moved() > 3000, 90000);
  node.crash();
  assert.ok(await moved() < 9000, "the job was over before the node was killed");
  await page.getByText("Your session is over").waitFor({ timeout: 20000 });
  await page.getByLabel("User name").fill("console");
  await page.getByLabel("Password").fill("console");
  await page.keyboard.press("Enter");
  await page.getByText("Replay from orders.dead").waitFor(); // where it was
  const row = (what) => page.locator("tbody tr", { hasText: what });
  await until("the outcomes are shown", async () =>
    /done\s+10,000 of 10,000\s+9,800\s+200/.test(await row("Replay from orders.dead").innerText())
    && /done\s+9,000 of 9,000/.test(await row("Move from payments.dead").innerText())
    && /done\s+6,000 of 6,000/.test(await row("Discard from mails.dead").innerText()), 90000);
  await picture("6-report");
  assert.ok(clicks <= mostClicks, `${clicks} clicks`);

  const job = await node.api("GET", `office/jobs/${replay}`);
  assert.deepEqual(job.outcomes, { waiting: 0, acknowledged: 9800, died_again: 200, expired: 0, dropped: 0, removed: 0 });
  assert.ok(job.ended_ms - job.began_ms >= 1000 * (10000 - 10) / 500, "it went faster than 500 a second");
  const ready = Object.fromEntries((await node.api("GET", "queues/%2F?columns=name,messages")).map((q) => [q.name, q.messages]));
  assert.deepEqual(ready, {
    orders: 0, "orders.dead": 8200, payments: 0, "payments.dead": 4000, "payments.parked": 9000, mails: 0, "mails.dead": 3000, "bartleby.archive": 6000,
  });
  assert.deepEqual(page.faults, []);
});
