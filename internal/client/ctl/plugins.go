package ctl

import (
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// pluginVerbs are the verbs of rabbitmq-plugins. There are no real plugins: the features of
// some of RabbitMQ's plugins are built in, and images and scripts that enable these plugins
// still work.
func pluginVerbs() []verb {
	return []verb{directories(), listPlugins(), isEnabled(), enablePlugins("enable", "Enables one or more plugins"), enablePlugins("set", "Enables one or more plugins"), disablePlugins(), versionVerb()}
}

func (i *invocation) plugins() (node, version string, list []string, err error) {
	o, err := i.overview()
	if err != nil {
		return "", "", nil, err
	}
	var n struct {
		Plugins []string `json:"enabled_plugins"`
	}
	err = i.get(path("nodes", o.Node), &n)
	return o.Node, o.RabbitMQ, withBuiltIn(n.Plugins), explain(err)
}

// builtIn are the plugins of RabbitMQ's whose features the node has.
var builtIn = []string{
	"rabbitmq_amqp1_0", "rabbitmq_auth_backend_cache", "rabbitmq_auth_backend_http", "rabbitmq_auth_mechanism_ssl", "rabbitmq_consistent_hash_exchange",
	"rabbitmq_delayed_message_exchange", "rabbitmq_event_exchange", "rabbitmq_management", "rabbitmq_management_agent", "rabbitmq_prometheus", "rabbitmq_shovel",
	"rabbitmq_shovel_management", "rabbitmq_web_dispatch",
}

func withBuiltIn(list []string) []string {
	list = slices.Concat(list, builtIn)
	slices.Sort(list)
	return slices.Compact(list)
}

// isOffline says whether a verb is not to ask a node: images are made without one.
func (i *invocation) isOffline() bool { return i.set("offline") && !i.set("online") }

func directories() verb {
	return verb{
		name: "directories", short: "Displays plugin directory and enabled plugin file paths", usage: "[--offline] [--online]", flags: offlineFlags,
		run: func(i *invocation) error {
			if i.isOffline() {
				i.say("Listing plugin directories inferred from local environment...")
			} else {
				node, err := i.node()
				if err != nil {
					return err
				}
				i.say("Listing plugin directories used by node %s", node)
			}
			const none = "none: plugins are built in"
			i.print("Plugin archives directory: %s\nPlugin expansion directory: %s\nEnabled plugins file: %s", none, none, none)
			return nil
		},
	}
}

func listPlugins() verb {
	var minimal, enabled, explicit bool
	return verb{
		name: "list", short: "Lists plugins and their state", max: 1, usage: "[pattern] [--verbose] [--minimal] [--enabled] [--implicitly-enabled]",
		flags: func(f *pflag.FlagSet) {
			f.BoolVarP(&minimal, "minimal", "m", false, "names only")
			f.BoolVarP(&explicit, "enabled", "e", false, "only explicitly enabled plugins")
			f.BoolVarP(&enabled, "implicitly-enabled", "E", false, "all enabled plugins")
			f.BoolP("verbose", "v", false, "accepted")
		},
		run: func(i *invocation) error {
			pattern := ".*"
			if len(i.args) == 1 {
				pattern = i.args[0]
			}
			re, err := regexp.Compile(pattern)
			if err != nil {
				return badArgument("%s is not a regular expression", pattern)
			}
			node, version, list, err := i.plugins()
			if err != nil {
				return err
			}
			i.say("Listing plugins with pattern \"%s\" ...", pattern)
			if !minimal {
				i.say(" Configured: E = explicitly enabled; e = implicitly enabled\n | Status: * = running on %s\n |/", node)
			}
			for _, name := range list {
				switch {
				case !re.MatchString(name):
				case minimal:
					i.print("%s", name)
				default:
					i.print("[E*] %s %s", name, version)
				}
			}
			return nil
		},
	}
}

func isEnabled() verb {
	return verb{
		name: "is_enabled", short: "Health check that exits with a non-zero code if provided plugins are not enabled on target node", min: 1, max: -1,
		usage: "<plugin1> [ <plugin2>] [--offline] [--online]",
		flags: offlineFlags,
		run: func(i *invocation) error {
			node, list := i.name, withBuiltIn(nil)
			if !i.isOffline() {
				var err error
				if node, _, list, err = i.plugins(); err != nil {
					return err
				}
			}
			what, verb := "plugin", "is"
			if len(i.args) > 1 {
				what, verb = "plugins", "are"
			}
			names := strings.Join(i.args, ", ")
			i.say("Asking node %s if %s %s %s enabled...", node, what, names, verb)
			title := strings.ToUpper(what[:1]) + what[1:]
			if missing := missingPlugins(i.args, list); missing != nil {
				return fail(exitUnavailable, "%s %s %s not enabled on node %s. Enabled plugins and dependencies: %s",
					title, strings.Join(missing, ", "), verb, node, strings.Join(list, ", "))
			}
			i.print("%s %s %s enabled on node %s", title, names, verb, node)
			return nil
		},
	}
}

func missingPlugins(names, list []string) (missing []string) {
	for _, n := range names {
		if !slices.Contains(list, n) {
			missing = append(missing, n)
		}
	}
	return missing
}

func offlineFlags(f *pflag.FlagSet) {
	f.Bool("offline", false, "accepted")
	f.Bool("online", false, "accepted")
	f.Bool("all", false, "accepted")
}

func enablePlugins(name, short string) verb {
	return verb{
		name: name, short: short, max: -1, usage: "<plugin1> [ <plugin2>] | --all [--offline] [--online]", flags: offlineFlags,
		run: func(i *invocation) error {
			node, list := i.name, withBuiltIn(nil)
			if !i.isOffline() {
				var err error
				if node, _, list, err = i.plugins(); err != nil {
					return err
				}
			}
			if missing := missingPlugins(i.args, list); missing != nil {
				return fail(exitData, "{:plugins_not_found, [%s]}", ":"+strings.Join(missing, ", :"))
			}
			i.say("Enabling plugins on node %s:\n%s\nThe following plugins have been configured:\n  %s\nApplying plugin configuration to %s...\nPlugin configuration unchanged.",
				node, strings.Join(i.args, "\n"), strings.Join(list, "\n  "), node)
			return nil
		},
	}
}

func disablePlugins() verb {
	return verb{
		name: "disable", short: "Always refused: plugins cannot be disabled", max: -1, usage: "<plugin1> [ <plugin2>]", flags: offlineFlags,
		run: func(i *invocation) error {
			return fail(exitUnavailable, "plugins cannot be disabled: they are part of the node; turn off its listeners in the configuration instead")
		},
	}
}
