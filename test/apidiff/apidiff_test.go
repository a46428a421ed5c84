package apidiff

import (
	"errors"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"bartleby.mq/test/node"
)

var (
	record      = flag.Bool("record", false, "record the shapes of the peer instead of comparing ours with them")
	peerHTTP    = flag.String("peer-http", "http://127.0.0.1:15673", "RabbitMQ's management API")
	peerAMQP    = flag.String("peer-amqp", "127.0.0.1:5673", "RabbitMQ's AMQP listener")
	peerMetrics = flag.String("peer-metrics", "http://127.0.0.1:15693", "RabbitMQ's metrics")
)

// statisticsLag is how long RabbitMQ takes to show statistics with rates.
const statisticsLag = 15 * time.Second

// look is what was seen of a node.
type look struct{ resources, metrics map[string][]string }

// BR-15, BR-17: each resource answers with the status, the keys and the types that
// RabbitMQ 4.3 answers with, and each page of metrics has its names, types, labels
// and help texts.
func TestShapesAreRabbitMQs(t *testing.T) {
	if *record {
		seen := lookAt(t, target{*peerHTTP, *peerAMQP, *peerMetrics}, statisticsLag)
		write(t, recordingFile, resources, seen.resources)
		write(t, metricsFile, metricPages, seen.metrics)
		return
	}
	seen := lookAt(t, start(t, ""), 0)
	t.Run("api", func(t *testing.T) { compare(t, resources, recordingFile, exceptionFile, seen.resources) })
	t.Run("metrics", func(t *testing.T) { compare(t, metricPages, metricsFile, metricsExceptionFile, seen.metrics) })
}

// start runs one of our nodes with a configuration.
func start(t *testing.T, config string) target {
	t.Helper()
	dir := t.TempDir()
	bin, err := node.Build(dir)
	if err != nil {
		t.Fatal(err)
	}
	server, err := node.Start(node.Options{Bin: bin, Dir: dir, Config: config})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	return target{"http://" + server.HTTP, server.AMQP, "http://" + server.Prometheus}
}

func write(t *testing.T, file string, order []string, shapes map[string][]string) {
	t.Helper()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(writeRecording(f, order, shapes), f.Close()); err != nil {
		t.Error(err)
	}
}

// lookAt builds the topology, reads everything and takes the topology down again.
func lookAt(t *testing.T, at target, lag time.Duration) (seen look) {
	t.Helper()
	closeAll, err := at.build()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(closeAll(), at.wipe()); err != nil {
			t.Error(err)
		}
	}()
	time.Sleep(lag)
	if seen.resources, err = at.shapes(); err != nil {
		t.Fatal(err)
	}
	if seen.metrics, err = at.metricShapes(); err != nil {
		t.Fatal(err)
	}
	return seen
}

// compare holds what was seen against the recording.
func compare(t *testing.T, order []string, recording, excepted string, got map[string][]string) {
	want, err := readRecording(recording)
	if err != nil {
		t.Fatal(err)
	}
	exceptions, err := readExceptions(excepted)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range order {
		differences := append(missing("-", want[r], got[r], r, exceptions), missing("+", got[r], want[r], r, exceptions)...)
		if differences != nil {
			t.Errorf("GET %s (- is RabbitMQ, + is ours):\n  %s", r, strings.Join(differences, "\n  "))
		}
	}
	for _, e := range exceptions {
		if !e.used {
			t.Errorf("the exception %s %s is not needed", e.resource, e.path)
		}
	}
}

// missing lists the lines of a resource that are in one and not in the other, but for
// those that an exception allows.
func missing(sign string, in, other []string, resource string, exceptions []*exception) (list []string) {
	for _, line := range in {
		excused := func(e *exception) bool { return e.allows(resource, line) }
		if !slices.Contains(other, line) && !slices.ContainsFunc(exceptions, excused) {
			list = append(list, sign+line)
		}
	}
	return list
}
