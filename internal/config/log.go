package config

// Log is what is logged and where. A line goes to an output if the level of its
// category lets it pass, and then that of the output. Where neither is said it is
// info; where one is said that one counts.
type Log struct {
	Console LogOutput // log.console.*
	Stdio   string    // log.console.stdio: stdout or stderr
	File    LogOutput // log.file.*
	Path    string    // log.file; relative to Dir
	Dir     string    // log.dir
	// Categories are levels by category: log.CATEGORY.level. "default" is what has no
	// other.
	Categories map[string]string
	// Audit is log.audit.file: administrative actions, one JSON object a line. "":
	// they are lines of the log.
	Audit string
}

// LogOutput is one place lines go to.
type LogOutput struct {
	On    bool
	Level string // "": not said
	JSON  bool   // formatter = json
}

// LogCategories are the categories that lines of ours have, by RabbitMQ's names.
var LogCategories = []string{"default", "connection", "queue"}
