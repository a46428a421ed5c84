package bodyfile

import (
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// LinkTo gives every file a second name in another directory, which is made, or
// copies it to another file system: what a Keep holds never changes. Once ctx ends no more files are begun. REQUIRES: no file is
// dropped and no Writer is at work meanwhile.
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
