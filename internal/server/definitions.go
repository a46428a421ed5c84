package server

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"bartleby.mq/internal/config"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/disk/store"
	"bartleby.mq/internal/edge/listen"
	"bartleby.mq/internal/run/definitions"
)

// importDefinitions imports the configured definitions files and URL (BR-16.7). It does so
// at every start, because objects may have been deleted, or the definitions changed; or, if
// configured, only definitions that have changed since the last start.
func (s *Server) importDefinitions() error {
	d := s.Config.Definitions
	if len(s.Definitions) > 0 {
		if err := s.importText("options", s.Definitions); err != nil {
			return err
		}
	}
	for _, path := range d.Files {
		files, err := definitionFiles(path)
		if err != nil {
			return fmt.Errorf("definitions: %w", err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return fmt.Errorf("definitions: %w", err)
			}
			if err := s.importText(file, text); err != nil {
				return err
			}
		}
	}
	if d.URL == "" {
		return nil
	}
	text, err := fetchDefinitions(d)
	if err != nil {
		return fmt.Errorf("definitions: %w", err)
	}
	return s.importText(d.URL, text)
}

func (s *Server) importText(source string, text []byte) error {
	if s.Config.Definitions.SkipUnchanged && s.imported(source, text) {
		s.Logger.Info("definitions unchanged, not imported", "source", source)
		return nil
	}
	warnings, err := definitions.Import(s.broker, text, definitions.How{SkipUnsupported: s.Config.Definitions.SkipUnsupported})
	if err != nil {
		return fmt.Errorf("definitions %s: %w%s", source, err, definitions.SyntaxError(text))
	}
	for _, w := range warnings {
		s.Logger.Warn("definitions imported with a warning", "source", source, "warning", w)
	}
	s.Logger.Info("definitions imported", "source", source)
	return s.noteImport(source, text)
}

// maxDefinitions is the maximal size of definitions at a URL, in bytes.
const maxDefinitions = 256 << 20

// fetchDefinitions gets the definitions at a URL.
func fetchDefinitions(d config.Definitions) ([]byte, error) {
	const timeout = 30 * time.Second
	secure, err := listen.ClientTLS(listen.TLSOptions(d.TLS), "")
	if err != nil {
		return nil, fmt.Errorf("definitions.tls: %w", err)
	}
	transport := &http.Transport{TLSClientConfig: secure, DisableKeepAlives: true}
	answer, err := (&http.Client{Transport: transport, Timeout: timeout}).Get(d.URL)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", d.URL, answer.Status)
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxDefinitions+1))
	if err == nil && len(text) > maxDefinitions {
		err = fmt.Errorf("%s: more than %d bytes", d.URL, maxDefinitions)
	}
	return text, err
}

// importsPath is the file with the SHA-256 of each imported source.
func (s *Server) importsPath() string { return filepath.Join(s.DataDir, "imported.json") }

func (s *Server) imports() map[string]string {
	if s.private() {
		return map[string]string{}
	}
	text, err := os.ReadFile(s.importsPath())
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]string{}
	}
	var sums map[string]string
	if err == nil {
		err = json.Unmarshal(text, &sums)
	}
	if err != nil || sums == nil { // as of the text null
		s.Logger.Warn("cannot read the record of earlier imports; importing definitions again", "file", s.importsPath(), "error", err)
		return map[string]string{}
	}
	return sums
}

// sourceKey is the name of a source in the file. JSON has no form for a path that is not UTF-8.
func sourceKey(source string) string {
	if utf8.ValidString(source) {
		return source
	}
	return "\x00" + strconv.QuoteToASCII(source) // no path begins so
}

func (s *Server) imported(source string, text []byte) bool {
	return s.imports()[sourceKey(source)] == checksum(text)
}

func (s *Server) noteImport(source string, text []byte) error {
	if !s.Config.Definitions.SkipUnchanged || s.private() {
		return nil
	}
	sums := s.imports()
	sums[sourceKey(source)] = checksum(text)
	out, err := json.MarshalIndent(sums, "", "  ")
	if err != nil {
		return err
	}
	return journal.Replace(store.OwnerOnly, s.importsPath(), append(out, '\n'))
}

func checksum(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// definitionFiles returns a file itself, or the *.json files of a directory, sorted by
// name.
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
