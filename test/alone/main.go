// Command alone runs a command beside listeners on a broker's default ports, and fails if
// anything has connected to one: tests touch no broker that they did not start. scripts/alone
// gives it a network of its own, where these ports are free.
//
//	go run ./test/alone COMMAND...
package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"time"
)

// ports are those of AMQP, the management API and the metrics, without and with TLS.
var ports = []string{"5672", "5671", "15672", "15671", "15692", "15691"}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "alone: no command")
		os.Exit(2)
	}
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "alone:", err)
		os.Exit(1)
	}
}

func run(command []string) error {
	t := &trap{}
	for _, port := range ports {
		l, err := net.Listen("tcp", ":"+port)
		if err != nil {
			return err
		}
		go t.serve(l) // until the process ends
	}
	c := exec.Command(command[0], command[1:]...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := c.Run(); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.caught) > 0 {
		return fmt.Errorf("somebody has connected to a broker that was not started for it: %q", t.caught)
	}
	return nil
}

// trap is what listens where others' brokers would.
type trap struct {
	mu     sync.Mutex // guards caught
	caught []string
}

func (t *trap) serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		t.mu.Lock()
		i := len(t.caught) // counted before it is heard, for the command may end now
		t.caught = append(t.caught, c.LocalAddr().String())
		t.mu.Unlock()
		go t.hear(c, i)
	}
}

// hear adds the first that is said to what was caught, and answers nothing.
func (t *trap) hear(c net.Conn, i int) {
	_ = c.SetReadDeadline(time.Now().Add(time.Second))
	said := make([]byte, 200)
	n, _ := c.Read(said)
	t.mu.Lock()
	t.caught[i] += ": " + string(said[:n])
	t.mu.Unlock()
	_ = c.Close()
}
