//go:build unix

package controlsocket

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func listen(t *testing.T, dir string) net.Listener {
	t.Helper()
	l, err := Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// The socket is its owner's alone, whatever the directory's mode is, and goes with the
// listener. Nothing else is left.
func TestSocket(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if Mine(dir) || Lets(dir) {
		t.Error("a directory without a node is said to have one")
	}
	l := listen(t, dir)
	info, err := os.Stat(filepath.Join(dir, socketFile))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != 0o600|os.ModeSocket {
		t.Errorf("mode %v, want a socket of mode 0600", info.Mode())
	}
	if !Mine(dir) || !Lets(dir) {
		t.Error("the node's own user is not let in")
	}
	talk(t, l, Dial, dir)
	if at := l.Addr().String(); at != filepath.Join(dir, socketFile) {
		t.Errorf("the listener is at %s", at)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if _, err := Dial(t.Context(), dir); !errors.Is(err, ErrNoNode) {
		t.Errorf("after Close: %v, want ErrNoNode", err)
	}
}

// A path that no socket address has room for is as good as any.
func TestLongPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long/", 40))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	short := t.TempDir()
	t.Setenv("TMPDIR", short)
	talk(t, listen(t, dir), Dial, dir)
	t.Chdir(filepath.Dir(dir))
	talk(t, listen(t, "long"), Dial, "long")
	if left, err := os.ReadDir(short); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	t.Setenv("TMPDIR", dir)
	if _, err := Listen(dir); err == nil || !strings.Contains(err.Error(), "is too long for a socket") {
		t.Errorf("where no shorter path can be made: %v", err)
	}
}

// What a killed node has left opens nothing, and does not keep the next one out.
func TestStaleSocket(t *testing.T) {
	dir := t.TempDir()
	killed, err := Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := killed.(*socket).UnixListener.Close(); err != nil { // without its file
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, makingDir), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Dial(t.Context(), dir); !errors.Is(err, ErrNoNode) {
		t.Errorf("with the socket of a node that was killed: %v, want ErrNoNode", err)
	}
	talk(t, listen(t, dir), Dial, dir)
}

// Another user's node is told from none, by the name of the user, and nothing is said
// to it. root is let in everywhere.
func TestAnotherUser(t *testing.T) {
	if dir := os.Getenv(foreignDir); dir != "" { // as nobody, below
		var foreign *NotYoursError
		c, err := Dial(t.Context(), dir)
		if !errors.As(err, &foreign) || foreign.Owner != "root" || !strings.Contains(err.Error(), "belongs to user root") {
			t.Errorf("%v, %v; want a NotYoursError that names root", c, err)
		}
		if Mine(dir) || Lets(dir) {
			t.Error("another user's node is said to let this one in")
		}
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can be somebody else")
	}
	open := t.TempDir()
	for d := open; d != os.TempDir(); d = filepath.Dir(d) { // nobody is to get as far as the socket
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(open, "socket.test")
	if err := os.WriteFile(copied, bin, 0o755); err != nil {
		t.Fatal(err)
	}
	l := listen(t, open)
	for name, dir := range map[string]string{"open directory": open, "closed directory": filepath.Join(open, "closed")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		as := exec.Command(copied, "-test.run", "^TestAnotherUser$")
		as.Dir, as.Env = "/", append(os.Environ(), foreignDir+"="+dir)
		as.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		if out, err := as.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	if err := os.Chown(filepath.Join(open, socketFile), nobody, nobody); err != nil {
		t.Fatal(err)
	}
	if Mine(open) || !Lets(open) {
		t.Error("root is to be let in, and not to take the node for its own")
	}
	talk(t, l, Dial, open)
}

const (
	foreignDir = "DOOR_TEST_FOREIGN_DIR"
	nobody     = 65534
)
