package ctl

import (
	"encoding/json"
	"slices"

	"github.com/spf13/pflag"
)

const masksHelp = `Masks are what of dead letters is shown as ••• to everybody who has not the tag reveal and asks for it: in lists, letters, bodies, exports and the audit. Consumers get all of it, as ever. Each virtual host has its own.

  bartleby dlq masks                                    what is hidden; also: masks show
  bartleby dlq masks set --header authorization --path '$..iban'
  bartleby dlq masks set masks.json                     all of them: {"headers": [...], "paths": [...], "patterns": [...]}
  bartleby dlq masks clear                              nothing is hidden any more

A stack trace begins with the text of its error: who hides x-exception-message hides x-exception-stacktrace too, and so for the headers of other libraries.

With options, what is not given stays as it was: --header sets the headers, --path the paths, --pattern the patterns; each can be given several times, and with '' there is none of its kind. A file, - being standard input, has them all; what 'masks show --json' prints is one.

It needs the tag policymaker. Exit codes: 0: done; 64: the command line is wrong; 65: a name or value is wrong; 77: not allowed; other codes: it failed.`

// masks are what is hidden in a virtual host, as the API has it.
type masks struct {
	Headers  []string `json:"headers"`
	Paths    []string `json:"paths"`
	Patterns []string `json:"patterns"`
}

func masksVerb() verb {
	var asJSON bool
	var m masks
	return verb{
		name: "masks", short: "Shows and sets what of dead letters is hidden", long: masksHelp, max: 2,
		usage: "[--vhost <vhost>] [--json] [show] | set [--header <name>] [--path <path>] [--pattern <regex>] [<file>] | clear",
		flags: func(f *pflag.FlagSet) {
			f.BoolVar(&asJSON, "json", false, "JSON, as the management API answers")
			f.StringArrayVar(&m.Headers, "header", nil, "name of a header to hide, at any depth")
			f.StringArrayVar(&m.Paths, "path", nil, "path of a value to hide in bodies that are JSON: $.card.number, $..iban, $.items[*].code")
			f.StringArrayVar(&m.Patterns, "pattern", nil, "regular expression: what it matches is hidden, in any text")
		},
		run: func(i *invocation) error { return ruleFailed(i.masks(&m, asJSON)) },
	}
}

func (i *invocation) masks(given *masks, asJSON bool) error {
	at := path("office", "masks", i.vhost)
	options := i.set("header") || i.set("path") || i.set("pattern")
	what, args := "show", i.args
	if len(args) > 0 {
		what, args = args[0], args[1:]
	}
	switch {
	case what != "set" && options:
		return badArgument("--header, --path and --pattern are for 'masks set'")
	case what != "set" && len(args) > 0:
		return badArgument("'masks %s' takes no file", what)
	case what == "set" && options == (len(args) > 0):
		return badArgument("'masks set' takes either a file or --header, --path and --pattern")
	}
	if err := i.hasVHost(); err != nil {
		return err
	}
	switch what {
	case "show":
		return i.showMasks(at, asJSON)
	case "clear":
		return i.put(at, object{})
	case "set":
	default:
		return badArgument("'%s' must be show, set or clear", what)
	}
	if !options {
		text, err := readDocument(args[0])
		if err != nil {
			return err
		}
		return i.put(at, json.RawMessage(text))
	}
	var m masks
	if err := i.get(at, &m); err != nil {
		return err
	}
	for flag, lists := range map[string][2]*[]string{"header": {&m.Headers, &given.Headers}, "path": {&m.Paths, &given.Paths}, "pattern": {&m.Patterns, &given.Patterns}} {
		if i.set(flag) {
			*lists[0] = slices.DeleteFunc(slices.Clone(*lists[1]), func(text string) bool { return text == "" })
		}
	}
	for _, list := range []*[]string{&m.Headers, &m.Paths, &m.Patterns} {
		if *list == nil {
			*list = []string{}
		}
	}
	return i.put(at, m)
}

// hasVHost refuses a virtual host that is not there.
func (i *invocation) hasVHost() error {
	var v object
	return i.inVHost(i.get(path("vhosts", i.vhost)+"?columns=name", &v))
}

func (i *invocation) showMasks(at string, asJSON bool) error {
	if asJSON {
		return i.raw(at)
	}
	var m masks
	if err := i.get(at, &m); err != nil {
		return err
	}
	var lines []object
	for _, kind := range []struct {
		name string
		list []string
	}{{"header", m.Headers}, {"path", m.Paths}, {"pattern", m.Patterns}} {
		for _, text := range kind.list {
			lines = append(lines, object{"kind": kind.name, "hides": text})
		}
	}
	if len(lines) == 0 {
		i.say("Nothing of dead letters of virtual host '%s' is hidden.", i.vhost)
		return nil
	}
	i.say("Hidden in dead letters of virtual host '%s' ...", i.vhost)
	return i.aligned(fields("kind", "hides"), lines)
}
