//go:build !invariants

package held

import "sync"

// Mutex is a sync.Mutex.
type Mutex = sync.Mutex

// RWMutex is a sync.RWMutex.
type RWMutex = sync.RWMutex

// Name does nothing without the build tag invariants.
func Name(lock any, name string) {}

// Nothing does nothing without the build tag invariants.
func Nothing(wait string) {}

// Apart runs f.
func Apart(f func()) { f() }
