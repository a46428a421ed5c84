package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"bartleby.mq/internal/config"
)

// configFiles are the files of a node's configuration, in the order in which they are read.
type configFiles []string

// findConfig returns the file or directory that the flag names, or else those that the
// environment names. A directory or a pattern stands for its *.conf files, sorted by name.
func findConfig(flag string, getenv func(string) string) configFiles {
	if flag != "" {
		return configFiles{flag}
	}
	var files configFiles
	p := config.EnvironmentPaths(getenv)
	if p.ConfigFile != "" {
		files = append(files, p.ConfigFile)
	}
	if p.ConfigFiles != "" {
		files = append(files, p.ConfigFiles)
	}
	return files
}

// load reads the environment, then the files over it.
func (f configFiles) load(getenv func(string) string) (config.Config, []config.Warning, error) {
	conf := config.Default()
	warnings, err := config.Environment(&conf, getenv)
	if err != nil {
		return conf, nil, fmt.Errorf("environment: %w", err)
	}
	var texts []config.File
	for _, path := range f {
		names, err := expand(path)
		if err != nil {
			return conf, nil, fmt.Errorf("configuration: %w", err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				return conf, nil, fmt.Errorf("configuration: %w", err)
			}
			texts = append(texts, config.File{Name: name, Text: string(text)})
		}
	}
	more, err := config.ParseFiles(&conf, getenv, texts...)
	if err == nil {
		err = conf.Check()
	}
	if err != nil {
		return conf, nil, fmt.Errorf("configuration:\n%w", err)
	}
	return conf, append(warnings, more...), nil
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
