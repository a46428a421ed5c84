package node

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// Usage is what a server's process uses.
type Usage struct {
	RSS        int64         // resident bytes
	Files      int           // open file descriptors
	Goroutines int           // as the management API says
	CPU        time.Duration // user and system, since it started
	Written    int64         // bytes it made the kernel write to disks, since it started
}

// Usage looks at what the process uses now.
func (n *Node) Usage() (u Usage, err error) {
	proc := fmt.Sprintf("/proc/%d", n.PID())
	if u.RSS, err = residentBytes(proc); err != nil {
		return u, err
	}
	names, err := os.ReadDir(proc + "/fd")
	if err != nil {
		return u, err
	}
	u.Files = len(names)
	if u.CPU, err = cpuTime(proc); err != nil {
		return u, err
	}
	if u.Written, err = writtenBytes(proc); err != nil {
		return u, err
	}
	u.Goroutines, err = n.goroutines()
	return u, err
}

// Stolen is for how long, of each processor together, this machine's processors have been
// given to other machines since it started, when they had work here. Time that is measured
// is about them as well.
func Stolen() (time.Duration, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	var user, nice, system, idle, iowait, irq, softirq, steal int64
	if _, err := fmt.Sscanf(string(b), "cpu %d %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &iowait, &irq, &softirq, &steal); err != nil {
		return 0, fmt.Errorf("/proc/stat: %w", err)
	}
	return time.Duration(steal) * time.Second / ticks, nil
}

// writtenBytes reads what the process has made the kernel write to disks.
func writtenBytes(proc string) (n int64, err error) {
	b, err := os.ReadFile(proc + "/io")
	if err != nil {
		return 0, err
	}
	_, after, ok := strings.Cut(string(b), "\nwrite_bytes: ")
	if !ok {
		return 0, fmt.Errorf("%s/io does not tell what was written", proc)
	}
	_, err = fmt.Sscan(after, &n)
	return n, err
}

// goroutines asks the management API.
func (n *Node) goroutines() (int, error) {
	q, err := http.NewRequest(http.MethodGet, "http://"+n.HTTP+"/api/nodes", http.NoBody)
	if err != nil {
		return 0, err
	}
	q.SetBasicAuth("guest", "guest")
	// No connection is kept, which would count among the goroutines and the files.
	q.Close = true
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		return 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	var nodes []struct {
		Used int `json:"proc_used"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&nodes); err != nil {
		return 0, fmt.Errorf("GET /api/nodes: %s: %w", answer.Status, err)
	}
	if len(nodes) != 1 {
		return 0, fmt.Errorf("GET /api/nodes: %d nodes", len(nodes))
	}
	return nodes[0].Used, nil
}

func residentBytes(proc string) (int64, error) {
	text, err := os.ReadFile(proc + "/statm")
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0, fmt.Errorf("%s/statm: %q", proc, text)
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}

// ticks is how many of the kernel's clock ticks are a second; it is so on every Linux.
const ticks = 100

func cpuTime(proc string) (time.Duration, error) {
	text, err := os.ReadFile(proc + "/stat")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the name may hold anything
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("%s/stat: %q", proc, text)
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * time.Second / ticks, err
}
