package ctl

import "strconv"

func setMemoryWatermark() verb {
	return verb{
		name: "set_vm_memory_high_watermark", short: "Sets the memory limit until the node's next start", min: 1, max: 2,
		usage: "<fraction> | absolute <value>",
		run: func(i *invocation) error {
			keyword := i.args[0] == "absolute"
			if err := keywordOrNot(keyword, i.args); err != nil {
				return err
			}
			if !keyword {
				fraction, err := strconv.ParseFloat(i.args[0], 64)
				switch {
				case err != nil:
					return badArgument("Bad argument.")
				case !(fraction >= 0 && fraction <= 1):
					return badArgument("Bad argument: The threshold should be a fraction between 0.0 and 1.0")
				}
				i.say("Setting memory threshold on %s to %s ...", i.name, i.args[0])
				return explain(i.put("control/memory-watermark", object{"fraction": fraction}))
			}
			bytes, ok := parseSize(i.args[1])
			if !ok {
				return badArgument("Bad argument.")
			}
			i.say("Setting memory threshold on %s to %s bytes ...", i.name, i.args[1])
			return explain(i.put("control/memory-watermark", object{"bytes": bytes}))
		},
	}
}

func setDiskFreeLimit() verb {
	return verb{
		name: "set_disk_free_limit", short: "Sets the limit of free disk space until the node's next start", min: 1, max: 2,
		usage: "<disk_limit> | mem_relative <fraction>",
		run: func(i *invocation) error {
			keyword := i.args[0] == "mem_relative"
			if err := keywordOrNot(keyword, i.args); err != nil {
				return err
			}
			if keyword {
				fraction, err := strconv.ParseFloat(i.args[1], 64)
				if err != nil || !(fraction >= 0) {
					return badArgument("Bad argument.")
				}
				i.say("Setting disk free limit on %s to %s times the total RAM ...", i.name, i.args[1])
				return explain(i.put("control/disk-free-limit", object{"fraction": fraction}))
			}
			bytes, ok := parseSize(i.args[0])
			if !ok {
				return badArgument("Bad argument.")
			}
			i.say("Setting disk free limit on %s to %s bytes ...", i.name, i.args[0])
			return explain(i.put("control/disk-free-limit", object{"bytes": bytes}))
		},
	}
}

// keywordOrNot refuses a keyword without its value, and a lone value followed by
// another.
func keywordOrNot(keyword bool, args []string) error {
	switch {
	case keyword && len(args) < 2:
		return &argumentError{"not enough arguments."}
	case !keyword && len(args) > 1:
		return &argumentError{"too many arguments."}
	}
	return nil
}
