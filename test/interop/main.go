// Command interop plays every client below test/interop against a broker, story by
// story, and prints the matrix of client and story. README.md in this directory says what
// a client is made of and what the stories are.
//
// It owns the broker it starts, the restarts of it, and the virtual host of each
// cell. It knows nothing of AMQP: what is said to the broker is the clients' matter.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// options are the command line.
type options struct {
	root      string        // the directory of the clients
	bartleby  string        // the binary to start, unless amqp is given
	amqp      string        // URI of a broker that runs already
	http      string        // URL of its management API
	restart   string        // shell command that kills it and starts it again
	parallel  int           // how many setups, and how many cells, at a time
	limit     time.Duration // of one cell
	absentOK  bool          // clients whose language is missing are no failure
	verbose   bool          // print what passed cells said too
	selection []string      // CLIENT or CLIENT/STORY; all if empty
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == askRestart {
		if err := requestRestart(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, "interop:", err)
			os.Exit(1)
		}
		return
	}
	var o options
	flag.StringVar(&o.root, "clients", "test/interop", "the `directory` of the clients")
	flag.StringVar(&o.bartleby, "bartleby", "bin/bartleby", "the binary to start")
	flag.StringVar(&o.amqp, "amqp", "", "the `URI` of a broker that runs already, instead of starting one")
	flag.StringVar(&o.http, "http", "", "the `URL` of that broker's management API")
	flag.StringVar(&o.restart, "restart", "", "the shell `command` that kills that broker and starts it again")
	flag.IntVar(&o.parallel, "parallel", runtime.NumCPU(), "how many clients to set up, and how many cells to play, at a time")
	flag.DurationVar(&o.limit, "limit", 60*time.Second, "how long a cell may take")
	flag.BoolVar(&o.absentOK, "absent-ok", false, "a client whose language is not there is no failure")
	flag.BoolVar(&o.verbose, "v", false, "print what passed cells said too")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: interop [flags] [CLIENT[/STORY]...]")
		flag.PrintDefaults()
	}
	flag.Parse()
	o.selection = flag.Args()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok, err := play(ctx, os.Stdout, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// play runs what the options select and reports whether all of it passed.
func play(ctx context.Context, out io.Writer, o options) (ok bool, err error) {
	if o.parallel < 1 {
		return false, fmt.Errorf("-parallel %d: nothing would be played", o.parallel)
	}
	clients, err := findClients(o.root)
	if err != nil {
		return false, err
	}
	if clients, err = selected(clients, o.selection); err != nil {
		return false, err
	}
	broker, err := openBroker(ctx, o)
	if err != nil {
		return false, err
	}
	defer broker.close()
	began := time.Now()
	s := &suite{out: out, options: o, broker: broker, clients: clients, results: map[cell]result{}}
	if err := s.run(ctx); err != nil {
		return false, err
	}
	printMatrix(out, clients, s.results)
	n := count(s.results)
	fmt.Fprintf(out, "%d passed, %d failed, %d absent, %d not played, against %s in %s\n",
		n[passed], n[failed], n[absent], n[ours], broker.kind, time.Since(began).Round(time.Second))
	return n[failed] == 0 && (n[absent] == 0 || o.absentOK), nil
}
