// The pages by their addresses.
import type { ComponentChildren } from "preact";
import type { Route } from "../router";
import type { Session } from "../types";
import { may } from "../state";
import { PageHead } from "../ui/parts";
import { ConfigurationPage, DefinitionsPage, FeaturesPage, ShovelsPage } from "./admin/node";
import { MasksPage } from "./admin/masks";
import { PoliciesPage } from "./admin/policies";
import { PermissionsPage, UserPage, UsersPage } from "./admin/users";
import { VHostPage, VHostsPage } from "./admin/vhosts";
import { WebhooksPage } from "./admin/webhooks";
import { AuditPage } from "./audit";
import { ChannelPage, ChannelsPage, ConnectionPage, ConnectionsPage } from "./connections";
import { ConsumersPage } from "./consumers";
import { DropsPage } from "./drops";
import { ExchangePage, ExchangesPage } from "./exchanges";
import { InboxPage } from "./inbox";
import { JobPage, JobsPage } from "./jobs";
import { LetterPage } from "./letter";
import { LettersPage } from "./letters";
import { LintPage } from "./lint";
import { MapPage } from "./map";
import { OverviewPage } from "./overview";
import { QueuePage } from "./queue";
import { QueuesPage } from "./queues";
import { RetriesPage } from "./retries";
import { RulesPage } from "./rules";
import "./office.css";

interface Entry { path: string; title: string; also?: string[]; }

export function sections(s: Session): { title?: string; pages: Entry[] }[] {
  return [
    { pages: [{ path: "", title: "Overview" }] },
    { title: "Dead letters", pages: [{ path: "inbox", title: "Inbox" }, { path: "letters", title: "Search" }, { path: "jobs", title: "Jobs" },
      { path: "retries", title: "Retries" }, ...(may(s, "policymaker") ? [{ path: "rules", title: "Rules" }] : []), { path: "drops", title: "Drops" }, { path: "map", title: "Map" },
      ...(may(s, "monitoring") || may(s, "policymaker") ? [{ path: "lint", title: "Lint" }] : []), ...(may(s, "monitoring") ? [{ path: "audit", title: "Audit" }] : [])] },
    { title: "Broker", pages: [
      { path: "queues", title: "Queues" }, { path: "exchanges", title: "Exchanges" }, { path: "connections", title: "Connections" },
      { path: "channels", title: "Channels" }, { path: "consumers", title: "Consumers" }] },
    { title: "Admin", pages: [
      ...(may(s, "administrator") ? [{ path: "users", title: "Users" }, { path: "vhosts", title: "Virtual hosts" }, { path: "permissions", title: "Permissions" }] : []),
      { path: "policies", title: "Policies" }, ...(may(s, "policymaker") ? [{ path: "masks", title: "Masks" }] : []), ...(may(s, "administrator") ? [{ path: "webhooks", title: "Webhooks" }] : []), ...(may(s, "monitoring") ? [{ path: "shovels", title: "Shovels" }] : []),
      ...(may(s, "administrator") ? [{ path: "definitions", title: "Definitions" }] : []), { path: "features", title: "Features" },
      ...(may(s, "administrator") ? [{ path: "configuration", title: "Configuration" }] : [])] },
  ];
}

export function Page(props: { route: Route }): ComponentChildren {
  const [first = "", second, third, fourth] = props.route.path;
  switch (first) {
    case "": return <OverviewPage />;
    case "inbox": return <InboxPage />;
    case "letters": return second !== undefined && third !== undefined && fourth !== undefined ? <LetterPage vhost={second} queue={third} id={fourth} /> : <LettersPage vhost={second} />;
    case "jobs": return second !== undefined ? <JobPage id={second} /> : <JobsPage />;
    case "queues": return second !== undefined && third !== undefined ? <QueuePage vhost={second} name={third} /> : <QueuesPage />;
    case "exchanges": return second !== undefined && third !== undefined ? <ExchangePage vhost={second} name={third} /> : <ExchangesPage />;
    case "connections": return second !== undefined ? <ConnectionPage name={second} /> : <ConnectionsPage />;
    case "channels": return second !== undefined ? <ChannelPage name={second} /> : <ChannelsPage />;
    case "users": return second !== undefined ? <UserPage name={second} /> : <UsersPage />;
    case "vhosts": return second !== undefined ? <VHostPage name={second} /> : <VHostsPage />;
    case "permissions": return <PermissionsPage />;
    case "policies": return <PoliciesPage />;
    case "shovels": return <ShovelsPage />;
    case "definitions": return <DefinitionsPage />;
    case "features": return <FeaturesPage />;
    case "configuration": return <ConfigurationPage />;
    case "retries": return <RetriesPage />;
    case "rules": return <RulesPage vhost={second} />;
    case "lint": return <LintPage />;
    case "audit": return <AuditPage />;
    case "map": return <MapPage vhost={second} />;
    case "masks": return <MasksPage vhost={second} />;
    case "webhooks": return <WebhooksPage />;
    case "drops": return <DropsPage />;
    case "consumers": return <ConsumersPage />;
  }
  return <PageHead title="There is no such page" lead={<>The address may be of another version. <a href="#/">Go to the overview</a>.</>} />;
}
