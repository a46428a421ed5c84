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
	{pattern: "log.console.**", idle: "lines have one form, or are JSON"},
	{pattern: "log.dir", live: true, value: text(func(c *Config) *string { return &c.Log.Dir })},
	{pattern: "log.file", live: true, value: value{
		set: func(p *parser, _, value string) (string, error) {
			switch value {
			case "":
				return "", errors.New("it must name a file or be false")
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
	{pattern: "log.file.rotation.**", idle: "files are not rotated by the node: logrotate does, and SIGHUP opens them anew"},
	{pattern: "log.file.**", idle: "lines have one form, or are JSON"},
	{pattern: "log.audit.file", live: true, value: text(func(c *Config) *string { return &c.Log.Audit })},
	{pattern: "log.exchange.**", idle: "lines are not published to an exchange"},
	{pattern: "log.exchange", idle: "lines are not published to an exchange"},
	{pattern: "log.syslog.**", idle: "lines are not sent to syslog; standard error can be"},
	{pattern: "log.syslog", idle: "lines are not sent to syslog; standard error can be"},
	{pattern: "log.journald.**", idle: "lines are not sent to journald; standard error is, by systemd"},
	{pattern: "log.journald", idle: "lines are not sent to journald; standard error is, by systemd"},
	{pattern: "log.*.level", live: true, value: value{
		set: func(p *parser, name, value string) (string, error) {
			if _, _, err := LogLevel(value); err != nil {
				return "", err
			}
			if !slices.Contains(LogCategories, name) {
				return "no line is of the category " + name, nil
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
	{pattern: "log.*.file", idle: "all categories share one file"},
	{pattern: "log.*.rotation.**", idle: "all categories share one file"},
	{pattern: "log.summarize_process_state", idle: "there are no Erlang processes"},
	{pattern: "log.error_logger_format_depth", idle: "there are no Erlang terms in the log"},
}
