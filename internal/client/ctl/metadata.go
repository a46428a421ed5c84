package ctl

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/pflag"
)

// metadataVerbs change the metadata of virtual hosts, and a few settings of the node.
func metadataVerbs() []verb {
	return []verb{updateVHost(), setVHostTags(), restartVHost(), setPermissionsGlobally(), enableFeatureFlag(), resetStatistics(), forceGC()}
}

// vhostMetadata are the flags for the metadata of a virtual host.
type vhostMetadata struct {
	description, tags, queueType, deadLetter string
	lenient                                  bool
}

func (m *vhostMetadata) flags(f *pflag.FlagSet) {
	f.StringVar(&m.description, "description", "", "purpose of the virtual host")
	f.StringVar(&m.tags, "tags", "", "tags, separated by commas")
	f.StringVar(&m.queueType, "default-queue-type", "", "type of queues that are declared without a type")
	f.StringVar(&m.deadLetter, "default-dead-letter", "", "queue for the dead letters of queues without a dead-letter exchange, %q being their name, as in %q.dead")
	f.BoolVar(&m.lenient, "lenient-declarations", false, "accept declarations of a queue with the arguments that it had before they were changed")
}

// body has the metadata that the command line sets.
func (m *vhostMetadata) body(i *invocation) object {
	body := object{}
	if i.set("description") {
		body["description"] = m.description
	}
	if i.set("tags") {
		body["tags"] = strings.Split(m.tags, ",")
	}
	if i.set("default-queue-type") {
		body["default_queue_type"] = m.queueType
	}
	if i.set("default-dead-letter") {
		body["default_dead_letter"] = m.deadLetter
	}
	if i.set("lenient-declarations") {
		body["lenient_declarations"] = m.lenient
	}
	return body
}

func updateVHost() verb {
	var m vhostMetadata
	return verb{
		name: "update_vhost_metadata", short: "Updates metadata (tags, description, default queue type) a virtual host", min: 1, max: 1,
		usage: "<vhost> [--description <description>] [--tags \"<tag1>,<tag2>,<...>\"] [--default-queue-type <quorum|classic|stream>] [--default-dead-letter <queue>] [--lenient-declarations]",
		flags: m.flags,
		run: func(i *invocation) error {
			body := m.body(i)
			if len(body) == 0 {
				return badArgument("No metadata arguments were provided")
			}
			i.say(`Updating metadata of vhost "%s" ...`, i.args[0])
			return i.changeVHost(i.args[0], body)
		},
	}
}

// changeVHost changes an existing virtual host; a PUT would create a missing one.
func (i *invocation) changeVHost(name string, body object) error {
	at := path("vhosts", name)
	if err := i.get(at+"?columns=name", nil); is(err, http.StatusNotFound) {
		return noVHost(name)
	} else if err != nil {
		return explain(err)
	}
	return explain(i.put(at, body))
}

func setVHostTags() verb {
	return verb{
		name: "set_vhost_tags", short: "Sets virtual host tags", min: 1, max: -1, usage: "<vhost> <tag> [...]",
		run: func(i *invocation) error {
			i.say(`Setting tags for virtual host "%s" to [%s] ...`, i.args[0], strings.Join(i.args[1:], ", "))
			return i.changeVHost(i.args[0], object{"tags": i.args[1:]})
		},
	}
}

func restartVHost() verb {
	return verb{
		name: "restart_vhost", short: "Restarts a failed vhost data stores and queues", max: 0, usage: "[--vhost <vhost>]",
		run: func(i *invocation) error {
			node, err := i.node()
			if err != nil {
				return err
			}
			i.say("Trying to restart vhost '%s' on node '%s' ...", i.vhost, node)
			if err := i.post(path("vhosts", i.vhost, "start", node), nil, nil); err != nil {
				return i.inVHost(err)
			}
			i.print("Vhost '%s' is already running on node '%s'", i.vhost, node)
			return nil
		},
	}
}

func setPermissionsGlobally() verb {
	return verb{
		name: "set_permissions_globally", short: "Sets user permissions for all virtual hosts", min: 4, max: 4, usage: "<username> <conf> <write> <read>",
		run: func(i *invocation) error {
			i.say(`Setting permissions for user "%s" in all virtual hosts ...`, i.args[0])
			var vhosts []struct{ Name string }
			if err := i.get("vhosts?columns=name", &vhosts); err != nil {
				return explain(err)
			}
			for _, v := range vhosts {
				err := i.put(path("permissions", v.Name, i.args[0]), object{"configure": i.args[1], "write": i.args[2], "read": i.args[3]})
				if is(err, http.StatusBadRequest) {
					return failPlainly(exitNoUser, "User %q does not exist", i.args[0])
				}
				if err != nil {
					return explain(err)
				}
			}
			return nil
		},
	}
}

func enableFeatureFlag() verb {
	return verb{
		name: "enable_feature_flag", short: "Enables a feature flag or all supported feature flags on the target node", min: 1, max: 1,
		usage: "[--opt-in] <all | feature_flag>",
		flags: func(f *pflag.FlagSet) {
			f.Bool("opt-in", false, "accepted")
			f.Bool("experimental", false, "accepted")
		},
		run: func(i *invocation) error {
			if i.args[0] == "all" {
				i.say("Enabling all feature flags ...")
				return nil
			}
			i.say(`Enabling feature flag "%s" ...`, i.args[0])
			err := i.put(path("feature-flags", i.args[0], "enable"), nil)
			if is(err, http.StatusBadRequest) {
				node, err := i.node()
				if err != nil {
					return err
				}
				return fail(exitUsage, "This feature flag is not supported by node %s", node)
			}
			return explain(err)
		},
	}
}

func resetStatistics() verb {
	return verb{
		name: "reset_stats_db", short: "Resets statistics database. This will remove all metrics data!", max: 0, usage: "[--all]",
		flags: func(f *pflag.FlagSet) { f.Bool("all", false, "on all nodes") },
		run: func(i *invocation) error {
			node, err := i.node()
			if err != nil {
				return err
			}
			i.say("Resetting statistics database on node %s", node)
			return explain(i.delete("reset"))
		},
	}
}

func forceGC() verb {
	return verb{
		name: "force_gc", short: "Does nothing: garbage collection is automatic", max: 0, hidden: true,
		run: func(i *invocation) error {
			i.say("%s", fmt.Sprintf("Will ask all processes on node %s to schedule a full sweep GC", i.name))
			return nil
		},
	}
}
