package ctl

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// diagnosticVerbs are the verbs of rabbitmq-diagnostics: checks whose exit code is the answer.
func diagnosticVerbs() []verb {
	return []verb{
		alarmsVerb("alarms", "Lists resource alarms (local or cluster-wide) in effect on the target node", false),
		alarmsVerb("check_alarms", "Health check that exits with a non-zero code if there are resource alarms", true),
		deprecatedCheck("check_local_alarms", "This command is DEPRECATED and is a no-op. It will be removed in a future version.\nNode %s reported no local alarms"),
		deprecatedCheck("check_if_node_is_mirror_sync_critical", "This command is DEPRECATED and is a no-op. It will be removed in a future version.\nok"),
		deprecatedCheck("node_health_check", "This command is DEPRECATED and is a no-op. It will be removed in a future version. \n"+
			"Use one of the options covered in https://www.rabbitmq.com/monitoring.html#health-checks instead."),
		checkPortListener(), checkProtocolListener(), checkPortConnectivity(), checkCertificates(), checkLeaders(),
		question{"check_running", "Health check that exits with a non-zero code if the node is not running",
			"Checking if RabbitMQ is running on node %s ...", "", "RabbitMQ on node %s is fully booted and running"}.verb(),
		question{"is_running", "Health check that exits with a non-zero code if the node is not running",
			"Asking node %s for its status ...", "", "RabbitMQ on node %s is fully booted and running"}.verb(),
		question{"is_booting", "Checks if RabbitMQ is still booting on the target node",
			"Asking node %s for its boot status ...", "",
			"RabbitMQ on node %s is fully booted (check with is_running), stopped or has not started booting yet"}.verb(),
		question{"check_virtual_hosts", "Health check that checks if all vhosts are running in the target node",
			"Checking if all vhosts are running on node %s ...", "health/checks/virtual-hosts", "Node %s reported all vhosts as running"}.verb(),
		question{"check_if_node_is_quorum_critical", "Health check that exits with a non-zero code if there are queues with minimum online quorum",
			"Checking if node %s is critical for quorum of any queues/streams ...", "health/checks/node-is-quorum-critical",
			"Node %s seems to be the only one in a single node cluster, the check does not apply"}.verb(),
		question{"check_if_metadata_store_is_initialized", "Health check that exits with a non-zero code if the metadata store is not initialized",
			"Checking if metadata store on node %s has finished initializing ...", "health/checks/metadata-store/initialized",
			"Metadata store on node %s has completed its initialization"}.verb(),
		question{"check_if_metadata_store_is_initialized_with_data", "Health check that exits with a non-zero code if the metadata store has no data",
			"Checking if metadata store on node %s has finished initializing ...", "health/checks/metadata-store/initialized/with-data",
			"Metadata store on node %s has completed its initialization"}.verb(),
		question{"has_reached_target_cluster_size", "Health check that exits with a non-zero code if the cluster is smaller than it is to be",
			"Checking if target cluster size has been reached on node %s ...", "health/checks/reached-target-cluster-size",
			"Target cluster size has been reached on node %s"}.verb(),
		listeners(), serverVersion("server_version"), versionVerb(), erlangVersion(), memoryBreakdown(), checkDeprecatedFeatures(), listDeprecatedFeatures(),
		listLoginStats(), listUnresponsiveQueues(), awaitOnlineNodes(), awaitQuorum(), tlsVersions(), osEnvironment(), report(),
	}
}

// node is the name of the answering node.
func (i *invocation) node() (string, error) {
	var o struct{ Node string }
	if err := i.get("overview?columns=node", &o); err != nil {
		return "", explain(err)
	}
	return o.Node, nil
}

// question is a check by a resource of the API, with the texts before and after it; %s is
// the node.
type question struct{ name, short, before, resource, good string }

func (q question) verb() verb {
	return verb{
		name: q.name, short: q.short, max: 0, health: true,
		run: func(i *invocation) error {
			node, err := i.node()
			if err != nil {
				return err
			}
			i.say(q.before, node)
			if q.resource != "" {
				if err := i.get(q.resource, nil); err != nil {
					return explain(err)
				}
			}
			return i.ok(node, fmt.Sprintf(q.good, node), nil)
		},
	}
}

// ok prints that a check succeeded, for programs as an object with more facts.
func (i *invocation) ok(node, text string, facts object) error {
	if i.formatter == "json" {
		o := object{"node": node, "result": "ok"}
		for k, v := range facts {
			o[k] = v
		}
		text, err := encode(o)
		i.print("%s", text)
		return err
	}
	if !i.silent {
		i.print("%s", text)
	}
	return nil
}

func deprecatedCheck(name, text string) verb {
	return verb{name: name, short: "Does nothing", max: 0, hidden: true, run: func(i *invocation) error {
		if !strings.Contains(text, "%s") {
			i.print("%s", text)
			return nil
		}
		node, err := i.node()
		if err == nil {
			i.print(text, node)
		}
		return err
	}}
}

// alarmsVerb lists alarms; if check is set, an alarm is a failure.
func alarmsVerb(name, short string, check bool) verb {
	return verb{
		name: name, short: short, max: 0, health: true,
		run: func(i *invocation) error {
			node, err := i.node()
			if err != nil {
				return err
			}
			what := "known"
			if check {
				what = "local"
			}
			i.say("Asking node %s to report any %s resource alarms ...", node, what)
			n, err := i.nodeInfo(node)
			if err != nil {
				return err
			}
			var lines []string
			if n.MemoryAlarm {
				lines = append(lines, fmt.Sprintf("Memory alarm on node %s", node))
			}
			if n.DiskAlarm {
				lines = append(lines, fmt.Sprintf("Free disk space alarm on node %s", node))
			}
			switch {
			case lines == nil:
				return i.ok(node, fmt.Sprintf("Node %s reported no alarms, local or clusterwide", node), object{"alarms": []any{}})
			case check:
				return fail(exitUnavailable, "%s", strings.Join(lines, "\n"))
			}
			i.print("%s", strings.Join(lines, "\n"))
			return nil
		},
	}
}

// listener has the used parts of the API's listener.
type listener struct {
	Protocol string `json:"protocol"`
	Address  string `json:"ip_address"`
	Port     int    `json:"port"`
}

func (i *invocation) listeners() (node string, list []listener, err error) {
	var o struct {
		Node      string     `json:"node"`
		Listeners []listener `json:"listeners"`
	}
	err = i.get("overview", &o)
	return o.Node, o.Listeners, explain(err)
}

func ports(list []listener) string {
	var numbers []int
	for _, l := range list {
		numbers = append(numbers, l.Port)
	}
	slices.Sort(numbers)
	texts := make([]string, len(numbers))
	for k, n := range numbers {
		texts[k] = strconv.Itoa(n)
	}
	return strings.Join(texts, ", ")
}

func checkPortListener() verb {
	return verb{
		name: "check_port_listener", health: true, short: "Health check that exits with a non-zero code if the node is not listening on a port", min: 1, max: 1,
		usage: "<port> [--timeout <timeout>]",
		run: func(i *invocation) error {
			port, err := strconv.Atoi(i.args[0])
			if err != nil || port <= 0 {
				return badArgument("Bad argument: Argument must be a positive integer")
			}
			node, list, err := i.listeners()
			if err != nil {
				return err
			}
			i.say("Asking node %s if there's an active listener on port %d ...", node, port)
			if !slices.ContainsFunc(list, func(l listener) bool { return l.Port == port }) {
				return failPlainly(exitUnavailable, "No listener for port %d is active on node %s. Found listeners that use the following ports: %s", port, node, ports(list))
			}
			return i.ok(node, fmt.Sprintf("A listener for port %d is running on node %s.", port, node), object{"port": i.args[0]})
		},
	}
}

// protocolAliases are other names of protocols in checks.
var protocolAliases = map[string]string{"amqp091": "amqp", "amqp10": "amqp", "amqps": "amqp/ssl", "management": "http", "prometheus": "http/prometheus"}

func checkProtocolListener() verb {
	return verb{
		name: "check_protocol_listener", health: true, short: "Health check that exits with a non-zero code if the node has no listener for a protocol", min: 1, max: 1,
		usage: "<protocol> [--timeout <timeout>]",
		run: func(i *invocation) error {
			want := strings.ToLower(i.args[0])
			if name, ok := protocolAliases[want]; ok {
				want = name
			}
			node, list, err := i.listeners()
			if err != nil {
				return err
			}
			i.say("Asking node %s if there's an active listener for protocol %s ...", node, i.args[0])
			var found []string
			for _, l := range list {
				if l.Protocol == want {
					return i.ok(node, fmt.Sprintf("A listener for protocol %s is running on node %s.", i.args[0], node), object{"protocol": i.args[0]})
				}
				found = append(found, l.Protocol)
			}
			slices.Sort(found)
			return fail(exitUnavailable, "No listener for protocol %s is active on node %s. Found listeners for the following protocols: %s",
				i.args[0], node, strings.Join(slices.Compact(found), ", "))
		},
	}
}

// dialTimeout is how long a port may take to accept a connection.
const dialTimeout = 5 * time.Second

func checkPortConnectivity() verb {
	var address string
	return verb{
		name: "check_port_connectivity", health: true, short: "Basic TCP connectivity health check for each listener's port on the target node", max: 0,
		usage: "[--address <ip_address>]",
		flags: func(f *pflag.FlagSet) { f.StringVar(&address, "address", "", "connect to this address") },
		run: func(i *invocation) error {
			node, list, err := i.listeners()
			if err != nil {
				return err
			}
			i.say("Testing TCP connections to all active listeners on node %s using hostname resolution ...", node)
			var bad []listener
			for _, l := range list {
				host := l.Address
				if address != "" {
					host = address
				}
				if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
					host = "localhost"
				}
				i.say("Will connect to %s:%d", host, l.Port)
				conn, err := net.DialTimeout("tcp", net.JoinHostPort(host, strconv.Itoa(l.Port)), dialTimeout)
				if err != nil {
					bad = append(bad, l)
					continue
				}
				_ = conn.Close()
			}
			if bad != nil {
				return fail(exitUnavailable, "Connection to ports of the following listeners on node %s failed: %s", node, ports(bad))
			}
			return i.ok(node, fmt.Sprintf("Successfully connected to ports %s on node %s (using node hostname resolution)", ports(list), node), nil)
		},
	}
}

func checkCertificates() verb {
	var unit string
	within := 4
	return verb{
		name: "check_certificate_expiration", health: true, short: "Checks the expiration date on the certificates for every listener configured to use TLS", max: 0,
		usage: "[--within <period>] [--unit <unit>]",
		flags: func(f *pflag.FlagSet) {
			f.IntVar(&within, "within", 4, "number of units")
			f.StringVar(&unit, "unit", "weeks", "days, weeks, months or years")
		},
		run: func(i *invocation) error {
			node, err := i.node()
			if err != nil {
				return err
			}
			i.say("Checking certificate expiration for all certificates on node %s ...", node)
			if err := i.get(path("health", "checks", "certificate-expiration", strconv.Itoa(within), unit), nil); err != nil {
				return explain(err)
			}
			return i.ok(node, fmt.Sprintf("No certificates are expiring within %d %s.", within, unit), nil)
		},
	}
}

func checkLeaders() verb {
	var everywhere bool
	return verb{
		name: "check_for_quorum_queues_without_an_elected_leader", health: true, short: "Checks that all quorum queues that match a pattern have an elected leader",
		min: 1, max: 1, usage: "[--vhost <vhost>] [--across-all-vhosts] <pattern>",
		flags: func(f *pflag.FlagSet) { f.BoolVar(&everywhere, "across-all-vhosts", false, "in all virtual hosts") },
		run: func(i *invocation) error {
			node, err := i.node()
			if err != nil {
				return err
			}
			where := path("vhost", i.vhost)
			if everywhere {
				where = "all-vhosts"
			}
			if err := i.get("health/checks/quorum-queues-without-elected-leaders/"+where+"/pattern/"+path(i.args[0]), nil); err != nil {
				return explain(err)
			}
			return i.ok(node, fmt.Sprintf("Node %s reported all quorum queue as having responsive leader replicas", node), nil)
		},
	}
}

// purposes are what listeners are for, in RabbitMQ's words.
var purposes = map[string]string{
	"amqp": "AMQP 0-9-1 and AMQP 1.0", "amqp/ssl": "AMQP 0-9-1 and AMQP 1.0 over TLS", "http": "HTTP API", "https": "HTTP API over TLS (HTTPS)",
	"http/prometheus": "Prometheus exporter API over HTTP", "https/prometheus": "Prometheus exporter API over TLS (HTTPS)",
}

func listeners() verb {
	return verb{
		name: "listeners", short: "Lists active connection listeners (bound interface, port, protocol) on the target node", max: 0,
		run: func(i *invocation) error {
			node, list, err := i.listeners()
			if err != nil {
				return err
			}
			if i.formatter == "json" {
				items := []object{}
				for _, l := range list {
					items = append(items, object{"node": node, "interface": l.Address, "port": l.Port, "protocol": l.Protocol, "purpose": purposes[l.Protocol]})
				}
				text, err := encode(object{"node": node, "result": "ok", "listeners": items})
				i.print("%s", text)
				return err
			}
			i.say("Asking node %s to report its protocol listeners ...", node)
			for _, l := range list {
				address := l.Address
				if strings.Contains(address, ":") {
					address = "[" + address + "]"
				}
				i.print("Interface: %s, port: %d, protocol: %s, purpose: %s", address, l.Port, l.Protocol, purposes[l.Protocol])
			}
			return nil
		},
	}
}

func serverVersion(name string) verb {
	return verb{
		name: name, short: "Displays the version of RabbitMQ that the node is compatible with", max: 0,
		run: func(i *invocation) error {
			o, err := i.overview()
			if err != nil {
				return err
			}
			i.say("Asking node %s for its RabbitMQ version...", o.Node)
			i.print("%s", o.RabbitMQ)
			return nil
		},
	}
}

// versionVerb is rabbitmqctl's, which needs no node; the program bartleby has its own.
func versionVerb() verb {
	return verb{
		name: "version", short: "Displays the version of RabbitMQ that this program is compatible with", max: 0,
		run: func(i *invocation) error {
			i.print("%s", i.version)
			return nil
		},
	}
}

func erlangVersion() verb {
	return verb{
		name: "erlang_version", short: "Displays the Erlang/OTP version that the node reports to tools", max: 0, usage: "[--details]",
		run: func(i *invocation) error {
			var o struct {
				Node    string `json:"node"`
				Version string `json:"erlang_version"`
			}
			if err := i.get("overview", &o); err != nil {
				return explain(err)
			}
			i.say("Asking node %s for its Erlang/OTP version...", o.Node)
			i.print("Erlang/OTP %s", o.Version)
			return nil
		},
	}
}

// memoryUnits are the units of memory_breakdown with their bytes.
var memoryUnits = map[string]float64{"bytes": 1, "kb": 1e3, "mb": 1e6, "gb": 1 << 30, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tb": 1e12}

func memoryBreakdown() verb {
	unit := "gb"
	return verb{
		name: "memory_breakdown", short: "Provides a memory usage breakdown", max: 0, usage: "[--unit <unit>]",
		flags: func(f *pflag.FlagSet) { f.StringVar(&unit, "unit", "gb", "bytes, kb, mb, gb") },
		run: func(i *invocation) error {
			size, ok := memoryUnits[strings.ToLower(unit)]
			if !ok {
				return badArgument("unit '%s' is not supported. Please use one of: bytes, mb, gb", unit)
			}
			node, err := i.node()
			if err != nil {
				return err
			}
			var reply struct{ Memory map[string]any }
			if err := i.get(path("nodes", node, "memory"), &reply); err != nil {
				return explain(err)
			}
			type part struct {
				name  string
				bytes float64
			}
			var parts []part
			total := 0.0
			for name, v := range reply.Memory {
				n, err := strconv.ParseFloat(sprint(v), 64)
				if err != nil {
					continue // strategy and totals
				}
				parts = append(parts, part{name, n})
				total += n
			}
			slices.SortFunc(parts, func(a, b part) int {
				if a.bytes != b.bytes {
					return int(b.bytes - a.bytes)
				}
				return strings.Compare(a.name, b.name)
			})
			i.say("Reporting memory breakdown on node %s...", node)
			for _, p := range parts {
				i.print("%s: %s %s (%s%%)", p.name, rounded(p.bytes/size, 4), unit, rounded(100*p.bytes/max(total, 1), 2))
			}
			return nil
		},
	}
}

// rounded prints as Erlang prints a rounded float: at least one digit after the point.
func rounded(f float64, digits int) string {
	text := strings.TrimRight(strconv.FormatFloat(f, 'f', digits, 64), "0")
	if strings.HasSuffix(text, ".") {
		text += "0"
	}
	return text
}

func checkDeprecatedFeatures() verb {
	return verb{
		name: "check_if_any_deprecated_features_are_used", short: "Generate a report listing all deprecated features in use", max: 0,
		run: func(i *invocation) error {
			i.say("Checking if any deprecated features are used ...")
			var items []object
			if err := i.get("deprecated-features/used", &items); err != nil {
				return explain(err)
			}
			if len(items) == 0 {
				i.print("Cluster reported no deprecated features in use")
				return nil
			}
			var names []string
			for _, o := range items {
				names = append(names, sprint(o["name"]))
			}
			return fail(exitUnavailable, "Cluster reported the following deprecated features in use:\n%s", strings.Join(names, "\n"))
		},
	}
}

func listDeprecatedFeatures() verb {
	var used bool
	return verb{
		name: "list_deprecated_features", short: "Lists deprecated features", max: -1, usage: "[--used] [<column> ...]",
		flags: func(f *pflag.FlagSet) { f.BoolVar(&used, "used", false, "only features in use") },
		run: func(i *invocation) error {
			columns, err := chooseColumns(i.args, fields("name", "deprecation_phase", "provided_by", "desc", "doc_url", "state"), "name", "deprecation_phase", "state")
			if err != nil {
				return err
			}
			resource := "deprecated-features"
			if used {
				resource += "/used"
			}
			var items []object
			if err := i.get(resource+"?sort=name", &items); err != nil {
				return explain(err)
			}
			return i.boxed("Listing deprecated features ...", columns, items)
		},
	}
}

func listLoginStats() verb {
	return verb{
		name: "list_node_auth_attempt_stats", short: "Tracks authentication attempts on the target node", max: 0, usage: "[--by-source]",
		flags: func(f *pflag.FlagSet) { f.Bool("by-source", false, "by address: not kept") },
		run: func(i *invocation) error {
			node, err := i.node()
			if err != nil {
				return err
			}
			var items []object
			if err := i.get(path("auth", "attempts", node), &items); err != nil {
				return explain(err)
			}
			columns := fields("protocol", "auth_attempts", "auth_attempts_failed", "auth_attempts_succeeded")
			return i.list(fmt.Sprintf("Listing authentication\n attempts for node \"%s\" ...", node), columns, items)
		},
	}
}

// listUnresponsiveQueues finds none: a queue answers as long as its node answers.
func listUnresponsiveQueues() verb {
	return verb{
		name: "list_unresponsive_queues", short: "Tests queues to respond within timeout. Lists those which did not respond", max: -1,
		run: func(i *invocation) error {
			return i.list("Listing unresponsive queues for vhost "+i.vhost+" ...", fields("name"), nil)
		},
	}
}

func awaitOnlineNodes() verb {
	return verb{
		name: "await_online_nodes", short: "Waits for <count> nodes to join the cluster", min: 1, max: 1, usage: "<count>",
		run: func(i *invocation) error {
			count, err := strconv.Atoi(i.args[0])
			if err != nil || count < 1 {
				return badArgument("Bad argument: Argument must be a positive integer")
			}
			node, err := i.node()
			if err != nil {
				return err
			}
			limit := i.limit(5 * time.Minute)
			i.say("Will wait for at least %d nodes to join the cluster of %s. Timeout: %d seconds.", count, node, int(limit.Seconds()))
			enough, err := i.until(limit, func() (bool, error) {
				var nodes []object
				err := i.get("nodes?columns=name", &nodes)
				return len(nodes) >= count, explain(err)
			})
			if err == nil && !enough {
				return i.timedOut("await_online_nodes", limit)
			}
			return err
		},
	}
}

func awaitQuorum() verb {
	return verb{
		name: "await_online_quorum_plus_one", short: "Waits for all quorum queues and streams to have an above minimum online quorum", max: 0,
		run: func(i *invocation) error {
			limit := i.limit(2 * time.Minute)
			i.say("Will wait for a quorum + 1 of nodes to be online for all quorum queues and streams for %d seconds...", int(limit.Seconds()))
			if err := i.get("health/checks/node-is-quorum-critical", nil); err != nil {
				return explain(err)
			}
			i.print("Target node seems to be the only one in a single node cluster, the command does not apply")
			return nil
		},
	}
}

func tlsVersions() verb {
	return verb{
		name: "tls_versions", short: "Lists TLS versions supported (but not necessarily allowed) on the target node", max: 0,
		run: func(i *invocation) error {
			i.say("Listing all TLS versions supported by the runtime...")
			i.print("tlsv1.3\ntlsv1.2")
			return nil
		},
	}
}

func osEnvironment() verb {
	return verb{
		name: "os_env", short: "Lists RabbitMQ-specific environment variables set on the target node", max: 0,
		run: func(i *invocation) error {
			o, n, err := i.thisNode()
			if err != nil {
				return err
			}
			i.say("Listing RabbitMQ-specific environment variables defined on node %s...", o.Node)
			i.print("RABBITMQ_NODENAME=%s\nMNESIA_BASE=%s", o.Node, n.DataDir)
			return nil
		},
	}
}

// report runs all verbs that show something, one after the other.
func report() verb {
	return verb{
		name: "report", short: "Generate a server status report containing a concatenation of all server status information for support purposes", max: 0,
		run: func(i *invocation) error {
			i.say("Reporting server status of node %s ...", i.name)
			err := i.showAll("", "status", "cluster_status", "environment", "list_connections", "list_channels", "list_users", "list_vhosts", "list_feature_flags", "list_deprecated_features")
			if err != nil {
				return err
			}
			var vhosts []struct{ Name string }
			if err := i.get("vhosts?columns=name", &vhosts); err != nil {
				return explain(err)
			}
			chosen := i.vhost
			defer func() { i.vhost = chosen }()
			for _, v := range vhosts {
				i.vhost = v.Name
				if err := i.showAll(" of "+v.Name, "list_queues", "list_exchanges", "list_bindings", "list_permissions", "list_policies", "list_consumers"); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// showAll runs verbs by their names, each after a title.
func (i *invocation) showAll(of string, names ...string) error {
	verbs := map[string]verb{}
	for _, group := range groupsOf("rabbitmqctl") {
		for _, v := range group() {
			verbs[v.name] = v
		}
	}
	for _, name := range names {
		i.print("\n# %s%s\n", name, of)
		if err := verbs[name].run(i); err != nil {
			return err
		}
	}
	return nil
}
