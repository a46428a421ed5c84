//go:build !windows

package server

import (
	"bytes"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/run/datadir"
)

// open finds what others than the owner may read, write or enter.
func open(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode()&fs.ModeSymlink == 0 && info.Mode().Perm()&0o077 != 0 {
			names = append(names, info.Mode().String()+" "+path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// Nobody but its owner may read a data directory, one that was there before and open, a
// backup, or an examination's.
func TestFilesAreTheOwnersOnly(t *testing.T) {
	top := t.TempDir()
	dir, backup := filepath.Join(top, "data"), filepath.Join(top, "backup")
	run := func() string {
		t.Helper()
		o, log := options(dir)
		s := mustStart(t, o)
		c := dial(t, s, "guest:guest")
		ch, err := c.Channel()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ch.QueueDeclare("q", true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			if err := ch.Publish("", "q", false, false, amqp.Publishing{Body: make([]byte, 1000), DeliveryMode: 2}); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(c.Close(), s.broker.Node().Checkpoint(), os.RemoveAll(backup)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.broker.BackUp(t.Context(), backup); err != nil {
			t.Fatal(err)
		}
		if names := append(open(t, dir), open(t, backup)...); len(names) > 0 {
			t.Errorf("open to others: %s", strings.Join(names, "\n"))
		}
		mustStop(t, s)
		return log.String()
	}
	const line = "could read the data directory"
	if log := run(); strings.Contains(log, line) {
		t.Errorf("a new directory was said to have been open: %s", log)
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		mode := fs.FileMode(0o644)
		if d.IsDir() {
			mode = 0o755
		}
		return errors.Join(err, os.Chmod(path, mode))
	})
	if err != nil {
		t.Fatal(err)
	}
	if log := run(); !strings.Contains(log, line) {
		t.Errorf("the log does not say that the directory was open: %s", log)
	}
}

// A backup to a place in the data directory, by whatever name, or where there is something
// already, finished or not, is refused, and touches nothing.
func TestBackupRefusesPlaces(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "data")
	o, _ := options(dir)
	s := mustStart(t, o)
	defer mustStop(t, s)
	for _, err := range []error{
		os.Symlink(dir, filepath.Join(top, "link")),
		os.Symlink(filepath.Join(top, "nowhere"), filepath.Join(top, "dangling")),
		os.Mkdir(filepath.Join(top, "there"), 0o700),
		os.Mkdir(filepath.Join(top, "half.unfinished"), 0o700),
		os.WriteFile(filepath.Join(top, "half.unfinished", "mine"), []byte("precious"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]error{
		"data": datadir.ErrBackupThere, "data/b": datadir.ErrBackupInside, "data/journal/b/c": datadir.ErrBackupInside, "link/b": datadir.ErrBackupInside,
		"link/../link/keep/b": datadir.ErrBackupInside, "dangling": datadir.ErrBackupThere, "there": datadir.ErrBackupThere, "half": datadir.ErrBackupThere, "nowhere/b": datadir.ErrBackupNowhere,
	} {
		if _, err := s.broker.BackUp(t.Context(), top+"/"+path); !errors.Is(err, want) {
			t.Errorf("a backup to %s: %v, want %v", path, err, want)
		}
		status := map[error]int{datadir.ErrBackupThere: http.StatusConflict, datadir.ErrBackupInside: http.StatusBadRequest, datadir.ErrBackupNowhere: http.StatusBadRequest}[want]
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.Addresses().HTTP.String()+"/api/backup", bytes.NewReader([]byte(`{"path":"`+top+"/"+path+`"}`)))
		if err != nil {
			t.Fatal(err)
		}
		r.SetBasicAuth("guest", "guest")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := answer.Body.Close(); err != nil || answer.StatusCode != status {
			t.Errorf("the API's answer to a backup to %s is %d, want %d: %v", path, answer.StatusCode, status, err)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	if b, err := os.ReadFile(filepath.Join(top, "half.unfinished", "mine")); err != nil || string(b) != "precious" {
		t.Errorf("what was there is %q, %v", b, err)
	}
	if _, err := s.broker.BackUp(t.Context(), filepath.Join(top, "database")); err != nil {
		t.Errorf("a backup beside it: %v", err)
	}
}
