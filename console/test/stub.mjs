// Answers of the office for what a test wants to see, by the contract in docs/internals/office.md: the browser gets them in place
// of the node's. What a test does not stub is the node's own.
import { hostile } from "./harness.mjs";

const minute = 60_000, hour = 60 * minute, now = Date.now();

const drop = (id, queue, why, reason, count, ago, more = {}) => ({ vhost: "/", id, queue, reason, why, first_ms: now - ago - 40_000, last_ms: now - ago, count, exchange: "orders", routing_keys: ["order.created"], message_id: `order-${1000 + id}`, type: "OrderCreated", bytes: 900 + id, example: true, ...more });

const node = (name, kind, letters = null, messages = null, missing = false) => ({ name, kind, letters, messages, missing });
/** edge names an exchange with "x " in front; from one it is a binding. */
export const edge = (from, to, key, more = {}) => {
  const end = (name) => name.startsWith("x ") ? [name.slice(2), "exchange"] : [name, "queue"];
  const [f, fk] = end(from), [t, tk] = end(to);
  return { from: f, from_kind: fk, to: t, to_kind: tk, kind: fk === "queue" ? "dead-letter" : "binding", key, from_arguments: fk === "queue", from_policy: "", loop: false, problem: "", ...more };
};

/** answers are whole and lived-in; each is a list of what the pages show. */
export const answers = {
  drops: {
    items: [
      drop(9, "orders", "dlx_missing", "rejected", 4120, 2 * minute), drop(8, "orders.dead", "no_dlx", "maxlen", 17, 9 * minute), drop(7, "payments", "no_route", "delivery_limit", 3, 31 * minute, { type: "PaymentDue" }),
      drop(6, undefined, "unroutable", undefined, 88, 2 * hour, { exchange: "audit" }), drop(5, "invoices", "cycle", "expired", 240, 3 * hour), drop(4, "mail", "target_refused", "expired", 12, 5 * hour),
      drop(3, hostile[0], "no_dlx", "expired", 1, 6 * hour, { type: hostile[2], exchange: hostile[1], routing_keys: [hostile[3], hostile[5]] }), drop(11, undefined, "unroutable", undefined, 1, 8 * hour, { exchange: "", routing_keys: undefined, message_id: undefined, type: undefined, bytes: undefined, example: false }), drop(2, "secret", "no_dlx", "rejected", 2, 7 * hour, { exchange: "", routing_keys: undefined, message_id: undefined, type: undefined, bytes: undefined, example: false }),
    ],
    total: 214, dropped: 52113, next: "older",
    hours: Array.from({ length: 70 }, (_, i) => ({ hour_ms: Math.floor(now / hour) * hour - i * hour, counts: { no_dlx: 100 + (i * 37) % 60, ...(i % 5 === 0 ? { dlx_missing: 400 } : {}), ...(i % 3 === 0 ? { no_route: 60 } : {}), ...(i % 11 === 0 ? { cycle: 20, unroutable: 9 } : {}) } })),
  },
  retries: [
    { vhost: "/", queue: "payments", waiting: 1840, next_ms: now + 4000, late_ms: 0, due: { from_ms: now, step_ms: 5000, counts: Array.from({ length: 60 }, (_, i) => Math.round(60 * Math.exp(-i / 12))) } },
    { vhost: "/", queue: "orders", waiting: 212, next_ms: now - 95_000, late_ms: 95_000, due: { from_ms: now - 95_000, step_ms: 10_000, counts: Array.from({ length: 60 }, (_, i) => i % 7 === 0 ? 20 : 1) } },
    { vhost: "shop", queue: hostile[0], waiting: 1, next_ms: now + 61 * minute, late_ms: 0, due: null },
    { vhost: "shop", queue: "idle", waiting: 0, next_ms: null, late_ms: 0, due: null },
  ],
  topology: {
    nodes: [
      ...["orders", "payments", "invoices", "payments.retry", "returns", "mail", hostile[0], hostile[3]].map((name, i) => node(name, "queue", null, 120 * i)),
      node("orders.dead", "queue", 40000, 40000), node("audit.dead", "queue", 12, 30), node("mail.dead", "queue", 3, 3), node("orders.dlx", "exchange"), node("retry", "exchange"), node("returns.dxl", "exchange", null, null, true),
    ],
    edges: [
      edge("orders", "x orders.dlx", "failed"), edge("invoices", "x orders.dlx", null, { from_arguments: false, from_policy: "dlx" }), edge("x orders.dlx", "orders.dead", ""), edge("x orders.dlx", "audit.dead", ""),
      edge("payments", "x retry", "wait", { loop: true }), edge("x retry", "payments.retry", "wait", { loop: true }), edge("payments.retry", "payments", "payments", { loop: true }),
      edge("returns", "x returns.dxl", null, { problem: "the exchange does not exist" }), edge("mail", "mail.dead", "mail.dead"),
      edge(hostile[0], "x orders.dlx", hostile[1], { from_arguments: false, from_policy: hostile[2] }), edge(hostile[3], "orders.dead", "orders.dead"),
    ],
    left_out: 0,
  },
  letters: {
    id: "1a.7", vhost: "/", queue: "orders.dead", state: "ready", died_ms: now - 7 * minute, reason: "rejected", source: "orders", times_died: 3, exchange: "orders", routing_keys: ["order.created"], error_class: "java.lang.NullPointerException", error: "price of item 3 is null", type: "OrderCreated",
    message_id: "order-1007", size: 122, priority: 0, redelivered: false, group: "g0", job: null, replays: 0, preview: "{}",
    timeline: [{ queue: "orders", reason: "rejected", count: 3, first_ms: now - 9 * minute, last_ms: now - 7 * minute, exchange: "orders", routing_keys: ["order.created"], expiration_ms: null }],
    rejected_by: { consumer_tag: hostile[2], connection: "10.0.0.7:51000 -> 10.0.0.1:5672", connection_name: "order-service", peer: "10.0.0.7:51000", user: "shop", product: "spring-amqp", version: "4.0.1", delivery_count: 2 },
    cause: { class: "java.lang.NullPointerException", error: "price of item 3 is null", detail: "at shop.Orders.place(Orders.java:112)", from: "settle" },
    properties: { content_type: "application/json", message_id: "order-1007", delivery_mode: 2, type: "OrderCreated" }, headers: { tenant: "north", attempt: 3, tags: ["a", hostile[0]], authorization: "•••", "x-death": [{ queue: "orders", reason: "rejected", count: 3 }], "x-first-death-queue": "orders" },
    body: { bytes: 61, encoding: "json", text: '{"order":1007,"items":[{"sku":"chair","price":null}]}', cut: false }, replay: { exchange: "orders", routing_keys: ["order.created"], queues: ["orders"], problem: null }, masked: true,
  },
  webhooks: [
    { name: "pager", url: "https://pager.example.com/hooks/1", events: ["letter.group.created", "job.*"], vhost: "", on: true, delivered: 1204, failed: 0, waiting: 0, last_error: "" },
    { name: "chat", url: "https://chat.example.com/" + "x".repeat(120), events: ["drop.recorded", "job.halted"], vhost: "shop", on: true, delivered: 12, failed: 3, waiting: 7, last_error: "503 Service Unavailable: <b>down</b>" },
    { name: hostile[0], url: "http://127.0.0.1:9/x", events: ["breaker.*"], vhost: "/", on: false, delivered: 0, failed: 0, waiting: 0, last_error: "" },
  ],
  masks: { headers: ["authorization", hostile[0]], paths: ["$.card.number", "$..iban"], patterns: [String.raw`\b\d{16}\b`] },
  lint: [
    { vhost: "/", kind: "queue", name: "orders", rule: "dlx-missing", severity: "error", text: "its dead-letter exchange 'orders.dxl' does not exist, so what dies is dropped", mend: "declare the exchange, or correct x-dead-letter-exchange" },
    { vhost: "/", kind: "queue", name: "payments", rule: "loop", severity: "error", text: "dead letters come round: payments, payments.retry, payments", mend: "send those that expire in payments.retry elsewhere, or let a consumer reject" },
    { vhost: "/", kind: "policy", name: "limits", rule: "policy-matches-nothing", severity: "warning", text: "no queue has a name like '^prio$'", mend: "correct the pattern, or delete the policy" },
    { vhost: "/", kind: "queue", name: "orders.dead", rule: "target-shorter", severity: "warning", text: "it holds 1000 messages, and 'orders', whose dead letters come here, any number: when it is full the oldest are dropped", mend: "raise its limit" },
    { vhost: "/", kind: "exchange", name: hostile[0], rule: "dlx-unbound", severity: "warning", text: `nothing is bound to '${hostile[0]}'`, mend: "bind a queue" },
    { vhost: "shop", kind: "queue", name: hostile[3], rule: "ttl-unseen", severity: "hint", text: "messages vanish after 60000 ms, and nobody sees which", mend: "give it a dead-letter exchange, if they matter" },
    { vhost: "shop", kind: "vhost", name: "shop", rule: "incomplete", severity: "hint", text: "there are more findings than are shown", mend: "" },
  ],
  audit: { next: "older", items: [
    { id: 9, time_ms: now - 2 * minute, who: "ada", peer: "192.0.2.7:51123", what: "job.made", vhost: "/", object: "12", why: "price service is back", count: 21000, detail: "replay from orders.dead, group 2wkt", times: 1, last_ms: now - 2 * minute },
    { id: 8, time_ms: now - 9 * minute, who: "console", peer: "192.0.2.9:40000", what: "letter.revealed", vhost: "/", object: "orders.dead 1a.7", why: "", count: 1, detail: "headers authorization", times: 4, last_ms: now - 8 * minute },
    { id: 7, time_ms: now - hour, who: "", peer: "", what: "breaker.opened", vhost: "/", object: "payments", why: "62 of 180 deliveries died within 1 min", count: 62, detail: "" },
    { id: 6, time_ms: now - 5 * hour, who: hostile[0], peer: "local", what: "rules.set", vhost: "shop", object: hostile[1], why: hostile[2], count: 3, detail: hostile[3] + hostile[5] },
    { id: 5, time_ms: now - 50 * hour, who: "ada", peer: "192.0.2.7:51123", what: "group.noted", vhost: "/", object: "2wkt", why: "SHOP-1412", count: 0, detail: "state triaged, owner ada" },
  ] },
  rules: { rules: [
    { name: "payment timeouts", on: true, queues: "^payments\\.dead$", match: { class: "PaymentTimeout", died: "<6" }, action: "retry", after_ms: 30_000, factor: 2, max_ms: hour, jitter_percent: 10, max_times: 5, last: true, acted: 1204, waiting: 37, last_ms: now - 3 * minute },
    { name: "not our tenants", on: true, queues: "", match: { where: ["header.tenant=south"] }, action: "send", to_queue: "south.dead", last: true, acted: 88, waiting: 0, last_ms: now - 5 * hour },
    { name: hostile[0], on: false, queues: hostile[2].replace(/[?]/g, ""), match: { error: hostile[1] }, action: "discard", last: false, acted: 0, waiting: 0, last_ms: null },
    { name: "tell the night shift", on: true, queues: "^orders", match: { reason: "delivery_limit" }, action: "webhook", webhook: "pager", last: false, acted: 3, waiting: 0, last_ms: now - 40 * hour },
  ] },
  "POST rules": { examined: 40000, matched: 1204, by_queue: [{ queue: "orders.dead", letters: 1200 }, { queue: hostile[0], letters: 4 }], first: [
    { id: "1a.7", vhost: "/", queue: "orders.dead", state: "ready", died_ms: now, reason: "rejected", source: "orders", times_died: 2, exchange: "orders", routing_keys: ["order.created"], error_class: "PaymentTimeout", error: hostile[0], type: "", message_id: "m-1", size: 900, group: "g", job: null, replays: 0, preview: "{}" } ] },
};

/** answerOf chooses by method and path, then by method and first part of the path; for a GET the first part alone will do. */
function answerOf(given, method, path) {
  const [what] = path.split("/");
  for (const key of [`${method} ${path}`, `${method} ${what}`, ...(method === "GET" ? [what] : [])]) if (key in given) return given[key];
  return undefined;
}

/**
 * stub answers requests of a page below /api/office from given: by "METHOD what/vhost", "METHOD what", or what alone for a GET. A value is JSON,
 * a function of the request ({ method, path, query, headers, body }) that returns JSON, or { status, error, reason }. It returns the list of what was asked.
 */
export async function stub(page, given) {
  const asked = [];
  await page.route(/\/api\/office\//, async (route) => {
    const request = route.request(), url = new URL(request.url());
    const path = url.pathname.slice("/api/office/".length), method = request.method();
    let v = answerOf(given, method, path);
    if (v === undefined) return route.fallback();
    const text = request.postData();
    let body = text ?? undefined;
    try { body = text ? JSON.parse(text) : undefined; } catch { /* lines */ }
    const ask = { method, path: path.split("/").map(decodeURIComponent), query: url.searchParams, headers: request.headers(), body };
    asked.push(ask);
    if (typeof v === "function") v = await v(ask);
    if (v === null) return route.fulfill({ status: 204 });
    const status = typeof v?.status === "number" && v.reason ? v.status : 200;
    return route.fulfill({ status, contentType: "application/json", body: JSON.stringify(status === 200 ? v : { error: v.error ?? "bad_request", reason: v.reason }) });
  });
  return asked;
}
