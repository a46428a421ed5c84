//go:build linux

package crash

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/test/node"
)

// small is a file system of a bounded size, mounted at DIR/data in name spaces of
// its own, which live as long as a process that waits in them.
type small struct {
	holder *exec.Cmd
	dir    string
	bin    string // runs the server in the name spaces
}

// mountSmall makes a file system of so many MiB. The test is skipped where users
// may not mount anything.
func mountSmall(t *testing.T, mib int) *small {
	t.Helper()
	s := &small{dir: t.TempDir()}
	data := filepath.Join(s.dir, "data")
	if err := os.Mkdir(data, 0o755); err != nil {
		t.Fatal(err)
	}
	s.holder = exec.Command("unshare", "--user", "--map-root-user", "--mount", "sh", "-c",
		`mount -t tmpfs -o size="$1"m tmpfs "$2" && echo mounted && exec cat`, "sh", fmt.Sprint(mib), data)
	stdin, err := s.holder.StdinPipe() // cat ends with it
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := s.holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.holder.Start(); err != nil {
		t.Skip("no name spaces: ", err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = s.holder.Wait()
	})
	if line, _ := bufio.NewReader(stdout).ReadString('\n'); line != "mounted\n" {
		t.Skip("nothing can be mounted here")
	}
	s.bin = filepath.Join(s.dir, "bartleby-inside")
	script := fmt.Sprintf("#!/bin/sh\nexec %s '%s' \"$@\"\n", strings.Join(s.enter(), " "), *binary)
	if err := os.WriteFile(s.bin, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return s
}

// enter is the command that runs another inside.
func (s *small) enter() []string {
	return []string{"nsenter", "--preserve-credentials", "--user", "--mount", "--wd=/", "-t", fmt.Sprint(s.holder.Process.Pid)}
}

// remount changes the file system's options.
func (s *small) remount(t *testing.T, options string) {
	t.Helper()
	args := append(s.enter(), "mount", "-o", "remount,"+options, filepath.Join(s.dir, "data"))
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
}

func (s *small) log(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A disk fills up. With the alarm in time publishers are blocked; without, the node
// stops with the line that says so, and starts again by its reserve of room. What
// was confirmed is there in either case.
func TestDiskFull(t *testing.T) {
	if testing.Short() {
		t.Skip("fills a disk")
	}
	for _, tt := range []struct {
		name, limit string
		blocks      bool
	}{
		{"alarm", "40MB", true},
		{"no alarm", "0", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := mountSmall(t, 64)
			o := node.Options{Bin: s.bin, Dir: s.dir, Config: "disk_free_limit.absolute = " + tt.limit + "\n", Env: environment}
			n, err := node.Start(o)
			if err != nil {
				t.Fatal(err, s.log(t))
			}
			confirmed, blocked := fill(t, n)
			if blocked != tt.blocks {
				t.Errorf("publishers were blocked: %v, want %v", blocked, tt.blocks)
			}
			if blocked {
				n.Kill()
			} else {
				stoppedOnFullDisk(t, s, n)
				// It has kept what it needs to start with.
				again, err := node.Start(o)
				if err != nil {
					t.Fatal("not started on a full disk: ", err, s.log(t))
				}
				if !strings.Contains(s.log(t), "released the reserve file") {
					t.Error("the log does not tell of the reserve:\n", s.log(t))
				}
				again.Kill()
			}
			s.remount(t, "size=256m")
			if n, err = node.Start(o); err != nil {
				t.Fatal(err, s.log(t))
			}
			defer n.Kill()
			found := take(t, n, len(confirmed))
			for id := range confirmed {
				if found[id] != 1 {
					t.Errorf("message %s was confirmed and is there %d times", id, found[id])
				}
			}
			if strings.Contains(s.log(t), "\ngoroutine ") {
				t.Error("the server panicked, see its log:\n", s.log(t))
			}
		})
	}
}

// The alarm of a full disk ends once the messages are gone: the node keeps nothing that it
// could give back. So it does after a start, and a reserve that was used is made again.
func TestDiskIsGivenBack(t *testing.T) {
	if testing.Short() {
		t.Skip("fills a disk")
	}
	for _, tt := range []struct {
		name, limit string
		restart     bool
	}{
		{"drained", "50MB", false},
		{"drained after a kill", "50MB", true},
		{"drained after a start on the reserve", "0", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := mountSmall(t, 176)
			o := node.Options{Bin: s.bin, Dir: s.dir, Config: "disk_free_limit.absolute = " + tt.limit + "\n", Env: []string{"BARTLEBY_CHECKPOINT_BYTES=20000000", "BARTLEBY_SEGMENT_BYTES=33554432"}}
			n, err := node.Start(o)
			if err != nil {
				t.Fatal(err, s.log(t))
			}
			confirmed, blocked := fill(t, n)
			if tt.limit == "0" {
				stoppedOnFullDisk(t, s, n)
			} else if !blocked {
				t.Fatal("publishers were not blocked:\n", s.log(t))
			}
			if tt.restart {
				n.Kill()
				o.Config = "disk_free_limit.absolute = 50MB\n"
				if n, err = node.Start(o); err != nil {
					t.Fatal(err, s.log(t))
				}
			}
			defer n.Kill()
			if found := take(t, n, len(confirmed)); len(found) < len(confirmed) {
				t.Errorf("%d messages, %d were confirmed", len(found), len(confirmed))
			}
			conn, err := dial(n.AMQP)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.CloseDeadline(time.Now().Add(100 * time.Millisecond)) }()
			ch, err := conn.Channel()
			if err == nil {
				err = ch.Confirm(false)
			}
			if err != nil {
				t.Fatal(err)
			}
			answer, err := ch.PublishWithDeferredConfirm("", "full", false, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte("again")})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			if ok, err := answer.WaitContext(ctx); !ok || err != nil {
				t.Fatalf("publishers stay blocked: %v, %v\n%s\n%s", ok, err, s.list(t), s.log(t))
			}
			for !strings.Contains(s.list(t), "/reserve") {
				if ctx.Err() != nil {
					t.Fatal("there is no reserve\n", s.list(t))
				}
				wait(ctx, 100*time.Millisecond)
			}
		})
	}
}

// list is what is in the file system.
func (s *small) list(t *testing.T) string {
	t.Helper()
	// The node removes segments meanwhile, which is no error.
	args := append(s.enter(), "find", filepath.Join(s.dir, "data"), "-ignore_readdir_race", "-type", "f", "-size", "+1000k", "-printf", "%b\t%p\n")
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
	return string(out)
}

// A file system that cannot be written to is an error that names the place.
func TestReadOnlyFileSystem(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a server")
	}
	s := mountSmall(t, 64)
	o := node.Options{Bin: s.bin, Dir: s.dir}
	n, err := node.Start(o)
	if err != nil {
		t.Fatal(err, s.log(t))
	}
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	s.remount(t, "ro")
	before := len(s.log(t))
	n, err = node.Start(o)
	if !errors.Is(err, node.ErrEnded) || n.ExitCode() != 1 {
		t.Errorf("started on a read-only file system: %v", err)
		n.Kill()
	}
	said := s.log(t)[before:]
	if !strings.Contains(said, filepath.Join(s.dir, "data")) || !strings.Contains(said, "read-only file system") || strings.Contains(said, "\ngoroutine ") {
		t.Errorf("it says %s", said)
	}
}

// stoppedOnFullDisk checks how a server has ended.
func stoppedOnFullDisk(t *testing.T, s *small, n *node.Node) {
	t.Helper()
	select {
	case <-n.Ended():
	case <-time.After(10 * time.Second):
		n.Kill()
		t.Fatal("the server goes on with a full disk")
	}
	log := s.log(t)
	if n.ExitCode() != 1 || strings.Count(log, "the disk failed, the node stops") != 1 || !strings.Contains(log, "no space left on device") {
		t.Errorf("exit code %d, log:\n%s", n.ExitCode(), log)
	}
}

// fill publishes until the server blocks publishers or is gone, and returns what
// it has confirmed.
func fill(t *testing.T, n *node.Node) (confirmed map[string]bool, blocked bool) {
	t.Helper()
	conn, err := dial(n.AMQP)
	if err != nil {
		t.Fatal(err)
	}
	// Nobody reads what a blocked connection says last.
	defer func() { _ = conn.CloseDeadline(time.Now().Add(100 * time.Millisecond)) }()
	blocks := conn.NotifyBlocked(make(chan amqp.Blocking, 1))
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err == nil {
		_, err = ch.QueueDeclare("full", true, false, false, false, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	confirmed = map[string]bool{}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for batch := 0; ; batch++ {
		var answers []*amqp.DeferredConfirmation
		for i := range 20 {
			id := fmt.Sprintf("%d-%d", batch, i)
			answer, err := ch.PublishWithDeferredConfirm("", "full", false, false, amqp.Publishing{
				MessageId: id, DeliveryMode: amqp.Persistent, Body: content(id, 8<<10),
			})
			if err != nil {
				break
			}
			answers = append(answers, answer)
		}
		over := false
		for _, a := range answers {
			select {
			case <-a.Done():
			case b, there := <-blocks: // closed with the connection
				blocked, over = there && b.Active, true
			case <-n.Ended():
				over = true
			case <-ctx.Done():
				t.Fatal("neither confirmed nor blocked")
			}
			if over {
				break
			}
		}
		for i, a := range answers {
			if a.Acked() {
				confirmed[fmt.Sprintf("%d-%d", batch, i)] = true
			}
		}
		if over || len(answers) == 0 {
			return confirmed, blocked
		}
		wait(ctx, 5*time.Millisecond) // the server looks at the disk once a second
	}
}

// take drains the queue, and counts each message.
func take(t *testing.T, n *node.Node, least int) map[string]int {
	t.Helper()
	conn, err := dial(n.AMQP)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	deliveries, err := ch.Consume("full", "", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for patience := quiet; ; {
		if len(found) >= least {
			patience = settled
		}
		select {
		case d, ok := <-deliveries:
			if !ok {
				t.Fatal("the server is gone")
			}
			if p := placeOf("full", &d); p.fault != "" {
				t.Errorf("%s: %s", d.MessageId, p.fault)
			}
			found[d.MessageId]++
		case <-time.After(patience):
			return found
		}
	}
}
