package ctl

import (
	"net/http"

	"github.com/spf13/pflag"
)

// leaderVerbs are the verbs of rabbitmq-queues.
func leaderVerbs() []verb {
	verbs := []verb{quorumStatus(), rebalance()}
	for _, name := range []string{"grow", "shrink", "add_member", "delete_member", "transfer_leadership"} {
		verbs = append(verbs, verb{name: name, max: -1, hidden: true, run: func(*invocation) error {
			return fail(exitUnavailable, "%s is not supported: there is one node, which has the only replica of each queue", name)
		}})
	}
	return verbs
}

func quorumStatus() verb {
	return verb{
		name: "quorum_status", short: "Displays quorum status of a quorum queue", min: 1, max: 1, usage: "[--vhost <vhost>] <queue>",
		run: func(i *invocation) error {
			node, err := i.node()
			if err != nil {
				return err
			}
			i.say("Status of queue %s on node %s ...", i.args[0], node)
			var items []object
			err = i.get(path("queues", "quorum", i.vhost, i.args[0], "status"), &items)
			if is(err, http.StatusServiceUnavailable) {
				return fail(exitUnavailable, "{:unsupported, :rabbit_classic_queue}")
			}
			if err != nil {
				return i.inVHost(err)
			}
			return i.boxed("", fields(
				"Node Name", "Raft State", "Membership", "Last Log Index", "Last Written", "Last Applied", "Commit Index", "Snapshot Index", "Term", "Machine Version",
			), items)
		},
	}
}

// boxed is list for verbs whose tables rabbitmqctl frames by default.
func (i *invocation) boxed(banner string, columns []column, items []object) error {
	if i.formatter == "" {
		i.formatter = "pretty_table"
		defer func() { i.formatter = "" }()
	}
	return i.list(banner, columns, items)
}

func rebalance() verb {
	return verb{
		name: "rebalance", short: "Rebalances leaders of quorum queues, and streams", min: 1, max: 1,
		usage: "<type> --vhost-pattern <pattern> --queue-pattern <pattern>",
		flags: func(f *pflag.FlagSet) {
			f.String("vhost-pattern", ".*", "accepted")
			f.String("queue-pattern", ".*", "accepted")
		},
		run: func(i *invocation) error {
			if !map[string]bool{"all": true, "classic": true, "quorum": true, "stream": true}[i.args[0]] {
				return badArgument("type must be one of: all, classic, quorum, stream")
			}
			i.say("Re-balancing leaders of %s queues...", i.args[0])
			if err := i.post("rebalance/queues", nil, nil); err != nil {
				return explain(err)
			}
			node, err := i.node()
			if err != nil {
				return err
			}
			var queues []struct{ Type string }
			if err := i.get("queues?disable_stats=true&columns=type", &queues); err != nil {
				return explain(err)
			}
			n := 0
			for _, q := range queues {
				if q.Type == "quorum" {
					n++
				}
			}
			columns := fields("Node name", "Number of quorum queues")
			return i.boxed("", columns, []object{{"Node name": node, "Number of quorum queues": n}})
		},
	}
}
