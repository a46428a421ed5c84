package bodies

import "bartleby.mq/internal/core/message"

// Preread reads up to len(buf) bytes from a place on, so that they are in the page cache
// when their records are needed. It ignores errors: a later Read reports them. buf is
// overwritten.
func (s *Store) Preread(at message.Location, buf []byte) { _, _ = s.readAt(at, buf) }
