package server

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"bartleby.mq/internal/api"
)

// importDefinitions brings in what files of definitions declare (BR-16.7): at every
// start, since what they declare may have been deleted or they may have changed.
func (s *Server) importDefinitions() error {
	for _, path := range s.Config.Definitions {
		files, err := definitionFiles(path)
		if err != nil {
			return fmt.Errorf("definitions: %w", err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return fmt.Errorf("definitions: %w", err)
			}
			warnings, err := api.ImportDefinitions(s.broker, text)
			if err != nil {
				return fmt.Errorf("definitions %s: %w", file, err)
			}
			for _, w := range warnings {
				s.Logger.Warn("definitions", "file", file, "warning", w)
			}
			s.Logger.Info("definitions imported", "file", file)
		}
	}
	return nil
}

// definitionFiles is a file itself, or the files *.json of a directory in the
// order of their names.
func definitionFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	files, err := filepath.Glob(filepath.Join(path, "*.json"))
	slices.Sort(files)
	return files, err
}
