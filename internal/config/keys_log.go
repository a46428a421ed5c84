package config

import (
	"errors"
	"maps"
	"slices"
)

// logKeys say what is logged, where and in which form.
var logKeys = []key{
	{pattern: "log.console", live: true, value: flag(func(c *Config) *bool { return &c.Log.Console.On })},
	{pattern: "log.console.level", live: true, value: level(func(c *Config) *string { return &c.Log.Console.Level })},
	{pattern: "log.console.formatter", live: true, value: word("plaintext", "json", func(c *Config) *bool { return &c.Log.Console.JSON })},
	{pattern: "log.console.stdio", value: oneOf([]string{"stdout", "stderr"}, func(c *Config) *string { return &c.Log.Stdio })},
	{pattern: "log.console.**", idle: "log lines are plain text in one fixed form, or JSON"},
	{pattern: "log.dir", live: true, value: text(func(c *Config) *string { return &c.Log.Dir })},
	{pattern: "log.file", live: true, value: value{
		set: func(p *parser, _, value string) (string, error) {
			switch value {
			case "":
				return "", errors.New("is neither a file name nor false")
			case "false":
				p.c.Log.File.On, p.c.Log.Path = false, ""
			default:
				p.c.Log.File.On, p.c.Log.Path = true, value
			}
			return "", nil
		},
		show: func(c *Config) []named {
			if !c.Log.File.On {
				return one("false")
			}
			return one(c.Log.Path)
		},
	}},
	{pattern: "log.file.level", live: true, value: level(func(c *Config) *string { return &c.Log.File.Level })},
	{pattern: "log.file.formatter", live: true, value: word("plaintext", "json", func(c *Config) *bool { return &c.Log.File.JSON })},
	{pattern: "log.file.rotation.**", idle: "the node does not rotate log files; use logrotate, and SIGHUP to reopen them"},
	{pattern: "log.file.**", idle: "log lines are plain text in one fixed form, or JSON"},
	{pattern: "log.audit.file", live: true, value: text(func(c *Config) *string { return &c.Log.Audit })},
	{pattern: "log.exchange.**", idle: "log lines cannot be published to an exchange"},
	{pattern: "log.exchange", idle: "log lines cannot be published to an exchange"},
	{pattern: "log.syslog.**", idle: "the node does not write to syslog; redirect its standard error"},
	{pattern: "log.syslog", idle: "the node does not write to syslog; redirect its standard error"},
	{pattern: "log.journald.**", idle: "the node does not write to journald; systemd sends its standard error there"},
	{pattern: "log.journald", idle: "the node does not write to journald; systemd sends its standard error there"},
	{pattern: "log.*.level", live: true, value: value{
		set: func(p *parser, name, value string) (string, error) {
			if _, _, err := LogLevel(value); err != nil {
				return "", errors.New(notLevel)
			}
			if !slices.Contains(LogCategories, name) {
				return "there is no log category " + name, nil
			}
			if p.c.Log.Categories == nil {
				p.c.Log.Categories = map[string]string{}
			}
			p.c.Log.Categories[name] = value
			return "", nil
		},
		show: func(c *Config) (shown []named) {
			for _, name := range slices.Sorted(maps.Keys(c.Log.Categories)) {
				shown = append(shown, named{name, c.Log.Categories[name]})
			}
			return shown
		},
	}},
	{pattern: "log.*.file", idle: "all log categories share one file"},
	{pattern: "log.*.rotation.**", idle: "all log categories share one file"},
	{pattern: "log.summarize_process_state", idle: "there are no Erlang processes"},
	{pattern: "log.error_logger_format_depth", idle: "there are no Erlang terms in the log"},
}
