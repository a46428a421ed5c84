//go:build !unix

package main

import "os/exec"

// ownGroup does nothing: there are no process groups here.
func ownGroup(*exec.Cmd) {}

// killGroup kills the command; what it started stays.
func killGroup(cmd *exec.Cmd) error { return cmd.Process.Kill() }
