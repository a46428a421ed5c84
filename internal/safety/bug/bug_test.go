package bug

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// What a panic ends is decided by the functions between it and the entry of the session.
func TestWhatAPanicEnds(t *testing.T) {
	const entry = "bartleby.mq/internal/edge/session091.Serve"
	deep := make([]string, 200)
	for i := range deep {
		deep[i] = "bartleby.mq/internal/edge/session091.(*conn).read"
	}
	above := []string{entry, "bartleby.mq/internal/server.(*Server).serve091", "bartleby.mq/internal/edge/listen.(*Server).session"}
	for name, tt := range map[string]struct {
		stack  []string
		shared bool
	}{
		"in a session":                   {[]string{"runtime.gopanic", "bartleby.mq/internal/edge/session091.(*conn).read"}, false},
		"in a codec":                     {[]string{"runtime.gopanic", "bartleby.mq/internal/wire/amqp091.DecodeMethod", "bartleby.mq/internal/edge/session091.(*conn).read"}, false},
		"in the library":                 {[]string{"runtime.gopanic", "strings.Repeat", "bartleby.mq/internal/edge/session091.(*conn).read"}, false},
		"in a deferred function of bug":  {[]string{"bartleby.mq/internal/safety/bug.Contain", "runtime.gopanic", "bartleby.mq/internal/edge/session091.(*conn).read"}, false},
		"deep in a session":              {deep, false},
		"in a queue":                     {[]string{"runtime.gopanic", "bartleby.mq/internal/core/queue.(*Machine).Ack", "bartleby.mq/internal/edge/session091.(*conn).read"}, true},
		"in a queue, deep":               {append(append([]string{}, deep...), "bartleby.mq/internal/run/partition.(*Node).Run"), true},
		"in a session a partition calls": {[]string{"bartleby.mq/internal/edge/session091.(*consumer).Deliver", "bartleby.mq/internal/run/partition.(*Node).Run", "bartleby.mq/internal/edge/session091.(*conn).read"}, true},
		"in a package named alike":       {[]string{"bartleby.mq/internal/session091more.F"}, true},
	} {
		if where, shared := inShared(append(tt.stack, above...), entry); shared != tt.shared {
			t.Errorf("%s: shared = %v (%s), want %v", name, shared, where, tt.shared)
		}
	}
	if _, shared := inShared([]string{"runtime.gopanic", "bartleby.mq/internal/edge/session091.(*conn).write"}, entry); !shared {
		t.Error("a stack without the session's entry is contained")
	}
}

// dying are ways to end a process, each run in one of its own.
var dying = map[string]func(){
	"goroutine": func() {
		var all sync.WaitGroup
		all.Go(Guarded(logger(), "a worker", func() { panic("on purpose") }))
		all.Wait()
	},
	"no log": func() {
		defer End(nil, "a worker")
		panic("on purpose")
	},
	"log that takes nothing": func() {
		var mu sync.Mutex
		mu.Lock()
		defer func() { mu.Lock() }() // what must not run
		defer End(slog.New(slog.NewTextHandler(stuck{&mu}, nil)), "a worker")
		panic("on purpose")
	},
	"two": func() {
		var all sync.WaitGroup
		for range 2 {
			all.Go(Guarded(logger(), "a worker", func() { panic("on purpose") }))
		}
		all.Wait()
	},
	"lock left behind": func() {
		defer Contain(logger(), entryOf(), func() bool { return false })
		panic("on purpose")
	},
}

// entryOf is a function that is on every stack of these tests.
func entryOf() string { return "main.main" }

func logger() *slog.Logger { return slog.New(slog.NewTextHandler(os.Stderr, nil)) }

// stuck is a log whose lock was left behind.
type stuck struct{ mu *sync.Mutex }

func (s stuck) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(b), nil
}

const dyingVariable = "BARTLEBY_TEST_DYING"

func TestMain(m *testing.M) {
	if how := os.Getenv(dyingVariable); how != "" {
		dying[how]()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// The process ends at once, with the message, the stack and the place told, whoever holds
// which lock.
func TestTheProcessEnds(t *testing.T) {
	for how := range dying {
		t.Run(how, func(t *testing.T) {
			c := exec.Command(os.Args[0])
			c.Env = append(os.Environ(), dyingVariable+"="+how)
			var out bytes.Buffer
			c.Stderr = &out
			began := time.Now()
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			stop := time.AfterFunc(20*time.Second, func() { _ = c.Process.Kill() })
			err := c.Wait()
			if !stop.Stop() {
				t.Fatal("the process hangs")
			}
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != exitCode {
				t.Errorf("after %v: %v, want the code %d", time.Since(began), err, exitCode)
			}
			for _, part := range []string{"on purpose", "bug_test.go", "ends by a bug"} {
				if !strings.Contains(out.String(), part) {
					t.Errorf("%q is not told:\n%s", part, out.String())
				}
			}
			if n := strings.Count(out.String(), "ends by a bug"); n != 1 {
				t.Errorf("told %d times, want once", n)
			}
		})
	}
}

// A panic of a session's own ends its function and nothing else.
func TestContained(t *testing.T) {
	var log bytes.Buffer
	after := false
	func() {
		defer func() { after = true }()
		defer Contain(slog.New(slog.NewTextHandler(&log, nil)), "testing.tRunner", func() bool { return true })
		panic("on purpose")
	}()
	if !after || !strings.Contains(log.String(), "on purpose") || !strings.Contains(log.String(), "bug_test.go") {
		t.Errorf("after %v, logged: %s", after, log.String())
	}
}
