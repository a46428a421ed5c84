// Routes are in the hash, as in RabbitMQ's page, so that its bookmarks work: #/queues/%2F/orders?sort=messages.
import { useEffect, useState } from "preact/hooks";

export interface Route { path: string[]; params: URLSearchParams; }

export function parse(hash: string): Route {
  const [path = "", search = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const segments = path.split("/").filter((s) => s !== "").map((s) => { try { return decodeURIComponent(s); } catch { return s; } });
  return { path: segments, params: new URLSearchParams(search) };
}

/** to is the link to a page; names are encoded. */
export function to(path: string[], params?: Record<string, string | undefined>): string {
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries(params ?? {})) if (v !== undefined && v !== "") q.set(k, v);
  const search = q.toString();
  return "#/" + path.map((s) => s === "" ? "amq.default" : encodeURIComponent(s)).join("/") + (search ? "?" + search : "");
}

export function go(hash: string): void { location.hash = hash; }

/** setParams changes parameters of the present page without a new entry in the history. */
export function setParams(changes: Record<string, string | undefined>): void {
  const now = parse(location.hash);
  for (const [k, v] of Object.entries(changes)) if (v === undefined || v === "") now.params.delete(k); else now.params.set(k, v);
  const search = now.params.toString();
  const hash = to(now.path) + (search ? "?" + search : "");
  if (hash !== location.hash) {
    history.replaceState(null, "", hash);
    window.dispatchEvent(new HashChangeEvent("hashchange"));
  }
}

export function useRoute(): Route {
  const [hash, set] = useState(location.hash);
  useEffect(() => {
    const changed = () => set(location.hash);
    window.addEventListener("hashchange", changed);
    changed(); // it may have changed between the first drawing and now
    return () => window.removeEventListener("hashchange", changed);
  }, []);
  return parse(hash);
}
