import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { openBrowser, openPage, signIn, startNode } from "./harness.mjs";

let node, browser;
before(async () => { node = await startNode(); browser = await openBrowser(); });
after(async () => { await browser?.close(); await node?.stop(); });

test("a wrong password says what is wrong, and keeps the name", async () => {
  const page = await openPage(browser, node);
  await page.goto(node.base + "/");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("Enter a user name.").waitFor();
  await page.getByText("Enter the password.").waitFor();
  await page.getByLabel("User name").fill("console");
  await page.getByLabel("Password").fill("wrong");
  await page.getByLabel("Password").press("Enter");
  await page.getByText("The user name or the password is wrong").waitFor();
  assert.equal(await page.getByLabel("User name").inputValue(), "console");
  assert.equal(await page.getByLabel("Password").inputValue(), "");
  assert.deepEqual(page.faults, []);
  await page.context().close();
});

test("a user without a tag is told who can help", async () => {
  await node.api("PUT", "users/app", { password: "app", tags: "" });
  const page = await openPage(browser, node);
  await page.goto(node.base + "/");
  await page.getByLabel("User name").fill("app");
  await page.getByLabel("Password").fill("app");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("may not use the console").waitFor();
  await page.context().close();
});

test("a link survives the sign-in and a reload, and signing out ends the session", async () => {
  const page = await openPage(browser, node);
  await page.goto(node.base + "/#/no-such-page");
  await page.getByLabel("User name").fill("console");
  await page.getByLabel("Password").fill("console");
  await page.getByLabel("Password").press("Enter");
  await page.getByText("There is no such page").waitFor();
  await page.reload();
  await page.getByText("There is no such page").waitFor();
  const [cookie] = await page.context().cookies();
  assert.ok(cookie.httpOnly && cookie.sameSite === "Strict");
  assert.equal(await page.evaluate(() => document.cookie), "");
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("User name").waitFor();
  assert.equal((await fetch(node.base + "/api/whoami", { headers: { cookie: `${cookie.name}=${cookie.value}` } })).status, 401);
  await page.context().close();
});

test("a session that ends under way asks for the password, without a window of the browser's own, and goes on where it was", async () => {
  await node.api("PUT", "users/bob", { password: "bob", tags: "monitoring" });
  const page = await openPage(browser, node);
  await signIn(page, node, "bob");
  await page.getByText("What needs attention").waitFor();
  await node.api("PUT", "users/bob", { password: "other", tags: "monitoring" });
  await page.getByText("Your session is over").waitFor({ timeout: 20000 });
  await page.getByLabel("User name").fill("bob");
  await page.getByLabel("Password").fill("other");
  await page.getByLabel("Password").press("Enter");
  await page.getByText("What needs attention").waitFor();
  assert.deepEqual(page.faults, []);
  await page.context().close();
});
