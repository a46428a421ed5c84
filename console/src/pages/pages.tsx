// The pages by their addresses.
import type { ComponentChildren } from "preact";
import type { Route } from "../router";
import { may } from "../state";
import type { Session } from "../types";
import { Empty } from "../ui/parts";
import { OverviewPage } from "./overview";

interface Entry { path: string; title: string; also?: string[]; }

export function sections(_s: Session): { title?: string; pages: Entry[] }[] {
  void may;
  return [{ pages: [{ path: "", title: "Overview" }] }];
}

export function Page(props: { route: Route }): ComponentChildren {
  const [first = ""] = props.route.path;
  switch (first) {
    case "": return <OverviewPage />;
  }
  return <Empty title="There is no such page"><p>The address may be of another version. <a href="#/">Go to the overview</a>.</p></Empty>;
}
