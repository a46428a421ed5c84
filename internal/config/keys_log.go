package config

import (
	"errors"
	"slices"
)

// logKeys say what is logged, where and in which form.
var logKeys = slices.Concat([]key{
	{pattern: "log.console", live: true, value: flag(func(c *Config) *bool { return &c.Log.Console.On })},
	{pattern: "log.console.level", live: true, value: level(func(c *Config) *string { return &c.Log.Console.Level })},
	{pattern: "log.console.formatter", live: true, value: word("plaintext", "json", func(c *Config) *bool { return &c.Log.Console.JSON })},
	{pattern: "log.console.stdio", value: oneOf([]string{"stdout", "stderr"}, func(c *Config) *string { return &c.Log.Stdio })},
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
	{pattern: "log.audit.file", live: true, value: text(func(c *Config) *string { return &c.Log.Audit })},
}, categoryKeys())

// categoryKeys are log.CATEGORY.level.
func categoryKeys() (keys []key) {
	for _, name := range quietCategories {
		keys = append(keys, key{pattern: "log." + name + ".level", idle: "nothing is logged in the category " + name})
	}
	for _, name := range LogCategories {
		keys = append(keys, key{pattern: "log." + name + ".level", live: true, value: value{
			set: func(p *parser, _, value string) (string, error) {
				if _, _, err := LogLevel(value); err != nil {
					return "", errors.New(notLevel)
				}
				if p.c.Log.Categories == nil {
					p.c.Log.Categories = map[string]string{}
				}
				p.c.Log.Categories[name] = value
				return "", nil
			},
			show: func(c *Config) []named { return one(c.Log.Categories[name]) },
		}})
	}
	return keys
}
