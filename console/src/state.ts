// What pages share: the session, the virtual host that the user looks at, and how data is asked for again and again.
import { createContext } from "preact";
import { useCallback, useContext, useEffect, useRef, useState } from "preact/hooks";
import { get, Refusal } from "./api";
import type { Session } from "./types";

export interface App { session: Session; vhost: string; setVHost(v: string): void; reloadSession(): Promise<void>; }
export const AppContext = createContext<App>(null as unknown as App);
export function useApp(): App { return useContext(AppContext); }

export function may(session: Session, tag: "administrator" | "monitoring" | "policymaker"): boolean {
  return session.tags.includes("administrator") || session.tags.includes(tag);
}

/** stored is a value that the browser keeps for this user; private windows may refuse to. */
export const stored = {
  get(key: string): string | null { try { return localStorage.getItem("bartleby." + key); } catch { return null; } },
  set(key: string, value: string): void { try { localStorage.setItem("bartleby." + key, value); } catch { /* then not */ } },
};

export interface Polled<T> { data: T | undefined; error: Refusal | undefined; loading: boolean; reload(): void; }

/**
 * usePoll asks for a path now and every so often while the tab is visible. The last data stays when a request fails. A node that
 * answers slowly is asked less often. A null path asks for nothing.
 */
export function usePoll<T>(path: string | null, every = 5000, read: (path: string, signal: AbortSignal) => Promise<T> = get): Polled<T> {
  const [state, set] = useState<{ path: string | null; data?: T; error?: Refusal; loading: boolean }>({ path, loading: path !== null });
  const again = useRef<() => void>(() => {});
  useEffect(() => {
    if (path === null) return;
    let timer: ReturnType<typeof setTimeout> | undefined, asking: AbortController | undefined, ended = false;
    const ask = async () => {
      clearTimeout(timer);
      asking?.abort();
      const mine = asking = new AbortController();
      const began = performance.now();
      try {
        const data = await read(path, mine.signal);
        if (!ended && mine === asking) set({ path, data, loading: false });
      } catch (e) {
        if (ended || mine.signal.aborted) return;
        const error = e instanceof Refusal ? e : new Refusal(0, "", String(e));
        set((s) => ({ path, data: s.path === path && error.status !== 404 && error.status !== 410 ? s.data : undefined, error, loading: false }));
      }
      if (!ended && every > 0 && mine === asking) timer = setTimeout(() => { if (!document.hidden) void ask(); }, Math.max(every, 10 * (performance.now() - began)));
    };
    const visible = () => { if (!document.hidden && every > 0) void ask(); };
    again.current = () => void ask();
    set((s) => s.path === path ? s : { path, loading: true });
    void ask();
    document.addEventListener("visibilitychange", visible);
    return () => { ended = true; clearTimeout(timer); asking?.abort(); document.removeEventListener("visibilitychange", visible); };
  }, [path, every]);
  const reload = useCallback(() => again.current(), []);
  const fresh = state.path === path;
  return { data: fresh ? state.data : undefined, error: fresh ? state.error : undefined, loading: fresh ? state.loading : path !== null, reload };
}

/** useNow is the time, renewed so that ages stay true. */
export function useNow(every = 10000): number {
  const [now, set] = useState(Date.now());
  useEffect(() => {
    const t = setInterval(() => { if (!document.hidden) set(Date.now()); }, every);
    return () => clearInterval(t);
  }, [every]);
  return now;
}

export function useTitle(title: string): void {
  useEffect(() => { document.title = title ? `${title} · Bartleby` : "Bartleby"; }, [title]);
}
