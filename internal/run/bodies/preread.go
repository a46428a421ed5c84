package bodies

import "bartleby.mq/internal/core/message"

// Preread reads what lies from a place on, up to len(buf) bytes, so that the system has
// it in memory when its records are wanted. What cannot be read now is told to whoever
// wants it. buf is overwritten.
func (s *Store) Preread(at message.Location, buf []byte) { _, _ = s.readAt(at, buf) }
