// Lists that the server gives in parts, the newest first: the ledger of drops, the audit.
import { useEffect, useState } from "preact/hooks";
import { get, Refusal, words } from "../api";
import { usePoll } from "../state";
import type { Paged } from "../types";

export interface Parts<T, A> { items: T[] | undefined; answer: A | undefined; next: string | null; error?: Refusal; loading: boolean; busy: boolean; more(): Promise<void>; reload(): void; }

/**
 * usePaged asks for the first part now and every ten seconds. Once the reader has asked for more the list stands still, so that
 * nothing is shown twice or left out; reload begins anew. path has the query, without a cursor.
 */
export function usePaged<T, A extends Paged<T>>(path: string): Parts<T, A> {
  const [kept, keep] = useState<{ path: string; items: T[]; answer: A; next: string | null } | null>(null);
  const [problem, setProblem] = useState<Refusal>(), [busy, setBusy] = useState(false);
  useEffect(() => { keep(null); setProblem(undefined); }, [path]);
  const still = kept?.path === path ? kept : null;
  const first = usePoll<A>(still ? null : path, 10000);
  const answer = still?.answer ?? first.data, items = still?.items ?? first.data?.items, next = still ? still.next : first.data?.next ?? null;
  const more = async () => {
    if (!answer || !items || !next || busy) return;
    setBusy(true); setProblem(undefined);
    try {
      const part = await get<A>(`${path}${path.includes("?") ? "&" : "?"}cursor=${encodeURIComponent(next)}`);
      keep({ path, items: [...items, ...part.items], answer, next: part.next });
    } catch (e) { setProblem(e instanceof Refusal ? e : new Refusal(0, "", words(e))); }
    setBusy(false);
  };
  return { items, answer, next, error: problem ?? first.error, loading: !answer && first.loading, busy, more, reload: () => { setProblem(undefined); if (still) keep(null); else first.reload(); } };
}
