//go:build invariants

package held

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
)

// Mutex is a sync.Mutex that knows who holds it.
type Mutex struct {
	mu    sync.Mutex
	name  string
	owner uint64 // the goroutine that holds it; guarded by mu
}

// RWMutex is a sync.RWMutex that knows who holds it.
type RWMutex struct {
	mu    sync.RWMutex
	name  string
	owner uint64 // the goroutine that holds it for writing; guarded by mu
}

// Name gives a lock its name in panics and in the table of exceptions. It is called before
// the lock is used. A lock without a name is called by the place where it was taken.
func Name(lock any, name string) {
	switch l := lock.(type) {
	case *Mutex:
		l.name = name
	case *RWMutex:
		l.name = name
	default:
		panic(fmt.Sprintf("held: a name for a %T", lock))
	}
}

// Nothing panics if the goroutine holds a lock, unless the table of exceptions allows the
// lock during this wait. wait names what the goroutine waits for.
func Nothing(wait string) {
	id := goroutine()
	s := of(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.held[id] {
		if _, ok := exceptions[exception{t.name, wait}]; !ok {
			panic(fmt.Sprintf("held: %s is held while %s is waited for", t, wait))
		}
	}
}

// Apart runs f as if its goroutine held no lock, and forgets the locks that f has not
// released. It is for a recovery, which runs alone, and for tests that run another node in a
// failpoint, or recover from a panic.
func Apart(f func()) {
	id := goroutine()
	s := of(id)
	s.mu.Lock()
	before := s.held[id]
	delete(s.held, id)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if delete(s.held, id); len(before) > 0 {
			s.held[id] = before
		}
	}()
	f()
}

// Lock is sync.Mutex's.
func (m *Mutex) Lock() {
	id := goroutine()
	refuseTwice(id, m)
	m.mu.Lock()
	m.owner = id
	take(id, m, m.name)
}

// TryLock is sync.Mutex's.
func (m *Mutex) TryLock() bool {
	if !m.mu.TryLock() {
		return false
	}
	m.owner = goroutine()
	take(m.owner, m, m.name)
	return true
}

// Unlock is sync.Mutex's. It may be called by another goroutine than Lock.
func (m *Mutex) Unlock() {
	drop(m.owner, m)
	m.owner = 0
	m.mu.Unlock()
}

// Lock is sync.RWMutex's.
func (m *RWMutex) Lock() {
	id := goroutine()
	refuseTwice(id, m)
	m.mu.Lock()
	m.owner = id
	take(id, m, m.name)
}

// TryLock is sync.RWMutex's.
func (m *RWMutex) TryLock() bool {
	if !m.mu.TryLock() {
		return false
	}
	m.owner = goroutine()
	take(m.owner, m, m.name)
	return true
}

// Unlock is sync.RWMutex's. It may be called by another goroutine than Lock.
func (m *RWMutex) Unlock() {
	drop(m.owner, m)
	m.owner = 0
	m.mu.Unlock()
}

// RLock is sync.RWMutex's. A goroutine that has the lock for reading must not take it again:
// with a writer in between both would wait forever.
func (m *RWMutex) RLock() {
	id := goroutine()
	refuseTwice(id, m)
	m.mu.RLock()
	take(id, m, m.name)
}

// TryRLock is sync.RWMutex's.
func (m *RWMutex) TryRLock() bool {
	if !m.mu.TryRLock() {
		return false
	}
	take(goroutine(), m, m.name)
	return true
}

// RUnlock is sync.RWMutex's. It is called by the goroutine that called RLock.
func (m *RWMutex) RUnlock() {
	drop(goroutine(), m)
	m.mu.RUnlock()
}

// taken is a lock that a goroutine holds.
type taken struct {
	lock any // *Mutex or *RWMutex
	name string
	at   uintptr // where it was taken
}

// String names the lock and where it was taken.
func (t taken) String() string {
	f, _ := runtime.CallersFrames([]uintptr{t.at}).Next()
	name := t.name
	if name == "" {
		name = "a lock"
	}
	return fmt.Sprintf("%s, taken by %s (%s:%d)", name, f.Function, f.File, f.Line)
}

// shard is the table of holders for a part of the goroutines.
type shard struct {
	mu   sync.Mutex
	held map[uint64][]taken // by goroutine
}

var shards [64]shard

func of(id uint64) *shard { return &shards[id%uint64(len(shards))] }

// goroutine is the unique number of the running goroutine. Only the text of a stack has it.
func goroutine() uint64 {
	var buf [40]byte
	text := buf[len("goroutine "):runtime.Stack(buf[:], false)]
	id, err := strconv.ParseUint(string(text[:bytes.IndexByte(text, ' ')]), 10, 64)
	if err != nil {
		panic("held: the stack of a goroutine begins otherwise: " + err.Error())
	}
	return id
}

// refuseTwice panics if a goroutine is about to take a lock that it already holds.
func refuseTwice(id uint64, lock any) {
	s := of(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.held[id] {
		if t.lock == lock {
			panic(fmt.Sprintf("held: %s is taken again by who holds it", t))
		}
	}
}

// take notes that a goroutine has taken a lock, with the place of the caller's caller.
func take(id uint64, lock any, name string) {
	var pc [1]uintptr
	runtime.Callers(3, pc[:])
	s := of(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == nil {
		s.held = map[uint64][]taken{}
	}
	s.held[id] = append(s.held[id], taken{lock, name, pc[0]})
}

// drop notes that a goroutine has released a lock.
func drop(id uint64, lock any) {
	s := of(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.held[id]
	i := slices.IndexFunc(list, func(t taken) bool { return t.lock == lock })
	if i < 0 {
		panic("held: a lock is let go that this goroutine does not hold")
	}
	if len(list) == 1 {
		delete(s.held, id)
		return
	}
	s.held[id] = slices.Delete(list, i, i+1)
}
