//go:build !invariants

package held_test

import (
	"sync"

	"bartleby.mq/internal/safety/held"
)

// Without the tag the locks are those of sync: this does not compile otherwise.
var (
	_ *sync.Mutex   = (*held.Mutex)(nil)
	_ *sync.RWMutex = (*held.RWMutex)(nil)
)
