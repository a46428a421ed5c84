// Package watermill holds the dependency on Watermill's AMQP pub/sub, whose own tests scripts/clientsuites runs: a module of its own, since
// its tests do not pass with an amqp091-go newer than the one it asks for.
package watermill

import (
	_ "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp" // its tests are what this module is for
)
