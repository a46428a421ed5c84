package ctl

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// adminName is RabbitMQ's client of the management API.
const adminName = "rabbitmqadmin"

// adminCommand has the verbs of rabbitmqadmin that containers execute and guides use: declare,
// delete, publish and get, with KEY=VALUE arguments. RabbitMQ's own rabbitmqadmin works too, with
// all its verbs.
func adminCommand() *cobra.Command {
	o := &options{}
	var host, port string
	root := &cobra.Command{
		Use: adminName, Short: "Declare, delete, publish and get", SilenceUsage: true, SilenceErrors: true, Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fail(exitUsage, "%s %s is not supported; use rabbitmqctl, or RabbitMQ's own rabbitmqadmin, which works with this node", adminName, args[0])
			}
			return c.Help()
		},
	}
	f := root.PersistentFlags()
	f.StringVarP(&host, "host", "H", "", "host of the management API")
	f.StringVarP(&port, "port", "P", "15672", "port of the management API")
	f.StringVarP(&o.user, "username", "u", "", "user of the management API")
	f.StringVarP(&o.password, "password", "p", "", "the user's password")
	f.StringVarP(&o.vhost, "vhost", "V", "/", "virtual host")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "no informational messages")
	f.StringVar(&o.dataDir, "data-dir", "", "data directory of a node on this machine, to connect as its owner; also $"+dataDirVariable)
	invoke := func(c *cobra.Command, args []string, run func(*invocation) error) error {
		if host != "" {
			o.url = "http://" + host + ":" + port
		}
		i := &invocation{options: o, ctx: c.Context(), args: args, set: c.Flags().Changed, out: c.OutOrStdout(), errs: c.ErrOrStderr()}
		var err error
		if i.api, err = newClient(o); err != nil {
			return err
		}
		return run(i)
	}
	for _, v := range []struct {
		name, short string
		run         func(*invocation, adminObject, map[string]string) error
	}{
		{"declare", "Declares an object, given by KEY=VALUE", declareObject},
		{"delete", "Deletes an object, given by KEY=VALUE", deleteObject},
	} {
		root.AddCommand(&cobra.Command{
			Use: v.name + " OBJECT KEY=VALUE...", Short: v.short, Args: cobra.MinimumNArgs(1),
			Long: "OBJECT is one of " + strings.Join(slices.Sorted(maps.Keys(adminObjects)), ", ") + ".",
			RunE: func(c *cobra.Command, args []string) error {
				object, ok := adminObjects[args[0]]
				if !ok {
					return fail(exitUsage, "ERROR: Unknown object %s", args[0])
				}
				given, err := keysAndValues(args[1:])
				if err != nil {
					return err
				}
				return invoke(c, args, func(i *invocation) error { return v.run(i, object, given) })
			},
		})
	}
	for _, v := range []adminMessageVerb{publishMessage, getMessages} {
		root.AddCommand(&cobra.Command{
			Use: v.name + " KEY=VALUE...", Short: v.short,
			RunE: func(c *cobra.Command, args []string) error {
				given, err := v.complete(args)
				if err != nil {
					return err
				}
				return invoke(c, args, func(i *invocation) error { return v.run(i, given) })
			},
		})
	}
	return root
}

func keysAndValues(args []string) (map[string]string, error) {
	given := map[string]string{}
	for _, a := range args {
		key, value, ok := strings.Cut(a, "=")
		if !ok {
			return nil, fail(exitUsage, "ERROR: Argument %q not in format name=value", a)
		}
		given[key] = value
	}
	return given, nil
}

// adminObject is a kind of object that rabbitmqadmin declares.
type adminObject struct {
	path      []string          // of the API: a word, or a key with : before it
	mandatory []string          // keys
	optional  map[string]string // keys and their defaults; "" is left out
	json      []string          // keys whose values are JSON
	post      bool              // declared by POST, which makes the last part of the path
}

var adminObjects = map[string]adminObject{
	"exchange": {
		path: []string{"exchanges", ":vhost", ":name"}, mandatory: []string{"name", "type"}, json: []string{"auto_delete", "durable", "internal", "arguments"},
		optional: map[string]string{"auto_delete": "false", "durable": "true", "internal": "false", "arguments": "{}"},
	},
	"queue": {
		path: []string{"queues", ":vhost", ":name"}, mandatory: []string{"name"}, json: []string{"auto_delete", "durable", "arguments"},
		optional: map[string]string{"auto_delete": "false", "durable": "true", "arguments": "{}", "node": "", "queue_type": ""},
	},
	"binding": {
		path: []string{"bindings", ":vhost", "e", ":source", ":destination_type", ":destination"}, post: true,
		mandatory: []string{"source", "destination"}, json: []string{"arguments"},
		optional: map[string]string{"destination_type": "queue", "routing_key": "", "arguments": "{}", "properties_key": ""},
	},
	"vhost": {
		path: []string{"vhosts", ":name"}, mandatory: []string{"name"}, json: []string{"tracing"}, optional: map[string]string{"tracing": ""},
	},
	"user": {
		path: []string{"users", ":name"}, mandatory: []string{"name"},
		optional: map[string]string{"password": "", "password_hash": "", "hashing_algorithm": "", "tags": ""},
	},
	"permission": {
		path: []string{"permissions", ":vhost", ":user"}, mandatory: []string{"user", "configure", "write", "read"},
	},
	"parameter": {
		path: []string{"parameters", ":component", ":vhost", ":name"}, mandatory: []string{"component", "name", "value"}, json: []string{"value"},
	},
	"policy": {
		path: []string{"policies", ":vhost", ":name"}, mandatory: []string{"name", "pattern", "definition"}, json: []string{"definition", "priority"},
		optional: map[string]string{"priority": "0", "apply-to": ""},
	},
	"operator_policy": {
		path: []string{"operator-policies", ":vhost", ":name"}, mandatory: []string{"name", "pattern", "definition"}, json: []string{"definition", "priority"},
		optional: map[string]string{"priority": "0", "apply-to": ""},
	},
	"vhost_limit": {
		path: []string{"vhost-limits", ":vhost", ":name"}, mandatory: []string{"name", "value"}, json: []string{"value"},
	},
	"user_limit": {
		path: []string{"user-limits", ":user", ":name"}, mandatory: []string{"user", "name", "value"}, json: []string{"value"},
	},
}

// at is the path of an object whose keys are given.
func (o adminObject) at(given map[string]string) (string, error) {
	var segments []string
	for _, part := range o.path {
		if key, ok := strings.CutPrefix(part, ":"); ok {
			if part = given[key]; part == "" {
				return "", fail(exitUsage, "ERROR: mandatory argument %q required", key)
			}
			if key == "destination_type" {
				part = part[:1] // q or e
			}
		}
		segments = append(segments, part)
	}
	return path(segments...), nil
}

// complete adds the defaults and the virtual host.
func (o adminObject) complete(i *invocation, given map[string]string) map[string]string {
	all := map[string]string{"vhost": i.vhost}
	maps.Copy(all, o.optional)
	maps.Copy(all, given)
	return all
}

func declareObject(i *invocation, o adminObject, given map[string]string) error {
	for key := range given {
		if _, optional := o.optional[key]; !optional && key != "vhost" && !slices.Contains(o.mandatory, key) {
			return fail(exitUsage, "ERROR: Argument %q not recognised", key)
		}
	}
	for _, key := range o.mandatory {
		if _, ok := given[key]; !ok {
			return fail(exitUsage, "ERROR: mandatory argument %q required", key)
		}
	}
	all := o.complete(i, given)
	at, err := o.at(all)
	if err != nil {
		return err
	}
	body := object{}
	for key, value := range all {
		_, said := given[key]
		switch {
		case value == "" && !said && key != "tags" && key != "routing_key":
			continue
		case slices.Contains(o.json, key):
			if body[key], err = jsonValue(value); err != nil {
				return fail(exitUsage, "ERROR: Could not parse JSON:\n  %s", value)
			}
		default:
			body[key] = value
		}
	}
	method := http.MethodPut
	if o.post {
		method = http.MethodPost
	}
	if err := i.api.do(i.ctx, method, at, body, nil); err != nil {
		return explain(err)
	}
	i.say("%s declared", i.args[0])
	return nil
}

func deleteObject(i *invocation, o adminObject, given map[string]string) error {
	all := o.complete(i, given)
	at, err := o.at(all)
	if err != nil {
		return err
	}
	if o.post {
		if all["properties_key"] == "" {
			return fail(exitUsage, "ERROR: mandatory argument \"properties_key\" required")
		}
		at += "/" + path(all["properties_key"])
	}
	if err := i.api.do(i.ctx, http.MethodDelete, at, nil, nil); err != nil {
		return explain(err)
	}
	i.say("%s deleted", i.args[0])
	return nil
}

// jsonValue reads a JSON value. It also accepts True and False, which Python scripts write.
func jsonValue(text string) (v any, err error) {
	switch text {
	case "True", "False":
		text = strings.ToLower(text)
	}
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return nil, fmt.Errorf("JSON %q: %w", text, err)
	}
	return v, nil
}
