package server

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// A node that stopped on a full disk needs some space to start: it writes the newest part of
// a log again, a manifest, a table. So it keeps a file that only occupies space, deletes it
// when it starts without enough space, and makes it again when there is plenty.

const (
	reserveFile = "reserve"
	// reserveBytes is more than a start, and consumers that drain the node, write before a
	// checkpoint frees space: for a moment the logs' segments, and a table or two. It does not
	// depend on the size of the disk, because the writes of a start do not.
	reserveBytes = 16 << 20
)

// giveReserve deletes the reserve if there is less free space than it occupies.
func (s *Server) giveReserve() {
	path := filepath.Join(s.DataDir, reserveFile)
	free := freeDisk(s.DataDir)
	if free < 0 || free >= reserveBytes {
		return
	}
	switch err := os.Remove(path); {
	case err == nil:
		s.Logger.Warn("the disk is full: released the reserve file to start", "data_dir", s.DataDir, "free_bytes", free, "reserve_bytes", reserveBytes)
	case !errors.Is(err, fs.ErrNotExist):
		s.Logger.Error("cannot release the reserve file", "file", path, "error", err)
	}
}

// keepReserve makes the reserve if it is missing and there is enough space beside the limit
// of free disk. It says whether there is one.
func keepReserve(dir string, free, limit int64) (there bool, err error) {
	path := filepath.Join(dir, reserveFile)
	if info, err := os.Stat(path); err == nil && info.Size() == reserveBytes {
		return true, nil
	}
	if free-limit < 2*reserveBytes {
		return false, nil
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return false, err
	}
	if err = takeRoom(f, reserveBytes); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return false, errors.Join(err, os.Remove(path))
	}
	return true, nil
}

// fillRoom writes n bytes that no file system can compress.
func fillRoom(f *os.File, n int64) error {
	b := make([]byte, 1<<16)
	x := uint32(1)
	for ; n > 0; n -= int64(len(b)) {
		for i := range b {
			x ^= x << 13
			x ^= x >> 17
			x ^= x << 5
			b[i] = byte(x)
		}
		b = b[:min(int64(len(b)), n)]
		if _, err := f.Write(b); err != nil {
			return err
		}
	}
	return nil
}
