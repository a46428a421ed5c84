// The form to publish one message.
import { useState } from "preact/hooks";
import { p, send } from "../api";
import { Area, Check, Text, whole } from "../ui/form";
import { Note } from "../ui/parts";
import { say } from "../ui/toast";
import { table } from "./arguments";

export function Publish(props: { vhost: string; exchange: string; routingKey?: string; done?(): void }) {
  const [key, setKey] = useState(props.routingKey ?? ""), [payload, setPayload] = useState(""), [headers, setHeaders] = useState(""), [persistent, setPersistent] = useState(true);
  const [type, setType] = useState(""), [id, setID] = useState(""), [ttl, setTTL] = useState(""), [content, setContent] = useState(""), [error, setError] = useState(""), [busy, setBusy] = useState(false);
  return <form class="stack" onSubmit={async (e) => {
    e.preventDefault(); setError(""); setBusy(true);
    try {
      const properties: Record<string, unknown> = { delivery_mode: persistent ? 2 : 1 };
      if (headers.trim()) properties["headers"] = table(headers, "Headers");
      if (type) properties["type"] = type;
      if (id) properties["message_id"] = id;
      if (content) properties["content_type"] = content;
      const expires = whole(ttl, "The time to live");
      if (expires !== undefined) properties["expiration"] = String(expires);
      const { routed } = await send<{ routed: boolean }>("POST", p`exchanges/${props.vhost}/${props.exchange || "amq.default"}/publish`, { routing_key: key, properties, payload, payload_encoding: "string" });
      if (routed) { say("The message is published and confirmed."); props.done?.(); } else setError("No queue is bound for this routing key: the message went nowhere.");
    } catch (e) { setError((e as Error).message); }
    setBusy(false);
  }}>
    <div class="fields">
      <Text label="Routing key" value={key} set={setKey} disabled={props.routingKey !== undefined} />
      <Text label="Message ID" value={id} set={setID} /><Text label="Type" value={type} set={setType} /><Text label="Content type" value={content} set={setContent} placeholder="application/json" />
      <Text label="Time to live" value={ttl} set={setTTL} help="Milliseconds; empty: none" />
      <Check label="Persistent" help="It survives a restart in a durable queue." value={persistent} set={setPersistent} />
      <Area label="Headers" value={headers} set={setHeaders} rows={2} placeholder='{"tenant": "north"}' wide />
      <Area label="Body" value={payload} set={setPayload} rows={5} wide />
    </div>
    {error && <Note kind="bad">{error}</Note>}
    <div class="row"><button type="submit" class="primary" disabled={busy}>{busy ? "Publishing…" : "Publish message"}</button></div>
  </form>;
}
