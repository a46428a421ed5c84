// The pages of the office that came second: with data, empty, failing, with wrong input, by keyboard, with hostile names.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { after, before, test } from "node:test";
import { fill, hostile, openBrowser, openPage, signIn, startNode, visit } from "./harness.mjs";
import { until } from "./scene.mjs";
import { answers, edge, stub } from "./stub.mjs";

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

const pages = { "#/drops": answers, "#/retries": answers, "#/rules/%2F": answers, "#/lint": answers, "#/audit": answers, "#/map/%2F": answers, "#/webhooks": answers, "#/masks/%2F": answers, "#/letters/%2F/orders.dead/1a.7": answers, "#/queues/%2F/orders?change=1": answers, "#/map/%2F?view=table": answers };
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
    await page.getByText("(default exchange)").waitFor(); // which is all that is kept of what was published to nowhere
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
    await until("the drops of one kind are asked for", () => asked.at(-1).query.get("why") === "dlx_missing", 5000);
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

/** keeper is an office that keeps rules as a node does, with a revision that a change must name. */
function keeper(first) {
  const kept = { rules: structuredClone(first), threshold: 1000, revision: "r1" };
  const set = (change) => { Object.assign(kept, change); kept.revision = `r${Number(kept.revision.slice(1)) + 1}`; return null; };
  const put = ({ body, headers }) => headers["if-match"] === `"${kept.revision}"` ? set(body) : { status: 412, error: "precondition_failed", reason: "the rules of virtual host '/' were changed since you read them" };
  return { kept, set, given: { ...answers, "GET rules": () => kept, "PUT rules": put } };
}

test("rules: put in order by keyboard, and in force only when the order is saved", async () => {
  const { kept, given } = keeper(answers.rules.rules);
  await at("#/rules/%2F", given, async (page) => {
    await page.getByText("retry after 30 s, then twice as long each time, 1 h at most, give or take 10 %, 5 times at most").waitFor();
    await page.getByText("37 letters wait to be due").waitFor();
    await page.getByRole("button", { name: "Move not our tenants up" }).focus();
    await page.keyboard.press("Enter");
    await page.getByRole("status").getByText("not our tenants is now number 1 of 4.").waitFor();
    assert.equal(await page.evaluate(() => document.activeElement.getAttribute("aria-label")), "Move not our tenants down"); // it is the first now
    assert.equal(kept.rules[0].name, "payment timeouts");
    await page.getByRole("button", { name: "Undo" }).click();
    assert.match(await page.locator("ol.rules > li").first().innerText(), /payment timeouts/);
    await page.getByRole("button", { name: "Move payment timeouts down" }).press("Enter");
    await page.getByRole("button", { name: "Save the order" }).click();
    await page.getByText("The order is saved.").waitFor();
    assert.deepEqual(kept.rules.map((r) => r.name).slice(0, 2), ["not our tenants", "payment timeouts"]);
    assert.ok(!("acted" in kept.rules[0]), "what the node counts is not sent");
  });
});

test("rules: put in order by mouse", async () => {
  const { kept, given } = keeper(answers.rules.rules);
  await at("#/rules/%2F", given, async (page) => {
    await page.locator("li.rule .handle").nth(3).dragTo(page.locator("li.rule").first());
    await page.getByRole("button", { name: "Save the order" }).click();
    await page.getByText("The order is saved.").waitFor();
    assert.equal(kept.rules[0].name, "tell the night shift");
  });
});

test("rules: one is entered, with what is wrong by field, and tried before it is on", async () => {
  const { kept, given } = keeper([]);
  await at("#/rules/%2F", given, async (page, asked, dialog) => {
    await page.getByText("There are no rules").waitFor();
    await page.getByRole("button", { name: "Add a rule" }).first().click();
    await dialog.getByText("1,204 letters").first().waitFor();
    await dialog.getByText("It waits 30 s, 1 min, 2 min, 4 min, 8 min.").waitFor();
    await dialog.getByRole("button", { name: "Save, off" }).click();
    await dialog.getByText("Enter a name.").first().waitFor();
    assert.ok(await dialog.getByLabel("Name", { exact: true }).evaluate((f) => f === document.activeElement && f.getBoundingClientRect().top > 0), "the wrong field has the focus, in view");
    await dialog.getByLabel("Name", { exact: true }).fill("timeouts");
    assert.equal(await dialog.getByText("Enter a name.").count(), 0);
    await dialog.getByLabel("Queues with letters").fill("^(orders");
    await dialog.getByText(/Unterminated group/).first().waitFor();
    await dialog.getByLabel("Queues with letters").fill("^orders");
    await dialog.getByLabel("First wait").fill("soon");
    await dialog.getByText("The first wait must be a time such as 30s").first().waitFor();
    await dialog.getByLabel("First wait").fill("2h");
    await dialog.getByText("The longest wait is shorter than the first.").waitFor();
    await dialog.getByLabel("First wait").fill("1m 30s");
    await dialog.getByLabel("Times at most").fill("");
    await dialog.getByText("It waits 1 min 30 s, 3 min, 6 min.").waitFor();
    assert.equal(await dialog.getByText("empty: 3").count(), 1);
    await dialog.getByLabel("Times at most").fill("3");
    await dialog.getByLabel("Times died").fill("often");
    await dialog.getByText("Times died must be a number or a bound").first().waitFor();
    await dialog.getByLabel("Times died").fill("<4");
    await dialog.getByLabel("Error class").fill("PaymentTimeout");
    await dialog.getByRole("checkbox", { name: /^On/ }).check();
    await dialog.getByRole("button", { name: "Save, on for 1,204 letters" }).click();
    await page.getByText("The rule timeouts is saved, and on.").waitFor();
    assert.deepEqual(kept.rules, [{ name: "timeouts", on: true, queues: "^orders", match: { class: "PaymentTimeout", died: "<4" }, action: "retry", after_ms: 90000, factor: 2, max_ms: 3600000, jitter_percent: 10, max_times: 3 }]);
    assert.deepEqual(asked.filter((a) => a.method === "POST").at(-1).path, ["rules", "/", "try"]);
  });
});

test("rules: turned on with the count, turned off, deleted; what another has changed meanwhile is not lost", async () => {
  const { kept, set, given } = keeper(answers.rules.rules);
  await at("#/rules/%2F", given, async (page, asked, dialog) => {
    await page.getByRole("button", { name: `Turn on… ${hostile[0]}` }).click();
    await dialog.getByRole("button", { name: "Turn on for 1,204 letters" }).click();
    await page.getByText(`The rule ${hostile[0]} is on.`).waitFor();
    assert.equal(kept.rules[2].on, true);
    await page.getByRole("button", { name: "Turn off payment timeouts" }).click();
    await page.getByText("The rule payment timeouts is off.").waitFor();
    await page.getByRole("button", { name: "Turn on… payment timeouts" }).waitFor();
    await page.getByRole("button", { name: "Delete not our tenants" }).click();
    set({ rules: [{ name: "another's", on: false, queues: "", match: {}, action: "hold" }, ...kept.rules] });
    await dialog.getByRole("button", { name: "Delete rule" }).click();
    await dialog.getByText("Somebody else has changed the rules").waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Edit… another's" }).waitFor();
    await page.getByRole("button", { name: "Delete not our tenants" }).click();
    await dialog.getByRole("button", { name: "Delete rule" }).click();
    await page.getByText("The rule not our tenants is deleted.").waitFor();
    assert.deepEqual(kept.rules.map((r) => r.name), ["another's", "payment timeouts", hostile[0], "tell the night shift"]);
  });
});

test("rules: a form that was open while another changed its rule does not undo that", async () => {
  const { kept, set, given } = keeper(answers.rules.rules);
  await at("#/rules/%2F", given, async (page, asked, dialog) => {
    await page.getByRole("button", { name: "Edit… not our tenants" }).click();
    set({ rules: kept.rules.map((r) => r.name === "not our tenants" ? { ...r, to_queue: "elsewhere" } : r) });
    await page.getByText("send to the queue elsewhere").waitFor(); // the page behind the form is asked for again and again
    await dialog.getByRole("checkbox", { name: /^On/ }).uncheck();
    await dialog.getByRole("button", { name: "Save, off" }).click();
    await dialog.getByText("Somebody else has changed the rules").waitFor();
    assert.equal(kept.rules[1].to_queue, "elsewhere");
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Edit… not our tenants" }).click();
    await dialog.getByRole("checkbox", { name: /^On/ }).uncheck();
    await dialog.getByRole("button", { name: "Save, off" }).click();
    await page.getByText("The rule not our tenants is saved, and off.").waitFor();
    assert.deepEqual([kept.rules[1].to_queue, kept.rules[1].on], ["elsewhere", false]);
  });
});

test("rules: the threshold is shown and set, none too, and not what another has set meanwhile", async () => {
  const { kept, set, given } = keeper(answers.rules.rules);
  await at("#/rules/%2F", given, async (page) => {
    await page.getByText("holds 1,000 messages").waitFor();
    const save = page.getByRole("button", { name: "Save the threshold" });
    assert.ok(await save.isDisabled());
    await page.getByLabel("Messages").fill("many");
    await save.click();
    await page.getByText("The threshold must be a whole number").waitFor();
    await page.getByLabel("Messages").fill("50");
    set({ threshold: 60 });
    await save.click();
    await page.getByText("Somebody else has changed the rules").waitFor();
    assert.equal(kept.threshold, 60);
    await page.getByText("holds 60 messages").waitFor();
    await save.click();
    await page.getByText("An event tells of a queue from 50 messages on.").waitFor();
    assert.deepEqual([kept.threshold, kept.rules.length], [50, 4]);
    await page.getByText("holds 50 messages").waitFor(); // the page is made anew with it
    await page.getByLabel("Messages").fill("");
    await save.click();
    await page.getByText("No event tells that a queue gets full").waitFor();
    assert.equal(kept.threshold, 0);
  });
});

test("a job is planned for later, staggered, in the order of a header", async () => {
  const jobs = [];
  const plan = { token: "t", count: 3, routes: [], unroutable: [], no_origin: 0, too_often: 0, of: 3 };
  const given = { "POST jobs": ({ query, body }) => { if (query.get("dry_run")) return plan; jobs.push(body); return { id: "9", state: "planned" }; } };
  await at("#/letters/%2F?queue=orders.dead", given, async (page, asked, dialog) => {
    await page.getByRole("button", { name: "Replay…" }).click();
    await dialog.getByText("Order, limit and time").click();
    await dialog.getByLabel("Order", { exact: true }).selectOption("by a header, highest first");
    await dialog.getByText("Enter the header whose value says the order.").waitFor();
    await dialog.getByLabel("Header", { exact: true }).fill("attempt");
    await dialog.getByLabel("Rate").fill("5");
    await dialog.getByLabel("Apart").fill("soon");
    await dialog.getByText("The time between two letters must be a time").waitFor();
    await dialog.getByLabel("Apart").fill("1.5s");
    await dialog.getByText("either a rate or a time between letters").waitFor();
    await dialog.getByLabel("Rate").fill("");
    await dialog.getByLabel("Begin at").fill("2020-01-01T03:00");
    await dialog.getByText("must begin in the future").waitFor();
    await dialog.getByLabel("Begin at").fill("2099-01-02T03:04");
    await dialog.getByLabel("Reason").fill("at night");
    await dialog.getByRole("button", { name: "Replay 3 letters" }).click();
    await page.getByText("1 job will begin").waitFor();
    const at = await page.evaluate(() => new Date(2099, 0, 2, 3, 4).getTime()); // the reader's zone
    const [{ order, order_by, stagger_ms, schedule_ms, rate }] = jobs;
    assert.deepEqual([order, order_by, stagger_ms, schedule_ms, rate], ["newest", "header.attempt", 1500, at, undefined]);
    const { token, count, reason, ...planned } = jobs[0];
    assert.deepEqual(asked.filter((a) => a.query.get("dry_run")).at(-1).body, planned, "what was counted is what is begun");
  });
});

test("lists show what masks hide to who has the tag and asks, visibly, and not before", async () => {
  const hidden = (asked) => asked.query.get("reveal") === "true" ? "card 4111 refused" : "card ••• refused";
  const given = {
    groups: (a) => ({ items: [{ id: "g1", vhost: "/", source: "orders", reason: "rejected", error_class: "Refused", error: hidden(a), type: "", letters: 3, first_ms: 1, last_ms: 2, arrivals: null, queues: [{ name: "orders.dead", letters: 3 }], sample: null, state: "new", masked: true }], next: null, total: 1, letters: 3, reading: false, read: 3, entries: 3 }),
    letters: (a) => ({ items: [{ ...answers["POST rules"].first[0], error: hidden(a) }], next: null, examined: 1, stopped: null }),
    "POST jobs": { token: "t", count: 3, routes: [], unroutable: [], no_origin: 0, too_often: 0, of: 3 },
  };
  const show = { name: /^Show what masks hide/ };
  await at("#/inbox", given, async (page, asked) => {
    await page.getByText("card ••• refused").first().waitFor();
    assert.equal(await page.getByRole("checkbox", show).count(), 0, "who has not the tag is offered it");
  });
  await node.api("PUT", "users/console", { password: "console", tags: "administrator,reveal" }, "guest:guest");
  try {
    for (const hash of ["#/inbox", "#/letters/%2F?queue=orders.dead"]) await at(hash, given, async (page, asked, dialog) => {
      await page.getByText("card ••• refused").first().waitFor();
      assert.equal(asked.filter((a) => a.query.get("reveal")).length, 0, "it is on before anybody asks");
      await page.getByRole("checkbox", show).check();
      await page.getByText("card 4111 refused").first().waitFor();
      await page.getByText("The audit has recorded that you asked").waitFor();
      if (hash !== "#/inbox") { // a job of what is shown sees the same letters
        await page.getByRole("button", { name: "Discard…" }).click();
        await dialog.getByRole("button", { name: "Discard 3 letters" }).waitFor();
        assert.equal(asked.at(-1).query.get("reveal"), "true");
        await page.keyboard.press("Escape");
        await dialog.waitFor({ state: "hidden" });
      }
      await page.getByRole("checkbox", show).uncheck();
      await page.getByText("card ••• refused").first().waitFor();
    });
  } finally { await node.api("PUT", "users/console", { password: "console", tags: "administrator" }, "guest:guest"); }
});

test("rules: one that has stopped says why, and what a trial did not take is said", async () => {
  const [first, ...others] = answers.rules.rules;
  await at("#/rules/%2F", { "GET rules": { rules: [{ ...first, state: "stopped", why: "ada may not write to the exchange orders any more", by: "ada", set_ms: 1, job: 12 }, ...others], threshold: 1000 }, "POST rules": { examined: 9, matched: 2, too_often: 3, no_origin: 1, parked: 2, due: 1, by_queue: [], first: [], stopped: "time" } }, async (page, asked, dialog) => {
    await page.getByText("It has stopped: ada may not write to the exchange orders any more.").waitFor();
    await page.getByRole("button", { name: "Edit… payment timeouts" }).click();
    await dialog.getByText("1 of them is due now").waitFor();
    await dialog.getByText("3 letters more would stay: they were sent back too often.").waitFor();
    await dialog.getByText("2 letters more would stay: only a client says where they were first published.").waitFor();
    await dialog.getByText("There are more messages than were looked at").waitFor();
  });
});

test("rules: one takes what clients have parked only if it says so, and keeps that and its bound when others are saved", async () => {
  const send = { name: "move on", on: false, queues: "", match: {}, action: "send", to_exchange: "later", max_times: 7, parked: true };
  const { kept, given } = keeper([{ name: "again", on: false, queues: "", match: {}, action: "retry", after_ms: 60000 }, send]);
  await at("#/rules/%2F", given, async (page, asked, dialog) => {
    await page.getByRole("button", { name: "Edit… again" }).click();
    await dialog.getByRole("checkbox", { name: /^Letters that clients have parked/ }).check();
    await dialog.getByRole("button", { name: "Save, off" }).click();
    await page.getByText("The rule again is saved, and off.").waitFor();
    assert.equal(kept.rules[0].parked, true);
    assert.deepEqual(kept.rules[1], send);
    await page.getByRole("button", { name: "Edit… move on" }).click();
    await dialog.getByRole("button", { name: "Save, off" }).click();
    await page.getByText("The rule move on is saved, and off.").waitFor();
    assert.equal(kept.rules[1].max_times, 7);
    assert.equal(kept.rules[1].parked, true);
    await page.getByRole("button", { name: "Edit… move on" }).click();
    await dialog.getByLabel("Routing key").fill("k");
    assert.equal(await dialog.getByRole("checkbox", { name: /^Letters that clients have parked/ }).count(), 0);
    await dialog.getByRole("button", { name: "Save, off" }).click();
    await page.getByText("The rule move on is saved, and off.").last().waitFor();
    await page.waitForFunction(() => !document.querySelector("dialog[open]"));
    assert.ok(!("parked" in kept.rules[1]), "a rule that says the whole way needs it not");
  });
});

test("jobs: that of a rule names it, and has no end", async () => {
  const job = { id: "7", action: "replay", vhost: "/", queues: [], filter: {}, options: {}, state: "running", by: "ada", reason: "", rule: "payment timeouts", made_ms: 1, planned: 0, examined: 102, moved: 102, unroutable: 0, refused: 0, no_origin: 0, too_often: 0, gone: 0, outcomes: { waiting: 102, acknowledged: 0, died_again: 0, expired: 0, dropped: 0, removed: 0 } };
  await at("#/jobs", { "GET jobs": [job] }, async (page) => {
    await page.getByText("Replay by the rule payment timeouts").first().waitFor();
    await page.getByText("102 so far").waitFor();
    assert.equal(await page.getByText("of 0").count(), 0);
  });
});

test("rules: a node that fails, and one that refuses", async () => {
  await at("#/rules/%2F", { rules: refused }, (page) => page.getByText("Rules cannot be shown").or(page.getByText("The rules cannot be shown")).waitFor());
  await at("#/rules/%2F", { ...answers, "POST rules": { status: 400, error: "bad_request", reason: "where: unknown operator" }, "PUT rules": { status: 400, error: "bad_request", reason: "rule 'x': to_queue 'nowhere' does not exist" } }, async (page, asked, dialog) => {
    await page.getByRole("button", { name: "Edit… not our tenants" }).click();
    await dialog.getByText("It could not be tried").waitFor();
    await dialog.getByRole("checkbox", { name: /^On/ }).uncheck();
    await dialog.getByRole("button", { name: "Save, off" }).click();
    await dialog.getByText("to_queue 'nowhere' does not exist").waitFor();
  });
});

test("lint: findings by severity, each with its mend and the form of its object", async () => {
  await at("#/lint", answers, async (page, asked, dialog) => {
    await page.getByRole("heading", { name: "Errors (2)" }).waitFor();
    await page.getByText("Its dead-letter exchange 'orders.dxl' does not exist, so what dies is dropped.").waitFor();
    await page.getByText("Declare the exchange, or correct x-dead-letter-exchange.").waitFor();
    await page.getByRole("button", { name: "Warnings 3" }).click();
    assert.equal(await page.getByRole("heading", { name: "Errors (2)" }).count(), 0);
    await page.getByLabel("Filter findings").fill("no such finding");
    await page.getByText("No finding matches").waitFor();
    await page.getByRole("button", { name: "Show all" }).click();
    await page.getByText("7 findings").waitFor();
    await page.getByRole("link", { name: "Change the policy limits" }).click();
    await dialog.getByRole("heading", { name: "Policy limits" }).waitFor();
  });
  await at("#/lint", { lint: [] }, (page) => page.getByText("Nothing to mend").waitFor());
  await at("#/lint", { lint: refused }, (page) => page.getByText("The findings cannot be shown").waitFor());
});

test("audit: what the node did to a job has its own reason, not that of who began it", async () => {
  const act = { id: 3, time_ms: Date.now(), who: "", peer: "", what: "job.halted", vhost: "/", object: "2", why: "the price is there again", count: 10, detail: JSON.stringify({ action: "replay", state_why: "none of the first 10 letters was consumed within 30s" }) };
  await at("#/audit", { audit: { items: [act, { ...act, id: 2, what: "job.done", detail: "{}" }, { ...act, id: 1, who: "ada", what: "job.made" }], next: null } }, async (page, asked, dialog) => {
    await page.locator("tr", { hasText: "job.halted" }).getByText("none of the first 10 letters was consumed").waitFor();
    assert.equal(await page.locator("tr", { hasText: "job.halted" }).getByText("the price is there again").count(), 0);
    await page.locator("tr", { hasText: "job.done" }).getByText("begun because: the price is there again").waitFor();
    await page.locator("tr", { hasText: "job.made" }).getByText("the price is there again", { exact: true }).waitFor();
    await page.getByRole("link", { name: "job.halted" }).click();
    assert.match(await dialog.innerText(), /Why\s+none of the first 10[^\n]*\s+The job’s reason\s+the price is there again/);
  });
});

test("with all virtual hosts, pages of one open where the letters are, and lists name it", async () => {
  await node.api("PUT", "queues/shop/orders", { durable: true, arguments: { "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders.dead" } });
  const group = { id: "g1", vhost: "shop", source: "orders", reason: "maxlen", error_class: "", error: "", type: "", letters: 9, first_ms: 1, last_ms: 2, arrivals: null, queues: [{ name: "orders.dead", letters: 9 }], sample: null, state: "new" };
  const parked = { ...group, id: "g2", vhost: "/", source: "", reason: "rejected", error_class: "NoPrice", error: "no price" };
  const given = { "GET groups": { items: [group, parked], next: null, total: 2, letters: 18, reading: false, read: 18, entries: 18 }, "GET jobs": [] };
  await at("#/map", given, async (page) => {
    await page.locator("[data-id]", { hasText: "orders" }).first().waitFor();
    for (const hash of ["#/map", "#/rules", "#/masks"]) {
      await visit(page, hash);
      assert.equal(await page.getByLabel("of virtual host").inputValue(), "shop", hash);
    }
    await visit(page, "#/");
    await page.getByText("9 new dead letters from orders in virtual host shop").waitFor();
    await page.getByText("No cause was given: queue was full").waitFor();
    await visit(page, "#/inbox");
    await page.locator("tr", { hasText: "Queue was full" }).getByTitle("Virtual host shop").waitFor();
    const row = await page.locator("tr", { hasText: "NoPrice" }).innerText();
    assert.ok(row.includes("parked") && row.includes("no queue") && !row.includes("rejected"), row);
    await page.locator("#vhost").selectOption("shop");
    assert.equal(await page.getByTitle("Virtual host shop").count(), 0);
  });
});

test("a group: what all its letters have in common is not told again, and the whole body is seen", async () => {
  const group = { id: "g1", vhost: "/", source: "orders", reason: "rejected", error_class: "java.lang.NullPointerException", error: "price of item # is null", type: "", letters: 2, first_ms: 1, last_ms: 2, arrivals: null, queues: [{ name: "orders.dead", letters: 2 }, { name: "late.dead", letters: 3 }], sample: null, state: "new" };
  const row = { ...answers["POST rules"].first[0], error_class: group.error_class, error: "price of item 3 is null", preview: '{"order": 1239, "item": "chair-1", "price": null}' };
  const given = { groups: { items: [group], next: null, total: 1, letters: 2, reading: false, read: 2, entries: 2 }, letters: { items: [row], next: null, examined: 1, stopped: null } };
  await at("#/letters/%2F?queue=orders.dead&group=g1", given, async (page, asked, dialog) => {
    const text = await page.getByRole("region", { name: "Letters" }).innerText();
    assert.ok(text.includes("price of item 3 is null") && !text.includes("NullPointerException") && !text.includes("rejected"), text);
    assert.ok(await page.locator("td", { hasText: '"price": null' }).evaluate((td) => [td, ...td.children].every((e) => e.scrollWidth <= e.clientWidth)), "the body is cut off");
    assert.ok(await page.getByRole("region", { name: "Letters" }).evaluate((r) => r.scrollWidth <= r.clientWidth), "columns are out of view");
    assert.equal(await page.locator("nav.nav [aria-current]").innerText(), "Inbox");
    await page.getByRole("button", { name: "Export…" }).click();
    await dialog.getByText("The group has letters in late.dead too").waitFor();
  }, { viewport: { width: 1280, height: 800 } });
});

test("a group whose letters have left says which job took them", async () => {
  const job = { id: "7", action: "replay", vhost: "/", queues: ["orders.dead"], filter: { group: ["g1"] }, options: {}, state: "done", by: "ada", reason: "", made_ms: 1, planned: 2, examined: 2, moved: 2, unroutable: 0, refused: 0, no_origin: 0, too_often: 0, gone: 0 };
  const given = { groups: { items: [], next: null, total: 0, letters: 0, reading: false, read: 0, entries: 0 }, letters: { items: [], next: null, examined: 0, stopped: null }, "GET jobs": [job, { ...job, id: "8", filter: { group: ["other"] } }] };
  await at("#/letters/%2F?queue=orders.dead&group=g1", given, async (page) => {
    await page.getByText("No letter of this group is left").waitFor();
    await page.getByRole("link", { name: "job 7" }).waitFor();
    assert.equal(await page.getByText("job 8").count(), 0);
    assert.equal(await page.getByText("Take a part of the filter away").count(), 0);
  });
});

test("the lost and found is named, with why and the way out", async () => {
  await at("#/letters/%2F/bartleby.lost-and-found/1a.7", { letters: { ...answers.letters, queue: "bartleby.lost-and-found", lost: "dlx_missing" } }, async (page) => {
    await page.getByText("The dead-letter exchange of orders does not exist.").waitFor();
    assert.equal(await page.getByRole("link", { name: "Change the queue" }).getAttribute("href"), "#/queues/%2F/orders?change=1");
  });
  const group = { id: "g1", vhost: "/", source: "orders", reason: "rejected", error_class: "", error: "", type: "", letters: 2, first_ms: 1, last_ms: 2, arrivals: null, queues: [{ name: "bartleby.lost-and-found", letters: 2 }], sample: null, state: "new" };
  await at("#/inbox", { "GET groups": { items: [group], next: null, total: 1, letters: 2, reading: false, read: 2, entries: 2 } }, async (page) => {
    await page.getByText("lost and found", { exact: true }).waitFor();
    await visit(page, "#/");
    await page.getByText("In the lost and found, since nothing takes them.").waitFor();
  });
  await at("#/inbox?show=archived", { "GET groups": { items: [], next: null, total: 0, letters: 0, reading: false, read: 0, entries: 0 } }, (page) => page.getByText("Letters that were discarded are something else").waitFor());
});

test("search: queues say what was parked in them, without a stray comma", async () => {
  const queue = { vhost: "/", name: "payments.dead", type: "classic", letters: 3, others: 0, oldest_ms: 1, arrived: { "5m": 0, "1h": 3, "24h": 3 }, sources: ["", "payments"], consumers: 0, bytes: 1, reading: false, read: 3, total: 3 };
  await at("#/letters", { "GET queues": [queue] }, async (page) => {
    await page.getByText("payments, parked", { exact: true }).waitFor();
    assert.ok(await page.getByRole("region", { name: "Queues with letters" }).evaluate((r) => r.scrollWidth <= r.clientWidth), "columns are out of view");
  }, { viewport: { width: 1280, height: 800 } });
});

test("a replay asks for its reason first", async () => {
  const given = { "POST jobs": { token: "t", count: 3, routes: [], unroutable: [], no_origin: 0, too_often: 0, of: 3 } };
  await at("#/letters/%2F?queue=orders.dead", given, async (page, asked, dialog) => {
    await page.getByRole("button", { name: "Replay…" }).click();
    await dialog.getByText("Reason (needed)").waitFor();
    await page.keyboard.type("mended");
    assert.equal(await dialog.getByLabel("Reason").inputValue(), "mended");
  });
});

test("audit: who, what, why and on how many, chosen by kind and by name", async () => {
  const given = { audit: ({ query }) => query.get("cursor") ? { items: [{ ...answers.audit.items[0], id: 1, who: "eve" }], next: null } : query.get("who") === "nobody" ? { items: [], next: null } : answers.audit };
  await at("#/audit", given, async (page, asked, dialog) => {
    await page.getByText("21,000").waitFor();
    await page.getByText("the node", { exact: true }).waitFor();
    await page.getByRole("link", { name: "letter.revealed" }).click();
    await dialog.getByText("4 times").waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("link", { name: "rules.set" }).click();
    await dialog.getByText(hostile[2], { exact: true }).waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Show more" }).click();
    await page.getByText("eve", { exact: true }).waitFor();
    await page.getByLabel("What").selectOption("job*");
    await page.waitForFunction(() => location.hash.includes("what=job*"));
    const kinds = await page.getByLabel("What").locator("option").allTextContents();
    assert.deepEqual(kinds.filter((k, i) => kinds.indexOf(k) !== i), [], "each kind is there once");
    await page.getByLabel("Who").fill("nobody");
    await page.getByLabel("Who").press("Enter");
    await page.getByText("No act matches").waitFor();
    assert.deepEqual([asked.at(-1).query.get("who"), asked.at(-1).query.get("what")], ["nobody", "job*"]);
    await page.getByRole("button", { name: "Clear" }).click();
    await page.getByRole("link", { name: "12", exact: true }).waitFor();
  });
  await at("#/audit", { audit: { items: [], next: null } }, (page) => page.getByText("Nothing was done yet").waitFor());
  await at("#/audit", { audit: refused }, (page) => page.getByText("Acts cannot be shown").waitFor());
});

test("the map: nothing lies on another, loops and what is missing are marked, and arrow keys go along the edges", async () => {
  await at("#/map/%2F", answers, async (page) => {
    await page.getByText("3 edges in loops").waitFor();
    await page.getByText("1 problem").first().waitFor();
    await page.getByRole("group", { name: "exchange returns.dxl, which does not exist" }).waitFor();
    const boxes = await page.locator(".map .node").evaluateAll((list) => list.map((n) => { const b = n.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom, n.title]; }));
    assert.equal(boxes.length, 14);
    for (const [i, a] of boxes.entries()) for (const b of boxes.slice(i + 1)) assert.ok(a[2] <= b[0] || b[2] <= a[0] || a[3] <= b[1] || b[3] <= a[1], `${a[4]} lies on ${b[4]}`);
    assert.equal(await page.locator(".map .key.loop").count(), 3);
    const title = () => page.evaluate(() => document.activeElement.title);
    await page.locator('.map .node[title="orders"]').focus();
    await page.keyboard.press("ArrowRight");
    assert.equal(await title(), "orders.dlx");
    await page.keyboard.press("ArrowRight");
    assert.match(await title(), /^(orders|audit)\.dead$/);
    await page.keyboard.press("ArrowLeft");
    await page.keyboard.press("ArrowLeft");
    assert.ok(["orders", "invoices", hostile[0]].includes(await title()));
    await page.locator('.map .node[title="payments.retry"]').focus(); // straight through the default exchange
    await page.keyboard.press("ArrowRight");
    assert.equal(await title(), "payments");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Queue payments" }).waitFor();
  });
});

test("the map: as a table, filtered, empty, failing", async () => {
  await at("#/map/%2F", answers, async (page) => {
    await page.getByRole("button", { name: "Table" }).click();
    await page.getByText("11 edges").waitFor();
    await page.getByText("the exchange does not exist").waitFor();
    await page.getByRole("button", { name: "Loops and problems 4" }).click();
    await page.getByText("4 edges").waitFor();
    await page.getByRole("button", { name: "Map", exact: true }).click();
    await page.getByLabel("Filter the map").fill("returns");
    await page.waitForFunction(() => document.querySelectorAll(".map .node").length === 2);
    await page.getByLabel("Filter the map").fill("no such name");
    await page.getByText("Nothing matches").waitFor();
    await page.getByRole("button", { name: "Show all" }).click();
    await page.waitForFunction(() => document.querySelectorAll(".map .node").length === 14);
  });
  await at("#/map/%2F", { topology: { nodes: [], edges: [], left_out: 0 } }, (page) => page.getByText("No queue has a dead-letter exchange here").waitFor());
  await at("#/map/%2F", { topology: refused }, (page) => page.getByText("The map cannot be shown").waitFor());
});

test("the map: a thousand queues, and a chain of five hundred, are drawn in part and in time", async () => {
  const many = { nodes: [], edges: [], left_out: 7 };
  for (let i = 0; i < 1000; i++) { many.nodes.push({ name: `q${i}`, kind: "queue", letters: null, messages: i, missing: false }); many.edges.push(edge(`q${i}`, i < 500 ? `q${i + 1}` : `x x${i % 50}`, null)); }
  for (let i = 0; i < 50; i++) { many.nodes.push({ name: `x${i}`, kind: "exchange", letters: null, messages: null, missing: false }); many.edges.push(edge(`x x${i}`, `q${i}`, "#")); }
  await at("#/map/%2F", { topology: many }, async (page) => {
    await page.getByText("are drawn, those with problems first").waitFor();
    await page.getByText("7 edges more are left out").waitFor();
    const n = await page.locator(".map .node").count();
    assert.ok(n > 100 && n <= 300, `${n} nodes`);
  });
});

test("webhooks: one is added, tested, changed without its secret, and deleted with what waits", async () => {
  let kept = structuredClone(answers.webhooks);
  const given = { "GET webhooks": () => kept, "PUT webhooks": ({ path, body }) => { kept = [...kept.filter((w) => w.name !== path[1]), { name: path[1], ...body }]; return null; }, "DELETE webhooks": ({ path }) => { kept = kept.filter((w) => w.name !== path[1]); return null; },
    "POST webhooks": ({ path }) => path[1] === "chat" ? { status: 400, error: "bad_request", reason: "https://chat.example.com/ answered 503" } : null };
  await at("#/webhooks", given, async (page, asked, dialog) => {
    await page.getByText("failing").waitFor();
    await page.getByRole("button", { name: "Add a webhook" }).click();
    await dialog.getByRole("button", { name: "Add webhook" }).click();
    await dialog.getByText("The webhook needs a name.").waitFor();
    await dialog.getByLabel("Name", { exact: true }).fill("pager");
    await dialog.getByText("There is another webhook with this name.").waitFor();
    await dialog.getByLabel("Name", { exact: true }).fill("night/shift");
    await dialog.getByLabel("Address").fill("ftp://x");
    await dialog.getByText("must begin with https://").waitFor();
    await dialog.getByLabel("Address").fill("http://hooks.example.com/b");
    await dialog.getByText("anybody on the way can read").waitFor();
    await dialog.getByLabel("Address").fill("https://hooks.example.com/b");
    await dialog.getByRole("checkbox", { name: /^Drops/ }).check();
    await dialog.getByRole("button", { name: "Add webhook" }).click();
    await dialog.getByText("The webhook needs a secret.").first().waitFor();
    await dialog.getByLabel("Secret").fill("short");
    await dialog.getByText("A secret has 16 to 256 bytes; this one has 5.").first().waitFor();
    await dialog.getByRole("button", { name: "Make a secret" }).click();
    await dialog.getByRole("button", { name: "Add webhook" }).click();
    await page.getByText("The webhook night/shift is on.").waitFor();
    const added = kept.find((w) => w.name === "night/shift");
    assert.deepEqual(added.events, ["letter.group.created", "job.*", "drop.recorded"]);
    assert.match(added.secret, /^[0-9a-f]{48}$/);
    await page.getByRole("link", { name: "night/shift" }).click();
    assert.equal(await dialog.getByLabel("Secret").inputValue(), "");
    await dialog.getByLabel("Other events").fill("x.y");
    await dialog.getByRole("button", { name: "Save" }).click();
    await page.getByText("x.y").waitFor();
    assert.ok(!("secret" in kept.find((w) => w.name === "night/shift")));
    await page.getByRole("button", { name: "Test pager" }).click();
    await page.getByText("pager has answered the test.").waitFor();
    await page.getByRole("button", { name: "Test chat" }).click();
    await page.getByText("The test of chat failed: https://chat.example.com/ answered 503").waitFor();
    await page.getByRole("button", { name: "Delete chat" }).click();
    await dialog.getByRole("button", { name: "Delete with 7 events" }).click();
    await page.getByText("The webhook chat is deleted.").waitFor();
  });
  await at("#/webhooks", { webhooks: [] }, (page) => page.getByText("There are no webhooks").waitFor());
  await at("#/webhooks", { webhooks: refused }, (page) => page.getByText("Webhooks cannot be shown").waitFor());
});

test("masks: entered by line, refused by field, saved with their count", async () => {
  let kept = { headers: [], paths: [], patterns: [] };
  await at("#/masks/%2F", { "GET masks": () => kept, "PUT masks": ({ body }) => { kept = body; return null; } }, async (page) => {
    await page.getByText("Nothing is masked here").waitFor();
    await page.getByLabel("Paths in JSON bodies").fill("card.number");
    await page.getByText("“card.number” is no path").waitFor();
    await page.getByLabel("Paths in JSON bodies").fill("$.card.number\n\n  $..iban ");
    await page.getByLabel("Regular expressions").fill("(\\d");
    await page.getByText("is no regular expression").waitFor();
    await page.getByLabel("Regular expressions").fill("x*");
    await page.getByText("matches an empty text").waitFor();
    await page.getByLabel("Regular expressions").fill("(?i)secret=\\w+");
    await page.getByLabel("Names of headers").fill("X-Exception-Message");
    await page.getByText("The same text may stand in x-exception-stacktrace").waitFor();
    await page.getByRole("button", { name: "Hide it too" }).click();
    assert.equal(await page.getByLabel("Names of headers").inputValue(), "X-Exception-Message\nx-exception-stacktrace");
    assert.equal(await page.getByText("The same text may stand in").count(), 0);
    await page.getByLabel("Names of headers").fill(hostile[0]);
    await page.getByRole("button", { name: "Save 4 masks" }).click();
    await page.getByText("4 masks are in force in /.").waitFor();
    assert.deepEqual(kept, { headers: [hostile[0]], paths: ["$.card.number", "$..iban"], patterns: ["(?i)secret=\\w+"] });
    assert.ok(await page.getByRole("button", { name: "Save 4 masks" }).isDisabled());
  });
  await at("#/masks/%2F", { ...answers, "PUT masks": { status: 400, error: "bad_request", reason: "pattern 1: too many repetitions" } }, async (page) => {
    await page.getByLabel("Names of headers").fill("");
    await page.getByRole("button", { name: "Save 3 masks" }).click();
    await page.getByText("too many repetitions").waitFor();
  });
  await at("#/masks/%2F", { masks: refused }, (page) => page.getByText("The masks cannot be shown").waitFor());
});

const where = "#/letters/%2F/orders.dead/1a.7";
test("a letter says which client rejected it, and shows what is masked to who asks", async () => {
  const given = { letters: ({ query }) => query.get("reveal") ? { ...answers.letters, masked: false, headers: { ...answers.letters.headers, authorization: "Bearer 17" } } : answers.letters };
  await at(where, { letters: { ...answers.letters, rejected_by: { delivery_count: 1 } } }, async (page) => { // somebody got it by the management API
    await page.locator("section", { has: page.getByRole("heading", { name: "Why it died" }) }).getByText("once", { exact: true }).waitFor();
    assert.equal(await page.getByRole("heading", { name: "Rejected by" }).count(), 0);
  });
  await at(where, given, async (page) => { // an administrator is nobody who sees more
    await page.getByText("Who has the tag reveal sees them.").waitFor();
    assert.equal(await page.getByRole("button", { name: "Reveal" }).count(), 0);
  });
  await node.api("PUT", "users/console", { password: "console", tags: "administrator,reveal" }, "guest:guest");
  await at(where, given, async (page) => {
    await page.getByText("spring-amqp 4.0.1").waitFor();
    await page.getByText(hostile[2], { exact: true }).waitFor();
    await page.getByText("The consumer said so when it rejected it.").waitFor();
    assert.equal(await page.getByText("Bearer 17").count(), 0);
    await page.getByRole("button", { name: "Reveal" }).click();
    await page.getByText("Bearer 17").waitFor();
    await page.getByText("The audit has recorded that you asked.").waitFor();
  });
  await at(where, given, async (page, asked, dialog) => { // an edit would put the mask in place of the value
    await page.getByRole("button", { name: "Edit…" }).click();
    await dialog.getByText("Reveal them first").waitFor();
    assert.equal(await dialog.getByLabel("Body", { exact: true }).count(), 0);
  });
});

test("a letter is edited: what is wrong is named, what differs is shown first", async () => {
  const plan = ({ query, body }) => query.get("dry_run") ? { token: "t", count: 1, routes: [{ exchange: "orders", routing_key: "order.created", queues: ["orders"], letters: 1 }], unroutable: [], no_origin: 0, too_often: 0, of: 1, diff: [
    ...(body.edit.body ? [{ what: "body", before: answers.letters.body.text, after: body.edit.body }] : []), ...Object.entries(body.edit.headers ?? {}).map(([k, v]) => ({ what: `header.${k}`, before: answers.letters.headers[k] ?? null, after: v })), ...Object.entries(body.edit.properties ?? {}).map(([k, v]) => ({ what: `property.${k}`, before: answers.letters.properties[k] ?? null, after: v })) ] } : { status: 403, error: "not_authorised", reason: "this needs configure on the queue orders.dead" };
  await at(where, { letters: { ...answers.letters, masked: false }, "POST jobs": plan }, async (page, asked, dialog) => {
    await page.getByRole("button", { name: "Edit…" }).click();
    await dialog.getByText("Nothing yet.").waitFor();
    assert.ok(await dialog.getByRole("button", { name: "Edit and replay 1 letter" }).isDisabled());
    assert.equal(await dialog.getByLabel("Value of x-death").count(), 0); // what tells of deaths stays
    await dialog.getByLabel("Body", { exact: true }).fill('{"order":1007,"items":[{"sku":"chair","price":120}]');
    await dialog.getByText("This is no JSON any more").waitFor();
    await dialog.getByLabel("Body", { exact: true }).fill('{"order":1007,"items":[{"sku":"chair","price":120}]}');
    await dialog.getByText('"price": 120').waitFor();
    await dialog.getByLabel("Value of attempt").fill("three");
    await dialog.getByText("The header attempt must be JSON").waitFor();
    await dialog.getByLabel("Value of attempt").fill("4");
    await dialog.getByRole("button", { name: "Take tags out" }).click();
    await dialog.getByRole("button", { name: "Add a header" }).click();
    await dialog.getByLabel("Name of the header").last().fill("tenant");
    await dialog.getByText("There are two headers with the name tenant.").waitFor();
    await dialog.getByLabel("Name of the header").last().fill(hostile[0]);
    await dialog.getByLabel(`Value of ${hostile[0]}`).fill(hostile[2]);
    await dialog.getByLabel("Correlation id").fill("c-1");
    await dialog.getByLabel("Content type").fill("");
    await dialog.getByText("Header tags: taken out").waitFor();
    await dialog.getByText(`Header ${hostile[0]}: new`).waitFor();
    await dialog.getByText("Property content type: taken out").waitFor();
    await dialog.getByRole("button", { name: "Edit and replay 1 letter" }).click();
    await dialog.getByText("Say why.").first().waitFor();
    await dialog.getByLabel("Reason").fill("the price is known");
    await dialog.getByRole("button", { name: "Edit and replay 1 letter" }).click();
    await dialog.getByText("this needs configure on the queue orders.dead").waitFor();
    const { body } = asked.filter((a) => a.method === "POST").at(-1);
    assert.deepEqual(body.edit, { body: '{"order":1007,"items":[{"sku":"chair","price":120}]}', body_encoding: "text", properties: { content_type: null, correlation_id: "c-1" }, headers: { attempt: 4, tags: null, [hostile[0]]: hostile[2] } });
    assert.deepEqual([body.action, body.ids, body.then, body.token, body.count, body.reason], ["edit", ["1a.7"], "replay", "t", 1, "the price is known"]);
  });
});

test("a letter whose body is shown in part is edited when the whole is loaded; a letter that has gone is said", async () => {
  const long = "line\n".repeat(20000);
  await at(where, { "GET letters/%2F/orders.dead/1a.7": { ...answers.letters, masked: false, body: { bytes: long.length, encoding: "text", text: long.slice(0, 65536), cut: true } }, "GET letters/%2F/orders.dead/1a.7/body": { status: 410, error: "gone", reason: "the letter has left the queue" } }, async (page, asked, dialog) => {
    await page.getByRole("button", { name: "Edit…" }).click();
    assert.equal(await dialog.getByLabel("Body", { exact: true }).count(), 0);
    await dialog.getByRole("button", { name: "Load the whole body" }).click();
    await dialog.getByText("the letter has left the queue").waitFor();
    await page.route("**/1a.7/body", (r) => r.fulfill({ status: 200, contentType: "application/octet-stream", body: long }));
    await dialog.getByRole("button", { name: "Load the whole body" }).click();
    await dialog.getByLabel("Body", { exact: true }).waitFor();
    assert.equal((await dialog.getByLabel("Body", { exact: true }).inputValue()).length, long.length);
  });
});

test("arguments of a queue are changed in use, with what becomes of its messages; its breaker is closed with the count", async () => {
  const open = async (page) => page.route(/\/api\/queues\/%2F\/orders\?/, async (r) => { const answer = await r.fetch(), q = await answer.json(); await r.fulfill({ response: answer, json: { ...q, messages_ready: 5000, messages: 5000, breaker: { state: "open", until_ms: Date.now() + 30000, why: "62 of 180 deliveries died within 1 min" } } }); });
  const page = await openPage(browser, node);
  const asked = await stub(page, { "PUT queues": null, "POST queues": null });
  await open(page);
  await signIn(page, node);
  await visit(page, "#/queues/%2F/orders");
  const dialog = page.getByRole("dialog");
  await page.getByText("The breaker is open: nothing is delivered").waitFor();
  await page.getByRole("button", { name: "Close the breaker" }).click();
  await dialog.getByRole("button", { name: "Close for 5,000 messages" }).click();
  await page.getByText("The breaker of orders is closed.").waitFor();
  assert.deepEqual(asked.at(-1).path, ["queues", "/", "orders", "breaker", "close"]);
  await page.getByRole("button", { name: "Change…" }).click();
  await dialog.getByText("Nothing yet.").waitFor();
  assert.equal(await dialog.getByLabel("Priorities").count(), 0); // cannot be changed in use
  await dialog.getByLabel("Dead-letter exchange (DLX)").fill("");
  await dialog.getByText("A dead-letter key needs a dead-letter exchange.").waitFor();
  await dialog.getByLabel("Dead-letter exchange (DLX)").fill("no.such");
  await dialog.getByText("does not exist in /").waitFor();
  await dialog.getByLabel("Dead-letter exchange (DLX)").fill("orders.dlx");
  await dialog.getByLabel("Time to live (TTL)").fill("");
  await dialog.getByLabel("Length limit", { exact: true }).fill("1000");
  await dialog.getByText("4,000 messages too many").waitFor();
  await dialog.getByText("refused (406) from now on").waitFor();
  await dialog.getByRole("button", { name: "Change 2 arguments for 5,000 messages" }).click();
  await page.getByText("2 arguments of orders are changed.").waitFor();
  const { body } = asked.filter((a) => a.method === "PUT").at(-1);
  assert.deepEqual(body, { set: { "x-max-length": 1000 }, unset: ["x-message-ttl"] });
  assert.deepEqual(page.faults, []);
  await page.context().close();
});

test("a virtual host gets a default dead-letter queue, after showing for how many queues", async () => {
  const page = await openPage(browser, node);
  const sent = [];
  await page.route("**/api/vhosts/%2F", async (r) => { if (r.request().method() !== "PUT") return r.fallback(); sent.push(JSON.parse(r.request().postData())); await r.fulfill({ status: 204 }); });
  await signIn(page, node);
  await visit(page, "#/vhosts/%2F");
  const dialog = page.getByRole("dialog");
  await page.getByRole("button", { name: "Change" }).click();
  await dialog.getByLabel("Default dead-letter queue").fill("all.dead");
  await dialog.getByText("one that dies often hides the others").waitFor();
  await dialog.getByLabel("Default dead-letter queue").fill("%q.dead");
  await dialog.getByText(/It holds for \d+ queues that have none now/).waitFor();
  await dialog.getByRole("checkbox", { name: /^Lenient declarations/ }).check();
  await dialog.getByRole("button", { name: "Save" }).click();
  await page.getByText("The virtual host / is changed.").waitFor();
  assert.deepEqual([sent[0].default_dead_letter, sent[0].lenient_declarations], ["%q.dead", true]);
  assert.deepEqual(page.faults, []);
  await page.context().close();
});

test("letters are exported, and imported with the lines that were refused", async () => {
  const given = { "POST import": ({ body }) => ({ imported: body.trim().split("\n").length - 1, refused: [{ line: 2, why: `body is no base64: ${hostile[0]}` }] }) };
  await at("#/letters/%2F?queue=orders.dead&class=PaymentTimeout", given, async (page, asked, dialog) => {
    await page.getByRole("button", { name: "Export…" }).click();
    const link = dialog.getByRole("link", { name: "Download" });
    assert.equal(await link.getAttribute("href"), "api/office/export/%2F/orders.dead?class=PaymentTimeout");
    assert.equal(await link.getAttribute("download"), "orders.dead-letters.ndjson");
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Import…" }).click();
    await dialog.getByLabel("File").setInputFiles({ name: "empty.ndjson", mimeType: "text/plain", buffer: Buffer.from("\n\n") });
    await dialog.getByText("empty.ndjson cannot be imported: it is empty.").waitFor();
    await dialog.getByLabel("File").setInputFiles({ name: "odd.csv", mimeType: "text/plain", buffer: Buffer.from("a,b\n1,2\n") });
    await dialog.getByText("its first line is no letter").waitFor();
    await dialog.getByLabel("File").setInputFiles({ name: "three.ndjson", mimeType: "text/plain", buffer: Buffer.from('{"id":"1"}\n{"id":"2"}\n\n{"id":"3"}') });
    await dialog.getByRole("button", { name: "Import 3 letters" }).click();
    await dialog.getByText("1 line was refused").waitFor();
    await dialog.getByText(`body is no base64: ${hostile[0]}`).waitFor();
    assert.deepEqual(asked.at(-1).path, ["import", "/", "orders.dead"]);
  });
});

test("with the real office: a letter is edited and replayed; one is discarded, and restored from the archive", async () => {
  const page = await openPage(browser, node), dialog = page.getByRole("dialog");
  await signIn(page, node);
  await node.api("PUT", "queues/%2F/refunds", { durable: true, arguments: { "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "refunds.dead" } });
  await node.api("PUT", "queues/%2F/refunds.dead", { durable: true, arguments: {} });
  for (const n of [1, 2]) {
    await node.api("POST", "exchanges/%2F/amq.default/publish", { routing_key: "refunds", payload: `{"refund":${n}}`, payload_encoding: "string", properties: { headers: { tenant: "north", attempt: 3 }, content_type: "application/json", delivery_mode: 2 } });
    await node.api("POST", "queues/%2F/refunds/get", { ackmode: "reject_requeue_false", count: 1, encoding: "auto" });
  }
  const letters = async (q) => (await node.api("GET", `office/letters/%2F/${q}?order=oldest`)).items;
  const until = async (what, f) => { for (let i = 0; i < 200; i++) { if (await f()) return; await new Promise((g) => setTimeout(g, 50)); } assert.fail(what); };
  await until("two letters", async () => (await letters("refunds.dead")).length === 2);
  const [first, second] = await letters("refunds.dead");
  await visit(page, `#/letters/%2F/refunds.dead/${first.id}`);
  await page.getByRole("button", { name: "Edit…" }).click();
  await dialog.getByLabel("Body", { exact: true }).fill('{"refund":17}');
  await dialog.getByLabel("Value of attempt").fill("4");
  await dialog.getByText("It goes through the default exchange with refunds into refunds.").waitFor();
  await dialog.getByLabel("Reason").fill("a test");
  await dialog.getByRole("button", { name: "Edit and replay 1 letter" }).click();
  await page.getByRole("heading", { name: /^Job .*: Edit from refunds\.dead/ }).waitFor();
  let got;
  await until("the edited letter", async () => { [got] = await node.api("POST", "queues/%2F/refunds/get", { ackmode: "peek", count: 1, encoding: "auto" }); return got; });
  assert.deepEqual([got.payload, got.properties.headers.attempt, got.properties.headers.tenant], ['{"refund":17}', 4, "north"]);

  await visit(page, `#/letters/%2F/refunds.dead/${second.id}`);
  await page.getByRole("button", { name: "Discard…" }).click();
  await dialog.getByLabel("Reason").fill("a test");
  await dialog.getByRole("button", { name: "Discard 1 letter" }).click();
  await page.getByRole("heading", { name: /^Job .*: Discard from refunds\.dead/ }).waitFor();
  await until("it is in the archive", async () => (await letters("refunds.dead")).length === 0);
  const [, archived] = await letters("bartleby.archive"); // the original of the edited one is before it
  await visit(page, `#/letters/%2F/bartleby.archive/${archived.id}`);
  assert.equal(await page.getByRole("button", { name: "Discard…" }).count(), 0);
  await page.getByRole("button", { name: "Restore…" }).click();
  await dialog.getByLabel("Reason").fill("it was right");
  await dialog.getByRole("button", { name: "Restore 1 letter" }).click();
  await page.getByRole("heading", { name: /^Job .*: Restore from bartleby\.archive/ }).waitFor();
  await until("it is back", async () => (await letters("refunds.dead")).length === 1);
  for (const hash of ["#/audit", "#/lint", "#/map/%2F", "#/map/%2F?view=table", "#/drops"]) { await visit(page, hash); assert.equal(await page.getByText("cannot be shown").count(), 0, hash); }
  await visit(page, "#/audit");
  await page.getByText("it was right").first().waitFor();
  assert.deepEqual(page.faults, []);
  await page.context().close();
});
