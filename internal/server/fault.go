//go:build failpoints && unix

package server

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"bartleby.mq/internal/disk/store"
)

// faults are the kinds of operations on files that may be made to fail, each once.
var faults = map[string][]errorfs.OpKind{
	"create": {errorfs.OpCreate, errorfs.OpOpen, errorfs.OpReuseForWrite, errorfs.OpMkdirAll},
	"write":  {errorfs.OpFileWrite, errorfs.OpFileWriteAt},
	"sync":   {errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo},
	"rename": {errorfs.OpRename},
	"remove": {errorfs.OpRemove},
	"read":   {errorfs.OpFileRead, errorfs.OpFileReadAt},
}

// full is the fault of a disk without room: the N-th operation that takes room and all
// that follow fail.
const full = "full"

// faulty is the operating system's files with the fault that text asks for; "" is none.
func faulty(text string) vfs.FS {
	if text == "" {
		return store.OwnerOnly
	}
	kind, count, _ := strings.Cut(text, ":")
	n, err := strconv.ParseInt(count, 10, 64)
	kinds := faults[kind]
	if kind == full {
		kinds = []errorfs.OpKind{errorfs.OpCreate, errorfs.OpFileWrite, errorfs.OpFileWriteAt}
	}
	if err != nil || n < 1 || kinds == nil {
		panic(fmt.Sprintf("BARTLEBY_FAULT: %q is not KIND:N", text))
	}
	var fails [errorfs.OpFileFlush + 1]bool
	for _, k := range kinds {
		fails[k] = true
	}
	left := new(atomic.Int64)
	left.Store(n)
	return errorfs.Wrap(store.OwnerOnly, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch {
		case !fails[op.Kind]:
			return nil
		case kind != full && left.Add(-1) == 0:
			return fmt.Errorf("injected: %s: %w", op.Path, syscall.EIO)
		case kind == full && left.Add(-1) <= 0:
			return fmt.Errorf("injected: %s: %w", op.Path, syscall.ENOSPC)
		}
		return nil
	}))
}
