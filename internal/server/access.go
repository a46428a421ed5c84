package server

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// access is what the file ctl.json in the data directory holds: how whoever may
// read it, the user who runs the node, administers the node without a password.
type access struct {
	URL   string `json:"url"`
	Token string `json:"token"`
}

func (s *Server) accessPath() string { return filepath.Join(s.DataDir, "ctl.json") }

// writeAccess makes a new token and writes it down for the command line, in one
// step so that no reader finds half a file.
func (s *Server) writeAccess(at net.Addr) (token string, err error) {
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // never fails
	token = hex.EncodeToString(secret[:])
	text, err := json.MarshalIndent(access{URL: "http://" + reachable(at), Token: token}, "", "  ")
	if err != nil {
		return "", fmt.Errorf("command line access: %w", err)
	}
	next := s.accessPath() + ".new"
	_ = os.Remove(next) // of a node that was killed here; its mode might be another
	if err := os.WriteFile(next, append(text, '\n'), 0o600); err != nil {
		return "", fmt.Errorf("command line access: %w", err)
	}
	if err := os.Rename(next, s.accessPath()); err != nil {
		return "", fmt.Errorf("command line access: %w", err)
	}
	return token, nil
}

// removeAccess takes the file away: its token opens nothing any more.
func (s *Server) removeAccess() {
	if s.Addresses().HTTP != nil {
		_ = os.Remove(s.accessPath())
	}
}

// reachable is the address at which a process on this machine reaches a listener.
func reachable(at net.Addr) string {
	tcp, ok := at.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return at.String()
	}
	return net.JoinHostPort("127.0.0.1", fmt.Sprint(tcp.Port))
}
