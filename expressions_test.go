package bartleby_test

import (
	"go/ast"
	"strings"
	"testing"
)

// An expression of a user's is compiled by core/expression alone, which bounds what it costs. Others compile their own,
// as a constant at the start, or those of somebody who may do anything to the node anyway.
func TestExpressionsAreCompiledInOnePlace(t *testing.T) {
	trusted := map[string]string{
		"internal/core/expression/expression.go": "it is the place",
		"internal/client/ctl/plugins.go":         "a pattern of the command line, matched in its own process",
		"internal/config/keys_auth.go":           "of the node's configuration",
		"internal/config/value.go":               "of the node's configuration",
		"internal/server/backends.go":            "of the node's configuration",
	}
	used := map[string]bool{}
	for _, f := range sources(t) {
		if f.pkg == "" {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			fun, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if pkg, ok := fun.X.(*ast.Ident); !ok || pkg.Name != "regexp" || !strings.HasPrefix(fun.Sel.Name, "Compile") && !strings.HasPrefix(fun.Sel.Name, "MustCompile") && !strings.HasPrefix(fun.Sel.Name, "Match") {
				return true
			}
			if _, constant := call.Args[0].(*ast.BasicLit); constant {
				return true
			}
			if used[f.name] = true; trusted[f.name] == "" {
				t.Errorf("%s calls regexp.%s: core/expression compiles what users write", f.name, fun.Sel.Name)
			}
			return true
		})
	}
	for name := range trusted {
		if !used[name] {
			t.Errorf("%s compiles no expression any more", name)
		}
	}
}
