// The default of a virtual host for queues without a dead-letter exchange, and how many these are.
import { p } from "../../api";
import { plural } from "../../format";
import { usePoll } from "../../state";
import type { Page, Queue, VHost } from "../../types";
import { Text } from "../../ui/form";
import { Note } from "../../ui/parts";

/** without says whether a queue would get the default. */
function without(q: Queue): boolean {
  return !q.exclusive && !q.name.startsWith("bartleby.") && q.arguments["x-dead-letter-exchange"] === undefined && q.effective_policy_definition?.["dead-letter-exchange"] === undefined;
}

export function DefaultDeadLetter(props: { vhost?: VHost; value: string; set(v: string): void }) {
  const { vhost, value } = props;
  const changed = value !== (vhost?.default_dead_letter ?? "");
  const queues = usePoll<Page<Queue>>(vhost && changed && value !== "" ? p`queues/${vhost.name}` + "?page=1&page_size=500&disable_stats=true&columns=name,exclusive,arguments,effective_policy_definition" : null, 0);
  const of = (queues.data?.items ?? []).filter(without), example = of[0]?.name ?? "orders", more = (queues.data?.filtered_count ?? 0) > 500;
  const target = value.replaceAll("%q", example);
  const problem = value.startsWith("amq.") ? "Names that begin with amq. are the broker's own." : new TextEncoder().encode(value).length > 255 ? "The name of a queue has at most 255 bytes." : undefined;
  return <div class="stack tight">
    <Text label="Default dead-letter queue" value={value} set={props.set} placeholder="%q.dead" error={problem} help={<>What dies in a queue without a dead-letter exchange goes there. <code>%q</code> is the name of the queue it died in, so <code>%q.dead</code> makes one for each. The queue is made when it is first needed. Empty: such messages are dropped.</>} />
    {value !== "" && changed && !problem && <Note kind={value.includes("%q") ? undefined : "warn"}>
      {queues.data ? of.length === 0 ? "Every queue that is there has a dead-letter exchange of its own." : <>It holds for {more ? "at least " : ""}<b>{plural(of.length, "queue")}</b> that {of.length === 1 ? "has" : "have"} none now; what dies in <b class="name">{example}</b> would go to <b class="name">{target}</b>.</> : <>What dies in <b class="name">{example}</b> would go to <b class="name">{target}</b>.</>}
      {!value.includes("%q") && " All queues share it: one that dies often hides the others."}
    </Note>}
    {value === "" && changed && <Note kind="warn">From now on what dies in a queue without a dead-letter exchange is dropped. What is in the dead-letter queues stays.</Note>}
  </div>;
}
