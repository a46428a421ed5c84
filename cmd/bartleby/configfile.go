package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"bartleby.mq/internal/config"
)

// configFiles say where a node's configuration is: paths as a flag or the environment gives them.
type configFiles struct {
	main     string // a file, or a directory; "": none
	bare     bool   // main may be without its ending, as RabbitMQ has it
	more     string // a directory or a pattern of further *.conf files; "": conf.d beside main
	advanced string // Erlang terms over them; "": advanced.config beside main
}

// findConfig returns the file or directory that the flag names, or else those that the environment names.
func findConfig(flag string, getenv func(string) string) configFiles {
	p := config.EnvironmentPaths(getenv)
	if flag != "" {
		return configFiles{main: flag, advanced: p.AdvancedFile}
	}
	return configFiles{main: p.ConfigFile, bare: true, more: p.ConfigFiles, advanced: p.AdvancedFile}
}

// load reads the environment, then the files over it. After an error the configuration has what could be read, for who looks for more errors.
func (f configFiles) load(getenv func(string) string) (config.Config, []config.Warning, error) {
	conf := config.Default()
	warnings, err := config.Environment(&conf, getenv)
	if err != nil {
		return conf, nil, fmt.Errorf("environment: %w", err)
	}
	names, passedOver, err := f.names()
	if err != nil {
		return conf, nil, fmt.Errorf("configuration: %w", err)
	}
	var texts []config.File
	for _, name := range names {
		text, err := readConfigFile(name)
		if err != nil {
			return conf, nil, fmt.Errorf("configuration: %w", err)
		}
		texts = append(texts, text)
	}
	more, err := config.ParseFiles(&conf, getenv, texts...)
	warnings = slices.Concat(warnings, passedOver, more)
	if err == nil {
		err = conf.Check()
	}
	if err != nil {
		return conf, warnings, fmt.Errorf("configuration:\n%w", err)
	}
	return conf, warnings, nil
}

func readConfigFile(name string) (config.File, error) {
	text, err := os.ReadFile(name)
	return config.File{Name: name, Text: string(text), Terms: config.IsTerms(name, string(text))}, err
}

// The names that files of RabbitMQ's have in its directory.
const (
	advancedConfig = "advanced.config"
	oldConfig      = "rabbitmq.config"
	newConfig      = "rabbitmq.conf"
)

// names lists the files in the order in which they are read, and those that RabbitMQ would read and this node does not.
func (f configFiles) names() (names []string, passedOver []config.Warning, err error) {
	pass := func(name, why string) {
		if isFile(name) {
			passedOver = append(passedOver, config.Warning{Key: name, Text: why})
		}
	}
	dir := ""
	switch {
	case f.main == "":
	case isDir(f.main):
		dir = f.main
		if names, err = filepath.Glob(filepath.Join(dir, "*.conf")); err != nil {
			return nil, nil, err
		}
		slices.Sort(names)
		// rabbitmq-env.conf is a script of the shell.
		names = slices.DeleteFunc(names, func(name string) bool { return filepath.Base(name) == shellFile })
		if old := filepath.Join(dir, oldConfig); isFile(old) {
			pass(filepath.Join(dir, newConfig), "rabbitmq.config is there, which RabbitMQ reads instead")
			names = append(slices.DeleteFunc(names, func(name string) bool { return filepath.Base(name) == newConfig }), old)
		}
	default:
		main := f.main
		dir = filepath.Dir(main)
		if f.bare && !isFile(main) {
			main = f.withEnding()
		}
		if main == "" && !isFile(filepath.Join(dir, advancedConfig)) && f.more == "" && !isDir(filepath.Join(dir, "conf.d")) {
			return nil, nil, fmt.Errorf("%s.conf: there is no such file", f.main)
		}
		if main != "" {
			if names, err = expand(main); err != nil {
				return nil, nil, err
			}
			if base, isNew := strings.CutSuffix(main, ".conf"); isNew {
				pass(base+".config", "the other form of this file, "+filepath.Base(main)+", is read")
			} else if base, isOld := strings.CutSuffix(main, ".config"); isOld {
				pass(base+".conf", "the other form of this file, "+filepath.Base(main)+", is read, as RabbitMQ would")
			}
		}
	}
	more := f.more
	if more == "" && dir != "" && isDir(filepath.Join(dir, "conf.d")) {
		more = filepath.Join(dir, "conf.d")
	}
	if more != "" {
		further, err := expand(more)
		if err != nil {
			return nil, nil, err
		}
		names = append(names, further...)
	}
	advanced := f.advanced
	if advanced == "" && dir != "" {
		if beside := filepath.Join(dir, advancedConfig); isFile(beside) {
			advanced = beside
		}
	} else if advanced != "" && !isFile(advanced) && isFile(advanced+".config") {
		advanced += ".config" // older releases of RabbitMQ wanted the name without it
	}
	if advanced != "" {
		names = append(names, advanced)
	}
	if dir != "" {
		pass(filepath.Join(dir, shellFile), "scripts of the shell are not read; set its variables in the environment of the process")
		pass(filepath.Join(dir, "enabled_plugins"), "there are no plugins: all that is supported is on")
	}
	return names, passedOver, nil
}

const shellFile = "rabbitmq-env.conf"

// withEnding is the file that main means if it has no ending: RabbitMQ takes the old form first. "" if there is none.
func (f configFiles) withEnding() string {
	for _, ending := range []string{".config", ".conf"} {
		if name := f.main + ending; isFile(name) {
			return name
		}
	}
	if strings.HasSuffix(f.main, ".conf") || strings.HasSuffix(f.main, ".config") {
		return f.main // which expand does not find
	}
	return ""
}

func isFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && !info.IsDir()
}

func isDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// expand lists the files of a path, which may be a directory or a pattern.
func expand(path string) ([]string, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, "*.conf")
	} else if err == nil {
		return []string{path}, nil
	}
	names, err := filepath.Glob(path)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 && filepath.Base(path) != "*.conf" {
		return nil, fmt.Errorf("%s: there is no such file", path)
	}
	slices.Sort(names)
	return names, nil
}

// missingDefinitions is an error for each file of definitions that a start would look for in vain.
func missingDefinitions(c *config.Config) error {
	var missing []error
	for _, name := range c.Definitions.Files {
		if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, fmt.Errorf("load_definitions: %s: there is no such file", name))
		} else if err != nil {
			missing = append(missing, fmt.Errorf("load_definitions: %w", err))
		}
	}
	return errors.Join(missing...)
}

// convertConfig returns a file of Erlang terms as lines of rabbitmq.conf, also if not all of it can be converted. A file that has lines already is returned as it is.
func convertConfig(name string) (string, error) {
	f, err := readConfigFile(name)
	if err != nil || !f.Terms {
		return f.Text, err
	}
	text, err := config.ConvertTerms(f)
	if err != nil {
		return text, fmt.Errorf("the file cannot be converted:\n%w", err)
	}
	return text, nil
}
