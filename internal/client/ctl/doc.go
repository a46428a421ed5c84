// Package ctl is the command line that administers a node: rabbitmqctl's verbs,
// with its options, texts and exit codes, and a few of our own.
//
// Every verb is a client of the management API over HTTP; nothing is done behind
// the node's back, and no other package of ours is needed. The package keeps no
// state between two commands.
package ctl
