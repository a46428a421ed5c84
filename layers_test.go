package bartleby_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "bartleby.mq"

// root stands for the package at the module's root.
const root = "."

// layers are the folders below internal, the folders whose packages those of each may import, and why no
// others. docs/architecture.md draws them.
var layers = []struct {
	name    string
	imports []string
	reason  string
}{
	{"safety", nil, "what may never happen is dealt with in one place, which whoever starts a goroutine or takes a lock reaches"},
	{"wire", nil, "codecs are values and bytes: whoever reads a protocol needs no broker"},
	{"disk", []string{"safety"}, "the disk keeps records and does not know what they mean"},
	{"core", []string{"wire", "core"}, "the core decides and does nothing: replay, simulation and replication rest on that"},
	{"run", []string{"safety", "wire", "disk", "core", "run"}, "what runs the core must not know who asked"},
	{"edge", []string{"safety", "wire", "core", "run"}, "edges translate: the disk is the broker's, and no edge needs another"},
	{"client", []string{"controlsocket"}, "clients reach a node as everybody else does, through its ports, or by its data directory"},
	{"controlsocket", nil, "two ends of a connection do not know what is said between them"},
	{"config", []string{"wire"}, "configuration is values that the server hands to the rest; its older files are Erlang terms, which a codec reads"},
	{"sim", []string{"safety", "wire", "disk", "core", "run"}, "a simulation stands in for the node, the network and the clock, below every edge"},
	{"logs", []string{"config"}, "lines are written where the configuration says; who has something to say is handed a logger"},
	{"server", []string{"safety", "wire", "disk", "core", "run", "edge", "config", "controlsocket"}, "it puts a node together"},
	{root, []string{"server", "config", "safety"}, "what others build on starts a node and shows nothing of its inside"},
}

// exceptions are imports that the layers would not allow, each with why it is right.
var exceptions = map[[2]string]string{
	{"disk/store", "disk/journal"}:      "the log of declarations is a journal of its own: two kinds of write-ahead log would be one too many",
	{"edge/session091", "disk/journal"}: "it carries a journal.Pos from the batch to the commit, and does nothing else with it",
}

// forbidden are imports that the layers would allow, each with why it is wrong.
var forbidden = map[[2]string]string{
	{"core/queue", "core/topology"}:    "a queue knows its settings, not the policies they come from",
	{"core/queue", "core/routing"}:     "where dead letters go is found outside the queue's lock",
	{"core/routing", "core/topology"}:  "exchange types know bindings, the topology knows exchanges",
	{"core/topology", "core/auth"}:     "permission is asked through a Permit, so that the order of errors is the topology's (DL-3.3)",
	{"run/partition", "core/topology"}: "partitions run queues; what was declared is the broker's",
	{"run/partition", "core/routing"}:  "partitions ask a Router, with nothing locked",
	{"edge/session091", "run/letters"}: "a session publishes, consumes and settles; letters are moved by the office and the API",
	{"edge/session10", "run/letters"}:  "a session publishes, consumes and settles; letters are moved by the office and the API",
	{"run/bodies", "run/partition"}:    "bodies are bytes with a count of references",
}

// sourceFile is a Go file that is not a test.
type sourceFile struct {
	name string // with slashes, from the root
	pkg  string // below internal, as "core/queue", or root; "" elsewhere
	ast  *ast.File
}

// sources parses every Go file of the module that is not a test.
func sources(t *testing.T) (files []sourceFile) {
	t.Helper()
	set := token.NewFileSet()
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := d.Name(); name != "." && (strings.HasPrefix(base, ".") || base == "testdata" || base == "bin" || base == "node_modules") {
				return filepath.SkipDir
			}
			return nil
		}
		name = filepath.ToSlash(name)
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(set, name, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		pkg := ""
		if rest, ok := strings.CutPrefix(path.Dir(name), "internal/"); ok {
			pkg = rest
		} else if path.Dir(name) == root {
			pkg = root
		}
		files = append(files, sourceFile{name, pkg, f})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("no source files found")
	}
	return files
}

func layerOf(pkg string) (i int, ok bool) {
	for i, l := range layers {
		if folder, _, _ := strings.Cut(pkg, "/"); l.name == folder {
			return i, true
		}
	}
	return 0, false
}

func imported(spec *ast.ImportSpec) string {
	p, _ := strconv.Unquote(spec.Path.Value)
	return p
}

// Imports follow the arrows of docs/architecture.md.
func TestImportsFollowTheLayers(t *testing.T) {
	for _, f := range sources(t) {
		if f.pkg == "" {
			continue
		}
		at, ok := layerOf(f.pkg)
		if !ok {
			t.Errorf("%s: package %s stands in no layer: its folder below internal is one", f.name, f.pkg)
			continue
		}
		for _, spec := range f.ast.Imports {
			if imported(spec) == module {
				t.Errorf("%s imports the public package, which is for others", f.name)
			}
			other, ours := strings.CutPrefix(imported(spec), module+"/internal/")
			if !ours || other == f.pkg || strings.HasPrefix(other, f.pkg+"/") {
				continue
			}
			pair := [2]string{f.pkg, other}
			if reason, no := forbidden[pair]; no {
				t.Errorf("%s imports %s: %s", f.name, other, reason)
				continue
			}
			if _, yes := exceptions[pair]; yes {
				continue
			}
			to, ok := layerOf(other)
			if !ok || !slices.Contains(layers[at].imports, layers[to].name) {
				t.Errorf("%s (%s) imports %s (%s): %s", f.name, layers[at].name, other, layers[to].name, layers[at].reason)
			}
		}
	}
}

// impure are imports that a core package must do without, each with the reason.
var impure = map[string]string{
	"os":          "the core does no I/O",
	"io/fs":       "the core does no I/O",
	"net":         "the core does no I/O",
	"net/http":    "the core does no I/O",
	"syscall":     "the core does no I/O",
	"log":         "what is worth a line is returned",
	"log/slog":    "what is worth a line is returned",
	"sync":        "the core has no locks: whoever runs it holds them",
	"sync/atomic": "the core has no locks: whoever runs it holds them",
	"context":     "nothing in the core waits",
	"crypto/rand": "chance is handed in",
	"math/rand":   "chance is handed in",
	"runtime":     "what the core does must not depend on the machine",
	"unsafe":      "what the core does must not depend on the machine",
}

// impureCalls likewise are names of packages that are fine otherwise.
var impureCalls = map[string]map[string]bool{
	"time": {
		"Now": true, "Since": true, "Until": true, "After": true, "AfterFunc": true, "Sleep": true, "Tick": true,
		"NewTimer": true, "NewTicker": true,
	},
	"math/rand/v2": {
		"Int": true, "IntN": true, "Int32": true, "Int32N": true, "Int64": true, "Int64N": true, "Uint32": true, "Uint32N": true,
		"Uint64": true, "Uint64N": true, "UintN": true, "Uint": true, "N": true, "Float32": true, "Float64": true, "Perm": true,
		"Shuffle": true, "ExpFloat64": true, "NormFloat64": true,
	},
}

// The core has no I/O, no locks, no goroutines, no clock and no chance of its own.
func TestTheCoreIsPure(t *testing.T) {
	for _, f := range sources(t) {
		if at, ok := layerOf(f.pkg); !ok || layers[at].name != "core" {
			continue
		}
		watched := map[string]map[string]bool{} // by the name in this file
		for _, spec := range f.ast.Imports {
			p := imported(spec)
			if reason, no := impure[p]; no {
				t.Errorf("%s imports %s: %s", f.name, p, reason)
			}
			if calls, ok := impureCalls[p]; ok {
				name := path.Base(strings.TrimSuffix(p, "/v2"))
				if spec.Name != nil {
					name = spec.Name.Name
				}
				watched[name] = calls
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s starts a goroutine: the core has none", f.name)
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && watched[x.Name][n.Sel.Name] {
					t.Errorf("%s uses %s.%s: time and chance are handed in", f.name, x.Name, n.Sel.Name)
				}
			}
			return true
		})
	}
}
