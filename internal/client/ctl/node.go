package ctl

import (
	"cmp"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

func nodeVerbs() []verb {
	return []verb{status(), environment(), ping(), stop("stop"), stop("shutdown"), stopApp(), startApp(), eval(), awaitStartup(), waitForPID(), clusterStatus(), setClusterName(), setMemoryWatermark(), setDiskFreeLimit(), setLogLevel(), rotateLogs(), listFeatureFlags()}
}

// overview has the used parts of the API's overview.
type overview struct {
	Node             string `json:"node"`
	ClusterName      string `json:"cluster_name"`
	Product          string `json:"product_name"`
	ProductVersion   string `json:"product_version"`
	RabbitMQ         string `json:"rabbitmq_version"`
	DefaultQueueType string `json:"default_queue_type"`
	Totals           struct {
		Connections int `json:"connections"`
		Queues      int `json:"queues"`
	} `json:"object_totals"`
	Listeners []struct {
		Protocol string `json:"protocol"`
		Address  string `json:"ip_address"`
		Port     int    `json:"port"`
	} `json:"listeners"`
}

// nodeInfo has the used parts of the API's node.
type nodeInfo struct {
	PID           string `json:"os_pid"`
	Uptime        int64  `json:"uptime"`      // milliseconds
	ClockAhead    int64  `json:"clock_ahead"` // milliseconds
	DataDir       string `json:"db_dir"`
	Goroutines    int    `json:"proc_used"`
	Processors    int    `json:"processors"`
	MemoryUsed    int64  `json:"mem_used"`
	MemoryLimit   int64  `json:"mem_limit"`
	MemoryAlarm   bool   `json:"mem_alarm"`
	DiskFree      int64  `json:"disk_free"`
	DiskFreeLimit int64  `json:"disk_free_limit"`
	DiskAlarm     bool   `json:"disk_free_alarm"`
	FilesUsed     int    `json:"fd_used"`
	FilesLimit    int    `json:"fd_total"`
}

func (i *invocation) overview() (o overview, err error) {
	err = i.get("overview", &o)
	return o, explain(err)
}

func (i *invocation) nodeInfo(name string) (n nodeInfo, err error) {
	err = i.get(path("nodes", name), &n)
	return n, explain(err)
}

// thisNode returns the node's overview and node object.
func (i *invocation) thisNode() (o overview, n nodeInfo, err error) {
	if o, err = i.overview(); err == nil {
		n, err = i.nodeInfo(o.Node)
	}
	return o, n, err
}

func status() verb {
	return verb{
		name: "status", short: "Displays status of a node", max: 0, health: true, usage: "[--unit <unit>]",
		run: func(i *invocation) error {
			o, n, err := i.thisNode()
			if err != nil {
				return err
			}
			var vhosts []struct{ Name string }
			if err := i.get("vhosts?columns=name", &vhosts); err != nil {
				return explain(err)
			}
			if i.formatter == "json" {
				text, err := encode(object{
					"node": o.Node, "product_name": o.Product, "product_version": o.ProductVersion, "rabbitmq_version": o.RabbitMQ,
					"pid": n.PID, "uptime_ms": n.Uptime, "clock_ahead_ms": n.ClockAhead, "data_directory": n.DataDir, "memory_used": n.MemoryUsed, "memory_limit": n.MemoryLimit,
					"disk_free": n.DiskFree, "disk_free_limit": n.DiskFreeLimit, "connections": o.Totals.Connections,
					"queues": o.Totals.Queues, "vhosts": len(vhosts), "alarms": alarmsOf(&n),
				})
				i.print("%s", text)
				return err
			}
			i.say("Status of node %s ...", o.Node)
			i.section("Runtime")
			i.print("OS PID: %s", n.PID)
			i.print("Uptime (seconds): %d", n.Uptime/1000)
			if n.ClockAhead > time.Minute.Milliseconds() {
				i.print("Clock of queues ahead of the system's by (seconds): %d", n.ClockAhead/1000)
			}
			i.print("%s version: %s", o.Product, o.ProductVersion)
			i.print("RabbitMQ version: %s", o.RabbitMQ)
			i.print("Node name: %s", o.Node)
			i.print("Processors: %d", n.Processors)
			i.section("Data directory")
			i.print("Node data directory: %s", n.DataDir)
			i.section("Alarms")
			if alarms := alarmsOf(&n); len(alarms) > 0 {
				i.print("%s", strings.Join(alarms, "\n"))
			} else {
				i.print("(none)")
			}
			i.section("Memory")
			i.print("Total memory used: %s", gigabytes(n.MemoryUsed))
			i.print("Memory high watermark: %s", gigabytes(n.MemoryLimit))
			i.section("File Descriptors")
			i.print("Total: %d, limit: %d", n.FilesUsed, n.FilesLimit)
			i.section("Free Disk Space")
			i.print("Low free disk space watermark: %s", gigabytes(n.DiskFreeLimit))
			i.print("Free disk space: %s", gigabytes(n.DiskFree))
			i.section("Totals")
			i.print("Connection count: %d\nQueue count: %d\nVirtual host count: %d", o.Totals.Connections, o.Totals.Queues, len(vhosts))
			i.section("Listeners")
			for _, l := range o.Listeners {
				i.print("Interface: %s, port: %d, protocol: %s", l.Address, l.Port, l.Protocol)
			}
			return nil
		},
	}
}

func (i *invocation) section(title string) { i.print("\n%s\n", title) }

func alarmsOf(n *nodeInfo) []string {
	alarms := []string{}
	if n.MemoryAlarm {
		alarms = append(alarms, "Memory alarm")
	}
	if n.DiskAlarm {
		alarms = append(alarms, "Free disk space alarm")
	}
	return alarms
}

func gigabytes(n int64) string { return strconv.FormatFloat(float64(n)/1e9, 'f', 4, 64) + " gb" }

func environment() verb {
	return verb{
		name: "environment", short: "Displays the part of the node's configuration that the management API shows", max: 0,
		run: func(i *invocation) error {
			o, n, err := i.thisNode()
			if err != nil {
				return err
			}
			i.say("Application environment of node %s ...", o.Node)
			var log struct{ Level string }
			if err := i.get("control/log-level", &log); err != nil && !is(err, http.StatusNotImplemented) {
				return explain(err)
			}
			i.print("[{rabbit,\n    [{product_name,%q},\n     {product_version,%q},\n     {cluster_name,%q},\n     {data_dir,%q},\n     {default_queue_type,%q},\n     "+
				"{log_level,%s},\n     {vm_memory_high_watermark,%d},\n     {disk_free_limit,%d}]}]",
				o.Product, o.ProductVersion, o.ClusterName, n.DataDir, o.DefaultQueueType, cmp.Or(log.Level, "undefined"), n.MemoryLimit, n.DiskFreeLimit)
			return nil
		},
	}
}

func ping() verb {
	return verb{
		name: "ping", short: "Checks that the node runs and that this program can authenticate with it", max: 0,
		run: func(i *invocation) error {
			i.say("Will ping %s. Timeout: %d ms.", i.name, i.limit(time.Minute).Milliseconds())
			if err := i.get("whoami", nil); err != nil && !resting(err) { // as RabbitMQ: its VM answers
				return explain(err)
			}
			i.print("Ping succeeded")
			return nil
		},
	}
}

// pollEvery is how often a starting or stopping node is checked.
const pollEvery = 100 * time.Millisecond

// until polls until done is true; it returns false on a timeout.
func (i *invocation) until(limit time.Duration, done func() (bool, error)) (bool, error) {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return ok, err
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return false, nil
		case <-i.ctx.Done():
			return false, i.ctx.Err()
		}
	}
}

// up says whether the node answers and its application runs. A fault of the request is an error.
func (i *invocation) up() (bool, error) {
	err := i.get("whoami", nil)
	if resting(err) {
		return false, nil
	}
	var refused *apiError
	if errors.As(err, &refused) {
		return false, explain(err)
	}
	return err == nil, nil
}

func stop(name string) verb {
	return verb{
		name: name, short: "Stops the node and waits until it has stopped", max: 1, usage: "[<pidfile>]",
		long: "A node that is reached by its data directory has stopped when it has released the directory: another may start on it then. With --url the command waits until the node answers no longer. " +
			"A node that was found neither by a data directory nor by an option is not stopped.",
		run: func(i *invocation) error {
			if i.api.guessed {
				return fail(exitUnavailable, "no node of yours runs on ./%s or %s. A node that is only at the default address may be another one: name the node by --data-dir or --url.", ownDataDir, systemDataDir)
			}
			i.say("Stopping and halting node %s ...", i.name)
			if err := i.post("control/stop", nil, nil); err != nil {
				return explain(err)
			}
			gone, err := i.until(i.limit(5*time.Minute), func() (bool, error) {
				up, err := i.up()
				gone := !up || err != nil // a refusal comes from another node
				return gone && (i.api.dir == "" || isFree(i.api.dir)), nil
			})
			if err != nil {
				return err
			}
			if !gone {
				return i.timedOut("stop", i.limit(5*time.Minute))
			}
			return nil
		},
	}
}

// appStopped is the error of a node whose application is stopped (api.AppStopped).
const appStopped = "app_stopped"

// resting says whether this is the answer of a node whose application is stopped.
func resting(err error) bool {
	var refused *apiError
	return errors.As(err, &refused) && refused.kind == appStopped
}

func stopApp() verb {
	return verb{
		name: "stop_app", short: "Stops the broker, leaving the process running", max: 0,
		long: "Connections are closed, everything is on disk, and all listeners are closed; 'start_app' opens them again. Until then the node answers through its data directory alone, " +
			"so both need the node's data directory.",
		run: func(i *invocation) error {
			i.say("Stopping rabbit application on node %s ...", i.name)
			return i.bring("stop_app", "control/stop-app", resting)
		},
	}
}

func startApp() verb {
	return verb{
		name: "start_app", short: "Starts the broker after 'stop_app'", max: 0,
		run: func(i *invocation) error {
			i.say("Starting node %s ...", i.name)
			return i.bring("start_app", "control/start-app", func(err error) bool { return err == nil })
		},
	}
}

// bring asks the node for a change and waits until an answer of the node is as wanted. Several on one data directory take turns: else
// one would undo what another waits for.
func (i *invocation) bring(what, path string, wanted func(error) bool) error {
	limit := i.limit(5 * time.Minute)
	if i.api.dir != "" {
		done := func() {}
		mine, err := i.until(limit, func() (mine bool, err error) {
			mine, done, err = takeTurn(i.api.dir)
			return mine, err
		})
		defer done()
		if err != nil {
			return fail(exitSoftware, "%v", err)
		}
		if !mine {
			return i.timedOut(what, limit)
		}
	}
	var err error
	if _, ended := i.until(limit, func() (bool, error) {
		err = i.post(path, nil, nil)
		var f *failure
		between := errors.As(err, &f) && f.code == exitUnavailable && i.api.locked() // it has closed its control socket, and opens it again
		return !between, nil
	}); ended != nil {
		return ended
	}
	if err != nil {
		return explain(err)
	}
	return i.comeTo(what, wanted)
}

// locked says whether a node holds the lock of the data directory, as far as can be told.
func (c *client) locked() bool { return seesLocks && c.dir != "" && !isFree(c.dir) }

// comeTo waits until an answer of the node, or the lack of one, is as wanted.
func (i *invocation) comeTo(what string, wanted func(error) bool) error {
	limit := i.limit(5 * time.Minute)
	there, err := i.until(limit, func() (bool, error) {
		if wanted(i.get("whoami", nil)) {
			return true, nil
		}
		if seesLocks && i.api.dir != "" && isFree(i.api.dir) {
			return false, fail(exitSoftware, "the node has ended; its log says why")
		}
		return false, nil
	})
	if err != nil {
		return err
	}
	if !there {
		return i.timedOut(what, limit)
	}
	return nil
}

func (i *invocation) timedOut(what string, limit time.Duration) error {
	return failPlainly(exitTempFail, "Error: operation %s on node %s timed out. Timeout value used: %d", what, i.name, limit.Milliseconds())
}

func awaitStartup() verb {
	return verb{
		name: "await_startup", short: "Waits for the node to start", max: 0, usage: "[--timeout <timeout>]",
		run: func(i *invocation) error { return i.awaitUp("await_startup", i.limit(5*time.Minute)) },
	}
}

func (i *invocation) awaitUp(what string, limit time.Duration) error {
	i.api.http.Timeout = max(time.Second, min(limit, 10*time.Second))
	up, err := i.until(limit, func() (bool, error) {
		// The data directory may have the node's address only now.
		if c, err := newClient(i.options); err == nil {
			c.http.Timeout = i.api.http.Timeout
			i.api = c
		}
		return i.up()
	})
	if err != nil {
		return err
	}
	if !up {
		return i.timedOut(what, limit)
	}
	return nil
}

func waitForPID() verb {
	var process string
	v := verb{
		name: "wait", short: "Waits for a node to start, by its PID file", max: 1, usage: "[<pidfile>] [--pid|-P <pid>]",
	}
	v.flags = pidFlag(&process)
	v.run = func(i *invocation) error {
		limit := i.limit(10 * time.Second)
		began := time.Now()
		switch {
		case process == "" && len(i.args) == 0:
			return badArgument("No PID or PID file was specified.")
		case process != "" && len(i.args) > 0:
			return badArgument("Cannot specify both pid and pidfile.")
		case len(i.args) > 0:
			file := filepath.Clean(i.args[0])
			i.say("Waiting for pid file '%s' to appear", i.args[0])
			found, err := i.until(limit, func() (bool, error) {
				text, err := os.ReadFile(file)
				if err != nil && !errors.Is(err, os.ErrNotExist) {
					return false, fail(exitData, "%v", err)
				}
				process = strings.TrimSpace(string(text))
				return process != "", nil
			})
			if err != nil {
				return err
			}
			if !found {
				return i.timedOut("wait", limit)
			}
		}
		if _, err := strconv.Atoi(process); err != nil {
			return fail(exitData, "'%s' is not a process id", process)
		}
		i.say("pid is %s\nWaiting for applications to start on node %s", process, i.name)
		if err := i.awaitUp("wait", max(0, limit-time.Since(began))); err != nil {
			return err
		}
		i.say("Applications started on node %s", i.name)
		return nil
	}
	return v
}

func clusterStatus() verb {
	return verb{
		name: "cluster_status", short: "Displays the nodes in the cluster", max: 0,
		run: func(i *invocation) error {
			o, err := i.overview()
			if err != nil {
				return err
			}
			if i.formatter == "json" {
				text, err := encode(object{
					"cluster_name": o.ClusterName, "disk_nodes": []string{o.Node}, "running_nodes": []string{o.Node}, "partitions": object{},
				})
				i.print("%s", text)
				return err
			}
			i.say("Cluster status of node %s ...", o.Node)
			i.print("Basics\n\nCluster name: %s\n\nDisk Nodes\n\n%s\n\nRunning Nodes\n\n%s\n\nVersions\n\n%s: %s %s",
				o.ClusterName, o.Node, o.Node, o.Node, o.Product, o.ProductVersion)
			return nil
		},
	}
}

func setClusterName() verb {
	return verb{
		name: "set_cluster_name", short: "Sets the cluster name", min: 1, max: 1, usage: "<name>",
		run: func(i *invocation) error {
			i.say("Setting cluster name to %s ...", i.args[0])
			return explain(i.put("cluster-name", object{"name": i.args[0]}))
		},
	}
}

func rotateLogs() verb {
	return verb{name: "rotate_logs", short: "Does nothing: the node logs to its standard error", max: 0, hidden: true, run: func(*invocation) error { return nil }}
}

func listFeatureFlags() verb {
	return verb{
		name: "list_feature_flags", short: "Lists feature flags", max: -1, usage: "[<column> ...]",
		run: func(i *invocation) error {
			columns, err := chooseColumns(i.args, fields("name", "state", "stability", "provided_by", "desc", "doc_url"), "name", "state")
			if err != nil {
				return err
			}
			var items []object
			if err := i.get("feature-flags", &items); err != nil {
				return explain(err)
			}
			return i.list("Listing feature flags ...", columns, items)
		},
	}
}

func pidFlag(to *string) func(*pflag.FlagSet) {
	return func(f *pflag.FlagSet) { f.StringVarP(to, "pid", "P", "", "process id of the node") }
}
