//go:build linux

package container

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// user is the Dockerfile's.
const user = 999

// image is a root directory as the Dockerfile makes it, and what it says of processes.
type image struct {
	root    string
	env     []string
	command []string
}

// build makes an image. What the Dockerfile copies is copied, what it says is read.
func build(t *testing.T) image {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root may change the root of a process")
	}
	text, err := os.ReadFile("../../deploy/container/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	i := image{root: t.TempDir()}
	for dir := i.root; dir != "/"; dir = filepath.Dir(dir) { // test directories are for their owner only
		if err := os.Chmod(dir, 0o755); err != nil || dir == os.TempDir() {
			break
		}
	}
	flat := strings.ReplaceAll(string(text), "\\\n", " ")
	for _, m := range regexp.MustCompile(`(?m)^(ENV|ENTRYPOINT|CMD) (.*)$`).FindAllStringSubmatch(flat, -1) {
		var words []string
		if m[1] == "ENV" {
			i.env = append(i.env, strings.Fields(m[2])...)
		} else if err := json.Unmarshal([]byte(m[2]), &words); err != nil {
			t.Fatalf("%s: %v", m[0], err)
		}
		i.command = append(i.command, words...)
	}
	tools := regexp.MustCompile(`for tool in ([^;]*);`).FindStringSubmatch(flat)
	if len(i.env) == 0 || len(i.command) == 0 || tools == nil {
		t.Fatalf("the Dockerfile was not understood: %v, %v, %v", i.env, i.command, tools)
	}
	for _, dir := range []string{"usr/bin", "var/lib/rabbitmq", "tmp"} {
		if err := os.MkdirAll(filepath.Join(i.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	compile := exec.Command("go", "build", "-o", filepath.Join(i.root, "usr/bin/bartleby"), "bartleby.mq/cmd/bartleby")
	compile.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, tool := range strings.Fields(tools[1]) {
		if err := os.Symlink("bartleby", filepath.Join(i.root, "usr/bin", tool)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(filepath.Join(i.root, "etc/rabbitmq"), os.DirFS("../../deploy/container/rabbitmq")); err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(filepath.Join(i.root, "var"), func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			err = os.Chown(path, user, user)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// container is a node that runs in an image.
type container struct {
	image
	log   logged
	ended chan error
}

// logged is a log that is read while it is written.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// process is one in the image, as the Dockerfile's user and with its variables.
func (i image) process(args, env []string) *exec.Cmd {
	return &exec.Cmd{
		Path: "/usr/bin/" + args[0], Args: args, Dir: "/", Env: append(append([]string{}, i.env...), env...),
		SysProcAttr: &syscall.SysProcAttr{Chroot: i.root, Credential: &syscall.Credential{Uid: user, Gid: user}},
	}
}

// run starts a container with variables and files, and waits until its log has all the
// lines that are waited for.
func run(t *testing.T, env []string, files map[string]string, waitFor ...string) *container {
	t.Helper()
	c := &container{image: build(t), ended: make(chan error, 1)}
	c.env = append(c.env, env...)
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(c.root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p := c.process(c.command, nil)
	p.Stdout, p.Stderr = &c.log, &c.log
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { c.ended <- p.Wait() }() // ends with the process
	t.Cleanup(func() {
		_ = p.Process.Signal(syscall.SIGTERM) // STOPSIGNAL
		if err := <-c.ended; err != nil {
			t.Errorf("the container ended with %v\n%s", err, &c.log)
		}
	})
	for _, line := range waitFor {
		for deadline := time.Now().Add(30 * time.Second); !strings.Contains(c.log.String(), line); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("the log does not say %q:\n%s", line, &c.log)
			}
		}
	}
	return c
}

// exec runs a command in the container, as "docker exec" does.
func (c *container) exec(t *testing.T, args ...string) string {
	t.Helper()
	out, err := c.process(args, nil).CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", args, err, out)
	}
	return string(out)
}

// ports are free ones: the network is not the container's own.
func ports(t *testing.T, n int) (all []int) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		all = append(all, l.Addr().(*net.TCPAddr).Port)
	}
	return all
}

// elsewhere is the configuration that moves the ports of HTTP out of each other's way.
func elsewhere(management, prometheus int) string {
	return fmt.Sprintf("management.tcp.port = %d\nprometheus.tcp.port = %d\n", management, prometheus)
}
