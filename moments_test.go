package bartleby_test

import (
	"go/ast"
	"go/token"
	"strings"
	"testing"
)

// Sums of moments and products of units with numbers that come from outside overflow.
// Package moment has forms of both that do not; those that need none are listed here.
var plainTimes = map[string]string{
	"internal/run/partition/foresight.go":   "the clock and a constant",
	"internal/run/partition/relief.go":      "the clock and constants",
	"internal/run/partition/replicated.go":  "the clock and a constant",
	"internal/core/queue/admission.go":      "the clock and one millisecond",
	"internal/core/queue/index/split.go":    "the clock and at most the horizon",
	"internal/edge/session091/handshake.go": "16 bits of seconds",
	"internal/edge/session10/handshake.go":  "32 bits of milliseconds",
	"internal/sim/world.go":                 "a simulation's own clock",
	"internal/sim/faults.go":                "a simulation's own clock",
}

func TestTimesOfOthersSaturate(t *testing.T) {
	used := map[string]bool{}
	for _, f := range sources(t) {
		if !strings.HasPrefix(f.name, "internal/") || strings.HasPrefix(f.name, "internal/core/moment/") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			b, ok := n.(*ast.BinaryExpr)
			if !ok {
				return true
			}
			suspect := b.Op == token.ADD && (isNow(b.X) || isNow(b.Y)) || b.Op == token.MUL && (isConverted(b.X) && isUnit(b.Y) || isConverted(b.Y) && isUnit(b.X))
			if suspect && plainTimes[f.name] == "" {
				t.Errorf("%s: a sum or product of times that may overflow: use package moment", f.name)
			}
			used[f.name] = used[f.name] || suspect
			return true
		})
	}
	for name := range plainTimes {
		if !used[name] {
			t.Errorf("%s has no such sum any more: take it off the list", name)
		}
	}
}

// isNow says whether an expression is the clock: now, x.now, x.Now().
func isNow(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name == "now"
	case *ast.SelectorExpr:
		return e.Sel.Name == "now"
	case *ast.CallExpr:
		s, ok := e.Fun.(*ast.SelectorExpr)
		return ok && s.Sel.Name == "Now"
	}
	return false
}

// isConverted says whether an expression makes a time.Duration of what is no literal.
func isConverted(e ast.Expr) bool {
	c, ok := e.(*ast.CallExpr)
	if !ok || len(c.Args) != 1 {
		return false
	}
	s, ok := c.Fun.(*ast.SelectorExpr)
	_, literal := c.Args[0].(*ast.BasicLit)
	return ok && s.Sel.Name == "Duration" && isPackage(s.X, "time") && !literal
}

// isUnit says whether an expression is time.Second or another unit.
func isUnit(e ast.Expr) bool {
	s, ok := e.(*ast.SelectorExpr)
	return ok && isPackage(s.X, "time")
}

func isPackage(e ast.Expr, name string) bool {
	i, ok := e.(*ast.Ident)
	return ok && i.Name == name
}
