package datadir

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// That details cannot be read is logged at once, and then once a minute with how many there were.
func TestUnreadDetailsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		d := &Directory{Options: Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}}
		unread := d.unread()
		for range 3 {
			unread(errors.New("too many open files"))
		}
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "times=1 ") || !strings.Contains(text, "too many open files") {
			t.Errorf("logged:\n%s", text)
		}
		time.Sleep(unreadEvery)
		unread(errors.New("i/o error"))
		if text := log.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "times=3 ") {
			t.Errorf("logged:\n%s", text)
		}
	})
}
