// What the API answers, as far as the console reads it.

export interface Session {
  name: string; tags: string[]; vhosts: string[]; node: string; cluster_name: string;
  product: string; product_version: string; rabbitmq_version: string; strict: boolean;
}

export interface Sample { sample: number; timestamp: number; }
export interface Details { rate: number; samples?: Sample[]; samples_since?: number; avg_rate?: number; }
export type Stats = { [key: string]: number | Details | undefined };
export type Args = Record<string, unknown>;
export interface Feature { code: string; title: string; }
export interface Listener { protocol: string; ip_address: string; port: number; tls: boolean; }

export interface Overview {
  management_version: string; rabbitmq_version: string; product_version: string; cluster_name: string; node: string;
  queue_totals: Stats; message_stats: Stats; churn_rates: Stats; object_totals: Record<string, number>;
  listeners: Listener[]; dead_letters?: Record<string, Record<string, number>>; exchange_types: { name: string }[]; default_queue_type: string;
  breakers?: { open: number; queues: { vhost: string; name: string; state: "open" | "trying"; until_ms?: number | null; why?: string | null }[] };
}

export interface Node {
  name: string; uptime: number; mem_used: number; mem_limit: number; mem_alarm: boolean; disk_free: number; disk_free_limit: number; disk_free_alarm: boolean;
  fd_used: number; fd_total: number; sockets_used: number; processors: number; os_pid: string; db_dir: string; erlang_full_version: string; proc_used: number;
}

export interface Queue {
  name: string; vhost: string; type: string; durable: boolean; auto_delete: boolean; exclusive: boolean; arguments: Args; state: string;
  policy?: string | null; operator_policy?: string | null; effective_policy_definition?: Args; features?: Feature[];
  messages?: number; messages_ready?: number; messages_unacknowledged?: number; messages_details?: Details; messages_ready_details?: Details;
  messages_unacknowledged_details?: Details; message_stats?: Stats; consumers?: number; message_bytes?: number; idle_since?: string;
  consumer_details?: Consumer[]; dead_letters?: Record<string, Record<string, number>>; delivery_limit?: number | string;
  messages_delayed?: number; messages_dlx?: number; messages_persistent?: number; owner_pid_details?: { name: string };
  breaker?: { state: "closed" | "open" | "trying"; until_ms?: number | null; why?: string | null } | null;
}

export interface Exchange {
  name: string; vhost: string; type: string; durable: boolean; auto_delete: boolean; internal: boolean; arguments: Args; features?: Feature[];
  policy?: string; message_stats?: Stats; messages_delayed?: number;
}

export interface Binding {
  source: string; vhost: string; destination: string; destination_type: "queue" | "exchange"; routing_key: string; arguments: Args; properties_key: string;
}

export interface Connection {
  name: string; user: string; vhost: string; state: string; channels: number; protocol: string; peer_host: string; peer_port: number; host: string; port: number;
  ssl: boolean; ssl_protocol?: string | null; ssl_cipher?: string | null; peer_cert_subject?: string | null; connected_at: number; recv_oct: number; send_oct: number;
  recv_oct_details?: Details; send_oct_details?: Details; client_properties: Record<string, unknown>; user_provided_name?: string; timeout: number; frame_max: number;
  channel_max: number; auth_mechanism: string; node: string; type?: string; container_id?: string;
}

/** Session is one of AMQP 1.0, with its links. */
export interface Session {
  channel_number: number; incoming_window: number; remote_incoming_window: number; outgoing_unsettled_deliveries: number;
  incoming_links: IncomingLink[]; outgoing_links: OutgoingLink[];
}

export interface IncomingLink {
  handle: number; link_name: string; target_address: string | null; snd_settle_mode: string; delivery_count: number; credit: number; unconfirmed_messages: number;
}

export interface OutgoingLink {
  handle: number; link_name: string; source_address: string; queue_name: string; send_settled: boolean; delivery_count: number; credit: number; consumer_timeout: boolean;
}

export interface Channel {
  name: string; number: number; user: string; vhost: string; state: string; consumer_count: number; messages_unacknowledged: number; prefetch_count: number;
  confirm: boolean; transactional: boolean; messages_unconfirmed: number; messages_uncommitted: number; acks_uncommitted: number; connection_details: { name: string };
  message_stats?: Stats; idle_since?: string; consumer_details?: Consumer[];
}

export interface Consumer {
  consumer_tag: string; queue: { name: string; vhost: string }; ack_required: boolean; exclusive: boolean; prefetch_count: number; active: boolean;
  activity_status: string; arguments: Args; consumer_timeout: number;
  channel_details: { name: string; connection_name: string; number: number; user: string; peer_host: string; peer_port: number };
}

export interface Message {
  payload: string; payload_encoding: "string" | "base64"; payload_bytes: number; redelivered: boolean; exchange: string; routing_key: string;
  message_count: number; properties: Record<string, unknown> | [];
}

export interface Page<T> { items: T[]; filtered_count: number; total_count: number; page: number; page_count: number; page_size: number; }

export interface Policy { vhost: string; name: string; pattern: string; "apply-to": string; definition: Args; priority: number; }

export interface VHost {
  name: string; description: string; tags: string[]; default_queue_type: string; protected_from_deletion: boolean; tracing: boolean; profile?: string; default_dead_letter?: string; lenient_declarations?: boolean;
  messages?: number; messages_ready?: number; messages_unacknowledged?: number; message_stats?: Stats;
}

export interface User { name: string; tags: string[]; limits: Record<string, number>; password_hash: string; }
export interface Permission { user: string; vhost: string; configure: string; write: string; read: string; }
export interface TopicPermission { user: string; vhost: string; exchange: string; write: string; read: string; }

// The office: docs/internals/office.md.

export interface OfficeQueue {
  vhost: string; name: string; type: string; letters: number; others: number; oldest_ms: number | null; arrived: { "5m": number; "1h": number; "24h": number };
  sources: string[]; consumers: number; max_length?: number | null; max_length_bytes?: number | null; bytes: number; reading: boolean; read: number; total: number;
}

export type GroupState = "new" | "triaged" | "replaying" | "resolved" | "archived";

export interface Group {
  id: string; vhost: string; source: string; reason: string; error_class: string; error: string; type: string; letters: number; first_ms: number; last_ms: number;
  arrivals: { from_ms: number; step_ms: number; counts: number[] } | null; queues: { name: string; letters: number }[]; sample: { queue: string; id: string } | null;
  state: GroupState; owner?: string; note?: string; noted_by?: string; noted_ms?: number;
}

export interface Groups { items: Group[]; next: string | null; total: number; letters: number; reading: boolean; read: number; entries: number; }

export interface Row {
  id: string; vhost: string; queue: string; state: string; died_ms: number; reason: string; source: string; times_died: number; exchange: string;
  routing_keys: string[]; error_class: string; error: string; type: string; message_id: string; size: number; priority?: number; redelivered?: boolean;
  group: string; job: string | number | null; replays: number; preview: string;
  /** of a letter in the lost and found: why it led nowhere */
  lost?: string;
}

export interface Letters { items: Row[]; next: string | null; examined: number; stopped: string | null; }

export interface Stop {
  queue: string; reason: string; count: number; first_ms: number; last_ms: number; exchange: string; routing_keys: string[]; expiration_ms?: number | null; earlier?: boolean;
}

export interface Letter extends Row {
  timeline: Stop[]; rejected_by?: RejectedBy | null; cause?: { class?: string; error?: string; detail?: string; from?: string } | null;
  properties: Record<string, unknown>; headers: Record<string, unknown>;
  body: { bytes: number; encoding: "json" | "text" | "base64"; text: string; cut: boolean; section?: "amqp-value" | "amqp-sequence" };
  replay?: { exchange: string; routing_keys: string[]; queues: string[]; problem: string | null } | null;
  from?: string; edited_from?: string; replayed_from?: string; older_headers?: boolean; discarded?: { job: string; by: string; reason?: string; rule?: string; at_ms?: number } | null; masked?: boolean;
}

export interface Filter {
  group?: string; reason?: string; source?: string; exchange?: string; key?: string; class?: string; error?: string; older_than?: string; newer_than?: string;
  died?: string; size?: string; job?: string; message_id?: string; type?: string; body?: string; where?: string[];
}

export interface JobRequest {
  action: "replay" | "move" | "discard" | "restore"; vhost: string; queues: string[]; filter?: Filter; ids?: string[]; to_queue?: string; to_exchange?: string;
  routing_key?: string; rate?: number; stagger_ms?: number; schedule_ms?: number; order?: "oldest" | "newest"; order_by?: string; limit?: number; canary?: { first: number; wait_ms: number; percent: number };
  max_replays?: number; reason?: string; token?: string; count?: number; allow_growth?: boolean;
}

export interface DryRun {
  token: string; count: number; routes: { exchange: string; routing_key: string; queues: string[]; letters: number }[];
  unroutable: { why: string; letters: number }[]; no_origin: number; too_often: number; of: number; diff?: Change[];
  waits?: { queue: string; consumers: number; breaker?: string; until_ms?: number }[];
}

export interface Job {
  id: string; action: string; vhost: string; queues: string[]; filter?: Record<string, string[]>; ids?: number; canary_until_ms?: number; options?: Record<string, unknown>; state: string; why?: string; by: string;
  reason: string; rule?: string; made_ms: number; began_ms?: number; ended_ms?: number; planned: number; examined: number; moved: number; unroutable: number; refused: number;
  no_origin: number; too_often: number; gone: number; counts_hidden?: boolean;
  outcomes?: { waiting: number; acknowledged: number; died_again: number; expired: number; dropped: number; removed: number };
}

// The office, what came second.

/** Paged is a part of a list that goes on at next. */
export interface Paged<T> { items: T[]; next: string | null; }

export interface Drop {
  vhost: string; id: number; queue?: string; reason?: string; why: string; first_ms: number; last_ms: number; count: number; exchange: string;
  routing_keys?: string[]; message_id?: string; type?: string; bytes?: number; example: boolean;
}
export interface Drops extends Paged<Drop> { total: number; dropped: number; hours: { hour_ms: number; counts: Record<string, number> }[]; }

export interface Curve { from_ms: number; step_ms: number; counts: number[]; }
export interface Retry { vhost: string; queue: string; waiting: number; next_ms: number | null; late_ms: number; due: Curve | null; }

export type RuleAction = "retry" | "send" | "discard" | "hold" | "webhook";
export interface Rule {
  name: string; on: boolean; queues: string; match?: Filter; action: RuleAction; after_ms?: number; factor?: number; max_ms?: number; jitter_percent?: number;
  max_times?: number; to_queue?: string; to_exchange?: string; routing_key?: string; parked?: boolean; webhook?: string; last?: boolean;
  state?: "on" | "off" | "stopped"; why?: string; by?: string; acted?: number; waiting?: number; last_ms?: number; counts_hidden?: boolean; job?: number;
}
export interface Rules { rules: Rule[]; threshold?: number; revision?: string; }
export interface RuleTry {
  examined: number; matched: number; too_often?: number; no_origin?: number; parked?: number; due?: number; by_queue: { queue: string; letters: number }[]; first: Row[]; stopped?: string | null;
}

export interface Webhook {
  name: string; url: string; events: string[]; vhost?: string; on: boolean; secret?: string; delivered?: number; failed?: number; waiting?: number; last_error?: string; last_error_ms?: number; last_ms?: number;
}

export type Severity = "error" | "warning" | "hint";
export interface Finding { vhost: string; kind: "queue" | "policy" | "exchange" | "vhost"; name: string; rule: string; severity: Severity; text: string; mend: string; }

/** Act is an entry of the audit. Something that was done several times within a minute is one entry, with times and last_ms. */
export interface Act { id: number; time_ms: number; who: string; peer: string; what: string; vhost: string; object: string; why: string; count: number; detail: string; times?: number; last_ms?: number; }

export interface TopologyNode { name: string; kind: "queue" | "exchange"; letters: number | null; messages: number | null; missing: boolean; }
export interface TopologyEdge {
  from: string; from_kind: "queue" | "exchange"; to: string; to_kind: "queue" | "exchange"; kind: "dead-letter" | "binding"; key: string | null;
  from_arguments: boolean; from_policy: string; from_vhost?: boolean; loop: boolean; problem: string;
}
export interface Topology { nodes: TopologyNode[]; edges: TopologyEdge[]; left_out: number; }

export interface Masks { headers: string[]; paths: string[]; patterns: string[]; }

export interface RejectedBy { consumer_tag?: string; connection?: string; connection_name?: string; peer?: string; user?: string; product?: string; version?: string; delivery_count?: number; }
/** Change is one difference that an edit makes; of a body the first part. */
export interface Change { what: string; before: unknown; after: unknown; cut?: boolean; }
export interface LetterEdit { body?: string; body_encoding?: "text" | "base64"; properties?: Record<string, unknown>; headers?: Record<string, unknown>; }
export interface Imported { imported: number; refused: { line: number; why: string }[] | null; }
