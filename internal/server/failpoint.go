//go:build failpoints && unix

package server

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"bartleby.mq/internal/run/broker"
)

// forCrashTests reads what a crash test wants of a server built for it:
//
//	BARTLEBY_FAILPOINT=NAME:N[,NAME:N...]  the process kills itself the N-th time it passes the step
//	BARTLEBY_PANIC=NAME:N                  it panics there, and writes the moment to the standard error before
//	BARTLEBY_CHECKPOINT_BYTES=N            journal bytes after which a checkpoint is written
//	BARTLEBY_BUDGET_BYTES=N                memory for messages, and for the index of queues
//	BARTLEBY_HOT_PAGES=N                   pages at each end of a queue that stay in memory
//	BARTLEBY_SEGMENT_BYTES=N               size of the journal's segments
//	BARTLEBY_COMPACT_BELOW=N               percent of a file's messages that are left, below which they are moved
//	BARTLEBY_STEPS=FILE                    the name of each step that is passed is added to the file, once
//	BARTLEBY_CLOCK=FILE                    the file says by how many milliseconds the system's clock is wrong, at each moment
//	BARTLEBY_FAULT=KIND:N                  the N-th operation of a kind on files fails, see faults
//
// It panics on what it cannot read: a test that arms nothing tests nothing.
func forCrashTests(o *broker.Options) {
	for variable, value := range map[string]*int64{
		"BARTLEBY_CHECKPOINT_BYTES": &o.Storage.CheckpointBytes, "BARTLEBY_BUDGET_BYTES": &o.Storage.IndexBudget,
		"BARTLEBY_SEGMENT_BYTES": &o.Storage.SegmentBytes, "BARTLEBY_COMPACT_BELOW": &o.Storage.CompactBelow,
	} {
		if n := bytesFrom(variable); n != 0 {
			*value = n
		}
	}
	if n := bytesFrom("BARTLEBY_BUDGET_BYTES"); n != 0 {
		o.Storage.CacheBudget = n
	}
	o.StateHash = true
	if file := os.Getenv("BARTLEBY_CLOCK"); file != "" {
		o.Wall = steppedBy(file)
	}
	o.FS = faulty(os.Getenv("BARTLEBY_FAULT"))
	o.Storage.HotPages = int(bytesFrom("BARTLEBY_HOT_PAGES"))
	armed, panics := stepsFrom("BARTLEBY_FAILPOINT"), stepsFrom("BARTLEBY_PANIC")
	passed := func(string) {}
	if file := os.Getenv("BARTLEBY_STEPS"); file != "" {
		passed = recordSteps(file)
	} else if len(armed)+len(panics) == 0 {
		return
	}
	o.Failpoint = func(name string) {
		passed(name)
		if left := armed[name]; left != nil && left.Add(-1) == 0 {
			// Not os.Exit: nothing may be tidied up, by anybody.
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // until the signal has come
		}
		if left := panics[name]; left != nil && left.Add(-1) == 0 {
			fmt.Fprintf(os.Stderr, "panic at %s at %d\n", name, time.Now().UnixNano())
			panic("failpoint " + name)
		}
	}
}

// steppedBy returns a clock that is wrong by as many milliseconds as a file says. It looks at the file a hundred times a second at most.
func steppedBy(file string) func(time.Time) int64 {
	var mu sync.Mutex
	var looked time.Time
	by := int64(0)
	return func(t time.Time) int64 {
		mu.Lock()
		defer mu.Unlock()
		if t.Sub(looked) > 10*time.Millisecond {
			text, err := os.ReadFile(file)
			if err == nil {
				by, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
			}
			if err != nil {
				panic(fmt.Sprintf("BARTLEBY_CLOCK: %v", err))
			}
			looked = t
		}
		return t.UnixMilli() + by
	}
}

// stepsFrom reads after how many times at which step something is to happen.
func stepsFrom(variable string) map[string]*atomic.Int64 {
	armed := map[string]*atomic.Int64{}
	for each := range strings.SplitSeq(os.Getenv(variable), ",") {
		if each == "" {
			continue
		}
		name, count, _ := strings.Cut(each, ":")
		n, err := strconv.ParseInt(count, 10, 64)
		if err != nil || n < 1 {
			panic(fmt.Sprintf("%s: %q is not NAME:N", variable, each))
		}
		armed[name] = new(atomic.Int64)
		armed[name].Store(n)
	}
	return armed
}

// recordSteps returns what adds a step's name to the file when it is first passed.
func recordSteps(file string) func(name string) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		panic(fmt.Sprintf("BARTLEBY_STEPS: %v", err))
	}
	var seen sync.Map
	return func(name string) {
		if _, again := seen.LoadOrStore(name, true); again {
			return
		}
		if _, err := f.WriteString(name + "\n"); err != nil {
			panic(fmt.Sprintf("BARTLEBY_STEPS: %v", err))
		}
	}
}

func bytesFrom(variable string) int64 {
	text := os.Getenv(variable)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", variable, err))
	}
	return n
}
