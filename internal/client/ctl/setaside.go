package ctl

// asideVerbs are our own verbs about damaged messages.
func asideVerbs() []verb {
	return []verb{{
		name: "list_set_aside", short: "Lists messages that could not be read from disk and were set aside", max: 0,
		run: func(i *invocation) error {
			var items []object
			if err := i.get("set-aside", &items); err != nil {
				return explain(err)
			}
			return i.list("Listing what was set aside ...", fields("file", "vhost", "queue", "position", "reason", "at", "bytes"), items)
		},
	}}
}
