package server

import (
	"os"
	"path/filepath"
	"testing"
)

// The reserve is made where there is room for it beside what has to be free, and stays as it is.
func TestReserveIsKept(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, reserveFile)
	for _, step := range []struct {
		free, limit int64
		there       bool
	}{
		{reserveBytes, 0, false}, {3 * reserveBytes, 2 * reserveBytes, false}, {2 * reserveBytes, 0, true}, {0, 0, true},
	} {
		there, err := keepReserve(dir, step.free, step.limit)
		if err != nil || there != step.there {
			t.Fatalf("with %d free of which %d have to be: there is a reserve: %t, %v", step.free, step.limit, there, err)
		}
		if info, err := os.Stat(path); (err == nil) != step.there || err == nil && info.Size() != reserveBytes {
			t.Errorf("with %d free the file is %v, %v", step.free, info, err)
		}
	}
	if err := os.Truncate(path, 1); err != nil { // a crash has cut it short
		t.Fatal(err)
	}
	if there, err := keepReserve(dir, 2*reserveBytes, 0); err != nil || !there {
		t.Error("it was not made again: ", err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() != reserveBytes {
		t.Errorf("it is %v, %v", info, err)
	}
	f, err := os.Create(filepath.Join(dir, "filled"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := fillRoom(f, 100_001); err != nil {
		t.Fatal(err)
	}
	if info, err := f.Stat(); err != nil || info.Size() != 100_001 {
		t.Errorf("fillRoom has made %v, %v", info, err)
	}
}
