package ctl

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
)

func definitionVerbs() []verb {
	return []verb{
		{
			name: "export_definitions", short: "Exports definitions in JSON", min: 1, max: 1, usage: "<file_path | \"-\">",
			run: exportDefinitions,
		},
		{
			name: "import_definitions", short: "Imports definitions in JSON", min: 0, max: 1, usage: "[<file_path> | \"-\"]",
			run: importDefinitions,
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

func importDefinitions(i *invocation) error {
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
	if err := i.post("definitions", json.RawMessage(text), nil); err != nil {
		return explain(err)
	}
	return nil
}
