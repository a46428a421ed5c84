//go:build !failpoints

package session091

import "bartleby.mq/internal/core/message"

// provoke does nothing: only a server built with the tag failpoints can be told to panic.
func (*channel) provoke(message.QueueName) {}
