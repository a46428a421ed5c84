// Every page with data, light, dark and narrow: no fault, nothing that axe finds, and a picture to look at.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fill, hostile, openBrowser, openPage, pictures, signIn, startNode, visit } from "./harness.mjs";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const e = encodeURIComponent;
const pages = {
  overview: "#/", inbox: "#/inbox", search: "#/letters", letters: `#/letters/${e("/")}?queue=orders.dead`, jobs: "#/jobs",
  queues: "#/queues", queue: `#/queues/${e("/")}/orders`, quorum: `#/queues/${e("/")}/payments`, exchanges: "#/exchanges", exchange: `#/exchanges/${e("/")}/orders`, default: `#/exchanges/${e("/")}/amq.default`,
  connections: "#/connections", channels: "#/channels", consumers: "#/consumers", users: "#/users", user: "#/users/ada", vhosts: "#/vhosts", vhost: "#/vhosts/shop", permissions: "#/permissions",
  policies: "#/policies", operator: "#/policies?kind=operator", shovels: "#/shovels", definitions: "#/definitions", features: "#/features", configuration: "#/configuration",
  hostile: `#/queues/${e("/")}/${e(hostile[0])}`, rtl: `#/queues/${e("/")}/${e(hostile[1])}`, long: `#/exchanges/${e("/")}/${e(hostile[3])}`, odd: `#/queues/${e("/")}/${e(hostile[4])}`, gone: `#/queues/${e("/")}/no-such-queue`, nowhere: "#/no-such-page",
};

let node, browser;
before(async () => { node = await startNode(); await fill(node); browser = await openBrowser();
  const { items } = await node.api("GET", "office/groups/%2F?limit=1");
  pages.group = `#/letters/${e("/")}?queue=orders.dead&group=${items[0].id}`;
  for (const { sample, error_class } of (await node.api("GET", "office/groups/%2F")).items) pages[error_class ? "letter" : "rejected"] = `#/letters/${e("/")}/${e(sample.queue)}/${sample.id}`;
});
after(async () => { await browser?.close(); await node?.stop(); });

for (const [mode, options] of [["light", {}], ["dark", { colorScheme: "dark" }], ["narrow", { viewport: { width: 360, height: 740 } }]]) {
  test(`every page, ${mode}`, { timeout: 240000 }, async (t) => {
    const page = await openPage(browser, node, options);
    await signIn(page, node);
    for (const [name, hash] of Object.entries(pages)) await t.test(name, async () => {
      await visit(page, hash);
      await page.screenshot({ path: join(pictures, `${name}-${mode}.png`), fullPage: true });
      await page.evaluate(axe); // not as a script of the page, which its policy forbids
      const found = await page.evaluate(async () => (await window.axe.run(document, { resultTypes: ["violations"] })).violations.map((v) => `${v.id}: ${v.help}\n  ${v.nodes.slice(0, 3).map((n) => n.html.slice(0, 200) + " " + n.failureSummary.split("\n")[1]).join("\n  ")}`));
      assert.deepEqual(found, []);
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth), "the page is wider than the window");
      assert.deepEqual(page.faults.splice(0), []);
    });
    await page.context().close();
  });
}

test("no page but the ones a user may see", async () => {
  const page = await openPage(browser, node);
  await signIn(page, node, "ada");
  const links = await page.locator("nav.nav a").allTextContents();
  assert.ok(links.includes("Queues") && links.includes("Shovels") && !links.includes("Users") && !links.includes("Definitions"), links.join());
  for (const hash of ["#/", "#/queues", `#/queues/${e("shop")}`, "#/connections"]) await visit(page, hash);
  await visit(page, "#/users");
  await page.getByText("Only users with the tag administrator may do this.").waitFor();
  assert.deepEqual(page.faults, []);
  await page.context().close();
});
