package config

import (
	"errors"
	"slices"
)

// definitionKeys say what to import at start.
var definitionKeys = []key{
	{pattern: "load_definitions", value: definitions(0)},
	{pattern: "management.load_definitions", value: definitions(1)},
	{pattern: "definitions.local.path", value: definitions(2)},
	{pattern: "definitions.import_backend", value: value{set: func(_ *parser, _, value string) (string, error) {
		switch value {
		case "local_filesystem", "local", "https", "http", "rabbitmq_definitions_import_local_filesystem", "rabbitmq_definitions_import_http":
			return "", nil // which key is set says it too
		}
		return "", errors.New("it must be local_filesystem or https")
	}}},
	{pattern: "definitions.https.url", value: text(func(c *Config) *string { return &c.Definitions.URL })},
	{pattern: "definitions.skip_if_unchanged", value: flag(func(c *Config) *bool { return &c.Definitions.SkipUnchanged })},
	{pattern: "definitions.hashing.algorithm", idle: "what was imported is known by its SHA-256"},
}

// definitions adds a file, or a directory of them, to import at start. Several keys
// do; the nth of the files is shown with the nth of the keys.
func definitions(nth int) value {
	return value{
		set: func(p *parser, _, value string) (string, error) {
			if value == "" {
				return "", errors.New("it must name a file")
			}
			if !slices.Contains(p.c.Definitions.Files, value) {
				p.c.Definitions.Files = append(p.c.Definitions.Files, value)
			}
			return "", nil
		},
		show: func(c *Config) []named {
			if nth >= len(c.Definitions.Files) {
				return nil
			}
			return one(c.Definitions.Files[nth])
		},
	}
}
