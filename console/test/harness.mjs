// A real node with a browser in front of it.
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import amqp from "amqplib";
import { chromium } from "playwright-core";

const here = dirname(fileURLToPath(import.meta.url));
export const root = join(here, "../..");
export const binary = process.env.BARTLEBY ?? join(root, "bin/bartleby");
export const pictures = join(here, "pictures");
mkdirSync(pictures, { recursive: true });

/** startNode starts a node with an administrator, console/console. */
export async function startNode(...flags) {
  const dir = mkdtempSync(join(tmpdir(), "bartleby-console-"));
  execFileSync(join(root, "scripts/node"), ["start", dir, binary, ...flags], { stdio: ["ignore", "inherit", "inherit"] });
  const urls = Object.fromEntries(readFileSync(join(dir, "urls"), "utf8").trim().split("\n").map((l) => l.split("=")));
  const base = `http://${urls.HTTP}`;
  const node = {
    base, amqp: `amqp://console:console@${urls.AMQP}`, connections: [],
    async api(method, path, body, user = "console:console") {
      const answer = await fetch(`${this.base}/api/${path}`, {
        method, body: body === undefined ? undefined : JSON.stringify(body),
        headers: { authorization: "Basic " + Buffer.from(user).toString("base64"), "content-type": "application/json" },
      });
      const text = await answer.text();
      if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
      return text === "" ? undefined : JSON.parse(text);
    },
    crash() { execFileSync(join(root, "scripts/node"), ["crash", dir], { stdio: "inherit" }); },
    restart() { execFileSync(join(root, "scripts/node"), ["restart", dir], { stdio: "inherit" }); },
    async stop() {
      for (const c of this.connections) await c.close().catch(() => {});
      execFileSync(join(root, "scripts/node"), ["stop", dir], { stdio: "inherit" });
      rmSync(dir, { recursive: true, force: true });
    },
    /** connect opens a connection of AMQP 0-9-1. */
    async connect(name, vhost = "%2F") {
      const c = await amqp.connect(`${this.amqp}/${vhost}`, { clientProperties: { connection_name: name, product: "amqplib" } });
      c.on("error", () => {});
      this.connections.push(c);
      return c;
    },
  };
  await node.api("PUT", "users/console", { password: "console", tags: "administrator" }, "guest:guest");
  await node.api("PUT", "permissions/%2F/console", { configure: ".*", write: ".*", read: ".*" }, "guest:guest");
  return node;
}

/** names that a page must survive. */
export const hostile = ['<script>alert("x")</script>', "‮gnp.تجربة", `"><img src=x onerror=alert(1)>`, "long-" + "x".repeat(240), "a/b?c#d%2F e+f", "line\nbreak"];

/** fill makes what a lived-in node has. */
export async function fill(node) {
  await node.api("PUT", "vhosts/shop", { description: "Orders and payments" });
  await node.api("PUT", "permissions/shop/console", { configure: ".*", write: ".*", read: ".*" });
  await node.api("PUT", "users/ada", { password: "ada", tags: "monitoring" });
  await node.api("PUT", "permissions/shop/ada", { configure: "", write: "", read: ".*" });
  await node.api("PUT", "exchanges/%2F/orders", { type: "topic", durable: true });
  await node.api("PUT", "exchanges/%2F/orders.dlx", { type: "fanout", durable: true });
  await node.api("PUT", "queues/%2F/orders", { durable: true, arguments: { "x-dead-letter-exchange": "orders.dlx", "x-dead-letter-routing-key": "failed", "x-message-ttl": 86400000, "x-max-length": 100000 } });
  await node.api("PUT", "queues/%2F/orders.dead", { durable: true, arguments: {} });
  await node.api("PUT", "queues/%2F/payments", { durable: true, arguments: { "x-queue-type": "quorum", "x-dead-letter-exchange": "orders.dlx", "x-delivery-limit": 5 } });
  await node.api("PUT", "queues/%2F/priority", { durable: true, arguments: { "x-max-priority": 9 } });
  await node.api("POST", "bindings/%2F/e/orders/q/orders", { routing_key: "order.#", arguments: {} });
  await node.api("POST", "bindings/%2F/e/orders/q/payments", { routing_key: "payment.#", arguments: {} });
  await node.api("POST", "bindings/%2F/e/orders.dlx/q/orders.dead", { routing_key: "", arguments: {} });
  await node.api("PUT", "policies/%2F/limits", { pattern: "^prio", definition: { "max-length": 5000 }, "apply-to": "queues", priority: 1 });
  for (const name of hostile) {
    const q = encodeURIComponent(name);
    await node.api("PUT", `queues/%2F/${q}`, { durable: true, arguments: {} });
    await node.api("PUT", `exchanges/%2F/${q}`, { type: "direct", durable: true });
    await node.api("POST", `bindings/%2F/e/${q}/q/${q}`, { routing_key: name, arguments: { [name.slice(0, 100)]: name.slice(0, 100) } });
  }
  const c = await node.connect("order-service"), ch = await c.createConfirmChannel();
  for (let i = 0; i < 300; i++) ch.publish("orders", i % 3 ? `order.created` : "payment.due", Buffer.from(JSON.stringify({ order: 1000 + i, items: [{ sku: "chair", price: i % 7 ? 120 : null }] })), {
    persistent: true, messageId: `m-${i}`, type: i % 3 ? "OrderCreated" : "PaymentDue", contentType: "application/json", headers: { tenant: i % 2 ? "north" : "south" },
  });
  await ch.waitForConfirms();
  await ch.prefetch(20);
  // Consumers park what fails, with its cause, as Spring's recoverer does; others reject.
  const errors = [["java.lang.NullPointerException", (i) => `price of item ${i} is null`], ["PaymentTimeout", (i) => `payment service did not answer within ${3000 + i} ms`], [hostile[0], () => hostile[1]]];
  let died = 0;
  await ch.consume("orders", (m) => {
    if (died >= 120) return;
    const i = died++;
    if (i % 2) { ch.nack(m, false, false); return; }
    const [type, text] = errors[i % 20 === 0 ? 2 : i % 3 ? 0 : 1];
    ch.publish("orders.dlx", "failed", m.content, { ...m.properties, persistent: true, headers: { ...m.properties.headers, "x-exception-message": text(i), "x-exception-stacktrace": `${type}: ${text(i)}\n\tat shop.Orders.place(Orders.java:112)`, "x-original-exchange": "orders", "x-original-routingKey": m.fields.routingKey } });
    ch.ack(m);
  }, { noAck: false });
  while (died < 120) await new Promise((f) => setTimeout(f, 20));
  await ch.waitForConfirms();
  await ch.consume("payments", () => {}, { consumerTag: "payment-worker-1" });
  const odd = await node.connect(hostile[0]);
  await odd.createChannel();
}

export async function openBrowser() {
  return chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });
}

/** openPage opens a page that notes what must not happen: requests to elsewhere, violations of the policy, errors. */
export async function openPage(browser, node, options = {}) {
  const context = await browser.newContext({ bypassCSP: false, viewport: { width: 1360, height: 900 }, reducedMotion: "reduce", ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(10000);
  page.faults = [];
  page.on("request", (r) => { if (!r.url().startsWith(node.base) && !r.url().startsWith("data:")) page.faults.push(`a request to ${r.url()}`); });
  page.on("pageerror", (e) => page.faults.push(`an error: ${e.stack}`));
  page.on("console", (m) => { if (m.type() === "error" && !/status of 4\d\d|status of 503|ERR_CONNECTION/.test(m.text())) page.faults.push(`the console says: ${m.text()}`); });
  page.on("dialog", (d) => { page.faults.push(`a script's dialog: ${d.message()}`); void d.dismiss(); });
  await page.addInitScript(() => document.addEventListener("securitypolicyviolation", (e) => console.error(`policy violated: ${e.violatedDirective} ${e.blockedURI} ${e.sourceFile}:${e.lineNumber}`)));
  return page;
}

export async function signIn(page, node, user = "console", password = user) {
  await page.goto(node.base + "/");
  await page.getByLabel("User name").fill(user);
  await page.getByLabel("Password").fill(password);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.locator("nav.nav").waitFor({ state: "attached" });
}

/** visit opens a page of the console and waits until it has its data. */
export async function visit(page, hash) {
  await page.evaluate((h) => { // another page has another heading
    const path = (s) => s.split("?")[0].replace(/^#?\/?/, "");
    if (path(location.hash) !== path(h)) document.querySelector("h1")?.setAttribute("data-left", "");
    location.hash = h;
  }, hash);
  await page.waitForFunction(() => !document.querySelector(".spin") && document.querySelector("h1:not([data-left])"), undefined, { timeout: 15000 });
  await page.waitForTimeout(250); // charts draw in the next frame
}
