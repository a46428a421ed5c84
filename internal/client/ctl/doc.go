// Package ctl is the command line that administers a node: rabbitmqctl's verbs,
// with its options, texts and exit codes, and a few verbs of our own.
//
// The command bartleby calls it. Every verb is a client of the management API over
// HTTP. The package never touches a node's files, and keeps no state between two
// commands.
package ctl
