//go:build failpoints && unix

package server

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"bartleby.mq/internal/broker"
)

// forCrashTests reads what a crash test wants of a server built for it:
//
//	BARTLEBY_FAILPOINT=NAME:N[,NAME:N...]  the process kills itself the N-th time it passes the step
//	BARTLEBY_COMPACT_BYTES=N               journal bytes beyond which old segments are rewritten
//	BARTLEBY_SEGMENT_BYTES=N               size of the journal's segments
//
// It panics on what it cannot read: a test that arms nothing tests nothing.
func forCrashTests(o *broker.Options) {
	o.CompactBytes = bytesFrom("BARTLEBY_COMPACT_BYTES")
	o.SegmentBytes = bytesFrom("BARTLEBY_SEGMENT_BYTES")
	armed := map[string]*atomic.Int64{}
	for each := range strings.SplitSeq(os.Getenv("BARTLEBY_FAILPOINT"), ",") {
		if each == "" {
			continue
		}
		name, count, _ := strings.Cut(each, ":")
		n, err := strconv.ParseInt(count, 10, 64)
		if err != nil || n < 1 {
			panic(fmt.Sprintf("BARTLEBY_FAILPOINT: %q is not NAME:N", each))
		}
		armed[name] = new(atomic.Int64)
		armed[name].Store(n)
	}
	if len(armed) == 0 {
		return
	}
	o.Failpoint = func(name string) {
		if left := armed[name]; left != nil && left.Add(-1) == 0 {
			// Not os.Exit: nothing may be tidied up, by anybody.
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // until the signal has come
		}
	}
}

func bytesFrom(variable string) int64 {
	text := os.Getenv(variable)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", variable, err))
	}
	return n
}
