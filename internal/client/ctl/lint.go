package ctl

import (
	"fmt"

	"github.com/spf13/pflag"
)

func lintVerbs() []verb {
	var asJSON bool
	return []verb{{
		name: "lint", short: "Looks for declarations that lose dead letters", usage: "[--vhost <vhost>] [--json]",
		long: `What may be wrong, the worst first, with what to do about it. Without --vhost it examines all virtual hosts. It changes nothing.

The exit code is 0 if there is nothing but hints, and 1 if there is an error or a warning: with an error dead letters have no place, and go to the lost and found or are dropped; with a warning they may.`,
		flags: func(f *pflag.FlagSet) { f.BoolVar(&asJSON, "json", false, "JSON, as the management API answers") },
		run:   func(i *invocation) error { return i.lint(asJSON) },
	}}
}

func (i *invocation) lint(asJSON bool) error {
	var found []struct{ VHost, Kind, Name, Rule, Severity, Text, Mend string }
	at := i.officePath("lint")
	if err := i.get(at, &found); err != nil {
		return i.inVHost(err)
	}
	if asJSON {
		if err := i.raw(at); err != nil {
			return err
		}
	}
	bad := false
	for _, f := range found {
		bad = bad || f.Severity != "hint"
		if asJSON {
			continue
		}
		what := fmt.Sprintf("%s '%s' in vhost '%s'", f.Kind, f.Name, f.VHost)
		if f.Kind == "vhost" {
			what = fmt.Sprintf("vhost '%s'", f.VHost)
		}
		i.print("%-7s %s: %s", f.Severity, what, f.Text)
		i.print("        %s. Rule: %s", f.Mend, f.Rule)
	}
	switch {
	case bad:
		return noneFound{}
	case len(found) == 0 && !asJSON:
		i.say("Nothing was found.")
	}
	return nil
}
