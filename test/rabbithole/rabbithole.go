// Package rabbithole holds the dependency on rabbit-hole, RabbitMQ's HTTP client
// in Go, whose own tests scripts/rabbithole runs, unmodified, against nodes: those of the
// version that tools are built with, and those of the newest.
package rabbithole

import (
	_ "github.com/michaelklishin/rabbit-hole/v2" // its tests are what this module is for
	_ "github.com/michaelklishin/rabbit-hole/v3" // likewise
)
