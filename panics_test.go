package bartleby_test

import (
	"fmt"
	"go/ast"
	"strings"
	"testing"
)

// clientSide are packages that no node runs: they are for commands that look at files or
// ask a node, and for simulations.
var clientSide = map[string]bool{"client/ctl": true, "client/demo": true, "run/repair": true, "sim": true, "controlsocket": true, "config": true, "logs": true, "edge/console": true}

// inNode are the sources of what a node runs.
func inNode(t *testing.T) (files []sourceFile) {
	for _, f := range sources(t) {
		if f.pkg != "" && !strings.HasPrefix(f.pkg, "safety/") && !clientSide[f.pkg] {
			files = append(files, f)
		}
	}
	return files
}

// name is what a call calls, as it stands there: "x.mu.Unlock", "close".
func name(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return name(e.X) + "." + e.Sel.Name
	case *ast.CallExpr:
		return name(e.Fun) + "()"
	case *ast.FuncLit:
		return "func"
	case *ast.ParenExpr:
		return name(e.X)
	case *ast.UnaryExpr:
		return name(e.X)
	default:
		return fmt.Sprintf("%T", e)
	}
}

// guarded says whether a function is made by bug.Guarded.
func guarded(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	return ok && name(call.Fun) == "bug.Guarded"
}

// Whatever goroutine of a node panics, the process ends by bug.End.
func TestEveryGoroutineIsGuarded(t *testing.T) {
	found := 0
	for _, f := range inNode(t) {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				found++
				if !guarded(n.Call.Fun) {
					t.Errorf("%s: go %s: start it by bug.Guarded", f.name, name(n.Call.Fun))
				}
			case *ast.CallExpr:
				called := name(n.Fun)
				if len(n.Args) == 0 || !strings.HasSuffix(called, ".Go") && !strings.HasSuffix(called, ".AfterFunc") {
					return true
				}
				found++
				if !guarded(n.Args[len(n.Args)-1]) {
					t.Errorf("%s: %s: start it by bug.Guarded", f.name, called)
				}
			}
			return true
		})
	}
	if found < 20 {
		t.Errorf("%d goroutines found: does the test still look at them?", found)
	}
}

// harmless are deferred calls that wait for nothing in a panic, by how they end, each with
// the reason.
var harmless = map[string]string{
	".Unlock": "it lets go", ".RUnlock": "it lets go", ".Done": "it lets go", "close": "it lets go", ".unlock": "it lets go",
	".Stop": "of a timer", "cancel": "of a context", ".Free": "a buffer goes back to its pool", ".windows.Put": "a buffer goes back to its pool", ".putBack": "a buffer goes back to its pool",
	"bug.End": "it is the end", "bug.Contain": "it is the end", ".close": "files of one who reads", ".running.Unlock": "it lets go",
}

// deferred are others, by file and call, each with why nothing can hang on it.
var deferred = map[string]string{
	"internal/run/admission/http.go":      "the body of an answer",
	"internal/server/definitions.go":      "the body of an answer",
	"internal/server/resources_linux.go":  "a directory of the system's",
	"internal/disk/journal/copy.go":       "files that nobody else has",
	"internal/disk/journal/directory.go":  "files that nobody else has",
	"internal/disk/journal/mend.go":       "files that nobody else has",
	"internal/disk/journal/recover.go":    "files that nobody else has",
	"internal/disk/journal/read.go":       "the lock of the segments is held for a moment by those who look one up, and by nobody who reads",
	"internal/disk/store/copy.go":         "files that nobody else has",
	"internal/disk/store/store.go":        "an iterator that nobody else has",
	"internal/disk/bodyfile/aside.go":     "a file that nobody else has",
	"internal/run/datadir/identity.go":    "a file that nobody else has",
	"internal/run/broker/broker.go":       "after an error only, and a panic is none",
	"internal/edge/api/api.go":            "a slot that is its own goes back",
	"internal/edge/api/get.go":            "a slot that is its own goes back",
	"internal/edge/api/officejobs.go":     "a number goes down",
	"internal/edge/api/officetransfer.go": "a slot that is its own goes back",
	"internal/run/broker/login.go":        "a slot that is its own goes back; attempts are counted under a lock of their own",
	"internal/disk/bodyfile/handles.go":   "it closes files that nobody has any more",
	"internal/edge/listen/server.go":      "it comes behind bug.Contain",
}

// A deferred function that waits, or takes a lock, would keep a panic below a lock from
// ending the process: bug.End or bug.Contain is deferred right behind it, and so runs first.
func TestNothingDeferredKeepsAPanicFromEnding(t *testing.T) {
	used := map[string]bool{}
	for _, f := range inNode(t) {
		at, _ := layerOf(f.pkg)
		core := layers[at].name == "core" || layers[at].name == "wire"
		ast.Inspect(f.ast, func(n ast.Node) bool {
			block, ok := n.(*ast.BlockStmt)
			if !ok {
				return true
			}
			for i, s := range block.List {
				d, ok := s.(*ast.DeferStmt)
				if !ok {
					continue
				}
				called := name(d.Call.Fun)
				if i+1 < len(block.List) {
					if next, ok := block.List[i+1].(*ast.DeferStmt); ok && strings.HasPrefix(name(next.Call.Fun), "bug.") {
						continue
					}
				}
				known := false
				for end := range harmless {
					known = known || called == strings.TrimPrefix(end, ".") || strings.HasSuffix(called, end)
				}
				if known {
					continue
				}
				if deferred[f.name] == "" || core {
					t.Errorf("%s: defer %s: it runs while a panic below a lock unwinds; defer bug.End behind it, or say here why it cannot wait", f.name, called)
				}
				used[f.name] = true
			}
			return true
		})
	}
	for file, reason := range deferred {
		if !used[file] {
			t.Errorf("%s: nothing is deferred there any more (%s)", file, reason)
		}
	}
}
