// Command conformance10 plays scenarios against the AMQP 1.0 side of a broker and
// compares what it observes, frame by frame, with transcripts recorded from RabbitMQ.
//
//	go run ./test/conformance10 -url amqp://guest:guest@localhost:5672 -mgmt http://localhost:15672 test/conformance10/scenarios
package main

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// options are the settings one run shares between its scenarios.
type options struct {
	url     string        // AMQP address, with the credentials of an administrator
	mgmt    string        // base address of the management HTTP API
	timeout time.Duration // limit of one step
	restart string        // shell command that restarts the broker
	record  bool
	times   int
	show    bool
}

// outcome is what became of one scenario.
type outcome struct {
	scenario *scenario
	problem  string // empty when it passed
	took     time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.url, "url", "amqp://guest:guest@localhost:5672", "AMQP address of the broker")
	flag.StringVar(&o.mgmt, "mgmt", "http://localhost:15672", "management API of the broker")
	flag.DurationVar(&o.timeout, "timeout", 10*time.Second, "limit of one step")
	flag.StringVar(&o.restart, "restart", "", "shell command that restarts the broker; without it scenarios with a restart step are left out")
	flag.BoolVar(&o.record, "record", false, "write the transcripts instead of comparing with them")
	flag.IntVar(&o.times, "times", 1, "play each scenario this many times; every time must give the same transcript")
	flag.BoolVar(&o.show, "show", false, "print the transcripts")
	only := flag.String("only", "", "play only the scenarios whose name matches this glob, such as 'cross/*'")
	jobs := flag.Int("j", 8, "scenarios played at the same time")
	flag.Parse()

	scenarios, err := find(flag.Args(), *only)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	var together, alone []*scenario
	for _, s := range scenarios {
		switch {
		case !s.restarts():
			together = append(together, s)
		case o.restart != "":
			alone = append(alone, s)
		default:
			fmt.Printf("LEFT OUT %s: it restarts the broker, which needs -restart\n", s.Name)
		}
	}

	var outcomes []outcome
	report := func(oc outcome) {
		if oc.problem != "" {
			fmt.Printf("FAIL %s: %s\n", oc.scenario.Name, oc.problem)
		}
		outcomes = append(outcomes, oc)
	}
	inParallel(together, *jobs, o, report)
	inParallel(alone, 1, o, report)
	failed := 0
	for _, oc := range outcomes {
		if oc.problem != "" {
			failed++
		}
	}
	fmt.Printf("%d passed, %d failed\n", len(outcomes)-failed, failed)
	if failed > 0 || len(outcomes) == 0 {
		os.Exit(1)
	}
}

// inParallel plays the scenarios with at most jobs of them under way, and calls
// report, never twice at once, as each of them ends.
func inParallel(scenarios []*scenario, jobs int, o options, report func(outcome)) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	slots := make(chan struct{}, max(1, jobs))
	for _, s := range scenarios {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			oc := judge(s, o)
			mu.Lock()
			defer mu.Unlock()
			report(oc)
		})
	}
	wg.Wait()
}

// judge plays one scenario and compares, or records, its transcript.
func judge(s *scenario, o options) outcome {
	began := time.Now()
	oc := outcome{scenario: s}
	var first []string
	for i := range max(1, o.times) {
		got := play(s, o)
		if o.show {
			fmt.Printf("# %s\n%s\n", s.Name, strings.Join(got, "\n"))
		}
		if i == 0 {
			first = got
			if !o.record {
				want, err := readGolden(s.golden())
				if err != nil {
					oc.problem = err.Error()
					break
				}
				first = want
			}
		}
		if oc.problem = difference(first, got); oc.problem != "" {
			break
		}
	}
	if o.record && oc.problem == "" {
		if n := len(first); n > 0 && strings.HasPrefix(first[n-1], "! ") {
			oc.problem = "not recorded: " + first[n-1]
		} else if err := os.WriteFile(s.golden(), []byte(strings.Join(first, "\n")+"\n"), 0o644); err != nil {
			oc.problem = err.Error()
		}
	}
	oc.took = time.Since(began)
	return oc
}

// difference describes the first line in which got departs from want, or returns "".
func difference(want, got []string) string {
	const end = "(end of transcript)"
	step := ""
	for i := 0; i < len(want) || i < len(got); i++ {
		w, g := end, end
		if i < len(want) {
			w = want[i]
		}
		if i < len(got) {
			g = got[i]
		}
		if strings.HasPrefix(w, "> ") {
			step = w[2:]
		}
		if w != g {
			return fmt.Sprintf("line %d, step %s: expected %s | got %s", i+1, step, strings.TrimSpace(w), strings.TrimSpace(g))
		}
	}
	return ""
}

func readGolden(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n"), nil
}

// find loads the scenarios under the given paths; a trailing /... is allowed.
func find(paths []string, only string) ([]*scenario, error) {
	if len(paths) == 0 {
		paths = []string{"test/conformance10/scenarios"}
	}
	var found []*scenario
	for _, p := range paths {
		root := strings.TrimSuffix(p, "/...")
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" {
				return err
			}
			s, err := load(path)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			if only != "" {
				if ok, err := filepath.Match(only, s.Name); err != nil || !ok {
					return err
				}
			}
			found = append(found, s)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no scenario in %s", strings.Join(paths, " "))
	}
	return found, nil
}
