import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { p } from "../api";
import { bytes, count, plural, reason, span } from "../format";
import { to } from "../router";
import { usePoll, useTitle } from "../state";
import type { Letter } from "../types";
import { Body } from "../ui/body";
import { Arguments, Card, Empty, ExchangeLink, Facts, Failed, Loading, Note, PageHead, QueueLink, Tag, When } from "../ui/parts";
import { EditLetter } from "./edit";
import { Actions, cause, officeError, reasonTag } from "./office";
import { Masked, Who } from "./who";

const keys = (list: string[] | undefined) => (list ?? []).length === 0 ? <span class="muted">(empty)</span> : <>{list!.map((k) => <code key={k} class="name">{k || "(empty)"} </code>)}</>;

/** dated are properties with the time stamp, in seconds, as a date too. */
function dated(of: Record<string, unknown>): Record<string, unknown> {
  const at = of["timestamp"];
  return typeof at === "number" && Math.abs(at) < 8.64e12 ? { ...of, timestamp: `${at} (${new Date(1000 * at).toISOString()})` } : of;
}

/** nowhere says why a letter is in the lost and found. */
function nowhere(l: Letter): ComponentChildren {
  const queue = <b class="name">{l.source || "its queue"}</b>;
  switch (l.lost) {
    case "dlx_missing": return <>The dead-letter exchange of {queue} does not exist.</>;
    case "no_route": return <>The dead-letter exchange of {queue} led to no queue.</>;
    case "no_dlx": return <>It failed as often as it may, and {queue} has no dead-letter exchange.</>;
    case "cycle": return <>It would have come back to a queue in which it had died, and nobody rejected it on the way.</>;
    case "target_refused": return <>The queues to which {queue} sends its dead letters were full.</>;
  }
  return <>{l.lost}.</>;
}

/** SentBack is the last replay in what happened to a letter. */
function SentBack(props: { letter: Letter }) {
  const l = props.letter;
  return <li class="earlier"><div>
    <p><b>Sent back</b>{l.replayed_from && <> from <QueueLink vhost={l.vhost} name={l.replayed_from} /></>}{l.job && !l.from && <> by <a href={to(["jobs", String(l.job)])}>job {l.job}</a></>}{l.replays > 1 && <> <Tag>the last of {count(l.replays)} times</Tag></>}</p>
  </div></li>;
}

export function LetterPage(props: { vhost: string; queue: string; id: string }) {
  const { vhost, queue, id } = props;
  const path = p`office/letters/${vhost}/${queue}/${id}`;
  useTitle("Letter");
  const [revealed, reveal] = useState(false), [editing, edit] = useState(false);
  const { data: l, error, loading, reload } = usePoll<Letter>(path + (revealed ? "?reveal=true" : ""), revealed ? 0 : 15000);
  const back = to(["letters", vhost], { queue });
  if (!l) return <><PageHead title="Letter" />
    {error?.status === 410 ? <Empty title="This letter has left the queue"><p>{error.message}</p><a class="button" href={back}>Letters in {queue}</a></Empty>
      : error?.status === 404 ? <Empty title="There is no such letter"><p>The queue may have been deleted and made anew. {officeError(error)!.message}</p><a class="button" href={back}>Letters in {queue}</a></Empty>
      : <Failed error={error} what="the letter" retry={reload} />}
    {loading && <Loading what="the letter" />}</>;
  const first = l.timeline[l.timeline.length - 1];
  const c = l.cause;
  const earlier = l.timeline.findIndex((s) => s.earlier), sent = l.replays === 0 ? -1 : earlier < 0 ? l.timeline.length : earlier; // the replay stands in front of this
  return <div class="stack">
    <PageHead title={l.message_id ? <>Letter <span class="name">{l.message_id}</span></> : <>Letter {id}, without a message ID</>} lead={<>in <QueueLink vhost={vhost} name={queue} />, virtual host <b class="name">{vhost}</b> · {bytes(l.size)}{l.type && <> · <span class="name">{l.type}</span></>} {l.state !== "ready" && <Tag kind="warn">{l.state === "out" ? "with a consumer now" : l.state}</Tag>}</>}>
      <Actions of={[{ vhost, queues: [queue], ids: [id], name: "this letter" }]} done={reload} />
      <button onClick={() => edit(true)}>Edit…</button>
    </PageHead>
    <Failed error={error} what="the letter" stale retry={reload} />
    {l.discarded && <Note title="Discarded">
      {l.discarded.at_ms && <><When at={l.discarded.at_ms} />, </>}{l.discarded.rule ? <>by the rule <b class="name">{l.discarded.rule}</b>, with the rights of </> : "by "}<b class="name">{l.discarded.by}</b>, <a href={to(["jobs", l.discarded.job])}>job {l.discarded.job}</a>{l.discarded.reason && <>, because “<span class="name">{l.discarded.reason}</span>”</>}.
    </Note>}
    {l.lost && <Note kind="warn" title="It led nowhere, and lies in the lost and found">
      {nowhere(l)} The letters that die next come here too, or are dropped when it is full: mend that first, then send these back. {l.source && <a href={to(["queues", vhost, l.source], { change: "1" })}>Change the queue</a>}
    </Note>}
    <Masked letter={l} revealed={revealed} reveal={() => reveal(true)} />
    <div class="letter-grid">
      <div class="stack">
        <Card title="Why it died" side={<span>{reasonTag(l.reason, l.source)} <span class="muted small"><When at={l.died_ms} /></span></span>}><div class="stack tight">
          <p class="cause">{c && (c.class || c.error) ? <>{c.class && <span class="class">{c.class}</span>}{c.class && c.error && ": "}{c.error}</> : <>It {!l.source ? "was parked by a consumer" : l.reason === "rejected" ? "was rejected by a consumer" : reason(l.reason)}{l.source && <> in <b class="name">{l.source}</b></>}. {l.older_headers ? "Nobody has said why this time." : "The consumer gave no cause."}</>}</p>
          {l.older_headers && <p class="muted small">The error in its headers is older than this death: the letter was sent back since{l.job && !l.from && <> by <a href={to(["jobs", String(l.job)])}>job {l.job}</a></>}.</p>}
          {c?.detail && <pre class="code" tabIndex={0} aria-label="Detail">{c.detail}</pre>}
          {c?.from && <p class="muted small">{c.from === "settle" ? "The consumer said so when it rejected it." : <>The message says so in its headers ({c.from}).</>}</p>}
          <Who by={l.rejected_by} />
        </div></Card>
        <Card title={!l.body.section ? "Body" : l.body.section === "amqp-value" ? "Body (an AMQP value)" : "Body (AMQP sequences)"}><Body text={l.body.text} encoding={l.body.encoding} bytes={l.body.bytes} cut={l.body.cut} download={"api/" + path + "/body" + (revealed ? "?reveal=true" : "")} /></Card>
        <Card title="Headers"><Arguments of={l.headers} /></Card>
      </div>
      <div class="stack">
        <Card title="A replay would put it now">
          {l.replay ? l.replay.problem ? <Note kind="warn" title="nowhere">{l.replay.problem}</Note> : <Facts of={[["Into", l.replay.queues.length ? <ul class="plain">{l.replay.queues.map((q) => <li key={q}><QueueLink vhost={vhost} name={q} /></li>)}</ul> : "no queue"], ["Through", <ExchangeLink vhost={vhost} name={l.replay.exchange} />], ["Routing key", keys(l.replay.routing_keys)]]} /> : <p class="muted">Its origin is not known.</p>}
        </Card>
        <Card title={`What happened to it (${plural(l.times_died, "death")})`}><ol class="timeline">
          <li style={{ display: "none" }} />
          {l.timeline.map((s, i) => <>{i === sent && <SentBack letter={l} />}<li key={i} class={s.earlier ? "earlier" : ""}><div>
            <p>{s.queue === "" ? <b>Parked by a consumer</b> : <><b>{s.reason === "rejected" ? "Rejected" : s.reason === "expired" ? "Expired" : s.reason === "maxlen" ? "Dropped from a full queue" : s.reason === "delivery_limit" ? "Failed too often" : s.reason}</b> in <QueueLink vhost={vhost} name={s.queue} /></>}{s.count > 1 && <> <Tag>{count(s.count)} times</Tag></>}{s.earlier && s.queue !== "" && <> <Tag>before a replay</Tag></>}</p>
            <p class="muted small">{s.last_ms || s.first_ms ? <When at={s.last_ms || s.first_ms} clock /> : "when is not known"}{s.count > 1 && s.first_ms !== s.last_ms && s.first_ms > 0 && <>, first <When at={s.first_ms} clock /></>}</p>
            <p class="small">It came from <ExchangeLink vhost={vhost} name={s.exchange} /> with {keys(s.routing_keys)}{s.expiration_ms ? <>, and would have expired after {span(s.expiration_ms)}</> : null}</p>
          </div></li></>)}
          {sent === l.timeline.length && <SentBack letter={l} />}
          {first && <li class="origin"><div><p><b>Published</b> to <ExchangeLink vhost={vhost} name={l.exchange} /></p><p class="small">with {keys(l.routing_keys)}</p></div></li>}
        </ol></Card>
        <Card title="Properties"><Arguments of={dated(l.properties)} /></Card>
        {(l.group || l.job || l.from || l.edited_from) && <Card title="More"><Facts of={[
          ...(l.group ? [["Letters like it", <a href={to(["letters", vhost], { queue, group: l.group })}>{cause({ ...l, error: c?.error ?? l.error, error_class: c?.class ?? l.error_class })}</a>] as [string, preact.ComponentChildren]] : []),
          ...(l.job && !l.discarded ? [[l.from ? "Moved by" : "Sent back by", <a href={to(["jobs", String(l.job)])}>job {l.job}</a>] as [string, preact.ComponentChildren]] : []),
          ...(l.from ? [["Taken from", <QueueLink vhost={vhost} name={l.from} />] as [string, preact.ComponentChildren]] : []),
          ...(l.edited_from ? [["Edited; the original", <a href={to(["letters", vhost, "bartleby.archive", l.edited_from])}>in the archive</a>] as [string, preact.ComponentChildren]] : []),
          ...(l.replays ? [["Sent back", plural(l.replays, "time")] as [string, string]] : []),
        ]} /></Card>}
      </div>
    </div>
    {editing && <EditLetter letter={{ ...l, masked: l.masked && !revealed }} revealed={revealed} close={() => edit(false)} />}
  </div>;
}
