package main

import (
	"log/slog"
	"net"
	"os"
)

// tellSystemd tells the service manager how far the node is (sd_notify(3)), if one
// asked to be told. That it cannot be reached is no reason to stop serving.
func tellSystemd(logger *slog.Logger, state string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	socket, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"}) // @ is an abstract one
	if err == nil {
		_, err = socket.Write([]byte(state))
		_ = socket.Close()
	}
	if err != nil {
		logger.Warn("cannot notify systemd", "state", state, "error", err)
	}
}
