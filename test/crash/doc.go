// Package crash kills a node while messages die, starts it again, and looks where
// each message is (DL-21.1, DL-21.2). It is a test only: the node is another
// process, and the kill is the kernel's.
//
//	go test ./test/crash -bartleby bin/bartleby [-for 10m]
//
// Without the flag the test builds the binary itself and kills it a few times.
package crash
