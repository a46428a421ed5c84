// The way from the inbox to a job.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { fill, hostile, openBrowser, openPage, signIn, startNode, visit } from "./harness.mjs";

let node, browser, page;
before(async () => {
  node = await startNode(); await fill(node); browser = await openBrowser();
  page = await openPage(browser, node); await signIn(page, node);
});
after(async () => { await browser?.close(); await node?.stop(); });
const dialog = () => page.getByRole("dialog");

test("the inbox tells causes apart, and is worked by keyboard", async () => {
  await visit(page, "#/inbox");
  await page.getByText("java.lang.NullPointerException").first().waitFor();
  await page.getByText("PaymentTimeout").first().waitFor();
  await page.locator("body").press("?");
  await dialog().getByText("select the row").waitFor();
  await page.keyboard.press("Escape");
  await dialog().waitFor({ state: "hidden" }); // until then the keys are the dialog's
  await page.locator("body").press("/");
  await page.keyboard.type("NullPointer");
  await page.keyboard.press("Escape");
  await page.keyboard.press("j");
  await page.keyboard.press("x");
  await page.getByRole("region", { name: "Selected groups" }).getByText("1 group").waitFor();
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: /NullPointerException/ }).waitFor();
  assert.deepEqual(page.faults, []);
});

test("a letter shows why it died, where it was, its body as text and where a replay would put it", async () => {
  await page.locator("td.name-cell a").first().click();
  await page.getByRole("heading", { name: "Why it died" }).waitFor();
  await page.getByText(/price of item \d+ is null/).first().waitFor();
  await page.getByText("Orders.java:112").first().waitFor();
  await page.getByRole("heading", { name: "A replay would put it now" }).waitFor();
  await page.getByRole("button", { name: "Hex" }).click();
  await page.getByText("000000  7b").waitFor();
  await page.getByText("Letters like it").waitFor();
  assert.deepEqual(page.faults, []);
});

test("the search finds letters by header, and says so when none matches", async () => {
  await visit(page, "#/letters/%2F?queue=orders.dead&where=header.tenant%3Dnorth");
  await page.getByText(/^\d+ letters$/).first().waitFor();
  await page.getByLabel("Error text").fill("no such text anywhere");
  await page.getByRole("button", { name: "Search", exact: true }).click();
  await page.getByText("No letter matches").waitFor();
  await page.getByLabel("Error text").fill("(");
  await page.getByRole("button", { name: "Search", exact: true }).click();
  await page.getByText("cannot be shown").waitFor();
  assert.deepEqual(page.faults, []);
});

test("a job names its count before it begins, and needs a reason", async () => {
  await visit(page, "#/inbox");
  await page.getByText("PaymentTimeout").first().click();
  await page.getByRole("button", { name: "Replay…" }).click();
  const button = dialog().getByRole("button", { name: /^Replay [\d,]+ letters?$/ });
  await button.click();
  await dialog().getByText("Say why.").first().waitFor();
  await dialog().getByLabel("Rate").fill("fast");
  await dialog().getByLabel("Reason").fill(`mended: ${hostile[0]}`);
  await dialog().getByText("The rate must be a whole number").waitFor();
  await dialog().getByLabel("Rate").fill("500");
  await button.click();
  await page.getByRole("heading", { name: /^Job .*: Replay from/ }).waitFor();
  await page.getByText(hostile[0]).first().waitFor();
  await page.getByText("they are of the group").waitFor(); // what the job takes, and how, in words
  await page.getByText("500 a second at most").waitFor();
  assert.ok(!(await page.locator("main").innerText()).includes('["'), "a filter stands there as JSON");
  await visit(page, "#/jobs");
  await page.getByText("Replay from").first().waitFor();
  assert.deepEqual(page.faults, []);
});

/** job begins a job over the API, of all letters of a queue, and says its number. */
async function job(request) {
  const all = { vhost: "/", queue: "orders.dead", ...request };
  const { token, count } = await node.api("POST", "office/jobs?dry_run=true", all);
  return (await node.api("POST", "office/jobs", { ...all, token, count })).id;
}

test("a job's page is told what happens, asks where it is not told, and does neither in a hidden tab", { timeout: 60000 }, async () => {
  await node.api("PUT", "queues/%2F/elsewhere", { durable: true, arguments: {} });
  const id = await job({ action: "move", to_queue: "elsewhere", rate: 1 });
  const asked = [], told = [];
  const noted = (r) => {
    if (r.url().endsWith(`/jobs/${id}`)) asked.push(r);
    if (r.url().endsWith(`/jobs/${id}/events`)) told.push(r);
  };
  page.on("request", noted);
  await visit(page, `#/jobs/${id}`);
  const moved = async () => Number(await page.locator("tr", { hasText: "moved" }).first().locator("td.num").innerText());
  const until = async (what, holds) => { for (let i = 0; !await holds(); i++) { assert.ok(i < 150, what); await page.waitForTimeout(100); } };
  const first = await moved();
  await until("its page does not say that letters move", async () => await moved() > first + 2);
  assert.ok(asked.length <= 3 && told.length === 1, `${asked.length} questions beside ${told.length} streams`);
  const hide = (hidden) => page.evaluate((h) => {
    Object.defineProperty(document, "hidden", { value: h, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  }, hidden);
  await hide(true);
  await until("the stream of a hidden tab goes on", async () => told[0].failure() !== null);
  const before = [asked.length, told.length, await moved()];
  await page.waitForTimeout(2500);
  assert.deepEqual([asked.length, told.length, await moved()], before, "a hidden tab asks");
  await page.route("**/events", (r) => r.abort());
  await hide(false);
  await until("it does not ask where it is not told", async () => asked.length >= before[0] + 3 && await moved() > before[2] + 1);
  await page.unroute("**/events");
  page.off("request", noted);
  await page.getByRole("button", { name: "Cancel" }).click();
  await dialog().getByRole("button", { name: "Cancel the job" }).click();
  await page.getByText("cancelled").first().waitFor();
  assert.deepEqual(page.faults.splice(0).filter((f) => !f.includes("ERR_FAILED")), []);
});

test("a job says until when its canary waits", async () => {
  const id = await job({ action: "replay", canary: { first: 3, wait_ms: 60000, percent: 20 } });
  await visit(page, `#/jobs/${id}`);
  await page.getByText("It waits for its first letters").waitFor();
  await page.getByText(/3 letters went first, \d of them died again. It goes on in \d+ s, unless more than 20 % have died again, or none was consumed, by then/).waitFor();
  await page.getByText("3 first, then a wait of 1 min; it stops if more than 20 % of them have died again, or none was consumed, by then").waitFor();
  await visit(page, "#/jobs");
  await page.getByText("waits for its first").waitFor();
  await node.api("POST", `office/jobs/${id}/cancel`);
  assert.deepEqual(page.faults, []);
});
