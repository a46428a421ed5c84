// Pages that show one virtual host: the one in their address, else the one that the user looks at, else the one with the most letters
// of one cause, else the first.
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import { go, to } from "../router";
import { useApp, usePoll } from "../state";
import type { Groups } from "../types";
import { Loading } from "./parts";

/** useOneVHost returns the virtual host, undefined while it is not known, and where all are looked at the field to choose another. */
export function useOneVHost(page: string, named: string | undefined): { vhost: string | undefined; choice: ComponentChildren } {
  const { session, vhost: looked } = useApp();
  const id = useId(), before = useRef(looked);
  useEffect(() => {
    if (looked !== before.current && looked !== "" && named !== undefined && named !== looked) go(to([page, looked]));
    before.current = looked;
  }, [looked]);
  // Who looks at all and is called at night means the one where letters are, not an empty "/".
  const several = named === undefined && looked === "" && session.vhosts.length > 1;
  const most = usePoll<Groups>(several ? "office/groups?limit=1" : null, 0);
  const vhost = named ?? (looked || (several && most.loading ? undefined : most.data?.items[0]?.vhost ?? session.vhosts[0]));
  const choice = session.vhosts.length > 1 && <div class="row"><label for={id} class="muted">of virtual host</label>
    <select id={id} value={vhost} onChange={(e) => go(to([page, e.currentTarget.value]))}>{(vhost !== undefined && !session.vhosts.includes(vhost) ? [vhost, ...session.vhosts] : session.vhosts).map((v) => <option key={v} value={v}>{v}</option>)}</select></div>;
  return { vhost, choice };
}

/** NoVHost is what such a page shows without a virtual host: to who sees none, or until it is known which. */
export function NoVHost() {
  if (useApp().session.vhosts.length > 0) return <Loading />;
  return <div class="empty"><h2>You see no virtual host</h2><p>An administrator gives permissions in virtual hosts, on the page of a user.</p></div>;
}
