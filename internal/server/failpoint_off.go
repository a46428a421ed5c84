//go:build !failpoints || !unix

package server

import "bartleby.mq/internal/run/broker"

// forCrashTests does nothing: only a server built with the tag failpoints can be
// told to kill itself.
func forCrashTests(*broker.Options) {}
