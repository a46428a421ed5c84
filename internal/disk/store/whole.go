package store

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	iofs "io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/disk/journal"
)

// closedName is the file in which Close records the manifest's name, length and CRC-32C. Pebble reads a manifest as far
// as it makes sense: to Pebble a manifest that has lost its end is an older one, and an empty manifest a new store. Pebble
// only appends to a manifest, or begins one with a higher number, so the file is never out of date. Without the file, or if
// it is damaged, the manifest is read as after a crash.
const closedName = "closed"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Names of Pebble's files. A marker's name ends with the name that it marks.
const (
	manifestPrefix = "MANIFEST-"
	manifestMarker = "marker.manifest."
	formatMarker   = "marker.format-version."
	tableSuffix    = ".sst"
)

// closedText is the content of the file.
func closedText(manifest string, size int64, sum uint32) string {
	text := fmt.Sprintf("%s %d %08x", manifest, size, sum)
	return fmt.Sprintf("%s %08x\n", text, crc32.Checksum([]byte(text), castagnoli))
}

// writeClosed records the manifest of a closed store.
func writeClosed(fs vfs.FS, dir string) error {
	names, err := fs.List(dir)
	if err != nil {
		return err
	}
	manifest := marked(names, manifestMarker)
	size, sum, err := sumOf(fs, fs.PathJoin(dir, manifest), -1)
	if err != nil {
		return err
	}
	return journal.Replace(fs, fs.PathJoin(dir, closedName), []byte(closedText(manifest, size, sum)))
}

// sumOf returns the number and the CRC of the first limit bytes of a file, or of all bytes if limit is negative.
func sumOf(fs vfs.FS, path string, limit int64) (size int64, sum uint32, err error) {
	f, err := fs.Open(path)
	if err != nil {
		return 0, 0, err
	}
	var from io.Reader = f
	if limit >= 0 {
		from = io.LimitReader(f, limit)
	}
	h := crc32.New(castagnoli)
	size, err = io.Copy(h, from)
	return size, h.Sum32(), errors.Join(err, f.Close())
}

// marked returns the name that the newest marker of a kind marks; "" if there is none.
func marked(names []string, marker string) (what string) {
	newest := uint64(0)
	for _, name := range names {
		rest, ok := strings.CutPrefix(name, marker)
		if !ok {
			continue
		}
		count, value, _ := strings.Cut(rest, ".")
		if n, err := strconv.ParseUint(count, 10, 64); err == nil && n >= newest {
			newest, what = n, value
		}
	}
	return what
}

// whole returns a *DamageError for damage that Pebble would not report: Pebble takes a directory without a marker, or with
// an empty manifest, for a new store and removes its tables. A store of a later version is ErrFormat.
func whole(fs vfs.FS, dir string) error {
	names, err := fs.List(dir)
	if errors.Is(err, iofs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	format, manifest := marked(names, formatMarker), marked(names, manifestMarker)
	if v, err := strconv.ParseUint(format, 10, 64); err == nil && v > uint64(pebble.FormatNewest) {
		return fmt.Errorf("%w: Pebble's version %d, this program reads up to version %d", ErrFormat, v, pebble.FormatNewest)
	}
	holds := func(is func(name string) bool) bool { return slices.ContainsFunc(names, is) }
	tables := holds(func(name string) bool { return strings.HasSuffix(name, tableSuffix) })
	switch closed := holds(func(name string) bool { return name == closedName }); {
	case manifest == "" && (tables || closed || format != ""): // Pebble makes it before the others
		return &DamageError{dir, "the file " + manifestMarker + "..., which says which manifest counts, is missing"}
	case format == "" && (tables || closed):
		return &DamageError{dir, "the file " + formatMarker + "... is missing"}
	case manifest == "":
		return nil // a new store's
	}
	path := fs.PathJoin(dir, manifest)
	info, err := fs.Stat(path)
	switch {
	case errors.Is(err, iofs.ErrNotExist):
		return &DamageError{path, "the file is missing"}
	case err != nil:
		return err
	case info.Size() == 0:
		return &DamageError{path, "the file is empty"} // it has its first record before the marker names it
	}
	return reachesClosed(fs, dir, manifest)
}

// reachesClosed checks that the manifest is a later one than the recorded one, or the same one and complete.
func reachesClosed(fs vfs.FS, dir, manifest string) error {
	f, err := fs.Open(fs.PathJoin(dir, closedName))
	if errors.Is(err, iofs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	const enough = 256
	text, err := io.ReadAll(io.LimitReader(f, enough))
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	var noted string
	var size int64
	var sum, own uint32
	_, err = fmt.Sscanf(string(text), "%s %d %x %x\n", &noted, &size, &sum, &own)
	if err != nil || closedText(noted, size, sum) != string(text) {
		return nil
	}
	then, err1 := strconv.ParseUint(strings.TrimPrefix(noted, manifestPrefix), 10, 64)
	now, err2 := strconv.ParseUint(strings.TrimPrefix(manifest, manifestPrefix), 10, 64)
	path := fs.PathJoin(dir, manifest)
	switch {
	case err1 != nil || err2 != nil || now > then:
		return nil // Pebble judges the name
	case now < then:
		return &DamageError{path, fmt.Sprintf("it is older than %s, which there was when the store was closed", noted)}
	}
	gotSize, gotSum, err := sumOf(fs, path, size)
	switch {
	case err != nil:
		return err
	case gotSize < size:
		return &DamageError{path, fmt.Sprintf("it has %d bytes, and had %d when the store was closed", gotSize, size)}
	case gotSum != sum:
		return &DamageError{path, "its checksum is not what it was when the store was closed"}
	}
	return nil
}
