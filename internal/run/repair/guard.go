package repair

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// guarded runs f and hands it onFatal, which a store calls when its disk has failed. Then
// guarded removes the tree of the examination and returns the error. The goroutine of f
// stays blocked forever, because a failed store may hold any lock; the process is about to
// end.
func guarded[T any](files vfs.FS, dir string, f func(onFatal func(error)) (T, error)) (result T, err error) {
	type outcome struct {
		result T
		err    error
	}
	done, failed := make(chan outcome, 1), make(chan error, 1)
	onFatal := func(err error) {
		select {
		case failed <- err:
		default:
		}
		select {}
	}
	go func() { // ends with f, or with the process
		result, err := f(onFatal)
		done <- outcome{result, err}
	}()
	select {
	case o := <-done:
		return o.result, o.err
	case err := <-failed:
		t := tree{fs: files, from: dir, to: files.PathJoin(dir, examinationDir)}
		if left := t.remove(); left != nil {
			err = fmt.Errorf("%w; %s could not be removed: %w", err, t.to, left)
		}
		return result, err
	}
}
