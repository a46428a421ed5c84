package config

// Log configures the log. A line is written to an output if it passes the level of its
// category and the level of the output. If only one is set, that one counts; if none is
// set, the level is info.
type Log struct {
	Console LogOutput // log.console.*
	Stdio   string    // log.console.stdio: stdout or stderr
	File    LogOutput // log.file.*
	Path    string    // log.file; relative to Dir
	Dir     string    // log.dir
	// Categories are levels by category: log.CATEGORY.level. "default" is the category of all
	// other lines.
	Categories map[string]string
	// Audit is log.audit.file: administrative actions, one JSON object a line. "": they are
	// in the log.
	Audit string
}

// LogOutput is an output of the log.
type LogOutput struct {
	On    bool
	Level string // "": not said
	JSON  bool   // formatter = json
}

// LogCategories are the categories of our lines, by RabbitMQ's names.
var LogCategories = []string{"default", "connection", "queue"}

// quietCategories are RabbitMQ's categories in which nothing is logged here.
var quietCategories = []string{"channel", "federation", "mirroring", "ra", "upgrade", "user"}
