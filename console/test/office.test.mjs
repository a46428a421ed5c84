// The way from the inbox to a job.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { fill, hostile, office, openBrowser, openPage, signIn, startNode, visit } from "./harness.mjs";

let node, browser, page;
before(async () => {
  node = await startNode(); await fill(node); await office(node); browser = await openBrowser();
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
  await visit(page, "#/jobs");
  await page.getByText("Replay from").first().waitFor();
  assert.deepEqual(page.faults, []);
});
