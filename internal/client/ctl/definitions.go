package ctl

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"
)

func definitionVerbs() []verb {
	var out string
	var in importOptions
	return []verb{
		{
			name: "export_definitions", short: "Exports definitions in JSON", min: 1, max: 1, usage: "<file_path | \"-\"> [--format <json | erlang>]",
			flags: func(f *pflag.FlagSet) { f.StringVar(&out, "format", "json", "json; erlang is not supported") },
			run: func(i *invocation) error {
				if err := mustJSON(out); err != nil {
					return err
				}
				return exportDefinitions(i)
			},
		},
		{
			name: "import_definitions", short: "Imports definitions in JSON", min: 0, max: 1, usage: "[<file_path> | \"-\"] [--format <json | erlang>] [--skip-if-unchanged] [--skip-unsupported] [--dry-run]",
			flags: func(f *pflag.FlagSet) {
				f.StringVar(&in.format, "format", "json", "json; erlang is not supported")
				f.BoolVar(&in.skipUnchanged, "skip-if-unchanged", false, "import nothing if the node's last import was of the same contents")
				f.BoolVar(&in.skipUnsupported, "skip-unsupported", false, "leave out what this broker has not, as stream queues, and name it")
				f.BoolVar(&in.dryRun, "dry-run", false, "import nothing, and list all that is in the way")
			},
			run: func(i *invocation) error { return importDefinitions(i, &in) },
		},
	}
}

func exportDefinitions(i *invocation) error {
	var all json.RawMessage
	if err := i.get("definitions", &all); err != nil {
		return explain(err)
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, all, "", "  "); err != nil {
		return fail(exitSoftware, "%v", err)
	}
	if i.args[0] == "-" {
		i.print("%s", pretty.String())
		return nil
	}
	i.say("Exporting definitions in JSON to a file at %q ...", i.args[0])
	pretty.WriteByte('\n')
	// The file contains password hashes.
	if err := os.WriteFile(i.args[0], pretty.Bytes(), 0o600); err != nil {
		return fail(exitUnavailable, "%v", err)
	}
	return nil
}

type importOptions struct {
	format                                 string
	skipUnchanged, skipUnsupported, dryRun bool
}

// mustJSON refuses the other format of RabbitMQ's.
func mustJSON(format string) error {
	if format != "json" {
		return fail(exitData, "format %s is not supported: definitions are JSON here", format)
	}
	return nil
}

// imported is the API's answer to an import that had something to say.
type imported struct {
	Unchanged bool     `json:"unchanged"`
	Warnings  []string `json:"warnings"`
	Obstacles []struct {
		Kind, VHost, Name, Reason string
		Unsupported               bool
	} `json:"obstacles"`
}

func importDefinitions(i *invocation, how *importOptions) error {
	if err := mustJSON(how.format); err != nil {
		return err
	}
	var text []byte
	var err error
	if len(i.args) == 0 || i.args[0] == "-" {
		i.say("Importing definitions in JSON from standard input ...")
		text, err = io.ReadAll(os.Stdin)
	} else {
		i.say("Importing definitions in JSON from a file at %q ...", i.args[0])
		text, err = os.ReadFile(i.args[0])
	}
	if err != nil {
		return fail(exitData, "%v", err)
	}
	if !json.Valid(text) {
		return fail(exitData, "Failed to parse the definitions: they are not JSON")
	}
	query := []string{}
	for flag, on := range map[string]bool{"skip_if_unchanged": how.skipUnchanged, "skip_unsupported": how.skipUnsupported, "dry_run": how.dryRun} {
		if on {
			query = append(query, flag+"=true")
		}
	}
	var answer imported
	if err := i.post("definitions?"+strings.Join(query, "&"), json.RawMessage(text), &answer); err != nil {
		return explain(err)
	}
	for _, w := range answer.Warnings {
		i.print("%s", w)
	}
	for _, o := range answer.Obstacles {
		note := ""
		if o.Unsupported {
			note = " (--skip-unsupported leaves it out)"
		}
		where := ""
		if o.VHost != "" {
			where = " in vhost '" + o.VHost + "'"
		}
		i.print("%s: '%s'%s: %s%s", o.Kind, o.Name, where, o.Reason, note)
	}
	switch {
	case len(answer.Obstacles) > 0:
		return fail(exitData, "%d objects cannot be imported", len(answer.Obstacles))
	case answer.Unchanged:
		i.say("The definitions are those of the last import: nothing was imported")
	case how.dryRun:
		i.say("All of it can be imported")
	}
	return nil
}
