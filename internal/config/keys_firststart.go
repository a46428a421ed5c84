package config

import (
	"errors"
	"slices"
)

// firstStartKeys say what an empty node starts with, and which users may log in only from loopback.
var firstStartKeys = []key{
	{pattern: "default_user", value: text(func(c *Config) *string { return &c.FirstStart.User })},
	{pattern: "default_pass", secret: true, value: secretText(func(c *Config) *string { return &c.FirstStart.Password })},
	{pattern: "default_vhost", value: text(func(c *Config) *string { return &c.FirstStart.VHost })},
	{pattern: "default_permissions.configure", value: pattern(func(c *Config) *string { return &c.FirstStart.Configure })},
	{pattern: "default_permissions.write", value: pattern(func(c *Config) *string { return &c.FirstStart.Write })},
	{pattern: "default_permissions.read", value: pattern(func(c *Config) *string { return &c.FirstStart.Read })},
	{pattern: "default_user_tags.*", value: value{
		set: func(p *parser, name, value string) (string, error) {
			on, err := boolean(value)
			if err != nil {
				return "", err
			}
			if !p.tagged {
				p.c.FirstStart.Tags, p.tagged = nil, true
			}
			p.c.FirstStart.Tags = member(p.c.FirstStart.Tags, name, on)
			for _, tag := range tags {
				if d := distance(name, tag); d > 0 && d <= 2 {
					return "the tag gives no rights; did you mean default_user_tags." + tag + "?", nil
				}
			}
			return "", nil
		},
		show: func(c *Config) []named { return members(c.FirstStart.Tags) },
	}},
	{pattern: "loopback_users", value: value{
		set: func(p *parser, _, value string) (string, error) {
			if value != "none" {
				return "", errors.New("is not none; name a user with loopback_users.NAME")
			}
			p.c.LoopbackUsers = []string{}
			return "", nil
		},
		// Always shown: the lines that follow are then the whole list.
		show: func(*Config) []named { return one("none") },
	}},
	{pattern: "loopback_users.*", value: value{
		set: func(p *parser, name, value string) (string, error) {
			on, err := boolean(value)
			if err != nil {
				return "", err
			}
			p.c.LoopbackUsers = member(p.c.LoopbackUsers, name, on)
			return "", nil
		},
		show: func(c *Config) []named { return members(c.LoopbackUsers) },
	}},
}

// member puts a name into a list or takes it out.
func member(list []string, name string, in bool) []string {
	list = slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == name })
	if in {
		list = append(list, name)
	}
	if list == nil {
		list = []string{} // set to empty; nil means not set
	}
	return list
}

func members(list []string) (shown []named) {
	for _, name := range list {
		shown = append(shown, named{name, "true"})
	}
	return shown
}

// tags are those that give rights, or take some.
var tags = []string{"administrator", "monitoring", "policymaker", "management", "impersonator", "reveal", "protected"}
