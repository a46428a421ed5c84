package ctl

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// whereVerbs say where a node has its things, and what it knows of its surroundings.
func whereVerbs() []verb {
	return []verb{logLocation(), resolveHostname(), metadataStoreStatus(), listCiphers("list_ciphers"), listCiphers("cipher_suites"), peekVerb()}
}

func logLocation() verb {
	all := false
	return verb{
		name: "log_location", short: "Shows log file location(s) on target node", usage: "[--all]",
		flags: func(f *pflag.FlagSet) { f.BoolVarP(&all, "all", "a", false, "all outputs, not only the first") },
		run: func(i *invocation) error {
			node, err := i.node()
			if err != nil {
				return err
			}
			var n struct {
				Files []string `json:"log_files"`
			}
			if err := i.get(path("nodes", node)+"?columns=log_files", &n); err != nil {
				return explain(err)
			}
			i.say("Log file location(s) on node %s ...", node)
			for k, file := range n.Files {
				if k == 0 || all {
					i.print("%s", file)
				}
			}
			return nil
		},
	}
}

func resolveHostname() verb {
	family, offline := "", false
	return verb{
		name: "resolve_hostname", short: "Resolves a hostname to a set of addresses", min: 1, max: 1,
		usage: "<hostname> [--address-family <ipv4|ipv6>] [--offline]",
		long:  "The program resolves the name, on the machine that it runs on, with or without --offline.",
		flags: func(f *pflag.FlagSet) {
			f.StringVar(&family, "address-family", "ipv4", "ipv4 or ipv6")
			f.BoolVar(&offline, "offline", false, "accepted")
		},
		run: func(i *invocation) error {
			networks := map[string][2]string{"ipv4": {"ip4", "IPv4"}, "inet": {"ip4", "IPv4"}, "ipv6": {"ip6", "IPv6"}, "inet6": {"ip6", "IPv6"}}
			network, known := networks[strings.ToLower(family)]
			if !known {
				return badArgument("unsupported IP address family %s. Valid values are: ipv4, ipv6", family)
			}
			i.say("Resolving hostname %s to %s addresses...", i.args[0], network[1])
			found, err := net.DefaultResolver.LookupIP(i.ctx, network[0], i.args[0])
			if err != nil {
				return fail(exitUnavailable, "Hostname does not resolve (%v)", err)
			}
			for _, address := range found {
				i.print("%s", address)
			}
			return nil
		},
	}
}

// metadataStoreStatus has the columns of RabbitMQ's Raft. Here is a store of one node.
func metadataStoreStatus() verb {
	return verb{
		name: "metadata_store_status", short: "Displays quorum status of the metadata store",
		run: func(i *invocation) error {
			node, err := i.node()
			if err != nil {
				return err
			}
			i.say("Status of metadata store on node %s ...", node)
			columns := fields("Node Name", "Raft State", "Membership", "Last Log Index", "Last Written", "Last Applied", "Commit Index", "Snapshot Index", "Term", "Machine Version")
			row := object{"Node Name": node, "Raft State": "leader", "Membership": "voter"}
			for _, c := range columns[3:] {
				row[c.name] = 0
			}
			return i.boxed("", columns, []object{row})
		},
	}
}

// listCiphers has the suites of TLS that connections may use. RabbitMQ's list_ciphers has those that encrypt its configuration;
// nothing does that here.
func listCiphers(name string) verb {
	return verb{
		name: name, short: "Lists cipher suites of TLS connections", usage: "[--format openssl] [--all]",
		flags: func(f *pflag.FlagSet) {
			f.String("format", "openssl", "accepted")
			f.Bool("all", false, "accepted")
		},
		run: func(i *invocation) error {
			i.say("Listing available cipher suites ...")
			for _, suite := range tls.CipherSuites() {
				i.print("%s", suite.Name)
			}
			return nil
		},
	}
}

// peekedBytes of a message's body are shown.
const peekedBytes = 64

// peekVerb shows a message and leaves it as it is.
func peekVerb() verb {
	return verb{
		name: "peek", short: "Peeks at the given position of a queue", min: 2, max: 2, usage: "[--vhost <vhost>] <queue> <position>",
		run: func(i *invocation) error {
			position, err := strconv.Atoi(i.args[1])
			if err != nil || position < 1 {
				return badArgument("position value must be a positive integer")
			}
			node, err := i.node()
			if err != nil {
				return err
			}
			i.say("Peeking at queue %s at position %d on node %s ...", i.args[0], position, node)
			var found []struct {
				Payload    string          `json:"payload"`
				Exchange   string          `json:"exchange"`
				Key        string          `json:"routing_key"`
				Properties json.RawMessage `json:"properties"` // an empty list where there are none
			}
			err = i.post(path("queues", i.vhost, i.args[0], "get"), object{"ackmode": "peek", "count": position, "encoding": "auto", "truncate": peekedBytes}, &found)
			switch {
			case is(err, http.StatusNotFound):
				return fail(exitUnavailable, "Target queue was not found in virtual host '%s'", i.vhost)
			case err != nil:
				return explain(err)
			case len(found) < position:
				return fail(exitUnavailable, "Target queue does not have a message at that position")
			}
			m := found[position-1]
			values := object{"exchange": m.Exchange, "routing_keys": m.Key, fmt.Sprintf("payload (max %d bytes)", peekedBytes): m.Payload}
			var properties map[string]any
			_ = json.Unmarshal(m.Properties, &properties)
			for name, v := range properties {
				if headers, ok := v.(map[string]any); ok && name == "headers" {
					for key, v := range headers {
						values["header."+key] = v
					}
					continue
				}
				values[name] = v
			}
			var rows []object
			for _, key := range slices.Sorted(maps.Keys(values)) {
				rows = append(rows, object{"keys": key, "values": values[key]})
			}
			return i.boxed("", fields("keys", "values"), rows)
		},
	}
}
