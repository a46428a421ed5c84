package bartleby

import "runtime/debug"

// version is that of this module as the program was built with it.
func version() string {
	const module = "bartleby.mq"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range append(info.Deps, &info.Main) {
			if m.Path == module && m.Version != "" {
				return m.Version
			}
		}
	}
	return "unknown"
}
