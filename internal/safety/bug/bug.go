// Package bug says what becomes of a panic, in this one place.
//
// A panic is a mistake of ours. If everything between it and the entry of a session is of
// packages whose state belongs to one connection, it is logged and ends that connection.
// Any other is logged whole and ends the process at once: a lock may be held, or a queue
// half changed, and the journal has the truth; the node recovers when it starts. That is
// so in a session, in a request over HTTP, in every goroutine of ours, and in a program
// that embeds a broker.
//
// A deferred function that waits, takes a lock or calls into what is shared would run
// before whoever recovers further out, and hang where the panic left a lock behind. Such a
// one has an End deferred right behind it, which therefore runs first; a test at the root
// of the module looks for those that have none.
//
// The package owns nothing but whether the process is ending.
package bug

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"
)

// exitCode is what a process ends with for a bug, as Go has it.
const exitCode = 2

// patience is how long the end of the process waits for the log, and then for the standard
// error: whoever writes the log may have panicked, or nobody reads it.
const patience = 300 * time.Millisecond

// ending is set by the first panic that ends the process.
var ending atomic.Bool

// End is deferred where a panic must go no further: it ends the process. where names what
// was going on. log may be nil.
func End(log *slog.Logger, where string) {
	if cause := recover(); cause != nil {
		end(log, where, "", cause, debug.Stack())
	}
}

// Guarded is f for a goroutine of its own, where a panic ends the process.
func Guarded(log *slog.Logger, where string, f func()) func() {
	return func() {
		defer End(log, where)
		f()
	}
}

// Contain is deferred in the function named entry, the entry of a session. It recovers from
// a panic of the session's own and lets the connection end; any other ends the process, and
// so does one after which free says that locks of the connection are not let go: others
// would wait for them. log and free may be nil.
func Contain(log *slog.Logger, entry string, free func() bool) {
	cause := recover()
	if cause == nil {
		return
	}
	stack := debug.Stack()
	if in, shared := inShared(frames(), entry); shared {
		end(log, entry, in, cause, stack)
	}
	if free != nil && !free() {
		end(log, entry, "a lock of the connection", cause, stack)
	}
	if log != nil {
		log.Error("connection ended by a bug", "panic", fmt.Sprint(cause), "stack", string(stack))
	}
}

// end is the one way a panic ends the process. Nothing deferred runs any more.
func end(log *slog.Logger, where, in string, cause any, stack []byte) {
	if !ending.CompareAndSwap(false, true) {
		select {} // the first one is told of, and ends this one too
	}
	told := false
	if log != nil && log.Enabled(context.Background(), slog.LevelError) {
		told = within(patience, func() {
			log.Error("the node ends by a bug", "where", where, "in", in, "panic", fmt.Sprint(cause), "stack", string(stack))
		})
	}
	if !told {
		within(patience, func() { tell(os.Stderr, where, in, cause, stack) })
	}
	os.Exit(exitCode)
}

// tell writes what a process without a log ends by.
func tell(w io.Writer, where, in string, cause any, stack []byte) {
	_, _ = fmt.Fprintf(w, "bartleby: the node ends by a bug: where=%q in=%q panic: %v\n\n%s", where, in, cause, stack)
}

// within runs f and waits for it, but not for long.
func within(most time.Duration, f func()) (done bool) {
	donec := make(chan struct{})
	go func() { // ends with the process if not before
		f()
		close(donec)
	}()
	select {
	case <-donec:
		return true
	case <-time.After(most):
		return false
	}
}

const (
	// module is what the names of our functions begin with.
	module = "bartleby.mq"
	// own is what the names of the functions of this package begin with.
	own = module + "/internal/safety/bug."
)

// alone are the packages whose state belongs to one connection.
var alone = []string{"wire/amqp091", "edge/session091", "edge/listen"}

// inShared looks through the functions between a panic and the entry of a session for one
// of ours that works on what connections share. A stack without the entry is no session's.
func inShared(functions []string, entry string) (where string, shared bool) {
	for _, name := range functions {
		if name == entry {
			return "", false
		}
		if ours(name) && !belongsToOne(name) {
			return name, true
		}
	}
	return "no session", true
}

func ours(function string) bool {
	rest, ok := strings.CutPrefix(function, module)
	return ok && strings.IndexAny(rest, "/._") == 0 && !strings.HasPrefix(function, own)
}

func belongsToOne(function string) bool {
	for _, p := range alone {
		if strings.HasPrefix(function, module+"/internal/"+p+".") {
			return true
		}
	}
	return false
}

// frames names the functions on the stack, the innermost first, all of them.
func frames() (names []string) {
	pcs := make([]uintptr, 64)
	n := runtime.Callers(2, pcs)
	for n == len(pcs) {
		pcs = make([]uintptr, 2*len(pcs))
		n = runtime.Callers(2, pcs)
	}
	for next := runtime.CallersFrames(pcs[:n]); ; {
		f, more := next.Next()
		names = append(names, f.Function)
		if !more {
			return names
		}
	}
}
