package ctl

func setLogLevel() verb {
	return verb{
		name: "set_log_level", short: "Sets the level of all logs until the node's next start", min: 1, max: 1, usage: "<log_level>",
		run: func(i *invocation) error {
			if err := i.put("control/log-level", object{"level": i.args[0]}); err != nil {
				return explain(err)
			}
			i.say("Setting log level to \"%s\" ...", i.args[0])
			return nil
		},
	}
}
