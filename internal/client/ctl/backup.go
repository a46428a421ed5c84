package ctl

import (
	"path/filepath"
	"time"
)

func backupVerbs() []verb {
	return []verb{{
		name: "backup", short: "Copies the data directory of a running node; a node can be started on the copy", min: 1, max: 1, usage: "<directory>",
		run: func(i *invocation) error {
			dir, err := filepath.Abs(i.args[0])
			if err != nil {
				return badArgument("%v", err)
			}
			i.say("Backing up node %s to %s ...", i.name, dir)
			i.api.http.Timeout = i.limit(0) // no timeout unless --timeout was given
			var done struct{ Began, Ended time.Time }
			if err := i.post("backup", object{"path": dir}, &done); err != nil {
				return explain(err)
			}
			if i.formatter == "json" {
				text, err := encode(object{"path": dir, "began": done.Began.Format(time.RFC3339Nano), "ended": done.Ended.Format(time.RFC3339Nano)})
				if err != nil {
					return fail(exitSoftware, "%v", err)
				}
				i.print("%s", text)
				return nil
			}
			i.print("done in %s: it has all that was confirmed before %s", done.Ended.Sub(done.Began).Round(time.Millisecond), done.Began.Format(time.RFC3339))
			return nil
		},
	}}
}
