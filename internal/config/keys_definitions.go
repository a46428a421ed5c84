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
			return "", nil // the other keys say it too
		}
		return "", errors.New("is neither local_filesystem nor https")
	}}},
	{pattern: "definitions.https.url", value: text(func(c *Config) *string { return &c.Definitions.URL })},
	{pattern: "definitions.skip_if_unchanged", value: flag(func(c *Config) *bool { return &c.Definitions.SkipUnchanged })},
	{pattern: "definitions.skip_unsupported", value: flag(func(c *Config) *bool { return &c.Definitions.SkipUnsupported })},
}

// definitions adds a file, or a directory of files, to import at start. Several keys
// share the list; the nth file is shown with the nth key.
func definitions(nth int) value {
	return value{
		set: func(p *parser, _, value string) (string, error) {
			if value == "" {
				return "", errors.New("must name a file")
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
