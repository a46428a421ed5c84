// Package bug decides what a panic does. No other package does.
//
// A panic is a mistake of ours. If all functions between it and the entry of a session are
// in packages whose state belongs to one connection, it is logged and ends that connection.
// Any other panic is logged and ends the process at once: a lock may be held, or a queue
// half changed, and the journal has the truth; the node recovers when it starts. This holds
// in a session, in a request over HTTP, in every goroutine of ours, and in a program that
// embeds a broker.
//
// Deferred functions run before an outer recover. One that waits, takes a lock or calls
// into shared state would hang if the panic left a lock held. So such a function has an End
// deferred right after it, which therefore runs first; a test at the root of the module
// finds functions without one.
//
// Every package that starts a goroutine calls it. It owns only the flag that the process is
// ending.
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

// exitCode is the exit code after a bug, the same as Go's after a panic.
const exitCode = 2

// patience is how long the end of the process waits for the log, and then for standard
// error: the writer of the log may have panicked, or its reader may be stuck.
const patience = 300 * time.Millisecond

// ending is set by the first panic that ends the process.
var ending atomic.Bool

// End is deferred where a panic must not go further: it ends the process. where names the
// operation. log may be nil.
func End(log *slog.Logger, where string) {
	if cause := recover(); cause != nil {
		end(log, where, "", cause, debug.Stack())
	}
}

// Guarded wraps f for a goroutine of its own: a panic in it ends the process.
func Guarded(log *slog.Logger, where string, f func()) func() {
	return func() {
		defer End(log, where)
		f()
	}
}

// Contain is deferred in the function named entry, the entry of a session. It recovers from
// a panic in the session's own packages, so that only the connection ends. Any other panic
// ends the process, and so does a panic after which free says that a lock of the connection
// is still held: other goroutines would wait for it. log and free may be nil.
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

// end ends the process after a panic. No deferred function runs after it.
func end(log *slog.Logger, where, in string, cause any, stack []byte) {
	if !ending.CompareAndSwap(false, true) {
		select {} // the first panic is reported and ends this goroutine too
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

// tell writes the panic of a process without a log.
func tell(w io.Writer, where, in string, cause any, stack []byte) {
	_, _ = fmt.Fprintf(w, "bartleby: the node ends by a bug: where=%q in=%q panic: %v\n\n%s", where, in, cause, stack)
}

// within runs f and waits for it, but at most for most.
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
	// module is the prefix of the names of our functions.
	module = "bartleby.mq"
	// own is the prefix of the names of this package's functions.
	own = module + "/internal/safety/bug."
)

// alone are the packages whose state belongs to one connection.
var alone = []string{"wire/amqp091", "wire/amqp10", "edge/session091", "edge/session10", "edge/listen", "run/serving"}

// inShared looks for a function of ours, between a panic and the entry of a session, that
// works on state shared by connections. A stack without the entry belongs to no session.
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

// frames names all functions on the stack, the innermost first.
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
