package bodyfile

import (
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// LinkTo makes a directory and links every file into it, or copies the files to another
// file system. Links suffice because the files of a Keep never change. After the end of ctx
// it begins no further file. REQUIRES: meanwhile no file is dropped and no Writer works.
func (k *Keep) LinkTo(ctx context.Context, dir string) error {
	if err := makeDirectory(k.fs, dir); err != nil {
		return err
	}
	files, err := k.List()
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		to := k.fs.PathJoin(dir, fileName(f.Number, suffixes[f.Kind]))
		if err := vfs.LinkOrCopy(k.fs, k.path(f.Kind, f.Number), to); err != nil {
			return fmt.Errorf("bodyfile: copy %s: %w", to, err)
		}
	}
	return syncDirectory(k.fs, dir)
}
