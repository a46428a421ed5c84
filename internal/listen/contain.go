package listen

import (
	"fmt"
	"net"
	"runtime"
	"runtime/debug"
	"strings"
)

// contain is deferred by each session. A mistake of ours in the talk with one
// client ends that connection and no other; it is logged with its stack. A
// mistake below that, in what all connections share, goes on: a lock may be held
// or a queue half changed, and a process that stops and recovers from its journal
// is safer than one that goes on.
func (s *Server) contain(nc net.Conn) {
	cause := recover()
	if cause == nil {
		return
	}
	s.panics.Add(1)
	stack := debug.Stack()
	if where, shared := inShared(frames()); shared {
		s.Logger.Error("invariant broken, the node stops", "peer", nc.RemoteAddr().String(), "in", where, "panic", fmt.Sprint(cause), "stack", string(stack))
		panic(cause)
	}
	s.Logger.Error("connection ended by a bug", "peer", nc.RemoteAddr().String(), "panic", fmt.Sprint(cause), "stack", string(stack))
}

// module is what the names of our functions begin with.
const module = "bartleby.mq/internal/"

// alone are the packages whose state belongs to one connection.
var alone = []string{"amqp091", "session091", "listen"}

// inShared looks through the functions between a panic and its recovery for one
// of ours that works on what connections share.
func inShared(functions []string) (where string, shared bool) {
	for _, name := range functions {
		rest, ours := strings.CutPrefix(name, module)
		if !ours {
			continue
		}
		shared := true
		for _, p := range alone {
			if strings.HasPrefix(rest, p+".") {
				shared = false
			}
		}
		if shared {
			return name, true
		}
	}
	return "", false
}

// frames names the functions on the caller's stack, the innermost first.
func frames() (names []string) {
	pcs := make([]uintptr, 64)
	pcs = pcs[:runtime.Callers(2, pcs)]
	for next := runtime.CallersFrames(pcs); ; {
		f, more := next.Next()
		names = append(names, f.Function)
		if !more {
			return names
		}
	}
}
