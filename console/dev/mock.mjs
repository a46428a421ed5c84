// A stand-in for the office while it is built: a proxy in front of a node that answers /api/office by the contract in
// docs/internals/office.md, with letters that it makes up, or only what the node does not have of it (made). It is not part of the console.
import http from "node:http";

const minute = 60_000;
const kinds = [
  ["orders", "rejected", "java.lang.NullPointerException", "price of item <n> is null", "OrderCreated", 21000],
  ["payments", "delivery_limit", "PaymentTimeout", "payment service did not answer within <n> ms", "PaymentDue", 9800],
  ["orders", "expired", "", "", "OrderCreated", 6200],
  ["invoices", "rejected", "ValidationError", "field <s> is missing", "InvoiceIssued", 2400],
  ["mail", "maxlen", "", "", "", 480],
  ["orders", "rejected", "org.postgresql.util.PSQLException", "ERROR: duplicate key value violates unique constraint <s>", "OrderCreated", 90],
  ["payments", "rejected", '<script>alert("x")</script>', "‮gnp.exe </td><b>bold</b>", "", 30],
];

export function mock(target, made = ["queues", "groups", "letters", "jobs"]) {
  const now = Date.now();
  const groups = kinds.map(([source, reason, error_class, error, type, letters], i) => ({
    id: `g${i}`, vhost: "/", source, reason, error_class, error, type, letters, first_ms: now - (i + 1) * 97 * minute, last_ms: now - i * 3 * minute,
    arrivals: { from_ms: now - 60 * minute, step_ms: minute, counts: Array.from({ length: 60 }, (_, m) => Math.round(Math.max(0, Math.sin(m / (5 + i))) * letters / 40)) },
    queues: i === 1 ? [{ name: "orders.dead", letters: 9000 }, { name: "parking", letters: 800 }] : [{ name: "orders.dead", letters }], sample: { queue: "orders.dead", id: "1a.7" }, state: i === 3 ? "triaged" : "new", owner: i === 3 ? "ada" : "", note: i === 3 ? "SHOP-1412" : "",
  }));
  const row = (i) => { const g = groups[i % groups.length]; return {
    id: `1a.${i.toString(36)}`, vhost: "/", queue: "orders.dead", state: i % 17 ? "ready" : "out", died_ms: now - i * 7000, reason: g.reason, source: g.source, times_died: 1 + i % 4, exchange: "orders", routing_keys: ["order.created"],
    error_class: g.error_class, error: g.error.replace("<n>", String(3000 + i)).replace("<s>", '"total"'), type: g.type, message_id: `order-${1000 + i}`, size: 120 + i, priority: 0, redelivered: false, group: g.id, job: null, replays: 0, preview: `{"order":${1000 + i},"items":[{"sku":"chair","price":null}]}`,
  }; };
  const jobs = new Map([[1, { id: 1, action: "replay", vhost: "/", queues: ["orders.dead"], filter: { group: "g0" }, options: { rate: 500 }, state: "halted", why: "6 of the first 10 letters died again within 30 s, more than 20 %.", by: "ada", reason: "price service is back", made_ms: now - 50 * minute, began_ms: now - 50 * minute, planned: 21000, examined: 10, moved: 10, unroutable: 0, refused: 0, no_origin: 0, too_often: 0, gone: 0, outcomes: { waiting: 0, acknowledged: 4, died_again: 6, expired: 0, dropped: 0, removed: 0 } }]]);
  const api = (method, path, q, body) => {
    const [what, ...at] = path.split("/").map(decodeURIComponent);
    if (what === "queues") return [{ vhost: "/", name: "orders.dead", type: "classic", letters: 40000, others: 0, oldest_ms: now - 9 * 60 * minute, arrived: { "5m": 120, "1h": 4100, "24h": 40000 }, sources: ["orders", "payments"], consumers: 0, bytes: 1 << 24, reading: false, read: 40000, total: 40000 }];
    if (what === "groups" && method === "PUT") { Object.assign(groups.find((g) => g.id === at[1]), body); return undefined; }
    if (what === "groups") { const items = groups.filter((g) => !q.get("state") || g.state === q.get("state")); return { items, next: null, total: items.length, letters: items.reduce((n, g) => n + g.letters, 0), reading: false, read: 40000, entries: 40000 }; }
    if (what === "letters" && at.length === 2) { const items = Array.from({ length: 200 }, (_, i) => row(i)).filter((r) => !q.get("group") || r.group === q.get("group")); return { items, next: "c", examined: 200, stopped: "limit" }; }
    if (what === "letters") { const r = row(parseInt(at[2].split(".")[1], 36)); return { ...r, timeline: [
      { queue: r.source, reason: r.reason, count: 3, first_ms: r.died_ms - 5000, last_ms: r.died_ms, exchange: "orders", routing_keys: ["order.created"], expiration_ms: null },
      { queue: "orders.retry", reason: "expired", count: 2, first_ms: r.died_ms - 4000, last_ms: r.died_ms - 2000, exchange: "orders.retry", routing_keys: ["retry"], expiration_ms: 1000 }],
    rejected_by: { consumer_tag: "ctag-7", connection: "order-service", user: "shop" }, cause: { class: r.error_class, error: r.error, detail: "at shop.Prices.of(Prices.java:41)\nat shop.Orders.place(Orders.java:112)", from: "x-exception-* headers (Spring)" },
    properties: { content_type: "application/json", message_id: r.message_id, delivery_mode: 2 }, headers: { tenant: "north", "x-death": [{ queue: r.source, reason: r.reason, count: 3 }] },
    body: { bytes: 61, encoding: "json", text: r.preview, cut: false }, replay: { exchange: "orders", routing_keys: ["order.created"], queues: ["orders"], problem: null } }; }
    if (what === "jobs" && method === "POST" && q.get("dry_run")) { const count = body.ids?.length ?? groups.find((g) => g.id === body.filter?.group)?.letters ?? 40000; return { token: "t", count, routes: [{ exchange: "orders", routing_key: "order.created", queues: ["orders"], letters: count }], unroutable: [{ why: "the exchange invoices does not exist", letters: 3 }], no_origin: 0, too_often: 2, of: 40000 }; }
    if (what === "jobs" && method === "POST" && at.length === 0) { const job = { ...jobs.get(1), id: jobs.size + 1, action: body.action, queues: body.queues, state: "running", why: "", reason: body.reason, by: "console", made_ms: Date.now(), planned: body.count, moved: Math.floor(body.count / 3), outcomes: { waiting: 3, acknowledged: Math.floor(body.count / 3) - 3, died_again: 0, expired: 0, dropped: 0, removed: 0 } }; jobs.set(job.id, job); return job; }
    if (what === "jobs" && method === "POST") { jobs.get(Number(at[0])).state = { pause: "paused", resume: "running", cancel: "cancelled" }[at[1]]; return undefined; }
    if (what === "jobs") return at.length ? jobs.get(Number(at[0])) : [...jobs.values()];
    return undefined;
  };
  return http.createServer((req, res) => {
    const url = new URL(req.url, "http://x");
    if (url.pathname.startsWith("/api/office/") && made.includes(url.pathname.split("/")[3])) {
      let text = "";
      req.on("data", (d) => { text += d; }).on("end", () => {
        const answer = api(req.method, url.pathname.slice("/api/office/".length), url.searchParams, text ? JSON.parse(text) : undefined);
        res.writeHead(answer === undefined ? 204 : 200, { "content-type": "application/json" }).end(answer === undefined ? "" : JSON.stringify(answer));
      });
      return;
    }
    req.pipe(http.request(target + req.url, { method: req.method, headers: req.headers }, (answer) => { res.writeHead(answer.statusCode, answer.headers); answer.pipe(res); }).on("error", () => res.destroy()));
  });
}
