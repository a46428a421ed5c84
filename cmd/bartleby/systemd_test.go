//go:build unix

package main

import (
	"log/slog"
	"net"
	"path/filepath"
	"testing"
)

// What systemd is told, at a socket in the file system.
func TestTellSystemd(t *testing.T) {
	at := &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"}
	socket, err := net.ListenUnixgram("unixgram", at)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = socket.Close() }()
	t.Setenv("NOTIFY_SOCKET", at.Name)
	tellSystemd(slog.New(slog.DiscardHandler), "READY=1")
	text := make([]byte, 64)
	n, err := socket.Read(text)
	if err != nil || string(text[:n]) != "READY=1" {
		t.Errorf("systemd was told %q, %v", text[:n], err)
	}
}
