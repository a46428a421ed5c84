//go:build invariants

package held

import (
	"fmt"
	"strings"
	"testing"
)

// panicOf is what f panics with, "" if it does not.
func panicOf(f func()) (text string) {
	defer func() {
		if cause := recover(); cause != nil {
			text = fmt.Sprint(cause)
		}
	}()
	f()
	return ""
}

// mustPanic demands a panic whose text has all of some words.
func mustPanic(t *testing.T, f func(), words ...string) {
	t.Helper()
	text := panicOf(f)
	if text == "" {
		t.Errorf("no panic, want one of %q", words)
	}
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("the panic is %q, without %q", text, w)
		}
	}
}

func waitForDisk() { Nothing("the disk") }

// Who waits with a lock panics, and is told which lock, where it was taken, and the wait.
func TestWhoWaitsHoldsNothing(t *testing.T) {
	var m Mutex
	var rw RWMutex
	Name(&m, "the ledger")
	waitForDisk()
	m.Lock()
	mustPanic(t, waitForDisk, "the ledger", "TestWhoWaitsHoldsNothing", "on_test.go", "the disk is waited for")
	m.Unlock()
	waitForDisk()
	if !m.TryLock() {
		t.Fatal("a free lock cannot be taken")
	}
	mustPanic(t, waitForDisk, "the ledger")
	m.Unlock()
	rw.RLock()
	mustPanic(t, waitForDisk, "a lock", "on_test.go")
	rw.RUnlock()
	rw.Lock()
	mustPanic(t, waitForDisk, "a lock")
	rw.Unlock()
	waitForDisk()
}

// What others hold keeps nobody from waiting, and a lock may be let go by another.
func TestOnlyWhatTheGoroutineHoldsCounts(t *testing.T) {
	var m Mutex
	m.Lock()
	donec := make(chan string)
	go func() { donec <- panicOf(func() { waitForDisk(); m.Unlock() }) }()
	if text := <-donec; text != "" {
		t.Errorf("a lock of another counts: %s", text)
	}
	waitForDisk()
	if !m.TryLock() {
		t.Fatal("a lock that another let go is held")
	}
	m.Unlock()
}

// One lock of several that are held is enough, and the order of letting go is free.
func TestEachOfSeveralLocksCounts(t *testing.T) {
	var locks [3]Mutex
	for i := range locks {
		Name(&locks[i], fmt.Sprintf("lock %d", i))
		locks[i].Lock()
	}
	for i := range locks {
		mustPanic(t, waitForDisk, fmt.Sprintf("lock %d", i))
		locks[i].Unlock()
	}
	waitForDisk()
}

// Only the exceptions of the table are allowed, each for its lock and its wait alone.
func TestExceptionsAreOfOneLockAndOneWait(t *testing.T) {
	for e, reason := range exceptions {
		if reason == "" {
			t.Errorf("%v has no reason", e)
		}
		var m, other Mutex
		Name(&m, e.lock)
		m.Lock()
		if text := panicOf(func() { Nothing(e.wait) }); text != "" {
			t.Errorf("%v is excepted: %s", e, text)
		}
		mustPanic(t, waitForDisk, e.lock)
		other.Lock()
		mustPanic(t, func() { Nothing(e.wait) }, "a lock")
		other.Unlock()
		m.Unlock()
	}
}

// Taking a lock again, even for reading only, and letting go of one that is free, panic
// where a program would hang or fail.
func TestLocksAreTakenOnce(t *testing.T) {
	var m Mutex
	var rw RWMutex
	Name(&rw, "the topology")
	mustPanic(t, m.Unlock, "let go")
	m.Lock()
	mustPanic(t, m.Lock, "taken again")
	m.Unlock()
	rw.RLock()
	mustPanic(t, rw.RLock, "the topology", "taken again")
	mustPanic(t, rw.Lock, "taken again")
	rw.RUnlock()
	mustPanic(t, rw.RUnlock, "let go")
	mustPanic(t, func() { Name(new(int), "x") }, "*int")
}

// What runs apart counts nothing that was held before, and leaves nothing.
func TestApartIsAnotherMatter(t *testing.T) {
	var m, left Mutex
	Name(&m, "the outboxes")
	m.Lock()
	Apart(func() {
		waitForDisk()
		left.Lock()
		mustPanic(t, waitForDisk, "a lock")
	})
	mustPanic(t, waitForDisk, "the outboxes")
	m.Unlock()
	waitForDisk()
}
