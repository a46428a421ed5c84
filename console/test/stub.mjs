// Answers of the office for what a test wants to see, by the contract in docs/internals/office.md: the browser gets them in place
// of the node's. What a test does not stub is the node's own.
import { hostile } from "./harness.mjs";

const minute = 60_000, hour = 60 * minute, now = Date.now();

const drop = (id, queue, why, reason, count, ago, more = {}) => ({ vhost: "/", id, queue, reason, why, first_ms: now - ago - 40_000, last_ms: now - ago, count, exchange: "orders", routing_keys: ["order.created"], message_id: `order-${1000 + id}`, type: "OrderCreated", bytes: 900 + id, example: true, ...more });

/** answers are whole and lived-in; each is a list of what the pages show. */
export const answers = {
  drops: {
    items: [
      drop(9, "orders", "dlx_missing", "rejected", 4120, 2 * minute), drop(8, "orders.dead", "no_dlx", "maxlen", 17, 9 * minute), drop(7, "payments", "no_route", "delivery_limit", 3, 31 * minute, { type: "PaymentDue" }),
      drop(6, undefined, "unroutable", undefined, 88, 2 * hour, { exchange: "audit" }), drop(5, "invoices", "cycle", "expired", 240, 3 * hour), drop(4, "mail", "target_refused", "expired", 12, 5 * hour),
      drop(3, hostile[0], "no_dlx", "expired", 1, 6 * hour, { type: hostile[2], exchange: hostile[1], routing_keys: [hostile[3], hostile[5]] }), drop(2, "secret", "no_dlx", "rejected", 2, 7 * hour, { exchange: "", routing_keys: undefined, message_id: undefined, type: undefined, bytes: undefined, example: false }),
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
  rules: { rules: [
    { name: "payment timeouts", on: true, queues: "^payments\\.dead$", match: { class: "PaymentTimeout", died: "<6" }, action: "retry", after_ms: 30_000, factor: 2, max_ms: hour, jitter_percent: 10, max_times: 5, last: true, acted: 1204, waiting: 37, last_ms: now - 3 * minute },
    { name: "not our tenants", on: true, queues: "", match: { where: ["header.tenant=south"] }, action: "send", to_queue: "south.dead", last: true, acted: 88, waiting: 0, last_ms: now - 5 * hour },
    { name: hostile[0], on: false, queues: hostile[2].replace(/[?]/g, ""), match: { error: hostile[1] }, action: "discard", last: false, acted: 0, waiting: 0, last_ms: null },
    { name: "tell the night shift", on: true, queues: "^orders", match: { reason: "delivery_limit" }, action: "webhook", webhook: "pager", last: false, acted: 3, waiting: 0, last_ms: now - 40 * hour },
  ] },
  "POST rules": { examined: 40000, matched: 1204, by_queue: [{ queue: "orders.dead", letters: 1200 }, { queue: hostile[0], letters: 4 }], first: [
    { id: "1a.7", vhost: "/", queue: "orders.dead", state: "ready", died_ms: now, reason: "rejected", source: "orders", times_died: 2, exchange: "orders", routing_keys: ["order.created"], error_class: "PaymentTimeout", error: hostile[0], type: "", message_id: "m-1", size: 900, group: "g", job: null, replays: 0, preview: "{}" } ] },
};

/** parts are the paths below /api/office that each answer is for, also with a virtual host behind them. */
const answerOf = (given, method, path) => {
  const [what] = path.split("/");
  const v = given[`${method} ${path}`] ?? given[`${method} ${what}`] ?? (method === "GET" ? given[what] : undefined);
  return v;
};

/**
 * stub answers requests of a page below /api/office from given: by "METHOD what/vhost", "METHOD what", or what alone for a GET. A value is JSON,
 * a function of the request ({ method, path, query, body }) that returns JSON, or { status, error, reason }. It returns the list of what was asked.
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
    const ask = { method, path: path.split("/").map(decodeURIComponent), query: url.searchParams, body };
    asked.push(ask);
    if (typeof v === "function") v = await v(ask);
    if (v === null) return route.fulfill({ status: 204 });
    const status = typeof v?.status === "number" && v.reason ? v.status : 200;
    return route.fulfill({ status, contentType: "application/json", body: JSON.stringify(status === 200 ? v : { error: v.error ?? "bad_request", reason: v.reason }) });
  });
  return asked;
}
